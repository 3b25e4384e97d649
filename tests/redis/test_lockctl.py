"""The commands of `lockctl` but `run`, typed at a real agent."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.lockctl import LOCKCTL, at_terminal, lockctl, started_at_terminal
from tests.harness.waiting import eventually
from tests.harness.wire import as_map
from tests.redis.module_cluster import module_cluster

NO, USAGE, WRONG, UNREACHABLE, LOST = 1, 64, 65, 69, 76


cluster = module_cluster(5)
"""One for all tests here, which lock resources of their own."""


# Locks for scripts


def test_the_example_in_the_help_works_in_sh(cluster: Cluster) -> None:
    script = f"""
      lease=$({LOCKCTL} lock sh --ttl 20s) || exit
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


def test_extend_prints_a_later_deadline_and_the_same_fence(cluster: Cluster) -> None:
    token, fence, deadline_ns = lockctl(cluster, "lock", "longer", "--ttl", "10s").stdout.split()
    again = lockctl(cluster, "extend", "longer", token, "--ttl", "50s").stdout.split()
    assert again[:2] == [token, fence]
    assert int(again[2]) > int(deadline_ns) + 30 * 10**9


def test_a_lease_that_was_over_before_its_unlock_gives_76_or_1(cluster: Cluster) -> None:
    token = lockctl(cluster, "lock", "short", "--ttl", "100ms").stdout.split()[0]
    eventually(lambda: lockctl(cluster, "holder", "short").returncode == NO, what="it is over")
    assert lockctl(cluster, "unlock", "short", token).returncode in (NO, LOST)


def test_no_agent_gives_69_and_names_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "none.sock"
    done = subprocess.run([LOCKCTL, "--socket", path, "ping"], capture_output=True, text=True, check=False)
    assert done.returncode == UNREACHABLE
    assert f"{path}: No such file or directory" in done.stderr


# A look at things


def test_ping_says_how_long_it_took(cluster: Cluster) -> None:
    assert re.fullmatch(r"PONG in [0-9.]+ms\n", lockctl(cluster, "ping").stdout)
    assert lockctl(cluster, "ping", "--json").json["reply"] == "PONG"


def test_holder_of_a_free_resource_says_so_and_gives_1(cluster: Cluster) -> None:
    done = lockctl(cluster, "holder", "free")
    assert (done.returncode, done.stdout) == (NO, "free is free\n")
    done = lockctl(cluster, "holder", "free", "--json")
    assert (done.returncode, done.json) == (NO, None)


def test_holder_says_who_and_on_how_many_masters(cluster: Cluster) -> None:
    lease = as_map(cluster.client().execute_command("LOCK", "held", 30_000))
    eventually(lambda: lockctl(cluster, "holder", "held", "--json").json["masters"] == 5, what="it is on all")
    done = lockctl(cluster, "holder", "held")
    assert done.returncode == 0
    row = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert row["holder"] == lease["token"][:8]
    assert f"{os.getpid()} on " in row["process"]
    assert row["masters"] == "5 of 5"


def test_locks_lists_what_matches_in_lines_with_tabs(cluster: Cluster) -> None:
    client = cluster.client()
    for name in ("list:a", "list:b", "other:c"):
        client.execute_command("LOCK", name, 30_000)
    lines = [line.split("\t") for line in lockctl(cluster, "locks", "list:*").stdout.splitlines()]
    assert lines[0][:2] == ["RESOURCE", "HOLDER"]
    assert [line[0] for line in lines[1:]] == ["list:a", "list:b"]
    assert {row["resource"] for row in lockctl(cluster, "locks", "--json").json} >= {
        "list:a",
        "list:b",
        "other:c",
    }


def test_locks_local_knows_more_about_those_of_this_host(cluster: Cluster) -> None:
    lease = as_map(cluster.client().execute_command("LOCK", "local:a", 30_000, "DETACHED"))
    headings, values = [
        line.split("\t") for line in lockctl(cluster, "locks", "--local", "local:*").stdout.splitlines()
    ]
    row = dict(zip(headings, values, strict=True))
    assert row["FENCE"] == str(lease["fence"])
    assert row["CLASS"] == "other"
    assert row["KIND"] == "detached"


def test_names_that_would_steer_the_terminal_are_shown_escaped(cluster: Cluster) -> None:
    resource = b"evil\x1b[2J\xff\n"
    cluster.client(decode_responses=False).execute_command("LOCK", resource, 30_000, "DETACHED")
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


def test_masters_is_a_table_at_a_terminal(cluster: Cluster) -> None:
    done = at_terminal(cluster, "masters")
    assert done.returncode == 0
    assert "─" in done.stdout
    for master in cluster.masters:
        assert master.address in done.stdout
    assert "5 of 5 have a vote, 3 are needed" in done.stdout


def test_masters_says_why_one_has_no_vote(make_cluster: Callable[..., Cluster]) -> None:
    own = make_cluster(masters=3)
    own.masters[1].kill()
    own.wait_voting(2)
    lines = [line.split("\t") for line in lockctl(own, "masters").stdout.splitlines()]
    [down] = [line for line in lines if line[0] == "m2"]
    assert down[2:4] == ["down", "no"]
    assert down[-1]
    assert [row["vote"] for row in lockctl(own, "masters", "--json").json] == [1, 0, 1]


def test_a_reader_that_has_enough_is_no_error_to_shout_about(cluster: Cluster) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = lockctl(cluster, "masters", capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


# Force


def test_force_release_without_a_terminal_wants_yes_and_shows_the_holder(cluster: Cluster) -> None:
    lockctl(cluster, "lock", "forced")
    done = lockctl(cluster, "force-release", "forced")
    assert done.returncode == USAGE
    assert "--yes" in done.stderr
    assert "uid" in done.stderr
    assert lockctl(cluster, "holder", "forced").returncode == 0
    assert lockctl(cluster, "force-release", "forced", "--yes").returncode == 0
    assert lockctl(cluster, "holder", "forced").returncode == NO
    assert lockctl(cluster, "force-release", "forced", "--yes").returncode == NO


def test_force_release_at_a_terminal_asks_first(cluster: Cluster) -> None:
    lockctl(cluster, "lock", "asked")
    refused = at_terminal(cluster, "force-release", "asked", typed="n\n")
    assert refused.returncode == NO
    assert "Release it by force?" in refused.stdout
    assert lockctl(cluster, "holder", "asked").returncode == 0
    assert at_terminal(cluster, "force-release", "asked", typed="y\n").returncode == 0
    assert lockctl(cluster, "holder", "asked").returncode == NO


# Forming and admitting


def test_cluster_init_unused_forms_at_once_and_a_second_time_does_nothing(
    make_cluster: Callable[..., Cluster],
) -> None:
    own = make_cluster(masters=3, form=False)
    eventually(
        lambda: lockctl(own, "cluster", "init", "--unused").returncode == 0, 10, "the masters are there"
    )
    own.wait_voting(3)
    assert lockctl(own, "cluster", "init", "--json").json["status"] == "already"


@pytest.fixture
def blank_for_long(make_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster that nobody can form in less than a minute, however slow this machine is."""
    own = make_cluster(masters=3, form=False, max_ttl_ms=60_000)
    eventually(lambda: [one["state"] for one in own.master_states()] == ["blank"] * 3, what="all are blank")
    return own


def test_cluster_init_waits_and_says_so(blank_for_long: Cluster) -> None:
    command = [LOCKCTL, "--socket", blank_for_long.socket, "cluster", "init"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        told = waiting.stderr.readline()
        waiting.terminate()
    assert re.fullmatch(r"forming the cluster: \d.*s of 1m01s left to wait\n", told), told


def test_cluster_init_shows_a_bar_at_a_terminal(blank_for_long: Cluster) -> None:
    pid, terminal = started_at_terminal(blank_for_long, "cluster", "init")
    seen = b""
    while "━".encode() not in seen:
        seen += os.read(terminal, 4096)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    os.close(terminal)


def test_master_admit_waits_and_gives_a_wiped_master_its_vote(make_cluster: Callable[..., Cluster]) -> None:
    own = make_cluster(masters=3, max_ttl_ms=1000)
    own.masters[0].kill()
    own.masters[0].wipe()
    own.masters[0].start()
    eventually(lambda: own.master_states()[0]["state"] == "blank", 10, "m1 is blank")
    done = lockctl(own, "master", "admit", "m1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("admitted")
    own.wait_voting(3)
    assert lockctl(own, "master", "admit", "m1", "--json").json["status"] == "already"


def test_master_admit_of_an_unknown_name_gives_65_and_the_names_there_are(cluster: Cluster) -> None:
    done = lockctl(cluster, "master", "admit", "m9")
    assert done.returncode == WRONG
    assert "m1, m2" in done.stderr
