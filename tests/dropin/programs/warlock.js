// node-redis-warlock, with ioredis or node-redis.
const { promisify } = require("util");
const { client, pause, serve } = require("./serving");

const warlock = require("node-redis-warlock")(client(process.argv[3], process.argv[2]));
const ids = {};

function locked(name, ttlMs) {
  return new Promise((resolve, reject) =>
    warlock.lock(name, ttlMs, (error, unlock, id) => (error ? reject(error) : resolve(unlock && id))));
}

async function acquire({ name, ttl_ms: ttlMs, wait_ms: waitMs = 0 }) {
  for (const end = Date.now() + waitMs; ; await pause(50)) {
    const id = await locked(name, ttlMs);
    if (id) ids[name] = id;
    if (id || Date.now() >= end) return Boolean(id);
  }
}

const unlock = promisify((name, id, callback) => warlock.unlock(name, id, callback));

serve({
  acquire,
  release: async ({ name }) => (await unlock(name, ids[name])) === 1,
  extend: async ({ name, ttl_ms: ttlMs }) => (await warlock.touch(name, ids[name], ttlMs)) === "OK",
  token: ({ name }) => ids[name],
  release_as: async ({ name, token }) => (await unlock(name, token)) === 1,
}, () => false);
