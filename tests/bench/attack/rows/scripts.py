"""Scripts that the agent has not seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count

from tests.bench.attack.asking import Link, together
from tests.bench.attack.bounds import Bound, memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import FIRST_OF_MANY, VICTIMS, Stage, connected_by, uid_of
from tests.bench.attack.row import Attack, Row, Sizes
from tests.bench.attack.victims import Seen, loads_a_library
from tests.harness.wire import request

_UIDS = 40
_DEEP = 100
REFUSED = Bound("scripts refused", 0, "nobody is refused the scripts of a library for others' scripts")


def _send_new_ones(sizes: Sizes, host: Host, stage: Stage) -> None:
    uids = range(FIRST_OF_MANY, FIRST_OF_MANY + sizes.of(_UIDS, _UIDS))
    links = [Link(link) for uid in uids for link in connected_by(uid, host.socket, 1)]
    stage.ready()
    with suppress(OSError):
        for _ in together(links, _new_scripts()):
            pass


def _new_scripts() -> Iterator[bytes]:
    """By turns a short one and one of a hundred parentheses."""
    for number in count():
        inside = "(" * _DEEP + "1" + ")" * _DEEP if number % 2 else "1"
        yield request("EVAL", f"return {inside} -- {number}", 0)


def _figures(seen: dict[str, Seen], _: Host) -> dict[str, float]:
    counts = seen["library"].counts
    return {name: counts[name] for name in ("scripts refused", "scripts")}


NEW_SCRIPTS = Row(
    "new scripts",
    "40 uids of one user send a script with a new text each time, while a library loads its own.",
    lambda sizes: [Attack(None, partial(_send_new_ones, sizes))],
    lambda _: (REFUSED, memory_held(8, "scripts that are remembered")),
    besides={"library": (uid_of(VICTIMS[0]), loads_a_library)},
    figures_of=_figures,
)
