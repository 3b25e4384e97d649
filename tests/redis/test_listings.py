"""Who lists much waits for himself: operators come first, users take turns, and nobody's unread reply is in
anybody's way."""

from __future__ import annotations

import array
import fcntl
import select
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import redis
from hiredis import ReplyError

from tests.harness.cluster import Cluster
from tests.harness.users import NOBODY, Connect, cluster_for_all_users, connecting, refusals
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import Wire, request, token_of

LEASES = 1_000
USERS = range(1_000, 1_012)
LIMITS = {"unread_bytes": 65_536, "unread_ms": 600_000, "memory_mib": 256, "share_percent": 10}
"""Of bytes, an account may have seven millions."""


@pytest.fixture(scope="module")
def cluster(server_binary: Path) -> Iterator[Cluster]:
    with cluster_for_all_users(limits=LIMITS) as running, Wire(running.socket) as wire:
        locks = [request("LOCK", f"list:{n}", 60_000, "WAIT", 60_000) for n in range(LEASES)]
        for some in (locks[at : at + 250] for at in range(0, LEASES, 250)):
            wire.send_raw(b"".join(some))
            for _ in some:
                token_of(wire.reply())
        yield running


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:
        yield connecting(stack)


def unread_bytes(wire: Wire) -> int:
    """How much has arrived here."""
    unread = array.array("i", [0])
    fcntl.ioctl(wire.socket, termios.FIONREAD, unread)
    return unread[0]


def scans(cluster: Cluster) -> int:
    """How many pages a master has shown."""
    with closing(redis.Redis(port=cluster.masters[0].port)) as master:
        return int(master.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"])


@pytest.fixture
def surveys(cluster: Cluster, connect: Connect) -> Callable[[], float]:
    """How many surveys there have been."""
    before = scans(cluster)
    assert len(connect(cluster).ask("LOCKS")) == LEASES
    pages = scans(cluster) - before
    assert pages >= 5
    return lambda: scans(cluster) / pages


class Loops:
    """Users who ask for a listing as soon as they have read the one before."""

    def __init__(self, users: list[Wire]) -> None:
        self._users = users
        for user in users:
            user.send("LOCKS")

    def until(self, answered: Wire | None = None) -> None:
        """He is; None: each of them."""
        left = {answered} if answered is not None else {*self._users}
        while left:
            for wire in select.select({*self._users, *left}, [], [], PATIENCE_S)[0]:
                assert wire.feed_once()
                if (reply := wire.reply_that_is_here()) is not None:
                    assert len(reply[0]) == LEASES
                    left.discard(wire)
                    if wire in self._users:
                        wire.send("LOCKS")


def test_an_operators_listing_begins_next_whoever_lists_in_a_loop(
    cluster: Cluster, connect: Connect, surveys: Callable[[], float]
) -> None:
    """One is under way, and when it ends another may begin before he has asked. The third is his. While this
    test reads his answer, two others may be begun for those who wait."""
    loops, operator = Loops([connect(cluster, uid) for uid in USERS]), connect(cluster)
    loops.until()
    before = surveys()
    operator.send("LOCKS")
    loops.until(operator)
    assert surveys() - before < 5.5


def test_all_who_ask_at_one_time_share_a_survey(
    cluster: Cluster, connect: Connect, surveys: Callable[[], float]
) -> None:
    """The first one begins for whoever was first, and a survey answers eight."""
    users = [connect(cluster, uid) for uid in USERS]
    before = surveys()
    for user in users:
        user.send("LOCKS")
    for user in users:
        assert len(user.reply()) == LEASES
    assert surveys() - before < 3.5


QUESTIONS = [("LOCKS",), ("LOCKS", "list:1", "LOCAL"), ("HOLDER", "list:1"), ("GET", "list:1"), ("INFO",)]


@pytest.mark.parametrize("local", [(), ("*", "LOCAL")], ids=["of the cluster", "of this host"])
def test_listings_that_nobody_reads_keep_no_other_user_waiting(
    local: tuple[str, ...], cluster: Cluster, connect: Connect
) -> None:
    deaf = [connect(cluster, uid) for uid in range(1_000, 1_005) for _ in range(4)]
    for wire in deaf:
        wire.send_raw(request("LOCKS", *local) * 3)
    eventually(lambda: all(unread_bytes(wire) for wire in deaf), "all have an answer that they do not read")
    for uid in (NOBODY, 0):
        wire = connect(cluster, uid)
        for question in QUESTIONS:
            assert not isinstance(wire.ask(*question), ReplyError), question


def test_who_reads_late_gets_all_that_he_has_asked_for(cluster: Cluster, connect: Connect) -> None:
    wire = connect(cluster, NOBODY)
    wire.send_raw(request("LOCKS", "*", "LOCAL") * 20)
    eventually(lambda: unread_bytes(wire))
    assert [len(wire.reply()) for _ in range(20)] == [LEASES] * 20


def test_a_listing_for_which_its_user_has_no_room_is_refused(cluster: Cluster, connect: Connect) -> None:
    """Connections that read nothing have filled what is kept for him."""
    deaf = [connect(cluster, NOBODY) for _ in range(40)]
    for wire in deaf:
        wire.send_raw(request("LOCKS", "*", "LOCAL"))
    eventually(lambda: all(unread_bytes(wire) for wire in deaf))
    refused = refusals(cluster, "bytes")
    assert refused > 0
    wire = connect(cluster, NOBODY)
    assert str(wire.ask("LOCKS", "*", "LOCAL")).startswith("LIMIT bytes")
    assert len(wire.ask("LOCKS", "list:1", "LOCAL")) == 1
    assert refusals(cluster, "bytes") == refused + 1
