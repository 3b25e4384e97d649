// ioredis: one connection for everything.
const Redis = require("ioredis");
const clients = {};
const flat = (value) => (Array.isArray(value) ? value.map(flat).join(" ") : value === null ? "nil" : String(value));

async function piped(pipeline, ...commands) {
  for (const command of commands) pipeline.call(...command);
  return (await pipeline.exec()).map(([error, reply]) => { if (error) throw error; return reply; });
}

const verbs = {
  open(name, timeoutMs) {
    clients[name] = new Redis(process.argv[2], { commandTimeout: Number(timeoutMs) });
    clients[name].on("error", () => {});
    return "OK";
  },
  async drop(name) {
    const again = new Promise((resolve) => clients[name].once("ready", resolve));
    clients[name].disconnect(true);
    await again;
    return "OK";
  },
  multi: (name, ...words) => piped(clients[name].multi(), words),
  pipe: (name, ...words) => piped(clients[name].pipeline(), ["ECHO", "a"], words, ["ECHO", "b"]),
  do: (name, ...words) => clients[name].call(...words),
};

require("readline").createInterface({ input: process.stdin }).on("line", async (line) => {
  const [tag, verb, ...words] = line.split(" ");
  try {
    console.log(tag, "+", flat(await verbs[verb](...words)));
  } catch (error) {
    console.log(tag, "-", error.message);
  }
}).on("close", () => process.exit());
