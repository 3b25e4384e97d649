"""The watcher of leases: who is told, when, and how often; with sockets, but no agent. Its clock stands still
until a test moves it, so that no lease ends because the machine stood still."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Iterator

import pytest

from lockd.client.deadlines import AgentClock
from lockd.client.state import LeaseView
from lockd.client.sync import loss_watch
from lockd.client.sync.loss_watch import LossWatcher
from tests.harness.clocks import MS, Clock
from tests.harness.waiting import PATIENCE_S, eventually

TOKEN = b"a" * 32
CLOCK = Clock()
"""What the watcher takes for the time."""


def pass_ms(ms: int) -> None:
    CLOCK.now_ns += ms * MS


class PretendedLease:
    """A lease whose agent is the other end of a pair of sockets: b"!" is a loss, others renew it."""

    def __init__(self, lasts_ms: int, connected: bool = True) -> None:
        now_ns = CLOCK()
        until_ns = now_ns + lasts_ms * MS
        reply = {b"token": TOKEN, b"fence": 1, b"deadline_ns": until_ns, b"validity_ms": lasts_ms}
        self.view = LeaseView("job", b"job", lasts_ms, not connected, reply, AgentClock(), now_ns)
        self.ours, self.agents = socket.socketpair()
        self.ours.setblocking(False)
        self.connected = connected
        self.next_agent: socket.socket | None = None
        self.told: list[str] = []
        self.tellers: list[threading.Thread] = []

    @property
    def file(self) -> int:
        return self.ours.fileno() if self.connected else -1

    def listen(self) -> None:
        if not self.connected:
            return
        try:
            said = self.ours.recv(1)
        except BlockingIOError:
            return
        if said == b"!":
            self.view.lose("taken away")
        elif said:
            self.view.deadline_ns += said[0] * MS
        else:
            self.ours.close()
            self.connected, self.view.broken = False, True

    def resume(self) -> bool:
        if self.next_agent is None:
            return False
        self.ours, self.view.broken, self.connected = self.next_agent, False, True
        self.view.deadline_ns += 60_000 * MS
        return True

    def on_lost(self, lease: PretendedLease, reason: str) -> None:
        assert lease is self
        self.tellers.append(threading.current_thread())
        self.told.append(reason)

    def was_told(self) -> str:
        eventually(lambda: self.told, "on_lost is called")
        return self.told[0]


def threads_named(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[LossWatcher]:
    monkeypatch.setattr(loss_watch, "boottime_ns", CLOCK)
    one = LossWatcher()
    yield one
    for watch in list(one._watches):
        one.forget(watch)
    eventually(lambda: threads_named("lockd resumer") == 0, "nothing is left to be resumed")


def test_a_loss_that_the_agent_tells_is_passed_on_at_once_and_once(watcher: LossWatcher) -> None:
    lease = PretendedLease(60_000)
    watch = watcher.watch(lease, lease.on_lost)
    lease.agents.send(b"!")
    assert lease.was_told() == "taken away"
    assert lease.tellers[0].name == "lockd on_lost"
    watcher.tell(watch, "again")
    lease.agents.close()
    other = PretendedLease(50)
    watcher.watch(other, other.on_lost)
    pass_ms(50)
    other.was_told()
    assert lease.told == ["taken away"]


def test_an_agent_that_closes_the_connection_or_hangs_is_noticed_before_the_deadline(
    watcher: LossWatcher,
) -> None:
    closed, hanging = PretendedLease(2_000), PretendedLease(2_000)
    for lease in (closed, hanging):
        watcher.watch(lease, lease.on_lost)
    closed.agents.close()
    eventually(lambda: closed.view.broken, "the end of its connection is noticed")
    assert (closed.told, hanging.told) == ([], [])
    CLOCK.now_ns = closed.view.deadline_ns - 1
    assert "closed the connection" in closed.was_told()
    assert "did not renew it in time" in hanging.was_told()


def test_a_lease_that_the_next_agent_goes_on_with_is_heard_of_by_that_one(watcher: LossWatcher) -> None:
    lease, witness = PretendedLease(1_000), PretendedLease(1_500)
    for one in (lease, witness):
        watcher.watch(one, one.on_lost)
    lease.agents.close()
    ours, next_agents = socket.socketpair()
    ours.setblocking(False)
    lease.next_agent = ours
    eventually(lambda: lease.connected, "it is resumed")
    pass_ms(1_500)
    witness.was_told()
    assert lease.told == []
    next_agents.send(b"!")
    assert lease.was_told() == "taken away"


def test_a_lease_that_is_renewed_is_left_in_peace(watcher: LossWatcher) -> None:
    renewed, hanging = PretendedLease(200), PretendedLease(300)
    watcher.watch(renewed, renewed.on_lost)
    watcher.watch(hanging, hanging.on_lost)
    until_ns = renewed.view.deadline_ns + 4 * 250 * MS
    for _ in range(4):
        renewed.agents.send(bytes([250]))
    eventually(lambda: renewed.view.deadline_ns == until_ns, "the renewals are read")
    pass_ms(300)
    hanging.was_told()
    assert renewed.told == []


def test_a_shorter_lease_that_comes_later_is_not_overslept(
    watcher: LossWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one thread sleeps for an hour by then: it is woken."""
    monkeypatch.setattr(loss_watch, "LONGEST_SLEEP_S", 3_600.0)
    long, short = PretendedLease(3_600_000), PretendedLease(0)
    watcher.watch(long, long.on_lost)
    watcher.watch(short, short.on_lost)
    short.was_told()
    assert long.told == []


def test_a_lease_without_a_connection_is_watched_by_the_clock(watcher: LossWatcher) -> None:
    lease = PretendedLease(200, connected=False)
    watcher.watch(lease, lease.on_lost)
    pass_ms(200)
    assert lease.was_told() == "its TTL ends"


def test_a_forgotten_lease_is_told_nothing(watcher: LossWatcher) -> None:
    forgotten, witness = PretendedLease(50), PretendedLease(120)
    watch = watcher.watch(forgotten, forgotten.on_lost)
    assert watcher.forget(watch) is True
    assert watcher.forget(watch) is False
    forgotten.agents.send(b"!")
    watcher.watch(witness, witness.on_lost)
    pass_ms(120)
    witness.was_told()
    assert forgotten.told == []


def test_a_lease_that_the_app_has_dropped_is_not_kept_alive(watcher: LossWatcher) -> None:
    told: list[str] = []
    lease, witness = PretendedLease(50), PretendedLease(150)
    agents, held = lease.agents, weakref.ref(lease)
    watcher.watch(lease, lambda _, reason: told.append(reason))
    watcher.watch(witness, witness.on_lost)
    del lease
    eventually(lambda: held() is None, "it is nobody's")
    agents.close()
    pass_ms(150)
    witness.was_told()
    assert told == []


def test_a_number_that_another_connection_has_by_now_is_not_mixed_up(watcher: LossWatcher) -> None:
    old = PretendedLease(60_000)
    watch = watcher.watch(old, old.on_lost)
    number = old.file
    old.ours.close()
    new = PretendedLease(60_000)
    if new.file != number:
        new.ours = socket.socket(fileno=os.dup2(new.ours.detach(), number))
        new.ours.setblocking(False)
    watcher.watch(new, new.on_lost)
    assert watcher.forget(watch) is True
    new.agents.send(b"!")
    assert new.was_told() == "taken away"
    assert old.told == []


def test_a_slow_callback_does_not_keep_others_from_being_told(watcher: LossWatcher) -> None:
    slow, quick = PretendedLease(60_000), PretendedLease(60_000)
    release = threading.Event()
    watcher.watch(slow, lambda *_: release.wait(PATIENCE_S))
    watcher.watch(quick, quick.on_lost)
    slow.agents.send(b"!")
    quick.agents.send(b"!")
    assert quick.was_told() == "taken away"
    release.set()


def test_one_thread_watches_them_all_and_none_before_the_first(watcher: LossWatcher) -> None:
    before = threads_named("lockd watcher")
    leases = [PretendedLease(60_000) for _ in range(20)]
    assert threads_named("lockd watcher") == before
    for lease in leases:
        watcher.watch(lease, lease.on_lost)
    assert threads_named("lockd watcher") == before + 1
