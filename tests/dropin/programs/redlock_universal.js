// redlock-universal: createLock over ioredis.
const { createLock, IoredisAdapter, LockAcquisitionError, LockReleaseError, LockExtensionError } = require("redlock-universal");
const { client, serve } = require("./serving");

const PAUSE_MS = 100;
const SILENT = { debug() {}, info() {}, warn() {}, error() {} };
const adapter = new IoredisAdapter(client("ioredis", process.argv[2]));
const held = {};
const lock = (name, ttl, waitMs = 0) => createLock({
  adapter, key: name, ttl, retryAttempts: Math.ceil(waitMs / PAUSE_MS), retryDelay: PAUSE_MS, logger: SILENT,
});

async function acquire({ name, ttl_ms: ttlMs, wait_ms: waitMs = 0 }) {
  const made = lock(name, ttlMs, waitMs);
  held[name] = { made, handle: await made.acquire() };
  return true;
}

const REFUSALS = [LockAcquisitionError, LockReleaseError, LockExtensionError];
const ofServer = (error) => /\b(ERR|NOQUORUM|TIMEOUT|CLOCK|LIMIT|DENIED|EXPIRED)\b|closed|ECONN/.test(`${error.message} ${error.cause?.message}`);

serve({
  acquire,
  release: ({ name }) => held[name].made.release(held[name].handle),
  extend: ({ name, ttl_ms: ttlMs }) => held[name].made.extend(held[name].handle, ttlMs),
  token: ({ name }) => held[name].handle.value,
  release_as: ({ name, token }) => lock(name, 1000).release({ ...lockHandle(name), value: token }),
  // `using` for longer than its TTL: whether it still had the lock then.
  use: ({ name, ttl_ms: ttlMs, for_ms: forMs }) => lock(name, ttlMs).using(async (signal) => {
    await new Promise((resolve) => setTimeout(resolve, forMs));
    return !signal.aborted;
  }),
}, (error) => REFUSALS.some((kind) => error instanceof kind) && !ofServer(error));

function lockHandle(name) {
  return { id: "x", key: name, acquiredAt: Date.now(), ttl: 1000, metadata: { strategy: "simple" } };
}
