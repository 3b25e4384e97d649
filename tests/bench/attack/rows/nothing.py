"""What everything is compared with."""

from __future__ import annotations

from tests.bench.attack.row import Row

NOTHING = Row(
    "nothing", "There is no attacker: this is what the machine and its other work take.", lambda _: ()
)
