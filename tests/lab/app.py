"""An app that takes and releases locks all the time, one line of JSON for each: run on an app host by its
agent's Python.

    app.py HOST FILE TTL PATIENCE

Two kinds of locks in turn: one that both app hosts want (`lab:shared`), for which it waits, and one that
nobody else wants, of another name each time, which it must get at once. Times are CLOCK_BOOTTIME in ns, which
all hosts of a lab share, so that the lines of two hosts can be laid side by side. TTL and PATIENCE are in
seconds: of each lock, and for how long an agent that restarts is asked again.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any, TextIO

from lockd import AgentUnreachable, Client, Draining, LockdError

# The longest that an agent lets an app wait, unless its configuration says otherwise.
WAIT_S = 60.0
HOLD_S = 0.02
REST_S = 0.03

stopping = False


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def stop(number: int, frame: object) -> None:
    global stopping  # noqa: PLW0603 - a signal handler only sets a flag
    stopping = True


def one_turn(client: Client, resource: str, ttl_s: float, wait_s: float, patience_s: float) -> dict[str, Any]:
    """Take it, hold it for a moment, give it back. An agent that restarts is asked again, as its errors
    say."""
    asked_ns, again = now_ns(), 0
    while True:
        try:
            lease = client.acquire(resource, ttl=ttl_s, wait=wait_s)
            break
        except (Draining, AgentUnreachable):
            again += 1
            if now_ns() - asked_ns > patience_s * 1e9:
                raise
            time.sleep(0.05)
    got_ns = now_ns()
    time.sleep(HOLD_S)
    given_ns = now_ns()
    lost = ""
    try:
        lease.release()
    except LockdError as error:
        # The agent went while we held it: it stays ours until its deadline, so nobody else had it meanwhile.
        lost = f"{type(error).__name__}: {error}"
    return {
        "resource": resource, "wait_s": wait_s, "asked_ns": asked_ns, "got_ns": got_ns, "given_ns": given_ns,
        "deadline_ns": lease.deadline_ns, "fence": lease.fence, "again": again, "lost": lost,
    }  # fmt: skip


def run(host: str, out: TextIO, ttl_s: float, patience_s: float) -> None:
    client = Client("/run/lockd/lockd.sock")
    turn = 0
    while not stopping:
        turn += 1
        resource, wait_s = ("lab:shared", WAIT_S) if turn % 2 else (f"lab:{host}:{turn}", 0.0)
        asked_ns = now_ns()
        try:
            line = one_turn(client, resource, ttl_s, wait_s, patience_s)
        except LockdError as error:
            line = {"resource": resource, "asked_ns": asked_ns, "error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(line) + "\n")
        out.flush()
        time.sleep(REST_S)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    with open(sys.argv[2], "w", encoding="utf-8") as lines:
        run(sys.argv[1], lines, float(sys.argv[3]), float(sys.argv[4]))
