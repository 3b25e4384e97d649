// Bundles the page: node build.mjs FOLDER-WITH-node_modules OUTPUT-FOLDER
import { copyFileSync, mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [modules, output] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const { build } = createRequire(join(modules, "package.json"))("esbuild");

mkdirSync(output, { recursive: true });
copyFileSync(join(here, "page.html"), join(output, "page.html"));
await build({
  entryPoints: [join(here, "page.jsx")],
  outfile: join(output, "page.js"),
  bundle: true,
  minify: true,
  nodePaths: [join(modules, "node_modules")],
  jsx: "transform",
  define: { global: "window", "process.env.NODE_ENV": '"production"' },
  loader: Object.fromEntries([".svg", ".png", ".woff", ".woff2", ".ttf", ".eot", ".gif"].map((kind) => [kind, "dataurl"])),
  logLevel: "error",
});
