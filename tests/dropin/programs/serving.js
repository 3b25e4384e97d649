// What serving.py is for Python: orders as JSON objects, a line each, one at a time.
// A library refuses by what `refused(error)` knows.
exports.serve = async function serve(locks, refused) {
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    const { do: verb, ...words } = JSON.parse(line);
    let answer;
    try {
      answer = { ok: await locks[verb](words) };
    } catch (error) {
      answer = refused(error) ? { ok: false } : { error: `${error.name}: ${error.message}` };
    }
    console.log(JSON.stringify(answer));
  }
  process.exit();
};

// Clients by name, for the libraries that take more than one. node-redis is the 3 that had callbacks: its later
// ones have no `evalsha`, which these libraries call.
exports.client = function client(kind, path) {
  const made = kind === "ioredis" ? new (require("ioredis"))(path) : require("redis3").createClient(path);
  made.on("error", () => {});
  return made;
};

exports.pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
