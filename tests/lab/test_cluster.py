"""What `site.yml` makes of bare hosts: a cluster that grants locks, closed to strangers, and left alone
by a second run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.conftest import Cluster
from tests.lab.inventory import TTL
from tests.lab.lab import APPS, MASTER_SOCKET, MASTERS
from tests.lab.looks import votes
from tests.lab.plays import play
from tests.lab.report import REPORT
from tests.lab.waiting import PATIENCE_S

pytestmark = pytest.mark.smoke

# systemd's own measure, 0 (safe) to 10; what it calls OK ends at 5.
MOST_EXPOSED = 3.0


def test_the_first_run_ends_with_locks_being_taken_from_each_app_host(cluster: Cluster, on: Any) -> None:
    for name in APPS:
        ran = on(name).run(f"lockctl run --ttl {TTL} lab:first -- printenv LOCKD_FENCE")
        assert ran.rc == 0, ran.stderr
        assert int(ran.stdout) > 0


def test_all_masters_have_a_vote(cluster: Cluster, on: Any) -> None:
    assert votes(on) == dict.fromkeys(MASTERS, 1)


def test_the_second_run_changes_nothing(cluster: Cluster) -> None:
    again = play(cluster.lab, "site.yml").must_work()
    REPORT.ran("site.yml, for the second time", again.took_s, again.recap)
    assert again.changed_hosts == [], again.output[-5000:]


@pytest.mark.thorough
def test_check_mode_on_what_is_finished_finds_nothing_to_do(cluster: Cluster) -> None:
    checked = play(cluster.lab, "site.yml", "--check", "--diff").must_work()
    assert checked.changed_hosts == [], checked.output[-5000:]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ("--check", "--tags", "lockd"),
        ("--check", "--tags", "run"),
        ("--check", "--skip-tags", "install"),
        ("--tags", "configure"),
        ("--tags", "run"),
    ],
)
def test_a_part_of_what_is_finished_finds_nothing_to_do(cluster: Cluster, words: tuple[str, ...]) -> None:
    """All other tags: test_tags.py."""
    played = play(cluster.lab, "site.yml", *words).must_work()
    assert played.changed_hosts == [], played.output[-5000:]


@pytest.mark.parametrize("host", ["m1", "m5"])
def test_the_stock_service_is_masked_and_ours_runs(cluster: Cluster, on: Any, host: str) -> None:
    assert on(host).service("redis-server").is_masked
    assert on(host).service("lockd-master").is_running
    assert on(host).service("lockd-master").is_enabled
    assert on(host).service("lockd-guard-watch").is_running


@pytest.mark.parametrize(
    ("host", "unit"), [("m1", "lockd-master"), ("a1", "lockd"), ("m1", "lockd-guard-watch")]
)
def test_each_service_is_in_a_sandbox(cluster: Cluster, on: Any, host: str, unit: str) -> None:
    rated = on(host).check_output(f"systemd-analyze security --no-pager {unit}.service | tail -1")
    exposure = float(rated.split(":")[1].split()[0])
    assert exposure <= MOST_EXPOSED, rated


# Talks to a master of Redis itself, from an app host: words of Python, given the context and a name for it.
TALK = """
import socket, ssl, sys
tls = ssl.create_default_context(cafile='/etc/lockd/ca.pem')
{prepare}
try:
    plain = socket.create_connection(('10.77.0.11', 6379), {patience})
    with tls.wrap_socket(plain, server_hostname={name!r}) as link:
        link.sendall(b'PING' + bytes((13, 10)))
        print(link.recv(100), link.version())
except OSError as error:
    print(type(error).__name__, error)
"""
OWN = "tls.load_cert_chain('/etc/lockd/agent.pem')"


def talk(on: Any, prepare: str, name: str = "m1") -> str:
    code = TALK.format(prepare=prepare, name=name, patience=PATIENCE_S)
    return str(on("a1").check_output("python3 -c %s", code))


def test_a_master_speaks_only_to_who_has_a_certificate_of_the_cluster(cluster: Cluster, on: Any) -> None:
    assert "NOAUTH" in talk(on, OWN)
    assert "TLSv1.3" in talk(on, OWN)
    assert "verify failed" in talk(on, OWN, "m2")
    assert "verify failed" in talk(on, OWN, "10.77.0.11"), "a master that moves keeps its certificate"
    older = f"{OWN}; tls.maximum_version = ssl.TLSVersion.TLSv1_2"
    # Its alert, or the end of the connection: whatever comes first.
    assert "Error" in talk(on, "")
    assert "Error" in talk(on, older)
    # It closes the connection.
    plain = f"timeout {PATIENCE_S:g} bash -c 'exec 3<>/dev/tcp/10.77.0.11/6379; echo PING >&3; cat <&3'"
    assert "NOAUTH" not in on("a1").run(plain).stdout


def test_nobody_gets_in_without_a_password(cluster: Cluster, on: Any) -> None:
    assert "NOAUTH" in on("m1").run(f"redis-cli -s {MASTER_SOCKET} DBSIZE").stdout


def test_secrets_are_in_no_file_or_unit_that_everybody_can_read(cluster: Cluster, on: Any) -> None:
    password = (cluster.lab.folder / "secrets/agents/a1.password").read_text().strip()
    found = on("a1").run(
        f"grep -rl --exclude-dir=proc {password} /etc /run /opt/lockd/current/.complete /usr/local"
    )
    assert found.stdout.split() == ["/etc/lockd/masters.password"]
    assert on("a1").file("/etc/lockd/masters.password").mode == 0o400
    assert password not in on("a1").check_output("ps -eo args")


def test_the_agent_sees_no_more_than_it_needs(cluster: Cluster, on: Any) -> None:
    password = (cluster.lab.folder / "secrets/agents/a1.password").read_text().strip()
    cli = f"REDISCLI_AUTH={password} redis-cli --user agent-a1 -s {MASTER_SOCKET}"
    changes = ("CONFIG SET maxmemory 1", "FLUSHALL", "REPLICAOF 10.0.0.1 1", "SET other 1", "SCRIPT LOAD x")
    identities = ("HSET lockd:identity name m2", "DEL lockd:identity")
    for refused in (*changes, *identities, "KEYS x", "CLIENT LIST", "MONITOR", "SLOWLOG GET"):
        assert "NOPERM" in on("m1").run(f"{cli} {refused}").stdout, refused


def test_an_app_outside_the_group_gets_no_socket(cluster: Cluster, on: Any) -> None:
    socket = on("a1").file("/run/lockd/lockd.sock")
    assert (socket.mode, socket.group) == (0o660, "lockd-apps")
    assert on("a1").run("runuser -u nobody -- lockctl ping").rc != 0
