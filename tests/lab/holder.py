"""An app whose pool has closed the connection that it locked over: run on an app host by its agent's Python.

    holder.py SOCKET RESOURCE TTL_MS

It says "held FENCE" when it has it, and at SIGTERM gives it back over another connection.
"""

from __future__ import annotations

import signal
import sys

import redis


def main(socket: str, resource: str, ttl_ms: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    app = redis.Redis(unix_socket_path=socket, protocol=2)
    reply = app.execute_command("LOCK", resource, ttl_ms)
    lease = dict(zip(reply[::2], reply[1::2], strict=True))
    app.connection_pool.disconnect()
    print("held", lease[b"fence"], flush=True)
    signal.sigwait({signal.SIGTERM})
    app.connection_pool.disconnect()
    try:
        print("unlocked", f":{app.execute_command('UNLOCK', resource, lease[b'token'])}", flush=True)
    except redis.RedisError as error:
        print("unlocked", error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
