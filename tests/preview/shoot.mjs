// Takes pictures: node shoot.mjs FOLDER-WITH-node_modules CHROMIUM WIDTH, and lines "URL<tab>FILE" on standard input.
import { createRequire } from "node:module";
import { join } from "node:path";
import { readFileSync } from "node:fs";

const PATIENCE_MS = 180_000;
const [modules, chromium, width] = process.argv.slice(2);
const playwright = createRequire(join(modules, "package.json"))("playwright-core");
const browser = await playwright.chromium.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
for (const line of readFileSync(0, "utf8").trim().split("\n")) {
  const [url, file] = line.split("\t");
  const page = await browser.newPage({ viewport: { width: Number(width), height: 900 } });
  page.on("pageerror", (error) => console.error(`${file}: ${error}`));
  page.on("console", (message) => message.type() === "error" && console.error(`${file}: ${message.text()}`));
  await page.goto(url, { timeout: PATIENCE_MS });
  await page.waitForFunction(() => document.title === "drawn", null, { timeout: PATIENCE_MS });
  await page.screenshot({ path: file, fullPage: true });
  await page.close();
}
await browser.close();
