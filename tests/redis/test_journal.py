"""An agent's restart ends nothing that is held (rule 13): real agents, killed and stopped, and what they have
noted, spoilt in every way that a file can be.

What time does to what was taken over is told in virtual time (tests/unit/locks/test_taking_over.py).
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from lockd.clock import boottime_ns
from lockd.core import sizes
from lockd.core.journal import FORMAT, MAGIC
from tests.harness.app import App
from tests.harness.app_process import AppProcess
from tests.harness.clocks import MS
from tests.harness.cluster import AS_IS, Cluster, running_cluster
from tests.harness.disks import full_memory
from tests.harness.on_masters import holding, lease_on
from tests.harness.processes import stopped
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import as_map

TTL_MS = 30_000  # also that of AppProcess.lock
SOON_MS = 20_000
"""A WAIT of so long ends before a lease would that nobody gives back."""
LOCK_DELAY_MS = 1_000
Ends = Callable[[Cluster], object]
BY_KILL: Ends = lambda cluster: cluster.agent.kill()  # noqa: E731
BY_STOP: Ends = lambda cluster: cluster.agent.stop(PATIENCE_S)  # noqa: E731


@pytest.fixture(scope="module")
def shared(server_binary: Path) -> Iterator[Cluster]:
    delayed = {"name": "delayed", "match": "delayed/*", "lock_delay_ms": LOCK_DELAY_MS}
    with running_cluster(5, classes=[delayed], defaults=AS_IS) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """Its agent serves, whatever the test before has made of it."""
    if not shared.agent.running:
        shared.agent.start()
    shared.wait_voting(5)
    return shared


@pytest.fixture
def app(cluster: Cluster) -> Iterator[Callable[[], AppProcess]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(AppProcess(cluster.socket))


def journal_of(cluster: Cluster) -> Path:
    return cluster.socket.with_name(cluster.socket.name + ".journal")


def local(cluster: Cluster, resource: str) -> dict[str, Any] | None:
    with closing(cluster.client(protocol=3)) as client:
        rows = client.execute_command("LOCKS", resource.replace("[", r"\["), "LOCAL")
    return next(iter(rows), None)


def restarted(cluster: Cluster, ends: Ends = BY_KILL, meanwhile: Callable[[], object] = lambda: None) -> None:
    ends(cluster)
    meanwhile()
    cluster.agent.start()
    cluster.wait_voting(5)


@pytest.mark.parametrize("ends", [BY_KILL, BY_STOP], ids=["kill -9", "SIGTERM"])
def test_a_restart_costs_a_holder_nothing(
    ends: Ends, cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    one = app()
    lease = one.lock(1, resource)
    # So the agent knows that it was read: else it would be kept for its TTL alone.
    one.ask(1, "PING")
    nonces = [lease["token"][:8]]
    for _ in range(2):
        restarted(cluster, ends)
        row = eventually(lambda: local(cluster, resource))
        assert (row["fence"], row["bound"], row["lost"]) == (lease["fence"], "process", 0)
        nonces.append(row["holder"])
        assert App(cluster).refused("LOCK", resource, TTL_MS).startswith("TAKEN")
    assert len(set(nonces)) == len(nonces)
    # One that was away at the moment learns of it with the next proof; one that was away while two agents
    # began, once what it shows has ended.
    extended = one.ask(2, "EXTEND", resource, lease["token"], TTL_MS + 5_000)
    eventually(lambda: len(holding(cluster.masters, resource, nonces[-1])) == 5)
    assert all(f" ={lease['token']}" in str(lease_on(master, resource)) for master in cluster.masters)
    assert extended[extended.index("deadline_ns") + 1] > lease["deadline_ns"]
    assert extended[-2:] == ["bound", "process"]
    assert one.ask(3, "UNLOCK", resource, lease["token"]) == 1
    App(cluster).lock(resource, TTL_MS)


def test_an_agent_that_stops_says_how_much_it_leaves_to_the_next(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    """Also what it has from the one before, and what was read a moment ago."""
    one = app()
    one.lock(1, resource, "CONNECTION")
    restarted(cluster)
    one.lock(2, f"{resource}/detached", "DETACHED")
    one.lock(2, f"{resource}/process")
    left = one.ask(2, "LOCKS", "*", "LOCAL")
    of_apps = sum(row[row.index("bound") + 1] != "ttl" for row in left)
    BY_STOP(cluster)
    assert f"left_to_the_next_agent={of_apps}" in cluster.log_text().splitlines()[-1]
    cluster.agent.start()
    took_over = [line for line in cluster.log_text().splitlines() if "event=took_over" in line]
    assert "untold" not in took_over[-1]


def test_what_was_taken_over_is_told_of_where_that_was_asked_for(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    one = app()
    one.lock(1, resource, "NOTIFY")
    one.ask(1, "PING")
    restarted(cluster)
    assert local(cluster, resource)["lost"] == 0
    one.ask(2, "LOCK", f"{resource}/to hear", TTL_MS, "NOTIFY")
    cluster.client().execute_command("FORCERELEASE", resource)
    assert "EXPIRED" in eventually(lambda: (said := str(one.ask(2, "PING"))) != "PONG" and said)


def test_what_was_granted_just_before_the_kill_and_never_read_is_kept_for_nobody(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    """Nor given back: who asked for it may still name it."""
    one = app()
    one.send(1, "LOCK", resource, TTL_MS)
    one.wait_unread(1)
    restarted(cluster, meanwhile=lambda: one.close(1))
    assert cluster.metric("lockd_inherited_total", outcome="untold") == 1
    assert App(cluster).refused("LOCK", resource, TTL_MS).startswith("TAKEN")
    cluster.client().execute_command("FORCERELEASE", resource)


def test_who_names_what_was_granted_just_before_the_kill_keeps_it(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    one = app()
    one.send(1, "LOCK", resource, TTL_MS, "TOKEN", "mine")
    one.wait_unread(1)
    fence = local(cluster, resource)["fence"]
    restarted(cluster, meanwhile=lambda: one.close(1))
    granted = as_map(one.ask(2, "LOCK", resource, TTL_MS, "WAIT", SOON_MS, "TOKEN", "mine"))
    assert (granted["fence"], granted["bound"]) == (fence, "process")
    assert local(cluster, resource)["lost"] == 0
    assert one.ask(3, "UNLOCK", resource, "mine") == 1


def test_a_list_that_is_asked_again_and_begins_anew_is_told_no_loss_of_what_it_is_granted(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    """What the agent before had granted of it is lost while it waits for the rest."""
    one, other, first, last = app(), app(), f"{resource}/1", f"{resource}/2"
    token = other.lock(1, last)["token"]
    other.ask(1, "PING")
    rest = ("WAIT", 60_000, "NOTIFY", "TOKEN", "mine", "AND", last)
    one.send(1, "LOCK", first, 3_000, *rest)
    fence = eventually(lambda: local(cluster, first))["fence"]
    restarted(cluster, meanwhile=lambda: one.close(1))
    one.send(2, "LOCK", first, TTL_MS, *rest)
    eventually(
        lambda: (row := local(cluster, first)) is None or row["lost"] or row["fence"] != fence,
        "what the agent before had granted is lost",
    )
    assert other.ask(2, "UNLOCK", last, token) == 1
    one.wait_unread(2)
    assert isinstance(one.ask(2, "PING"), list)  # what the LOCK is answered
    assert one.ask(2, "PING") == "PONG"
    assert [one.ask(3, "UNLOCK", name, "mine") for name in (first, last)] == [1, 1]


def test_the_lock_of_who_died_meanwhile_is_free_at_once_or_after_its_lock_delay(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    one = app()
    one.lock(1, resource)
    one.lock(2, f"delayed/{resource}")
    killed_ns = boottime_ns()
    restarted(cluster, meanwhile=one.kill)
    App(cluster).lock(resource, TTL_MS, "WAIT", SOON_MS)
    App(cluster).lock(f"delayed/{resource}", TTL_MS, "WAIT", SOON_MS)
    assert boottime_ns() >= killed_ns + LOCK_DELAY_MS * MS


def test_one_that_dies_after_the_restart_frees_it_at_once(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    one = app()
    one.lock(1, resource)
    restarted(cluster)
    one.kill()
    App(cluster).lock(resource, TTL_MS, "WAIT", SOON_MS)


@pytest.fixture
def own_cluster(server_binary: Path) -> Iterator[Cluster]:
    """Nothing of other tests is left there."""
    with running_cluster(5, defaults=AS_IS) as running:
        yield running


def test_limits_count_what_was_taken_over(own_cluster: Cluster, resource: str) -> None:
    cluster = own_cluster
    with AppProcess(cluster.socket) as one:
        are_taken_over_and_counted(cluster, one, resource)


def are_taken_over_and_counted(cluster: Cluster, one: AppProcess, resource: str) -> None:
    held = [one.lock(1, f"{resource}/{n}")["token"] for n in range(5)]
    stocks = ("bytes", "renewals", "files")
    before = {stock: cluster.metric("lockd_limit_used", limit=stock) for stock in stocks}
    assert before["bytes"] > 5 * sizes.lease(0)
    restarted(cluster)
    assert cluster.metric("lockd_leases") >= 5

    def are_counted() -> bool:
        """With the process of `one` and its connections."""
        return {stock: cluster.metric("lockd_limit_used", limit=stock) for stock in stocks} == before

    one.ask(2, "PING")
    eventually(are_counted, "what was taken over counts as before")
    # Of the last of them it may not have been known yet that the app had read of it.
    taken_over = [cluster.metric("lockd_inherited_total", outcome=fate) for fate in ("goes_on", "untold")]
    assert sum(taken_over) >= 5
    assert cluster.metric("lockd_journal_ok") == 1
    for n, token in enumerate(held):
        assert one.ask(2, "UNLOCK", f"{resource}/{n}", token) == 1
    assert cluster.metric("lockd_leases") >= 0


# What is spoilt gives nothing to anybody


def is_on_all(cluster: Cluster, resource: str, token: str) -> None:
    """The agent has answered at quorum."""
    eventually(lambda: len(holding(cluster.masters, resource, token)) == 5, "it is on all five")


def torn(data: bytes, token: bytes) -> bytes:
    """In the middle of the lease's own record."""
    return data[: data.index(token) + 5]


def flipped(data: bytes, token: bytes) -> bytes:
    at = data.index(token)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def of_a_newer_format(data: bytes, _token: bytes) -> bytes:
    return MAGIC + struct.pack(">H", FORMAT + 1) + data[len(MAGIC) + 2 :]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (torn, "torn"),
        (flipped, "checksum"),
        (of_a_newer_format, f"format {FORMAT + 1}"),
        (lambda *_: b"", ""),
        (lambda *_: b"#!/bin/sh\n", "not the journal of an agent"),
    ],
    ids=["torn", "a bit flipped", "newer", "empty", "another file"],
)
def test_a_journal_that_is_spoilt_gives_nothing_and_takes_nothing(
    spoil: Callable[[bytes, bytes], bytes],
    said: str,
    cluster: Cluster,
    app: Callable[[], AppProcess],
    resource: str,
) -> None:
    """Its lease stays on the masters, to its deadline: its holder lives, and may release it by its token."""
    one, path = app(), journal_of(cluster)
    lease = one.lock(1, resource)
    is_on_all(cluster, resource, lease["token"])
    token = lease["token"].encode()
    restarted(cluster, meanwhile=lambda: path.write_bytes(spoil(path.read_bytes(), token)))
    assert local(cluster, resource) is None
    assert said in cluster.agent.log().decode()
    assert len(holding(cluster.masters, resource, lease["token"])) == 5
    assert App(cluster).refused("LOCK", resource, TTL_MS).startswith("TAKEN")
    assert one.ask(2, "UNLOCK", resource, lease["token"]) == 1


def test_an_older_copy_gives_nothing_to_who_has_released(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    """What is let go ends long before what is held."""
    one, path = app(), journal_of(cluster)
    lease = as_map(one.ask(1, "LOCK", resource, TTL_MS // 10))
    old = path.read_bytes()
    one.ask(1, "UNLOCK", resource, lease["token"])
    other = app().lock(1, resource, "WAIT", SOON_MS)
    is_on_all(cluster, resource, other["token"])
    restarted(cluster, meanwhile=lambda: path.write_bytes(old))
    eventually(lambda: local(cluster, resource) is None, "what can't be proven is let go")
    assert len(holding(cluster.masters, resource, other["token"])) == 5


@pytest.mark.parametrize("how", ["link", "open to others", "folder"])
def test_a_journal_that_somebody_else_put_there_is_not_read(
    how: str, cluster: Cluster, app: Callable[[], AppProcess], resource: str, tmp_path: Path
) -> None:
    one, path = app(), journal_of(cluster)
    lease = one.lock(1, resource)

    def put() -> None:
        data = path.read_bytes()
        path.unlink()
        if how == "link":
            (tmp_path / "theirs").write_bytes(data)
            path.symlink_to(tmp_path / "theirs")
        elif how == "folder":
            path.mkdir()
        else:
            path.write_bytes(data)
            path.chmod(0o666)

    restarted(cluster, meanwhile=put)
    assert local(cluster, resource) is None
    assert b"journal_unread" in cluster.agent.log()
    assert one.ask(2, "UNLOCK", resource, lease["token"]) == 1
    if how == "folder":
        assert cluster.metric("lockd_journal_ok") == 0
        path.rmdir()
    eventually(lambda: cluster.metric("lockd_journal_ok") == 1)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_journal_that_was_deleted_is_written_again(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    one, path = app(), journal_of(cluster)
    lease = one.lock(1, resource)
    os.unlink(path)
    eventually(path.exists)
    restarted(cluster)
    assert local(cluster, resource)["fence"] == lease["fence"]


def test_an_agent_whose_journals_lock_file_somebody_has_cut_goes_on_and_so_does_the_next(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    one = app()
    os.truncate(f"{journal_of(cluster)}.lock", 0)
    lease = one.lock(1, resource)
    one.ask(1, "PING")
    restarted(cluster)
    assert local(cluster, resource)["fence"] == lease["fence"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a file system of its own")
def test_an_agent_whose_run_is_full_serves_without_a_journal_and_has_one_once_there_is_room(
    cluster: Cluster, tmp_path: Path, resource: str
) -> None:
    with full_memory(tmp_path / "run") as run:
        other = cluster.add_agent(run=run)
        other.wait_voting(5)
        assert other.metric("lockd_journal_ok") == 0
        assert "No space left" in str(other.client().info("agent")["journal_trouble"])
        lease = App(other).lock(resource, TTL_MS)
        (run / "full").unlink()
        eventually(lambda: other.metric("lockd_journal_ok") == 1)
        App(other).ask("UNLOCK", resource, lease["token"])
        other.close()


def test_an_agent_that_gives_nothing_back_of_what_an_older_copy_says_logs_so(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    one, path = app(), journal_of(cluster)
    lease = one.lock(1, resource)
    one.ask(1, "PING")
    with ExitStack() as stack:
        for master in cluster.masters:
            stack.enter_context(stopped(master.pid))
        noted = path.stat().st_size
        one.send(1, "UNLOCK", resource, lease["token"])
        eventually(lambda: path.stat().st_size > noted, "it is noted that it is to be released")
        old = path.read_bytes()
    one.wait_unread(1)
    app().lock(1, resource, "WAIT", SOON_MS)
    restarted(cluster, meanwhile=lambda: path.write_bytes(old))
    assert not re.search(rb"releases_sent_again=[1-9]", cluster.agent.log())


def test_a_journal_is_kept_short(cluster: Cluster, resource: str) -> None:
    """How short, tests/unit/test_journal_file.py says."""
    client, path = App(cluster), journal_of(cluster)
    most, written = 0, path.stat().st_ino
    for n in range(20_000):
        name = f"{resource}/{n}/{'x' * 400}"
        client.ask("UNLOCK", name, client.lock(name, TTL_MS)["token"])
        if path.stat().st_ino != written:
            break
        most = max(most, path.stat().st_size)
    assert 500_000 < most < 10_000_000
    assert path.stat().st_size < most


def test_what_the_agent_left_whose_journal_was_in_use_is_taken_over_when_that_is_free(
    cluster: Cluster, app: Callable[[], AppProcess], resource: str
) -> None:
    one, path = app(), journal_of(cluster)
    lease = one.lock(1, resource)
    one.ask(1, "PING")
    cluster.agent.kill()
    with open(f"{path}.lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        cluster.agent.start()
        cluster.wait_voting(5)
        assert cluster.metric("lockd_journal_ok") == 0
        assert "another agent is using it" in str(cluster.client().info("agent")["journal_trouble"])
        assert local(cluster, resource) is None
    assert eventually(lambda: local(cluster, resource))["fence"] == lease["fence"]
    eventually(lambda: cluster.metric("lockd_journal_ok") == 1, "it is written bit by bit")
    assert one.ask(2, "UNLOCK", resource, lease["token"]) == 1
