"""An app host that is shut out, and let in again. Until it is, site.yml stops: so this comes near the end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lab.conftest import Cluster
from tests.lab.host import Host
from tests.lab.lab import MASTER_SOCKET, MASTERS
from tests.lab.load import at_work
from tests.lab.looks import masters, passwords, votes
from tests.lab.plays import play
from tests.lab.waiting import until


@dataclass(frozen=True)
class Before:
    """What a2 had, and what it saw when it was shut out: it could not be reached then."""

    password: str
    key: bytes
    seen: list[dict[str, Any]]


@pytest.fixture(scope="module")
def shut_out(cluster: Cluster) -> Before:
    password, key = passwords(cluster.lab)["a2"], key_of_a2(cluster).read_bytes()
    cluster.lab.host("a2").run("systemctl", "stop", "ssh")
    for master in MASTERS:
        for written in ("HSET lockd:lease:written f v", "SET lockd:lease:other x", "HSET lockd:places:r a b"):
            as_admin(cluster, master, written)
    try:
        with at_work(cluster.lab, "revoke_agent.yml, of a2", ["a1"]) as work:
            play(cluster.lab, "revoke_agent.yml", "-e", "revoke_agent=a2", as_users_do=True).must_work()
        work.must_be_flawless()
        seen = until(lambda: refused_by_all(cluster.lab.host("a2")), "its agent has asked all masters again")
    finally:
        cluster.lab.host("a2").run("systemctl", "start", "ssh")
    return Before(password, key, seen)


def refused_by_all(host: Host) -> list[dict[str, Any]]:
    """What its agent says of the masters, once each of them has refused it."""
    seen: list[dict[str, Any]] = json.loads(host.run("lockctl", "masters", "--json"))
    return seen if all("WRONGPASS" in row["reason"] for row in seen) else []


def key_of_a2(cluster: Cluster) -> Any:
    return cluster.lab.folder / "secrets/tls/a2.key"


def test_a_host_that_no_master_knows_is_not_shut_out(cluster: Cluster) -> None:
    refused = play(cluster.lab, "revoke_agent.yml", "-e", "revoke_agent=a9")
    refused.must_stop_with("No master knows agent-a9", "which has 2 hosts (a1, a2)", "Nothing was changed")


def test_an_app_host_is_shut_out_though_it_is_away(cluster: Cluster, on: Any, shut_out: Before) -> None:
    ping = f"REDISCLI_AUTH={shut_out.password} redis-cli --user agent-a2 -s {MASTER_SOCKET} PING 2>&1"
    assert [row["name"] for row in shut_out.seen if row["vote"]] == []
    assert {row["reason"].split()[0] for row in shut_out.seen} == {"WRONGPASS"}
    for name in MASTERS:
        assert "WRONGPASS" in on(name).run(ping).stdout
        assert not on(name).file("/etc/lockd-master/users.acl").contains("agent-a2")
    assert not (cluster.lab.folder / "secrets/agents/a2.password").exists()
    assert not key_of_a2(cluster).exists()
    assert votes(on) == dict.fromkeys(MASTERS, 1)


def test_what_it_has_left_on_the_masters_ends(cluster: Cluster, shut_out: Before) -> None:
    for master in MASTERS:
        for written in ("written", "other"):
            # -2: it has ended since.
            assert int(as_admin(cluster, master, f"PTTL lockd:lease:{written}")) != -1
        assert as_admin(cluster, master, "EXISTS lockd:places:r").strip() == "0"


def as_admin(cluster: Cluster, master: str, command: str) -> str:
    password = (cluster.lab.folder / "secrets/admin.password").read_text().strip()
    cli = f"REDISCLI_AUTH={password} redis-cli --no-auth-warning --user lockd_admin -s {MASTER_SOCKET}"
    return cluster.lab.host(master).run("sh", "-c", f"{cli} {command}")


@pytest.mark.parametrize("playbook", ["site.yml", "rotate_passwords.yml"])
def test_until_somebody_says_that_it_is_ours_again_plays_stop(
    cluster: Cluster, shut_out: Before, playbook: str
) -> None:
    refused = play(cluster.lab, playbook)
    refused.must_stop_with("and still in lock_apps: a2", "agents/a2.revoked", "Nothing was changed")


def test_it_is_let_in_again_with_other_secrets(cluster: Cluster, on: Any, shut_out: Before) -> None:
    (cluster.lab.folder / "secrets/agents/a2.revoked").unlink()
    play(cluster.lab, "site.yml").must_work()
    assert passwords(cluster.lab)["a2"] != shut_out.password
    assert key_of_a2(cluster).read_bytes() != shut_out.key
    assert {row["vote"] for row in masters(on, "a2")} == {1}
