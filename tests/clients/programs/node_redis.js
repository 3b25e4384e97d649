// node-redis: one connection for everything.
const { createClient } = require("redis");
const clients = {};

function flat(value) {
  if (value instanceof Map) value = [...value].flat();
  else if (value !== null && typeof value === "object" && !Array.isArray(value)) value = Object.entries(value).flat();
  return Array.isArray(value) ? value.map(flat).join(" ") : value === null ? "nil" : String(value);
}

// Its own time-outs end where a command is written: an app has to stop waiting by itself.
function within(ms, reply) {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("waited in vain")), ms));
  return Promise.race([reply, late]);
}

const verbs = {
  async open(name, timeoutMs) {
    clients[name] = createClient({ socket: { path: process.argv[2] } });
    clients[name].timeoutMs = Number(timeoutMs);
    clients[name].on("error", () => {});
    await clients[name].connect();
    return "OK";
  },
  async drop(name) {
    clients[name].destroy();
    await clients[name].connect();
    return "OK";
  },
  multi: (name, ...words) => clients[name].multi().addCommand(words).exec(),
  pipe: (name, ...words) => clients[name].multi().echo("a").addCommand(words).echo("b").execAsPipeline(),
  do: (name, ...words) => within(clients[name].timeoutMs, clients[name].sendCommand(words)),
};

require("readline").createInterface({ input: process.stdin }).on("line", async (line) => {
  const [tag, verb, ...words] = line.split(" ");
  try {
    console.log(tag, "+", flat(await verbs[verb](...words)));
  } catch (error) {
    console.log(tag, "-", error.message);
  }
}).on("close", () => process.exit());
