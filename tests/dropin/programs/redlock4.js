// redlock 4, with ioredis or node-redis.
const Redlock = require("redlock4");
const { client, serve } = require("./serving");

const PAUSE_MS = 100;
const redlock = new Redlock([client(process.argv[3], process.argv[2])], { retryCount: 0, retryDelay: PAUSE_MS });
redlock.on("clientError", (error) => { trouble = error; });
const locks = {};
let trouble;

async function acquire({ name, ttl_ms: ttlMs, wait_ms: waitMs = 0 }) {
  trouble = undefined;
  locks[name] = await redlock.acquireWithOptions([name], ttlMs, { retryCount: Math.ceil(waitMs / PAUSE_MS) });
  return true;
}

async function release(lock) {
  trouble = undefined;
  await redlock.release(lock);
  return true;
}

async function extend({ name, ttl_ms: ttlMs }) {
  trouble = undefined;
  await locks[name].extend(ttlMs);
  return true;
}

serve({
  acquire,
  extend,
  release: ({ name }) => release(locks[name]),
  token: ({ name }) => locks[name].value,
  release_as: ({ name, token }) => release(new Redlock.Lock(redlock, [name], token, Date.now() + 1000, 1, 0)),
}, (error) => { if (trouble) error.message += ` (${trouble.message})`; return error.name === "LockError" && !trouble; });
