"""The masters of an agent, at work: links that stay up, and questions that go out together."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from lockd.clock import boottime_ns
from lockd.config.model import Config
from lockd.core import fleet
from lockd.core.ballots.ballot import Ballot
from lockd.core.clocks import Clocks
from lockd.core.link import LOOK_NS
from lockd.core.membership import Configured
from lockd.core.notices import Notice, channel_of
from lockd.core.stakes import Stock
from lockd.masters import scripts
from lockd.masters.link import Link

_ANSWER_MOST_NS = 1_000_000
_END_S = 1.0


class Gauge(Protocol):
    """Counts how long the masters take, and which of their votes did not count."""

    def connected(self, master: int) -> None: ...

    def votes_of(self, master: int) -> Callable[[int], None]: ...

    def probed(self, master: int, ns: int) -> None: ...

    def not_counted(self, master: int, why: str) -> None: ...

    def nonsense(self, master: int) -> None: ...

    def counter_fell(self, master: int, slot: int) -> None: ...


class Fleet(fleet.Fleet[Link]):
    """All masters of the configuration."""

    def __init__(
        self,
        config: Config,
        gauge: Gauge,
        changed: Callable[[Link], None],
        broke: Callable[[Ballot, Exception, int], None],
        clocks_moved: Callable[[int], None],
        noticed: Callable[[int, Notice, int], None],
        host: bytes,
        room: Stock | None = None,
    ) -> None:
        """changed, broke, clocks_moved, noticed: called with what core.fleet says about these. host: the name
        of this host, as the masters are told it. room: the memory that accounts share, in which what masters
        are owed is counted."""
        self.config = config
        self._changed = changed
        self._broke = broke
        self._clocks_moved = clocks_moved
        self._noticed = noticed
        self.first_look = asyncio.Event()
        """The first look at the masters is over."""
        self._gauge = gauge
        self._flushes = False
        self._looks_soon = False
        self._tasks: list[asyncio.Task[None]] = []
        clocks = Clocks(
            len(config.masters),
            max_ttl_ms=config.max_ttl_ms,
            allowance_ms=config.clock_skew_allowance_ms,
        )
        names = tuple(master.name for master in config.masters)

        def link_to(index: int) -> Link:
            votes = gauge.votes_of(index)
            probed = partial(gauge.probed, index)
            return Link(
                index, config, self, clocks.watches[index], votes, probed, channel_of(host), self._heard_for,
                room,
            )  # fmt: skip

        super().__init__(Configured(config.cluster, names), clocks, scripts, link_to)

    def _heard_for(self, ns: int) -> None:
        """A moving average: one answer that came while the machine was busy says little."""
        self.answer_ns += (min(ns, _ANSWER_MOST_NS) - self.answer_ns) // 16

    # What core.fleet needs done

    def flush_soon(self) -> None:
        if not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_soon(self._flush_next_turn)

    def _flush_next_turn(self) -> None:
        """Poll once more first: whatever else is ready by then goes into the same write, and the same
        fsync."""
        asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        self._look_soon()
        self.before_sending()
        for link in self.links:
            link.flush()

    def _look_soon(self) -> None:
        """Look often at the masters as long as one owes an answer (rule 5), and not at all otherwise: twenty
        wakeups a second would be most of what an idle agent costs."""
        if not self._looks_soon:
            self._looks_soon = True
            asyncio.get_running_loop().call_later(LOOK_NS / 1e9, self._look)

    def _look(self) -> None:
        self._looks_soon = False
        now_ns = boottime_ns()
        for link in self.links:
            link.look(now_ns)
        if any(link.waits_ns(now_ns) for link in self.links):
            self._look_soon()

    def probe_soon(self, link: Link) -> None:
        link.probe_soon()

    def looked_at_all(self) -> None:
        self.first_look.set()

    def changed(self, link: Link) -> None:
        self._changed(link)

    def broke(self, ballot: Ballot, failure: Exception, now_ns: int) -> None:
        self._broke(ballot, failure, now_ns)

    def clocks_moved(self, now_ns: int) -> None:
        self._clocks_moved(now_ns)

    def noticed(self, link: Link, notice: Notice, now_ns: int) -> None:
        self._noticed(link.index, notice, now_ns)

    def introduced(self, link: Link) -> None:
        self._gauge.connected(link.index)

    def not_counted(self, link: Link, why: str) -> None:
        self._gauge.not_counted(link.index, why)

    def nonsense(self, link: Link) -> None:
        self._gauge.nonsense(link.index)

    def counter_fell(self, link: Link, slot: int) -> None:
        self._gauge.counter_fell(link.index, slot)

    # Life

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(link.run(), name=f"link {link.master.name}") for link in self.links]
        self._tasks.append(loop.create_task(self._watch(), name="watch"))

    async def _watch(self) -> None:
        """Weigh again a few times a second: votes also come and go because time passes."""
        while True:
            await asyncio.sleep(fleet.WEIGH_NS / 1e9)
            self.weigh(boottime_ns())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=_END_S)
        for link in self.links:
            link.drop("the agent stops", boottime_ns())
