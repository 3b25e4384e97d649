"""What only `lockd.Client` promises: of threads, and when Ctrl-C comes. Beside test_clients.py."""

from __future__ import annotations

import gc
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from lockd import Client
from lockd.client.state import LeaseView
from lockd.clock import boottime_ns
from tests.harness.clients import LONG_S, Losses, PatientClient, free, wait_until_free
from tests.harness.cluster import Cluster
from tests.harness.waiting import PATIENCE_S, eventually

# One interrupt after the other: two minutes beside other tests, and longer on a busy machine.
TAKES_LONG = pytest.mark.timeout(600)


@pytest.fixture
def client(shared: Cluster) -> Iterator[Client]:
    with PatientClient(shared.socket) as client:
        yield client


@pytest.fixture
def quick_collections() -> Iterator[None]:
    """What all the other tests have left need not be looked through each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Interrupts:
    """KeyboardInterrupts in this thread, as from Ctrl-C, again and again. Only an armed one is raised."""

    def __init__(self, pause_s: Callable[[], float], armed: bool = False) -> None:
        self.armed = armed
        self._pause_s = pause_s
        self._here, self._over = threading.get_ident(), threading.Event()
        self._sender = threading.Thread(target=self._send)

    def _send(self) -> None:
        while not self._over.wait(self._pause_s()):
            signal.pthread_kill(self._here, signal.SIGUSR1)

    def _interrupt(self, *_: object) -> None:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGUSR1, self._interrupt)
        self._sender.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.armed = False
        self._over.set()
        self._sender.join()
        signal.signal(signal.SIGUSR1, self._before)


def test_a_lease_that_missed_its_renewals_asks_the_agent(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When an app reads nothing for very long, the agent leaves out what it can't send."""
    monkeypatch.setattr(LeaseView, "hear", lambda view, push: None)
    with client.lock("unread") as lease:
        # As far as its app knows, it ends now. Its agent knows better.
        lease._view.deadline_ns = known_ns = boottime_ns()
        lease.check()
        assert lease.deadline_ns > known_ns


def test_an_interrupt_while_waiting_leaves_nothing_behind(client: Client) -> None:
    held = client.acquire("interrupted")
    with pytest.raises(KeyboardInterrupt), Interrupts(lambda: 0.2, armed=True):
        client.acquire("interrupted", wait=LONG_S)
    held.release()

    assert free(client, "interrupted")
    with client.lock("interrupted"):
        pass


@TAKES_LONG
@pytest.mark.usefixtures("quick_collections")
def test_interrupts_at_any_moment_leave_nothing_behind(client: Client) -> None:
    with Interrupts(lambda: 0.003 * random.random()) as interrupts:
        for _ in range(60):
            with suppress(KeyboardInterrupt):
                interrupts.armed = True
                # Python drops an interrupt that comes in the middle of a finalizer: then it is disarmed, too.
                while interrupts.armed:
                    with client.lock("any-moment", wait=LONG_S):
                        pass
            gc.collect()
    wait_until_free(client, "any-moment")


class InterruptAt:
    """A KeyboardInterrupt where this thread enters its nth function from now on: one of the moments at which
    Python looks for signals. reached: there were so many."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    @property
    def reached(self) -> bool:
        return self._left <= 0

    def __enter__(self) -> InterruptAt:
        self._before = sys.gettrace()
        sys.settrace(self._entered)
        return self

    def _entered(self, *_: object) -> None:
        self._left -= 1
        if self._left == 0:
            sys.settrace(self._before)
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)


# Where that function is a __del__, Python can only tell of it: pytest warns of that.
@TAKES_LONG
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("quick_collections")
def test_an_interrupt_where_any_function_begins_leaves_nothing_behind(client: Client) -> None:
    nth, reached = 0, True
    while reached:
        nth += 1
        at = InterruptAt(nth)
        with suppress(KeyboardInterrupt), at, client.lock(f"nth/{nth}", on_lost=print):
            pass
        reached = at.reached
        gc.collect()
    assert nth > 50
    eventually(lambda: not client.locks("nth/*"), "all are free")


def test_a_program_that_ends_while_it_holds_ends_and_frees(client: Client, shared: Cluster) -> None:
    script = "import sys, lockd; lease = lockd.Client(sys.argv[1]).acquire('left', ttl=30)"
    done = subprocess.run([sys.executable, "-c", script, str(shared.socket)], timeout=PATIENCE_S, check=False)
    assert done.returncode == 0
    wait_until_free(client, "left")


def test_an_interrupted_extension_leaves_the_lease_what_it_was(client: Client, shared: Cluster) -> None:
    losses = Losses()
    lease = client.acquire("kept", on_lost=losses)
    shared.agent.pause()
    try:
        with pytest.raises(KeyboardInterrupt), Interrupts(lambda: 0.2, armed=True):
            lease.extend(LONG_S)
    finally:
        shared.agent.resume()

    lease.check()
    lease.extend(LONG_S)
    assert not free(client, "kept")
    assert lease.release() is True
    assert losses.reasons == []
