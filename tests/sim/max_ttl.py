"""A change of the max TTL, as ansible/change_max_ttl.yml does it: task by task, so that it may be interrupted
after each, and run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lockd.core.validity import settle_ns
from tests.harness.clocks import MS
from tests.sim.agent import Agent
from tests.sim.master import Master
from tests.sim.world import World

TASK_NS = 100 * MS


@dataclass(slots=True)
class ChangeMaxTtl:
    """To max_ttl_ms. masters: those of now, in the inventory's order. reconfigure: restarts an agent with
    another max TTL."""

    world: World
    masters: list[Master]
    agents: list[Agent]
    max_ttl_ms: int
    reconfigure: Callable[[Agent, int], None]
    stopped: bool = False

    def begin(self) -> None:
        self._go_on(self._tasks())

    def stop(self) -> None:
        self.stopped = True

    def _go_on(self, tasks: Iterator[int]) -> None:
        if not self.stopped and (takes_ns := next(tasks, None)) is not None:
            self.world.after(takes_ns, self._go_on, tasks)

    def _tasks(self) -> Iterator[int]:
        """How long each takes. Raising: guards, identities, agents. Lowering: agents, identities, a wait,
        guards."""
        guards_ms = [master.guard_max_ttl_ms for master in self.masters]
        was_ms, new_ms = max(guards_ms), self.max_ttl_ms
        for guard_ms, master in zip(guards_ms, self.masters, strict=True):
            master.guard_max_ttl_ms = max(guard_ms, new_ms)
        yield TASK_NS
        yield from self._identities(guard_ms <= new_ms for guard_ms in guards_ms)
        for agent in self.agents:
            yield from self._none_lost()
            self.reconfigure(agent, new_ms)
            yield 5 * TASK_NS
        yield from self._identities(guard_ms > new_ms for guard_ms in guards_ms)
        if was_ms > new_ms:
            yield settle_ns(was_ms)
            for master in self.masters:
                master.store.forget_old_max_ttl()
                master.guard_max_ttl_ms = new_ms

    def _identities(self, chosen: Iterator[bool]) -> Iterator[int]:
        for index, is_chosen in enumerate(list(chosen)):
            if is_chosen:
                yield from self._none_lost()
                self.masters[index].store.set_max_ttl(self.max_ttl_ms)
                yield TASK_NS

    def _none_lost(self) -> Iterator[int]:
        """The play stops at one that is; here it goes on when it is back."""
        while not all(master.running and master.store.max_ttl_ms for master in self.masters):
            yield TASK_NS
