"""On hosts that have nothing yet: wrong inventories stop before anything is changed, and `--check` shows
what would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockd.guard.delay import NS_PER_MS, quarantine_ns
from tests.lab import inventory
from tests.lab.lab import ADDRESSES, Lab
from tests.lab.plays import Played, play

Document = dict[str, Any]


def masters_of(document: Document) -> Document:
    hosts: Document = document["all"]["children"]["lock_masters"]["hosts"]
    return hosts


@pytest.fixture
def site_with(lab: Lab) -> Callable[..., Played]:
    """site.yml on the lab's inventory, after the test has spoilt it."""

    def run(spoil: Callable[[Document], Any], **how: bool) -> Played:
        document = inventory.document(lab, {})
        spoil(document)
        inventory.write_document(lab.folder / "spoilt", document)
        return play(lab, "site.yml", inventory_name="spoilt", **how)

    return run


def test_four_masters_are_refused(site_with: Any) -> None:
    played = site_with(lambda document: masters_of(document).pop("m5"))
    played.must_stop_with("has 4 hosts", "make it 3, 5, 7 or 9", "Nothing was changed")


def test_an_address_that_two_masters_have_is_refused(site_with: Any) -> None:
    def spoil(document: Document) -> None:
        masters_of(document)["m2"]["lockd_master_address"] = ADDRESSES["m1"]

    same = '"10.77.0.11:6379", the same as masters[0].address'
    site_with(spoil).must_stop_with("masters[1].address", same, "Nothing was changed")


def test_a_guard_delay_that_does_not_outlast_the_leases_is_refused(site_with: Any) -> None:
    def spoil(document: Document) -> None:
        document["all"]["vars"]["lockd_restart_guard_delay_ms"] = inventory.MAX_TTL_MS

    least_ms = quarantine_ns(inventory.MAX_TTL_MS) // NS_PER_MS
    site_with(spoil).must_stop_with(f"must be at least {least_ms}", "Raise it, or leave it out")


def test_an_address_that_agents_could_not_write_down_is_refused(site_with: Any) -> None:
    def spoil(document: Document) -> None:
        masters_of(document)["m2"]["lockd_master_address"] = "fd00::12"

    site_with(spoil).must_stop_with("IPv6 addresses: m2 (fd00::12)", "Nothing was changed")


def test_a_part_of_the_hosts_is_refused(lab: Lab) -> None:
    played = play(lab, "site.yml", "--limit", "m1,a1")
    played.must_stop_with("--limit leaves out m2, m3, m4, m5, a2", "run it without --limit")


def test_nothing_is_destroyed_without_the_word_whatever_the_limit(lab: Lab) -> None:
    refused = play(lab, "remove_cluster.yml", "--limit", "m5")
    refused.must_stop_with("every lock in it is forgotten", "-e remove_cluster=lab")
    refused = play(lab, "remove_cluster.yml", "--limit", "m5", "-e", "remove_cluster=lab")
    refused.must_stop_with("--limit leaves out m1, m2, m3, m4, a1, a2")


def test_secrets_are_made_up_also_when_vagrant_says_limit_all(lab: Lab, tmp_path: Path) -> None:
    inventory.write(lab, {"lockd_secrets_dir": str(tmp_path / "secrets")}, "own-secrets")
    # Only what is done in each case: the look at all hosts, and the secrets.
    play(lab, "site.yml", "--limit=all", "--tags", "always", inventory_name="own-secrets").must_work()
    folder = tmp_path / "secrets"
    found = {path.relative_to(folder): path for path in folder.rglob("*") if path.suffix == ".password"}
    made = {str(name): path.read_text().strip() for name, path in found.items()}
    names = ("admin", "operator", "loader", "ca", "grafana", "agents/a1", "agents/a2")
    assert set(made) == {f"{name}.password" for name in names}
    assert {path.stat().st_mode & 0o777 for path in found.values()} == {0o600}
    assert [name for name, secret in made.items() if len(secret) != 40] == []


WITHOUT_SECRETS = """
- hosts: m1
  gather_facts: false
  become: true
  tasks:
    - ansible.builtin.import_role: {name: redis_master, tasks_from: write_users}
      vars: {lockd_show_secrets: true, lockd_redis_master_version: 7.0.15}
"""


def test_a_password_that_was_not_made_up_is_never_replaced_by_another(lab: Lab, tmp_path: Path) -> None:
    inventory.write(lab, {"lockd_secrets_dir": str(tmp_path / "none")}, "no-secrets")
    playbook = tmp_path / "users.yml"
    playbook.write_text(WITHOUT_SECRETS)
    lab.host("m1").run("install", "-d", "/etc/lockd-master")
    try:
        played = play(lab, str(playbook), inventory_name="no-secrets")
    finally:
        lab.host("m1").run("rm", "-r", "/etc/lockd-master")
    played.must_stop_with("there is no operator.password in")


def test_a_host_that_does_not_answer_is_named(site_with: Any) -> None:
    def spoil(document: Document) -> None:
        masters_of(document)["m4"]["ansible_host"] = "10.77.0.99"

    refused = site_with(spoil, as_users_do=True)
    refused.must_stop_with("No answer over ssh from m4", "run the same play again", "Nothing was changed")


@contextmanager
def a_redis_of_somebody(lab: Lab, host: str) -> Iterator[None]:
    """A listener on the master's port: to the play it is all the same whose Redis it is."""
    code = "import socket,time;s=socket.create_server(('', 6379));time.sleep(10**6)"
    lab.host(host).run("systemd-run", "--quiet", "--unit=somebody", "--collect", "python3", "-c", code)
    try:
        yield
    finally:
        lab.host(host).run("systemctl", "stop", "somebody")


def test_a_redis_that_is_not_ours_is_left_alone(lab: Lab, site_with: Any) -> None:
    with a_redis_of_somebody(lab, "m3"):
        played = site_with(lambda document: None)
    played.must_stop_with(
        "On m3: port 6379, which lockd-master.service needs, is in use by somebody.service",
        "so nothing was changed",
    )


def test_a_redis_of_somebody_under_the_stock_service_is_not_masked(lab: Lab, site_with: Any) -> None:
    # On whatever port: here it is no Redis at all.
    lab.host("m3").run("systemd-run", "--quiet", "--unit=redis-server", "--collect", "sleep", "infinity")
    try:
        played = site_with(lambda document: None)
    finally:
        lab.host("m3").run("systemctl", "stop", "redis-server")
    played.must_stop_with(
        "On m3: redis-server.service runs, and lockd would mask it", "so nothing was changed"
    )


def test_data_that_is_not_ours_is_left_alone(lab: Lab, site_with: Any) -> None:
    lab.host("m2").run("mkdir", "-p", "/var/lib/lockd-master/appendonlydir")
    try:
        played = site_with(lambda document: None)
    finally:
        lab.host("m2").run("rm", "-r", "/var/lib/lockd-master")
    played.must_stop_with("m2 is not blank, and belongs to another cluster or master", "Nothing was changed")


def test_check_mode_shows_what_would_be_done_and_does_nothing(lab: Lab) -> None:
    played = play(lab, "site.yml", "--check", "--diff").must_work()
    assert played.changed["m1"] > 5
    for path in (
        "/etc/lockd-master",
        "/var/lib/lockd-guard",
        "/usr/bin/redis-server",
        "/etc/chrony/chrony.conf",
    ):
        assert not (lab.host("m1").merged / path.lstrip("/")).exists(), path


@pytest.mark.parametrize("tag", ["lockd", "monitoring"])
def test_check_mode_of_a_part_shows_what_would_be_done(lab: Lab, tag: str) -> None:
    played = play(lab, "site.yml", "--check", "--tags", tag).must_work()
    assert played.changed["a1" if tag == "lockd" else "mon1"] > 0
