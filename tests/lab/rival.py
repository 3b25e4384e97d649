"""Who wants what others hold all the time: run on an app host by its agent's Python.

    rival.py SOCKET RESOURCE…

It says "GOT RESOURCE" for each that it was granted: nobody may be, as long as the holders live.
"""

from __future__ import annotations

import sys
import time

from lockd import Client, LockdError


def main(socket: str, *resources: str) -> None:
    client = Client(socket)
    while True:
        for resource in resources:
            try:
                client.acquire(resource, ttl=2.0).release()
            except LockdError:
                """Taken, or its agent is just being restarted."""
            else:
                print("GOT", resource, flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
