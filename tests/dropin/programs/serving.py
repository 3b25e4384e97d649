"""What the programs of the Python libraries have in common: they do what they are told, a JSON object a line.

    {"do": "acquire", "name": "x", "ttl_ms": 1000, "wait_ms": 0}  →  {"ok": true}

Each verb is a method of the program's `Locks`. What the library raises to refuse is `{"ok": false}`, anything
else `{"error": "…"}`. The library is the one of this environment, from its registry, as it is.
"""

import asyncio
import inspect
import json
import sys


def serve(locks, refusals):
    """Do what comes until nothing comes any more."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    for line in sys.stdin:
        print(json.dumps(_answer(loop, locks, refusals, json.loads(line))), flush=True)


def _answer(loop, locks, refusals, order):
    try:
        done = getattr(locks, order.pop("do"))(**order)
        return {"ok": loop.run_until_complete(done) if inspect.isawaitable(done) else done}
    except refusals:
        return {"ok": False}
    except Exception as error:
        return {"error": f"{type(error).__module__}.{type(error).__qualname__}: {error}"}


def seconds(ms):
    """For libraries that count in whole seconds; None for a lock that has no end."""
    return ms and max(1, ms // 1000)
