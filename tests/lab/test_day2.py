"""What is done to a cluster that works, with an app on each app host taking and releasing locks all the
time."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.holders import SOCKET, holding
from tests.lab.host import Host
from tests.lab.image import NEXT_VERSION_SUFFIX
from tests.lab.lab import APPS, MASTER_SOCKET, MASTERS
from tests.lab.load import PYTHON, at_work
from tests.lab.looks import masters, passwords, votes
from tests.lab.plays import Played, play
from tests.lab.waiting import until


def play_under_load(cluster: Cluster, playbook: str, *words: str, name: str = "inventory") -> Played:
    """It works, and no app notices: no request fails, no exclusion is broken."""
    with at_work(
        cluster.lab, " ".join([playbook, *words, *([] if name == "inventory" else [f"({name})"])])
    ) as work:
        played = play(cluster.lab, playbook, *words, inventory_name=name)
    played.must_work()
    work.must_be_flawless()
    return played


def started_at(on: Any, host: str, unit: str) -> str:
    return str(on(host).check_output(f"systemctl show -p ExecMainStartTimestampMonotonic {unit}"))


@pytest.mark.smoke
def test_health_says_that_all_is_well(cluster: Cluster) -> None:
    played = well(cluster)
    assert played.changed_hosts == []
    for host in (*MASTERS, *APPS, "mon1"):
        assert f"{host} " in played.said


def well(cluster: Cluster) -> Played:
    """Once no alert of a test before is left."""

    def looked() -> Played | None:
        played = play(cluster.lab, "health.yml")
        return played if played.status == 0 else None

    found = until(looked, "all is well")
    assert found is not None
    return found


def test_health_names_a_disk_that_is_nearly_full_and_a_monitoring_that_is_down(
    cluster: Cluster, on: Any
) -> None:
    on("m2").check_output(
        "mount -t tmpfs -o size=1M none /var/log && head -c 1000k /dev/zero > /var/log/full"
    )
    on("mon1").check_output("systemctl stop prometheus")
    try:
        played = play(cluster.lab, "health.yml")
        played.must_stop_with(
            "Not well: m2, mon1", "/var/log 9", "% full", "prometheus inactive", "Prometheus does not answer"
        )
    finally:
        on("m2").check_output("umount /var/log")
        on("mon1").check_output("systemctl start prometheus")


def test_health_names_a_master_that_is_down(cluster: Cluster, on: Any) -> None:
    on("m3").check_output("systemctl stop lockd-master")
    try:
        played = play(cluster.lab, "health.yml")
        played.must_stop_with("Not well: m3", "unit inactive")
        refused = play(cluster.lab, "rolling_restart.yml", "-e", "all_well_patience_s=2")
        refused.must_stop_with("m3 has no vote", "the play stops")
    finally:
        on("m3").check_output("systemctl start lockd-master")


@pytest.mark.smoke
def test_a_rolling_restart_is_not_noticed(cluster: Cluster, on: Any) -> None:
    before = {name: started_at(on, name, "lockd-master") for name in MASTERS}
    waited = {name: quarantines(on, name) for name in MASTERS}
    with holding(cluster.lab, "rolling_restart.yml") as held:
        play_under_load(cluster, "rolling_restart.yml")
    held.must_have_been_kept()
    assert all(started_at(on, name, "lockd-master") != before[name] for name in MASTERS)
    # Each was stopped cleanly.
    assert {name: quarantines(on, name) for name in MASTERS} == waited


def quarantines(on: Any, host: str) -> dict[str, int]:
    """How many its master had, by reason."""
    status: dict[str, Any] = json.loads(on(host).run("lockd-guard status --json").stdout)
    return dict(status["quarantines"])


def test_a_changed_setting_is_taken_over_by_one_master_at_a_time(cluster: Cluster, on: Any) -> None:
    inventory.write(cluster.lab, {"lockd_redis_master_maxmemory": "128mb"}, "smaller")
    play_under_load(cluster, "site.yml", "--tags", "redis_master", name="smaller")
    for name in MASTERS:
        assert on(name).file("/etc/lockd-master/master.conf").contains("maxmemory 128mb")
        assert on(name).run("sha256sum --check --status /run/lockd-master.started-with").rc == 0


def test_passwords_are_rotated_and_nobody_is_refused(cluster: Cluster, on: Any) -> None:
    old = passwords(cluster.lab)
    play_under_load(cluster, "rotate_passwords.yml")
    new = passwords(cluster.lab)
    users = {"a1": "agent-a1", "a2": "agent-a2", "admin": "lockd_admin",
             "operator": "lockd_operator", "loader": "lockd_loader"}  # fmt: skip
    for name in MASTERS:
        for kind, user in users.items():
            ping = f"redis-cli --user {user} -s {MASTER_SOCKET} PING 2>&1"
            assert "WRONGPASS" in on(name).run(f"REDISCLI_AUTH={old[kind]} {ping}").stdout
            # Who is let in may PING, or is told that PING isn't among what it may do.
            answer = on(name).run(f"REDISCLI_AUTH={new[kind]} {ping}").stdout
            assert ("PONG" if kind == "admin" else "NOPERM") in answer
    assert set(votes(on).values()) == {1}
    assert list((cluster.lab.folder / "secrets").rglob("*.next")) == []


OF_ANOTHER_VERSION = base64.b64encode(b"return 'as an older agent has it'").decode()


def as_admin(cluster: Cluster, on: Any, host: str, command: str) -> str:
    password = (cluster.lab.folder / "secrets/admin.password").read_text().strip()
    cli = f"redis-cli --no-auth-warning --user lockd_admin -s {MASTER_SOCKET}"
    return str(on(host).check_output(f"REDISCLI_AUTH={password} {cli} {command}"))


def is_loaded(cluster: Cluster, on: Any, host: str, script: bytes) -> bool:
    digest = hashlib.sha1(script, usedforsecurity=False).hexdigest()
    return as_admin(cluster, on, host, f"SCRIPT EXISTS {digest}").strip() == "1"


def test_another_authority_comes_and_nobody_is_refused(cluster: Cluster, on: Any) -> None:
    before = on("m1").file("/etc/lockd-master/tls/ca.pem").content
    play_under_load(cluster, "rotate_ca.yml")
    for host, path in (("m1", "/etc/lockd-master/tls/ca.pem"), ("a1", "/etc/lockd/ca.pem")):
        now = on(host).file(path).content
        assert now != before
        assert now.count(b"BEGIN CERTIFICATE") == 1
    assert play(cluster.lab, "site.yml").must_work().changed_hosts == []


def test_a_wiped_master_is_admitted_again(cluster: Cluster, on: Any) -> None:
    refused = play(cluster.lab, "replace_master.yml", "-e", "replace_master=m4")
    refused.must_stop_with("m4 has data and is 'up'", "Nothing was changed")
    remains = "/var/lib/lockd-master /etc/lockd-master /usr/local/lib/lockd/scripts"
    on("m4").check_output(f"systemctl stop lockd-master && rm -r {remains}")
    # As if agents of another version than the controller's were there, which call this one.
    for name in set(MASTERS) - {"m4"}:
        on(name).check_output(
            f"echo {OF_ANOTHER_VERSION} >/usr/local/lib/lockd/scripts/{'0' * 40}"
            " && /usr/bin/python3 -I /usr/local/lib/lockd/load_scripts.py"
        )
    play_under_load(cluster, "replace_master.yml", "-e", "replace_master=m4")
    assert is_loaded(cluster, on, "m4", base64.b64decode(OF_ANOTHER_VERSION))
    assert votes(on) == dict.fromkeys(MASTERS, 1)


def test_redis_is_upgraded_one_master_at_a_time_also_when_a_host_dies_in_between(
    cluster: Cluster, on: Any
) -> None:
    for name in MASTERS:
        (cluster.lab.host(name).merged / "etc/apt/sources.list.d/next.list").write_text(
            "deb [trusted=yes] file:/srv/repo-next ./\n"
        )
    m2 = cluster.lab.host("m2")
    with at_work(cluster.lab, "upgrade_redis.yml, until the host m2 dies in it") as work:
        running = Thread(target=until_it_is_held_then_kill, args=(m2,))
        running.start()
        stopped = play(cluster.lab, "upgrade_redis.yml", as_users_do=True)
        running.join()
    assert stopped.status != 0
    assert "m2 can't be reached any more, so the play stops" in stopped.said
    work.must_be_flawless()
    assert has_next_version(on, "m1")
    assert not has_next_version(on, "m3")
    m2.start()
    play_under_load(cluster, "upgrade_redis.yml")
    for name in MASTERS:
        assert has_next_version(on, name)
        assert not on(name).file("/run/lockd-master.held").exists
        assert on(name).service("redis-server").is_masked
    assert play(cluster.lab, "upgrade_redis.yml").must_work().changed_hosts == []


def until_it_is_held_then_kill(host: Host) -> None:
    """The host dies while its package is being changed."""
    until(lambda: "held" in host.run("ls", "/run"), "its package is being changed")
    host.kill()


def has_next_version(on: Any, host: str) -> bool:
    return NEXT_VERSION_SUFFIX in on(host).package("redis-server").version


def test_agents_are_upgraded_one_host_first(cluster: Cluster, on: Any) -> None:
    before = on("a1").file("/opt/lockd/current").linked_to
    (cluster.lab.source / "lockd/new.py").write_text('"""Something that the old version did not have."""\n')
    # As if the old version's agents had needed less.
    as_admin(cluster, on, "m1", "ACL SETUSER agent-a1 -publish")
    with holding(cluster.lab, "upgrade_lockd.yml") as held:
        play_under_load(cluster, "upgrade_lockd.yml")
    held.must_have_been_kept()
    after = {on(name).file("/opt/lockd/current").linked_to for name in APPS}
    assert len(after) == 1
    assert before not in after
    assert as_admin(cluster, on, "m1", "ACL DRYRUN agent-a1 PUBLISH lockd:host:a1 x").strip() == "OK"


CAN_COMPILE = (
    sys.version_info[:2] == (3, 11)  # as the hosts'
    and shutil.which("cc") is not None
    and Path(sysconfig.get_path("include"), "Python.h").exists()
)


@pytest.mark.skipif(not CAN_COMPILE, reason="no C compiler here, or no headers of the hosts' Python")
def test_agents_are_changed_over_to_what_is_compiled_and_back(cluster: Cluster, on: Any) -> None:
    for words, build in ((["-e", "lockd_compiled=true"], "compiled"), ([], "interpreted")):
        with holding(cluster.lab, f"upgrade_lockd.yml to what is {build}") as held:
            play_under_load(cluster, "upgrade_lockd.yml", *words)
        held.must_have_been_kept()
        for name in APPS:
            asks = f"import redis; print(redis.Redis(unix_socket_path='{SOCKET}').info()['build'])"
            assert on(name).check_output(f'{PYTHON} -c "{asks}"').strip() == build


def test_a_version_that_can_not_take_over_what_is_held_is_refused_meanwhile(
    cluster: Cluster, on: Any
) -> None:
    before = {name: on(name).file("/opt/lockd/current").linked_to for name in APPS}
    journal = cluster.lab.source / "lockd/core/journal.py"
    good = journal.read_text()
    journal.write_text(good.replace("FORMAT = 1\n", "FORMAT = 2\n"))
    try:
        with holding(cluster.lab, "upgrade_lockd.yml to a version that can't read the journal") as held:
            refused = play(cluster.lab, "upgrade_lockd.yml")
    finally:
        journal.write_text(good)
    # It is installed beside the other, and not changed over to.
    assert refused.status != 0
    assert "it is of format 1, and this version reads 2" in refused.said
    held.must_have_been_kept()
    assert {name: on(name).file("/opt/lockd/current").linked_to for name in APPS} == before


def test_a_version_that_does_not_get_ready_is_taken_back(cluster: Cluster, on: Any) -> None:
    before = {name: on(name).file("/opt/lockd/current").linked_to for name in APPS}
    broken = cluster.lab.source / "lockd/server/agent.py"
    good = broken.read_text()
    broken.write_text(good.replace("def serve(", "def serve_no_more("))
    try:
        with at_work(cluster.lab, "upgrade_lockd.yml to a version that does not start") as work:
            played = play(cluster.lab, "upgrade_lockd.yml", "-e", "lockd_ready_patience_s=30")
    finally:
        broken.write_text(good)
    assert played.status != 0
    assert "did not get ready on a1" in played.said
    assert {name: on(name).file("/opt/lockd/current").linked_to for name in APPS} == before
    work.must_be_flawless()


@pytest.mark.parametrize("max_ttl_ms", [inventory.LONGER_MAX_TTL_MS, inventory.MAX_TTL_MS])
def test_the_max_ttl_is_raised_and_lowered(cluster: Cluster, on: Any, max_ttl_ms: int) -> None:
    inventory.write(cluster.lab, {"lockd_max_ttl_ms": max_ttl_ms}, "other-ttl")
    refused = play(cluster.lab, "site.yml", inventory_name="other-ttl")
    refused.must_stop_with("run change_max_ttl.yml first", "Nothing was changed")
    play_under_load(cluster, "change_max_ttl.yml", name="other-ttl")
    assert {row["max_ttl_ms"] for row in masters(on, "a2")} == {max_ttl_ms}
    assert on("m1").file("/etc/lockd/guard.conf").contains(f"max_ttl_ms = {max_ttl_ms}")


# Where somebody may have left a secret: files that are shown, and the journal.
SHOWN_FILES = {
    "m1": ("/etc/lockd-master/master.conf", "/etc/lockd/guard.conf"),
    "a1": ("/etc/lockd/lockd.yml",),
    "mon1": ("/etc/prometheus/prometheus.yml",),
}
SHOWN_UNITS = {"m1": "lockd-master", "a1": "lockd", "mon1": "prometheus"}


@pytest.fixture
def planted(on: Any) -> Iterator[str]:
    """A secret in each place of m1 and a1 that the bundle shows, and in some of mon1."""
    secret = "pl4nted-somewhere"
    for host, paths in SHOWN_FILES.items():
        for path in paths:
            on(host).check_output(f"cp -p {path} {path}.kept && echo '# password: {secret}' >>{path}")
        entry = f"MESSAGE=password={secret}\\nOBJECT_SYSTEMD_UNIT={SHOWN_UNITS[host]}.service\\n"
        on(host).check_output(f"printf '{entry}' | logger --journald")
    yield secret
    for host, paths in SHOWN_FILES.items():
        for path in paths:
            on(host).check_output(f"mv {path}.kept {path}")


def test_a_support_bundle_has_every_host_and_no_secret(
    cluster: Cluster, on: Any, planted: str, tmp_path: Path
) -> None:
    journal = on("a1").check_output("journalctl --no-pager --lines=500 -u lockd")
    assert planted in journal
    play(cluster.lab, "support_bundle.yml", "-e", f"support_bundle_to={tmp_path}/b.tar.gz").must_work()
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        files = {Path(member.name).stem: archive.extractfile(member) for member in archive if member.isfile()}
        text = {host: file.read().decode() for host, file in files.items() if file}
    assert set(text) == {*MASTERS, *APPS, "mon1"}
    assert "lockd-guard-watch.service" in text["m1"]
    assert "prometheus-alertmanager.service" in text["mon1"]
    assert "receivers:" in text["mon1"]
    assert text["mon1"].count("password: (not shown)") == 1
    assert "password=(not shown)" in text["mon1"]
    assert text["m1"].count("password: (not shown)") == len(SHOWN_FILES["m1"])
    assert "password=(not shown)" in text["a1"]
    secrets = [path.read_text().strip() for path in (cluster.lab.folder / "secrets").glob("*.password")]
    for secret in (planted, *secrets):
        assert [host for host, said in text.items() if secret in said] == []
