"""The masters of a simulated agent: lockd/core/fleet.py over links on virtual time."""

from __future__ import annotations

from collections.abc import Iterable

from lockd.core import fleet
from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import Release
from lockd.core.clocks import Clocks
from lockd.core.identities import Identity, Members
from lockd.core.membership import Configured
from lockd.core.notices import Notice
from tests.harness.history import Failed, Tried
from tests.sim.link import Link, Owner
from tests.sim.master import Master
from tests.sim.network import Path

ALLOWANCE_MS = 100
CLUSTER = "sim"
_CLUSTER_ID = "5" * 32


def first_identity(name: str, names: Iterable[str], max_ttl_ms: int) -> Identity:
    """As the cluster was formed."""
    return Identity(CLUSTER, name, max_ttl_ms, cluster_id=_CLUSTER_ID, members=Members.first(names))


class _Unspelled:
    """core.fleet.Speller: on virtual time a ballot goes over the wire as it is."""

    def acquire(self, attempt: Attempt) -> Attempt:
        return attempt

    def propose(self, fence_round: FenceRound) -> FenceRound:
        return fence_round

    def extend(self, extension: Extension) -> Extension:
        return extension

    def put_back(self, ballot: PutBack) -> PutBack:
        return ballot

    def release(self, ballot: Release) -> Release:
        return ballot


class Fleet(fleet.Fleet[Link]):
    """The masters of one agent, from its start to its end."""

    def __init__(
        self, agent: Owner, masters: list[Master], paths: list[tuple[Path, Path]], max_ttl_ms: int
    ) -> None:
        self._agent = agent
        self.open_tries: set[bytes] = set()
        clocks = Clocks(len(masters), max_ttl_ms=max_ttl_ms, allowance_ms=ALLOWANCE_MS)
        configured = Configured(CLUSTER, tuple(master.name for master in masters))
        super().__init__(configured, clocks, _Unspelled(), lambda i: Link(agent, self, i, *paths[i]))

    # core.fleet: what it wants done

    def flush_soon(self) -> None:
        self._agent.has_to_say = True

    def clocks_moved(self, now_ns: int) -> None:
        self._agent.locks.clocks_moved(now_ns)

    def probe_soon(self, link: Link) -> None:
        link.probe_soon()

    def noticed(self, link: Link, notice: Notice, now_ns: int) -> None:
        self._agent.locks.noticed(link.index, notice, now_ns)

    def looked_at_all(self) -> None:
        self._agent.looked_at_all()

    # core.interfaces.Masters: what the checker is told

    def acquire(self, attempt: Attempt) -> int:
        world = self._agent.world
        world.note(Tried(world.now_ns, attempt.resource, attempt.nonce, attempt.ttl_ms, self._agent.host))
        self.open_tries.add(attempt.nonce)
        return super().acquire(attempt)

    def release(self, release: Release, masters: int) -> int:
        if release.word in self.open_tries:
            self.open_tries.discard(release.word)
            self._agent.world.note(Failed(self._agent.world.now_ns, release.word))
        return super().release(release, masters)
