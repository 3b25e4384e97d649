"""The log: 30 uids who are refused all the time, and a line that has to be there."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import cycle

from tests.bench.attack.asking import Link
from tests.bench.attack.bounds import Bound, memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import FIRST_OF_MANY, VICTIMS, Stage, connected_by, uid_of
from tests.bench.attack.row import Attack, Row
from tests.bench.attack.victims import Seen, is_logged
from tests.harness.wire import request

_UIDS = 30
_EACH_S = 0.1
HIDDEN = Bound("lines hidden", 0, "nobody's line is hidden by others' lines")


def _be_refused(host: Host, stage: Stage) -> None:
    uids: Sequence[int] = range(FIRST_OF_MANY, FIRST_OF_MANY + _UIDS)
    links = [Link(link) for uid in uids for link in connected_by(uid, host.socket, 1)]
    stage.ready()
    # Each as often as a user's lines are written, one after the other: there is never room for long.
    for link in cycle(links):
        link.socket.sendall(request("FORCERELEASE", "logged"))
        link.hear()
        time.sleep(_EACH_S / _UIDS)


def _figures(seen: dict[str, Seen], host: Host) -> dict[str, float]:
    """A line of its own has the pid. One that says how many were left out has none."""
    of_the_victim = rf"event=operator_denied .*\bpid=\d+ uid={uid_of(VICTIMS[0])}\b"
    written = len(re.findall(of_the_victim, host.log()))
    asked = seen["logged"].counts["lines"]
    return {"lines": asked, "lines hidden": max(0, asked - written)}


LOG = Row(
    "log",
    "30 uids of one user are refused all the time, each time with a line in the log.",
    lambda _: [Attack(None, _be_refused)],
    lambda _: (HIDDEN, memory_held(0, "nothing that lasts")),
    besides={"logged": (uid_of(VICTIMS[0]), is_logged)},
    figures_of=_figures,
)
