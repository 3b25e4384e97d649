"""An agent that is wrong on purpose: what the campaign is there for must find it. Run as an agent, behind the
name of what is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from lockd.cli import main
from lockd.core import leases
from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.release import Release
from lockd.core.clocks import Clocks
from lockd.core.queues import Queue
from lockd.core.tenures.campaigns import Campaigns
from lockd.core.validity import deadline_ns
from lockd.core.values import RedlockParameters

_MINUTE_NS = 60_000_000_000


def _long_deadlines() -> None:
    """Leases are told to last a minute longer than they do."""
    vars(leases)["deadline_ns"] = lambda t1_ns, ttl_ms: deadline_ns(t1_ns, ttl_ms) + _MINUTE_NS


def _small_quorum() -> None:
    """One master less than a majority is taken for one."""
    RedlockParameters.quorum = property(lambda parameters: parameters.masters // 2)  # type: ignore[assignment,method-assign]


def _takes_away() -> None:
    """What was granted is released at once."""
    granting = Campaigns._grant

    def grant(self: Campaigns, queue: Queue, attempt: Attempt, fence: int, now_ns: int) -> None:
        granting(self, queue, attempt, fence, now_ns)
        until_ns = now_ns + _MINUTE_NS
        release = Release(
            attempt.resource,
            attempt.nonce,
            quorum=1,
            t1_ns=now_ns,
            until_ns=until_ns,
            settled=lambda _release, _ns: None,
        )
        release.put_to(self._masters.release(release, attempt.landed))

    Campaigns._grant = grant  # type: ignore[method-assign]


def _tells_late() -> None:
    """A holder is told of its loss only when it is one."""
    vars(leases)["notice_ns"] = lambda _ttl_ms: -_MINUTE_NS


def _one_fence() -> None:
    """All leases of a resource get the same fence."""
    granting = Campaigns._grant

    def grant(self: Campaigns, queue: Queue, attempt: Attempt, fence: int, now_ns: int) -> None:
        granting(self, queue, attempt, 1, now_ns)

    Campaigns._grant = grant  # type: ignore[method-assign]


def _trusts_clocks() -> None:
    """Every master's clock is trusted, whatever it does (rule 11)."""
    Clocks.distrust = lambda _clocks, _master, _now_ns: None  # type: ignore[method-assign,assignment]


WRONGS: dict[str, Callable[[], None]] = {
    "long deadlines": _long_deadlines,
    "small quorum": _small_quorum,
    "takes away": _takes_away,
    "tells late": _tells_late,
    "one fence": _one_fence,
    "trusts clocks": _trusts_clocks,
}

if __name__ == "__main__":
    WRONGS[sys.argv.pop(1)]()
    main()
