"""What is remembered of leases that were lost, and who is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lockd.core.owners import Connection as Ties
from lockd.core.owners import Process
from lockd.server import losses as losses_module
from lockd.server.losses import LeaseName, Losses, LostLease
from tests.harness.leases import a_lease

FIRST = Process(7, 100, 1)
ANOTHER_OF_ITS_NUMBER = Process(7, 200, 1)


class Connection(SimpleNamespace):
    """As much of a session as a loss needs."""

    def __init__(self, process: Process | None = FIRST, uid: int = 1, *, notifies: bool = True) -> None:
        """Of nobody who can be seen, or of a process."""
        super().__init__(account=f"uid {uid}", notifies=notifies, open=True, told=[], knows=[])
        self.ties = Ties(self, process)  # type: ignore[arg-type]

    __hash__ = object.__hash__

    @property
    def hears(self) -> bool:
        return bool(self.notifies and self.open)

    def tell_lost(self, lost: LostLease) -> None:
        self.told.append(lost.token)

    def knows_of(self, name: LeaseName) -> None:
        self.knows.append(name[1])


def lose(losses: Losses, connection: Any, token: bytes) -> None:
    losses.happened(connection, a_lease(token=token), "it is gone")


def heard(losses: Losses, *connections: Any) -> None:
    for connection in connections:
        losses.listens(connection)


def test_it_is_told_where_notify_was_said_and_nowhere_else() -> None:
    losses, silent, told, other = Losses(), Connection(notifies=False), Connection(), Connection()
    heard(losses, told, other)
    lose(losses, silent, b"a")
    lose(losses, told, b"b")
    assert (silent.told, told.told, other.told) == ([], [b"b"], [])


def test_when_its_connection_has_ended_another_of_the_same_process_is_told() -> None:
    losses, ended, other, stranger = Losses(), Connection(), Connection(), Connection(ANOTHER_OF_ITS_NUMBER)
    heard(losses, stranger, ended, other)
    ended.open = False
    losses.listens_no_more(ended, [LostLease(b"r", b"untold", "why", 5)])
    lose(losses, ended, b"a")
    assert (ended.told, other.told, stranger.told) == ([], [b"untold", b"a"], [])


def test_who_names_it_is_told_as_often_as_he_asks() -> None:
    losses = Losses()
    lose(losses, Connection(notifies=False), b"a")
    for _ in range(2):
        lost = losses.of((b"r", b"a"))
        assert lost is not None
        assert str(lost.refusal) == "EXPIRED the lease of 'r' was lost: it is gone"
    assert losses.of((b"r", b"b")) is None


def test_a_flood_of_one_users_losses_makes_nobody_elses_be_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(losses_module, "_MOST", 3_000)
    losses, flood = Losses(), Connection(uid=1, notifies=False)
    lose(losses, Connection(uid=2, notifies=False), b"kept")
    for number in range(3_000):
        lose(losses, flood, b"%d" % number)
    assert losses.of((b"r", b"kept"))
    assert losses.of((b"r", b"2999"))
    assert not losses.of((b"r", b"0"))
    assert len(losses._by_name) <= 1_001
    for uid in range(3, 60):
        for number in range(20):
            lose(losses, Connection(uid=uid, notifies=False), b"%d of %d" % (number, uid))
        assert losses.of((b"r", b"0 of %d" % uid))
    assert len(losses._by_name) == len(losses._of_account) <= 3_000
    assert losses.of((b"r", b"kept"))


def test_what_one_connection_was_told_all_of_its_process_know_and_nobody_else() -> None:
    losses, told, other, silent = Losses(), *(Connection() for _ in range(3))
    stranger = Connection(ANOTHER_OF_ITS_NUMBER)
    silent.notifies = False
    heard(losses, told, other, stranger)
    losses.told(silent, (b"r", b"a"))
    assert [one.knows for one in (told, other, silent, stranger)] == [[b"a"]] * 3 + [[]]


def test_processes_that_cannot_be_told_apart_neither_hear_nor_know_what_another_was_told() -> None:
    losses, told, other = Losses(), Connection(None), Connection(None)
    heard(losses, told, other)
    losses.told(told, (b"r", b"a"))
    told.open = False
    lose(losses, told, b"b")
    assert (b"a" in told.knows, other.knows, other.told) == (True, [], [])


def lose_of_before(losses: Losses, process: Process, token: bytes, *, notify: bool = True) -> None:
    """Of a lease that was taken over."""
    losses.happened_to(process, "uid 1", a_lease(token=token, notify=notify), "it is gone")


def test_what_was_lost_before_its_process_came_back_is_told_when_that_wants_to_hear() -> None:
    """It had neither connections nor leases left, so it is known anew."""
    losses = Losses()
    for token in (b"a", b"b"):
        lose_of_before(losses, FIRST, token)
    lose_of_before(losses, FIRST, b"c", notify=False)
    stranger, first, second = Connection(ANOTHER_OF_ITS_NUMBER), Connection(Process(7, 100, 1)), Connection()
    heard(losses, stranger, first, second)
    assert (stranger.told, first.told, second.told) == ([], [b"a", b"b"], [])
    lose_of_before(losses, FIRST, b"d")
    assert second.told == [b"d"]


def test_what_was_lost_of_a_name_is_no_news_of_the_lease_that_was_granted_by_it_since() -> None:
    losses, waiting, stranger = Losses(), Connection(), Connection(ANOTHER_OF_ITS_NUMBER)
    lose_of_before(losses, FIRST, b"before it came back")
    losses.granted_anew(waiting, (b"r", b"before it came back"))
    heard(losses, waiting, stranger)
    assert waiting.told == []
    lose_of_before(losses, FIRST, b"while it waited")
    assert waiting.told == [b"while it waited"]
    losses.granted_anew(waiting, (b"r", b"while it waited"))
    losses.granted_anew(waiting, (b"r", b"never lost"))
    assert (waiting.knows[-1], stranger.knows) == (b"while it waited", [])
    assert losses.of((b"r", b"while it waited")) is None


def test_news_of_a_name_that_was_asked_for_anew_is_not_told_behind_its_grant() -> None:
    """It was lost without an agent, and waits to be told when its app asks again."""
    losses, waiting = Losses(), Connection()
    lose_of_before(losses, FIRST, b"mine")
    heard(losses, waiting)
    assert waiting.told == [b"mine"]
    losses.begins_anew((b"r", b"mine"))
    losses.granted_anew(waiting, (b"r", b"mine"))
    assert set(waiting.knows) == {b"mine"}


def test_of_processes_that_never_come_back_no_more_is_kept_than_is_remembered_of_their_account(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(losses_module, "_MOST", 3_000)
    losses = Losses()
    for number in range(2_500):
        lose_of_before(losses, Process(number + 1, 1, 1), b"%d" % number)
    kept = len(losses._of_account)
    assert len(losses._untold) == kept < 1_100
    for _ in range(3):
        lose_of_before(losses, FIRST, b"again")
    assert len(losses._untold) == kept
    last = Connection(Process(2_500, 1, 1))
    heard(losses, last)
    assert last.told == [b"2499"]


def test_of_processes_that_are_gone_nothing_is_kept() -> None:
    losses = Losses()
    for pid in range(1, 10):
        connection = Connection(Process(pid, 1, 1))
        heard(losses, connection)
        connection.open = False
        losses.listens_no_more(connection, [])
        lose(losses, connection, b"%d" % pid)
        losses.told(connection, (b"r", b"%d" % pid))
    assert not losses._listening
