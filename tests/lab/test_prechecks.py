"""What every play looks at before it changes anything: a cluster that isn't the inventory's, isn't well, or
whose secrets aren't here is left as it is, with words that say what to do."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockd.guard.delay import NS_PER_S, quarantine_ns
from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.lab import ADDRESSES, APPS, MASTER_SOCKET, MASTERS
from tests.lab.looks import votes
from tests.lab.plays import play
from tests.lab.waiting import until

# A precheck that fails is to fail soon.
IMPATIENT = ("-e", "all_well_patience_s=2", "-e", "lockd_time_sync_patience_s=2")

Document = dict[str, Any]


def masters_of(document: Document) -> Document:
    hosts: Document = document["all"]["children"]["lock_masters"]["hosts"]
    return hosts


def fewer(document: Document) -> None:
    for name in ("m4", "m5"):
        del masters_of(document)[name]


def another_address(document: Document) -> None:
    masters_of(document)["m5"]["lockd_master_address"] = "10.77.0.15.example.com"


def another_name(document: Document) -> None:
    masters_of(document)["m5"]["lockd_master_name"] = "m6"


def another_port(document: Document) -> None:
    document["all"]["vars"]["lockd_master_port"] = 6380


def without_tls(document: Document) -> None:
    document["all"]["vars"]["lockd_tls"] = False


def wait_for_all_votes(on: Any) -> None:
    until(lambda: votes(on) == dict.fromkeys(MASTERS, 1), "all masters have a vote")


@pytest.mark.parametrize("spoil", [fewer, another_address, another_name, another_port, without_tls])
def test_the_masters_of_a_cluster_that_works_are_not_changed(
    cluster: Cluster, spoil: Callable[[Document], None]
) -> None:
    document = inventory.document(cluster.lab, {})
    spoil(document)
    inventory.write_document(cluster.lab.folder / "other-masters", document)
    refused = play(cluster.lab, "site.yml", inventory_name="other-masters")
    refused.must_stop_with("ask different machines", "Put the inventory back", "Nothing was changed")


def test_masters_with_one_machine_id_are_not_installed(cluster: Cluster, on: Any) -> None:
    """As of an image that was cloned with it: a guard could not tell the other's data from its own."""
    of_m4 = on("m4").check_output("cat /etc/machine-id")
    on("m5").check_output(f"cp /etc/machine-id /etc/machine-id.kept && echo {of_m4} >/etc/machine-id")
    try:
        refused = play(cluster.lab, "site.yml")
        refused.must_stop_with(of_m4, "as of m4", "systemd-machine-id-setup", "Nothing was changed")
    finally:
        on("m5").check_output("cat /etc/machine-id.kept >/etc/machine-id && rm /etc/machine-id.kept")


def test_no_master_is_replaced_while_most_agents_work_with_others(cluster: Cluster, on: Any) -> None:
    """Of those that were away when a master moved, up to half may still have its old address."""
    for host in ("a1", "a2"):
        on(host).check_output("sed -i.kept s/10.77.0.15:6379/10.77.0.16:6379/ /etc/lockd/lockd.yml")
    try:
        refused = play(cluster.lab, "replace_master.yml", "-e", "replace_master=m4")
        refused.must_stop_with("The agent of a1 works with", "(and 1 more)", "ask different machines")
    finally:
        for host in ("a1", "a2"):
            on(host).check_output("mv /etc/lockd/lockd.yml.kept /etc/lockd/lockd.yml")


def test_no_master_moves_where_no_quorum_of_the_others_is_left(cluster: Cluster, on: Any) -> None:
    words = ("-e", "move_master=m3", "-e", "address=10.77.0.99")
    refused = play(cluster.lab, "move_master.yml", *words, "-e", "absent=m4,m5")
    refused.must_stop_with("Without m3, m4, m5 no quorum", "Nothing was changed")
    refused = play(cluster.lab, "move_master.yml", *words, "-e", "absent=m3")
    refused.must_stop_with("m3 can't be left out", "move_master_old=destroyed", "Nothing was changed")
    assert on("m3").service("lockd-master").is_running
    assert votes(on) == dict.fromkeys(MASTERS, 1)


@pytest.fixture
def changed_places(cluster: Cluster) -> str:
    """An inventory with ansible_host of m3 and m4 the wrong way round; agents find them where they are."""
    document = inventory.document(cluster.lab, {})
    for name, other in (("m3", "m4"), ("m4", "m3")):
        masters_of(document)[name] = {
            "ansible_host": ADDRESSES[other],
            "lockd_master_address": ADDRESSES[name],
        }
    inventory.write_document(cluster.lab.folder / "changed-places", document)
    return "changed-places"


@pytest.mark.parametrize(
    "words",
    [
        # Without a look at whose it is, the data of m4 would be destroyed here, and of m3.
        ("replace_master.yml", "-e", "replace_master=m3,m4", "-e", "replace_master_wipe=true"),
        ("move_master.yml", "-e", "move_master=m3", "-e", "address=10.77.0.99"),
        ("rolling_restart.yml",),
        ("add_apps.yml", "-e", "apps=a2"),
        ("remove_app.yml", "-e", "app=a2"),
    ],
)
def test_a_host_that_has_another_master_is_left_alone(
    cluster: Cluster, on: Any, changed_places: str, words: tuple[str, ...]
) -> None:
    refused = play(cluster.lab, *words, inventory_name=changed_places)
    refused.must_stop_with("has the master 'lab m", "Correct ansible_host", "Nothing was changed")
    assert votes(on) == dict.fromkeys(MASTERS, 1)


def test_an_app_host_that_is_another_keeps_its_agent(cluster: Cluster, on: Any) -> None:
    document = inventory.document(cluster.lab, {})
    apps = document["all"]["children"]["lock_apps"]["hosts"]
    apps["a1"], apps["a2"] = apps["a2"], apps["a1"]
    inventory.write_document(cluster.lab.folder / "other-apps", document)
    refused = play(cluster.lab, "remove_app.yml", "-e", "app=a2", inventory_name="other-apps")
    refused.must_stop_with("has the agent of another: agent-a1", "Nothing was changed")
    assert on("a1").service("lockd").is_running


DAY2 = ("rolling_restart.yml", "rotate_passwords.yml", "change_max_ttl.yml", "replace_master.yml")
OF_M4 = ("-e", "replace_master=m4")


@pytest.mark.parametrize("playbook", DAY2)
def test_a_part_of_the_hosts_is_refused(cluster: Cluster, playbook: str) -> None:
    refused = play(cluster.lab, playbook, *OF_M4, "--limit", "m4,a1")
    refused.must_stop_with("--limit leaves out m1, m2, m3, m5, a2", "run it without --limit")


def test_health_with_a_limit_tells_of_these_hosts_and_no_others(cluster: Cluster, on: Any) -> None:
    on("m3").check_output("systemctl stop lockd-master")
    try:
        play(cluster.lab, "health.yml", "--limit", "m3").must_stop_with("Not well: m3", "unit inactive")
        play(cluster.lab, "health.yml", "--limit", "m2").must_work()
    finally:
        on("m3").check_output("systemctl start lockd-master")
    wait_for_all_votes(on)


def test_clocks_that_somebody_else_keeps_are_only_looked_at(cluster: Cluster) -> None:
    done = play(cluster.lab, "site.yml", "--tags", "time_sync", "-e", "lockd_time_sync_enabled=false")
    assert done.must_work().changed_hosts == []


@pytest.fixture
def m3_is_down(cluster: Cluster, on: Any) -> Iterator[None]:
    on("m3").check_output("systemctl stop lockd-master")
    yield
    on("m3").check_output("systemctl start lockd-master")
    wait_for_all_votes(on)


def test_a_play_of_day_2_wants_all_masters_to_have_a_vote(cluster: Cluster, m3_is_down: None) -> None:
    refused = play(cluster.lab, "rotate_passwords.yml", *IMPATIENT)
    refused.must_stop_with("m3 has no vote", "the play stops")
    assert list((cluster.lab.folder / "secrets").rglob("*.next")) == []


@pytest.fixture
def a2_has_no_time(cluster: Cluster, on: Any) -> Iterator[None]:
    on("a2").check_output("systemctl stop chrony")
    yield
    on("a2").check_output("systemctl start chrony")


def test_a_play_of_day_2_wants_all_clocks_in_sync(cluster: Cluster, a2_has_no_time: None) -> None:
    refused = play(cluster.lab, "rotate_passwords.yml", *IMPATIENT)
    refused.must_stop_with("The clock of a2 is not in sync")
    assert list((cluster.lab.folder / "secrets").rglob("*.next")) == []


def test_a_controller_without_the_secrets_makes_up_none(cluster: Cluster, tmp_path: Path) -> None:
    nowhere = tmp_path / "secrets"
    inventory.write(cluster.lab, {"lockd_secrets_dir": str(nowhere)}, "strange-secrets")
    for playbook in ("site.yml", "change_max_ttl.yml"):
        refused = play(cluster.lab, playbook, inventory_name="strange-secrets")
        refused.must_stop_with("is a master already, and has other secrets", "the password of lockd_admin")
    assert not nowhere.exists()


@pytest.mark.parametrize("kind", ["admin", "agents/a1", "operator"])
def test_a_wrong_secret_reaches_no_master(cluster: Cluster, on: Any, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "secrets"
    shutil.copytree(cluster.lab.folder / "secrets", folder)
    (folder / f"{kind}.password").write_text("x" * 40 + "\n")
    inventory.write(cluster.lab, {"lockd_secrets_dir": str(folder)}, "strange-secrets")
    users = on("m1").file("/etc/lockd-master/users.acl").content
    refused = play(cluster.lab, "site.yml", inventory_name="strange-secrets")
    user = f"agent-{kind.removeprefix('agents/')}" if "/" in kind else f"lockd_{kind}"
    refused.must_stop_with("has other secrets than", f"the password of {user}", "Nothing was changed")
    assert on("m1").file("/etc/lockd-master/users.acl").content == users


def test_passwords_that_are_kept_elsewhere_are_not_rotated(cluster: Cluster) -> None:
    files = (cluster.lab.folder / "secrets/agents").glob("*.password")
    kept = {f"agent-{file.stem}": [file.read_text().strip()] for file in files}
    inventory.write(cluster.lab, {"lockd_redis_master_agent_passwords": kept}, "elsewhere")
    refused = play(cluster.lab, "rotate_passwords.yml", inventory_name="elsewhere")
    refused.must_stop_with("The inventory sets lockd_redis_master_agent_passwords", "Nothing was changed")
    assert list((cluster.lab.folder / "secrets").rglob("*.next")) == []


def as_the_readme_says(folder: Path) -> dict[str, Any]:
    """Its variables for a secrets manager, with files in its place."""
    readme = (inventory.ANSIBLE / "roles/cluster_secrets/README.md").read_text()
    [block] = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    asked = "lookup('community.hashi_vault.vault_kv2_get', 'lockd/"
    assert block.count(asked) == 4
    block = block.replace(asked, f"lookup('ansible.builtin.file', '{folder}/")
    found: dict[str, Any] = yaml.safe_load(block.replace(").secret.password", " ~ '.password')"))
    return found


def test_passwords_come_from_a_secrets_manager_as_the_readme_says(cluster: Cluster, tmp_path: Path) -> None:
    play(cluster.lab, "site.yml").must_work()
    manager, secrets = tmp_path / "manager", tmp_path / "secrets"
    shutil.copytree(cluster.lab.folder / "secrets", manager)
    secrets.mkdir(mode=0o700)
    shutil.copytree(manager / "tls", secrets / "tls")
    for name in ("ca.password", "grafana.password"):
        shutil.copy(manager / name, secrets / name)
    variables = {**as_the_readme_says(manager), "lockd_secrets_dir": str(secrets)}
    inventory.write(cluster.lab, variables, "manager")
    assert play(cluster.lab, "site.yml", inventory_name="manager").must_work().changed_hosts == []
    assert {path.name for path in secrets.rglob("*.password")} == {"ca.password", "grafana.password"}


def test_a_new_master_gets_no_guard_that_is_shorter_than_the_leases(cluster: Cluster, on: Any) -> None:
    inventory.write(cluster.lab, {"lockd_max_ttl_ms": inventory.MAX_TTL_MS - 1000}, "shorter")
    refused = play(cluster.lab, "replace_master.yml", *OF_M4, inventory_name="shorter")
    refused.must_stop_with(
        f"may have granted leases of {inventory.MAX_TTL_MS} ms",
        "Set that in the inventory",
        "change_max_ttl.yml",
    )


def redis(cluster: Cluster, on: Any, host: str, command: str) -> str:
    password = (cluster.lab.folder / "secrets/admin.password").read_text().strip()
    cli = f"redis-cli --no-auth-warning --user lockd_admin -s {MASTER_SOCKET}"
    return str(on(host).check_output(f"REDISCLI_AUTH={password} {cli} {command}"))


def test_nor_than_those_from_before_the_max_ttl_was_lowered(cluster: Cluster, on: Any) -> None:
    redis(cluster, on, "m1", "HSET lockd:identity was_max_ttl_ms 99000")
    try:
        refused = play(cluster.lab, "replace_master.yml", *OF_M4)
        refused.must_stop_with("the master of m1 may have granted leases of 99000 ms")
    finally:
        redis(cluster, on, "m1", "HDEL lockd:identity was_max_ttl_ms")


def test_a_master_without_a_vote_is_restarted_for_what_mends_it(cluster: Cluster, on: Any) -> None:
    on("m2").check_output("sed -i 's/^appendfsync always/appendfsync no/' /etc/lockd-master/master.conf")
    on("m2").check_output("systemctl restart lockd-master")
    until(lambda: votes(on)["m2"] == 0, "m2 loses its vote, as it is misconfigured")
    refused = play(cluster.lab, "rolling_restart.yml", *IMPATIENT)
    refused.must_stop_with("m2 has no vote")
    # m1 would be the first, and has to wait for m2.
    inventory.write(cluster.lab, {"lockd_redis_master_maxmemory": "192mb"}, "other-memory")
    play(cluster.lab, "site.yml", "--tags", "redis_master", inventory_name="other-memory").must_work()
    assert votes(on) == dict.fromkeys(MASTERS, 1)
    # For those who ask later which masters were changed.
    play(cluster.lab, "site.yml", "--tags", "redis_master").must_work()


def test_a_lowered_max_ttl_is_waited_for_as_the_longest_guard_has_it(cluster: Cluster, on: Any) -> None:
    before, longer = inventory.MAX_TTL_MS, inventory.LONGER_MAX_TTL_MS
    inventory.write(cluster.lab, {"lockd_max_ttl_ms": longer}, "longer")
    play(cluster.lab, "change_max_ttl.yml", inventory_name="longer").must_work()
    # As if m1 had been replaced meanwhile, or an earlier run been interrupted.
    on("m1").check_output(f"sed -i 's/^max_ttl_ms = {longer}/max_ttl_ms = {before}/' /etc/lockd/guard.conf")
    lowered = play(cluster.lab, "change_max_ttl.yml").must_work()
    assert f"Pausing for {math.ceil(quarantine_ns(longer) / NS_PER_S)} seconds" in lowered.said
    for name in MASTERS:
        assert on(name).file("/etc/lockd/guard.conf").contains(f"max_ttl_ms = {before}")
        assert redis(cluster, on, name, "HGET lockd:identity was_max_ttl_ms").strip() == ""


def test_the_old_password_is_good_until_agents_get_in_with_the_new_one(cluster: Cluster, on: Any) -> None:
    on("a2").check_output("cp -p /etc/lockd/masters.password /etc/lockd/kept.password")
    on("a2").check_output("sed -i.kept s/masters.password/kept.password/ /etc/lockd/lockd.yml")
    on("a2").check_output("systemctl restart lockd")
    try:
        stopped = play(cluster.lab, "rotate_passwords.yml", "-e", "all_well_patience_s=15")
        assert stopped.status != 0
        assert "m1 has no vote" in stopped.said
        assert "as a2 sees it" in stopped.said
        # The others take both, and a2 goes on with four of five.
        assert on("a2").run(f"lockctl run --ttl {inventory.TTL} lab:old-password -- true").rc == 0
    finally:
        on("a2").check_output("mv /etc/lockd/lockd.yml.kept /etc/lockd/lockd.yml")
        on("a2").check_output("rm /etc/lockd/kept.password; systemctl restart lockd")
    wait_for_all_votes(on)
    play(cluster.lab, "rotate_passwords.yml").must_work()


def test_no_secret_is_in_any_journal(cluster: Cluster) -> None:
    found = (cluster.lab.folder / "secrets").rglob("*.password")
    secrets = {path.stem: path.read_text().strip() for path in found}
    assert len(secrets) >= 7
    for name in (*MASTERS, *APPS):
        journal = cluster.lab.host(name).run("journalctl", "--no-pager", "-o", "cat")
        # It is one that would have them: what sudo was told to run is in it, and what Ansible's modules were.
        assert "COMMAND=/bin/sh -c" in journal
        assert "Invoked with" in journal
        assert [kind for kind, secret in secrets.items() if secret in journal] == []


def test_masters_that_agents_have_used_are_never_taken_for_unused(cluster: Cluster, on: Any) -> None:
    for name in MASTERS:
        on(name).check_output("systemctl stop lockd-master && rm -r /var/lib/lockd-master/appendonlydir")
    for name in MASTERS:
        on(name).check_output("systemctl start lockd-master")
    inventory.write(cluster.lab, {"lockd_cluster_unused": True}, "said-to-be-unused")
    play(cluster.lab, "site.yml", "--tags", "form", inventory_name="said-to-be-unused").must_work()
    last = on("a1").check_output("journalctl --no-pager -o cat -u lockd | grep event=membership | tail -n 1")
    # And not what="form unused", as when the lab was made.
    assert "what=form status=formed" in last
    assert votes(on) == dict.fromkeys(MASTERS, 1)


def test_a_cluster_is_destroyed_only_when_it_is_named(cluster: Cluster, on: Any) -> None:
    refused = play(cluster.lab, "remove_cluster.yml")
    refused.must_stop_with("every lock in it is forgotten", "-e remove_cluster=lab", "Nothing was changed")
    play(cluster.lab, "remove_cluster.yml", "-e", "remove_cluster=other").must_stop_with(
        "Nothing was changed"
    )
    assert on("m1").service("lockd-master").is_running


def test_nor_by_the_inventory_of_another_cluster_that_has_its_hosts(cluster: Cluster, on: Any) -> None:
    """Copied, and given another name, before the hosts in it were changed."""
    inventory.write(cluster.lab, {"lockd_cluster": "other"}, "copied")
    refused = play(cluster.lab, "remove_cluster.yml", "-e", "remove_cluster=other", inventory_name="copied")
    refused.must_stop_with(
        "m1 (lab), m2 (lab)", "a1 (lab), a2 (lab)", "belong to another cluster", "Nothing was changed"
    )
    assert votes(on) == dict.fromkeys(MASTERS, 1)
