"""An error of the agent, at any step of what an app asks: the app gets one answer, or its connection ends;
what it was not told of is given back, and everything else goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import AS_IS, Cluster, running_cluster
from tests.harness.waiting import eventually
from tests.harness.wire import Wire, token_of

MINUTE_MS = 60_000
COMPARE_AND_DELETE = (
    'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end'
)


def lock(wire: Wire, _other: Wire) -> None:
    wire.ask("LOCK", "r", MINUTE_MS)


def detached(wire: Wire, _other: Wire) -> None:
    wire.ask("LOCK", "d", 300, "DETACHED")


def named(wire: Wire, other: Wire) -> None:
    wire.ask("LOCK", "r", MINUTE_MS, "TOKEN", "mine")
    other.ask("LOCK", "r", MINUTE_MS, "TOKEN", "mine")


def unlock(wire: Wire, _other: Wire) -> None:
    wire.ask("UNLOCK", "r", token_of(wire.ask("LOCK", "r", MINUTE_MS)))


def extend(wire: Wire, _other: Wire) -> None:
    wire.ask("EXTEND", "r", token_of(wire.ask("LOCK", "r", MINUTE_MS)), MINUTE_MS)


def hand_on(wire: Wire, other: Wire) -> None:
    token = token_of(wire.ask("LOCK", "r", MINUTE_MS))
    other.send("LOCK", "r", MINUTE_MS, "WAIT", MINUTE_MS)
    wire.ask("UNLOCK", "r", token)
    other.reply()


def several(wire: Wire, _other: Wire) -> None:
    wire.ask("LOCK", "r", MINUTE_MS, "AND", "s", "t")


def slots(wire: Wire, other: Wire) -> None:
    other.ask("LOCK", "r", MINUTE_MS, "SLOTS", 2)
    wire.ask("LOCK", "r", MINUTE_MS, "WAIT", 1_000, "SLOTS", 2)


def refused(wire: Wire, other: Wire) -> None:
    other.ask("LOCK", "r", MINUTE_MS)
    wire.ask("LOCK", "r", MINUTE_MS)


def set_nx(wire: Wire, _other: Wire) -> None:
    wire.ask("SET", "r", "me", "NX")
    wire.ask("EVAL", COMPARE_AND_DELETE, 1, "r", "me")


def without_ttl(wire: Wire, _other: Wire) -> None:
    for words in (("SETNX", "r", "me"), ("PEXPIRE", "r", 400), ("PERSIST", "r"), ("DEL", "r")):
        wire.ask(*words)


def transaction(wire: Wire, _other: Wire) -> None:
    wire.ask("SET", "r", "me", "NX", "PX", 300)
    for words in (("MULTI",), ("PEXPIRE", "r", 400), ("DEL", "r"), ("EXEC",)):
        wire.ask(*words)


Verb = Callable[[Wire, Wire], None]
VERBS: tuple[Verb, ...] = (
    lock, detached, named, unlock, extend, hand_on, several, slots, refused, set_nx, without_ttl, transaction
)  # fmt: skip
ANSWERED, CLOSED, HANGS, BROKE = range(4)


class Failing:
    """A cluster whose agent fails where it is told to (tests/harness/failing_agent.py)."""

    def __init__(self, cluster: Cluster, told: Path) -> None:
        self.cluster = cluster
        self._told = told

    def arm(self, call: int) -> None:
        self._told.write_text(str(call))
        os.kill(self.cluster.agent.pid, signal.SIGUSR2)
        eventually(lambda: not self._told.read_text(), "the agent has read it")

    def where(self) -> str:
        """Where it failed; '' if it did not come to that."""
        return self._told.read_text()

    def asks(self, verb: Verb, call: int) -> int:
        """An app of its own asks, and ends. Returns what it got."""
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        outcome = BROKE
        try:
            with Wire(self.cluster.socket) as wire, Wire(self.cluster.socket) as other:
                wire.ask("PING"), other.ask("PING")
                self.arm(call)
                try:
                    verb(wire, other)
                finally:
                    if not self.where():
                        self.arm(0)
                outcome = ANSWERED
        except (EOFError, ConnectionError):
            outcome = CLOSED
        except TimeoutError:
            outcome = HANGS
        except (AssertionError, TypeError):
            outcome = ANSWERED  # an error, where the verb needs a lease
        finally:
            os._exit(outcome)

    def is_as_before(self) -> None:
        self.arm(0)
        with Wire(self.cluster.socket) as wire:
            try:
                eventually(lambda: wire.in_use() == ("1", "0", "0"), "nothing is left")
            except Exception as late:
                raise AssertionError(wire.in_use()) from late
            for resource in ("r", "s", "d"):
                token = token_of(wire.ask("LOCK", resource, MINUTE_MS, "WAIT", MINUTE_MS))
                assert wire.ask("UNLOCK", resource, token) == 1


@pytest.fixture(scope="module")
def failing(server_binary: Path) -> Iterator[Failing]:
    with running_cluster(3, program="tests.harness.failing_agent", defaults=AS_IS, canary_ms=0) as cluster:
        yield Failing(cluster, cluster.told)


of_each = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)


@of_each
def test_where_it_fails_it_is_one_answer_and_nothing_is_left(verb: Verb, failing: Failing) -> None:
    fails_at(range(1, 1_000, 17), verb, failing)


@pytest.mark.thorough
@pytest.mark.timeout(1_200)
@of_each
def test_at_whatever_step_it_fails_it_is_one_answer_and_nothing_is_left(verb: Verb, failing: Failing) -> None:
    fails_at(range(1, 1_000), verb, failing)


def fails_at(calls: range, verb: Verb, failing: Failing) -> None:
    wrong = []
    for call in calls:
        outcome = failing.asks(verb, call)
        where = failing.where()
        if not where:
            break
        try:
            failing.is_as_before()
        except Exception as left:
            wrong.append((call, where, outcome, str(left)[:100]))
            break
        if outcome not in (ANSWERED, CLOSED):
            wrong.append((call, where, outcome, ""))
    assert not wrong, "\n".join(map(str, wrong))
