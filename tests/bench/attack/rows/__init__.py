"""The attacks, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.attack.row import Row
from tests.bench.attack.rows import (
    connections,
    costly,
    drip,
    due_together,
    listings,
    log,
    memory,
    names,
    nothing,
    processes,
    scripts,
    tiny,
    unread,
)

ROWS: Sequence[Row] = (
    nothing.NOTHING,
    due_together.RENEWALS,
    due_together.RENEWALS_OF_MANY_UIDS,
    tiny.TINY_TTLS,
    memory.HELD,
    memory.LEFT,
    unread.UNREAD,
    connections.ALL_CONNECTIONS,
    connections.FLOOD,
    names.HUGE_NAMES,
    scripts.NEW_SCRIPTS,
    processes.PROCESSES,
    due_together.ENDS,
    listings.LISTINGS,
    log.LOG,
    costly.COSTLY,
    costly.CROWD,
    costly.EIGHT_USERS,
    drip.DRIP,
    drip.DRIP_OF_EIGHT,
)
