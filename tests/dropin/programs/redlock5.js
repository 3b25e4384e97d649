// redlock 5, which knows ioredis only.
const { default: Redlock, ExecutionError, ResourceLockedError, Lock } = require("redlock5");
const { client, serve } = require("./serving");

const PAUSE_MS = 100;
const redlock = new Redlock([client("ioredis", process.argv[2])], { retryCount: 0, retryDelay: PAUSE_MS });
redlock.on("error", (error) => { if (!(error instanceof ResourceLockedError)) trouble = error; });
const locks = {};
let trouble;

async function acquire({ name, ttl_ms: ttlMs, wait_ms: waitMs = 0 }) {
  trouble = undefined;
  locks[name] = await redlock.acquire([name], ttlMs, { retryCount: Math.ceil(waitMs / PAUSE_MS) });
  return true;
}

async function release(lock) {
  trouble = undefined;
  await lock.release();
  return true;
}

async function extend({ name, ttl_ms: ttlMs }) {
  trouble = undefined;
  locks[name] = await locks[name].extend(ttlMs);
  return true;
}

serve({
  acquire,
  extend,
  release: ({ name }) => release(locks[name]),
  token: ({ name }) => locks[name].value,
  release_as: ({ name, token }) => release(new Lock(redlock, [name], token, [], Date.now() + 1000)),
}, (error) => { if (trouble) error.message += ` (${trouble.message})`; return error instanceof ExecutionError && !trouble; });
