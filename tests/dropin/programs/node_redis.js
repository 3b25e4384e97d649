// The article's way with node-redis 5: SET NX PX, and a compare-and-delete by EVAL.
const { randomUUID } = require("crypto");
const { createClient } = require("redis5");
const { pause, serve } = require("./serving");

const RELEASE = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`;
const EXTEND = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`;

const redis = createClient({ socket: { path: process.argv[2] } });
redis.on("error", () => {});
const tokens = {};

async function acquire({ name, ttl_ms: ttlMs, wait_ms: waitMs = 0 }) {
  const token = randomUUID();
  for (const end = Date.now() + waitMs; ; await pause(50)) {
    const got = (await redis.set(name, token, { NX: true, PX: ttlMs ?? undefined })) === "OK";
    if (got) tokens[name] = token;
    if (got || Date.now() >= end) return got;
  }
}

const compared = async (script, name, ...words) =>
  (await redis.eval(script, { keys: [name], arguments: words.map(String) })) === 1;

redis.connect().then(() => serve({
  acquire,
  release: ({ name }) => compared(RELEASE, name, tokens[name]),
  extend: ({ name, ttl_ms: ttlMs }) => compared(EXTEND, name, tokens[name], ttlMs),
  locked: async ({ name }) => (await redis.exists(name)) === 1,
  owned: async ({ name }) => name in tokens && (await redis.get(name)) === tokens[name],
  token: ({ name }) => tokens[name],
  release_as: ({ name, token }) => compared(RELEASE, name, token),
}, () => false));
