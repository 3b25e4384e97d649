"""The commands of `lockctl` but `run`, typed at a real agent."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockd.output import CANT_WRITE
from tests.harness.clients import take_all_away
from tests.harness.cluster import Cluster, MakeCluster, running_cluster
from tests.harness.lockctl import LOCKCTL, at_terminal, lockctl, lockctl_at_terminal
from tests.harness.on_masters import holding
from tests.harness.waiting import eventually
from tests.harness.wire import as_map
from tests.redis.module_cluster import module_cluster

NO = 1

LONG_MS = 600_000
"""Of what is not renewed: each command takes seconds to begin on a busy machine."""

cluster = module_cluster(5, max_ttl_ms=LONG_MS)
"""One for all tests here, which lock resources of their own."""


@pytest.fixture(autouse=True)
def _nothing_is_held_afterwards(cluster: Cluster) -> Iterator[None]:
    yield
    take_all_away(cluster)


@pytest.fixture(scope="module")
def to_be_hurt(server_binary: Path) -> Iterator[Cluster]:
    """One whose masters are killed, and start again. Its leases, and waits before admissions, are short."""
    with running_cluster(3, max_ttl_ms=1_000) as own:
        yield own


@pytest.fixture
def hurt(to_be_hurt: Cluster) -> Iterator[Cluster]:
    yield to_be_hurt
    for master in to_be_hurt.masters:
        if not master.running:
            master.start()
    to_be_hurt.wait_voting(3)


# Locks for scripts


def test_the_example_in_the_help_works_in_sh(cluster: Cluster) -> None:
    script = f"""
      lease=$({LOCKCTL} lock sh --ttl 10m) || exit
      read -r token fence deadline_ns <<END
      $lease
END
      echo "$fence $deadline_ns"
      {LOCKCTL} unlock sh "$token"
    """
    environment = os.environ | {"LOCKD_SOCKET": str(cluster.socket)}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\d+ \d+\n", done.stdout)
    assert lockctl(cluster, "holder", "sh").returncode == NO


@pytest.mark.parametrize("to", [">/dev/full", ">&-"])
def test_a_token_that_can_not_be_printed_is_given_back(cluster: Cluster, to: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {LOCKCTL} --socket {cluster.socket} lock full --ttl 10m {to}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == CANT_WRITE
    assert re.fullmatch(r"lockctl: the output can't be written: .+\n", done.stderr)
    assert lockctl(cluster, "holder", "full").returncode == NO


@pytest.mark.parametrize("command", ["locks", "masters --json", "ping", "doctor", "top --once", "--version"])
def test_an_output_that_is_full_is_said_in_one_line(cluster: Cluster, command: str) -> None:
    full = ["sh", "-c", f"exec {LOCKCTL} --socket {cluster.socket} {command} >/dev/full"]
    done = subprocess.run(full, capture_output=True, text=True, check=False)
    assert done.returncode == CANT_WRITE
    assert done.stderr == "lockctl: the output can't be written: No space left on device\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_finds_closed_what_lockctl_found_closed(
    cluster: Cluster, tmp_path: Path, closed: str
) -> None:
    seen = tmp_path / "seen"
    script = f"for file in 0 1 2; do test -e /proc/$$/fd/$file && echo $file; done 3>{seen} >&3; exit 7"
    run = f"exec {LOCKCTL} --socket {cluster.socket} run closed -- sh -c '{script}' {closed}"
    done = subprocess.run(["sh", "-c", run], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
    numbers = {"<&-": 0, ">&-": 1, "2>&-": 2}
    left = {0, 1, 2} - {numbers[one] for one in closed.split()}
    assert {int(number) for number in seen.read_text().split()} - {1} == left - {1}


# A look at things


def test_ping_says_how_long_it_took(cluster: Cluster) -> None:
    assert re.fullmatch(r"PONG in [0-9.]+ms\n", lockctl(cluster, "ping").stdout)
    assert lockctl(cluster, "ping", "--json").json["reply"] == "PONG"


def test_holder_says_who_and_on_how_many_masters_or_that_it_is_free_and_gives_1(cluster: Cluster) -> None:
    lease = as_map(cluster.client().execute_command("LOCK", "held", 60_000))
    eventually(lambda: len(holding(cluster.masters, "held")) == 5, what="it is on all")
    done = lockctl(cluster, "holder", "held")
    assert done.returncode == 0
    row = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert not lease["token"].startswith(row["holder"]), "who may see it can't give it back"
    assert f"{os.getpid()} on " in row["process"]
    assert row["masters"] == "5 of 5"
    done = lockctl(cluster, "holder", "free")
    assert (done.returncode, done.stdout) == (NO, "free is free\n")
    done = lockctl(cluster, "holder", "free", "--json")
    assert (done.returncode, done.json) == (NO, None)


def test_locks_lists_what_matches_in_lines_with_tabs_and_more_of_this_host(cluster: Cluster) -> None:
    client = cluster.client()
    _, _, lease = (
        as_map(client.execute_command("LOCK", name, LONG_MS, "DETACHED"))
        for name in ("list:a", "list:b", "other:c")
    )
    lines = [line.split("\t") for line in lockctl(cluster, "locks", "list:*").stdout.splitlines()]
    assert lines[0][:2] == ["RESOURCE", "HOLDER"]
    assert [line[0] for line in lines[1:]] == ["list:a", "list:b"]
    assert {row["resource"] for row in lockctl(cluster, "locks", "--json").json} >= {"list:a", "other:c"}
    local = lockctl(cluster, "locks", "--local", "other:*").stdout.splitlines()
    row = dict(zip(*(line.split("\t") for line in local), strict=True))
    assert [row[name] for name in ("FENCE", "CLASS", "BOUND TO")] == [str(lease["fence"]), "other", "ttl"]


def test_names_that_would_steer_the_terminal_are_shown_escaped(cluster: Cluster) -> None:
    resource = b"evil\x1b[2J\xff\n"
    cluster.client(decode_responses=False).execute_command("LOCK", resource, LONG_MS, "DETACHED")
    for done in (
        lockctl(cluster, "locks", "evil*"),
        lockctl(cluster, "holder", os.fsdecode(resource)),
        lockctl(cluster, "lock", os.fsdecode(resource)),
        at_terminal(cluster, "locks", "evil*"),
    ):
        assert "\x1b[2J" not in done.stdout + done.stderr
    assert "evil\\x1b[2J\\xff\\x0a" in lockctl(cluster, "locks", "evil*").stdout
    assert [
        row["resource"].encode("utf-8", "surrogateescape")
        for row in lockctl(cluster, "locks", "evil*", "--json").json
    ] == [resource]


def test_masters_says_why_one_has_no_vote_and_is_a_table_at_a_terminal(hurt: Cluster) -> None:
    hurt.masters[1].kill()
    hurt.wait_voting(2)
    lines = [line.split("\t") for line in lockctl(hurt, "masters").stdout.splitlines()]
    [down] = [line for line in lines if line[0] == "m2"]
    assert down[2:4] == ["down", "no"]
    assert down[-1]
    assert [row["vote"] for row in lockctl(hurt, "masters", "--json").json] == [1, 0, 1]
    done = at_terminal(hurt, "masters")
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("─", *(master.address for master in hurt.masters)))
    assert "2 of 3 have a vote, 2 are needed" in done.stdout


def test_a_reader_that_has_enough_is_no_error_to_shout_about(cluster: Cluster) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = lockctl(cluster, "masters", capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


# Force


def test_force_release_at_a_terminal_asks_first(cluster: Cluster) -> None:
    lockctl(cluster, "lock", "--ttl", "10m", "asked")
    refused = at_terminal(cluster, "force-release", "asked", typed="n\n")
    assert refused.returncode == NO
    assert "Release it by force?" in refused.stdout
    assert lockctl(cluster, "holder", "asked").returncode == 0
    assert at_terminal(cluster, "force-release", "asked", typed="y\n").returncode == 0
    assert lockctl(cluster, "holder", "asked").returncode == NO


# Forming and admitting


def test_cluster_init_shows_a_bar_at_a_terminal(make_cluster: MakeCluster) -> None:
    own = make_cluster(masters=3, form=False, max_ttl_ms=60_000)  # nobody can form it in less
    eventually(lambda: [one["state"] for one in own.master_states()] == ["blank"] * 3, what="all are blank")
    with lockctl_at_terminal(own, "cluster", "init") as terminal:
        terminal.wait_for("━")


def test_master_admit_waits_and_gives_a_wiped_master_its_vote(hurt: Cluster) -> None:
    hurt.masters[0].kill()
    hurt.masters[0].wipe()
    hurt.masters[0].start()
    eventually(lambda: hurt.master_states()[0]["state"] == "blank", "m1 is blank")
    done = lockctl(hurt, "master", "admit", "m1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("admitted")
    hurt.wait_voting(3)
    assert lockctl(hurt, "master", "admit", "m1", "--json").json["status"] == "already"
