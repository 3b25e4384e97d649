"""An agent that is wrong on purpose: what the campaign is there for must find it. Run as an agent, behind the
name of what is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from lockd.cli import main
from lockd.core import leases, owners, takeover
from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.release import Release
from lockd.core.clocks import Clocks
from lockd.core.locks import Locks
from lockd.core.queues import Queue
from lockd.core.tenures.campaigns import Campaigns
from lockd.core.validity import deadline_ns
from lockd.core.values import RedlockParameters
from lockd.server.journal import JournalFile

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


def _no_journal() -> None:
    """It does not know what the agent before held (rule 13)."""
    JournalFile._read = lambda _file: b""  # type: ignore[method-assign]


def _all_dead() -> None:
    """It takes every process in the journal for dead."""
    vars(takeover)["seen"] = lambda _held, _started_of: takeover.Seen.DEAD


def _none_dead() -> None:
    """What a process holds outlives it."""
    owners.Process.ends = lambda _process: {}  # type: ignore[method-assign]


def _keeps_untold() -> None:
    """What nobody was told of is not given back."""
    owners.Connection._never_told = lambda _connection, _delivery: ()  # type: ignore[method-assign]


def _no_lock_delay() -> None:
    """A dead app's lock is free at once, whatever its class says."""
    going = Locks.holder_gone

    def gone(self: Locks, lease: leases.Lease, now_ns: int) -> None:
        lease.holder.lock_delay_ms = 0
        going(self, lease, now_ns)

    Locks.holder_gone = gone  # type: ignore[method-assign]


WRONGS: dict[str, Callable[[], None]] = {
    "long deadlines": _long_deadlines,
    "small quorum": _small_quorum,
    "takes away": _takes_away,
    "tells late": _tells_late,
    "one fence": _one_fence,
    "trusts clocks": _trusts_clocks,
    "no journal": _no_journal,
    "all dead": _all_dead,
    "none dead": _none_dead,
    "keeps untold": _keeps_untold,
    "no lock delay": _no_lock_delay,
}

if __name__ == "__main__":
    WRONGS[sys.argv.pop(1)]()
    main()
