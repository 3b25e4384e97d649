"""What becomes of leases when masters, agents, apps and the connections between them fail; and what a master
that is not as it should be costs. No test here may leave a lease behind or find one gone that was held."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from lockd.clock import boottime_ns
from lockd.dev.processes import LOOPBACK, Child, LocalMaster, flavour
from tests.harness.app import App
from tests.harness.clock_shim import Clock
from tests.harness.clocks import MS, S
from tests.harness.cluster import Cluster, MakeCluster
from tests.harness.masters import has_tls, running_masters, short_folder
from tests.harness.on_masters import (
    FENCES,
    MINUTE_MS,
    cut_connections,
    holding,
    lease_key,
    on,
    paused,
    restart_under,
)
from tests.harness.waiting import PATIENCE_S, eventually
from tests.redis.role_users import rights_of_agents


@dataclass
class Hosts:
    """Five masters and the agents of two hosts."""

    masters: list[LocalMaster]
    here: Cluster
    there: Cluster

    def settle(self) -> None:
        self.here.wait_voting(5)
        self.there.wait_voting(5)

    def nothing_left_of(self, resource: str) -> None:
        """No master shows a lease of that resource, or soon will not."""
        eventually(lambda: holding(self.masters, resource) == [], what=f"nothing is left of {resource}")


@pytest.fixture(scope="module")
def all_hosts(server_binary: Path) -> Iterator[Hosts]:
    with short_folder() as folder, running_masters(folder, 5, server_binary) as masters:
        here = Cluster(folder, masters, {})
        try:
            here.agent.start()
            here.form()
            yield Hosts(masters, here, here.add_agent())
        finally:
            here.close()


@pytest.fixture
def hosts(all_hosts: Hosts) -> Hosts:
    all_hosts.settle()
    return all_hosts


def states(agent: Cluster) -> dict[str, str]:
    return {one["name"]: one["state"] for one in agent.master_states()}


def reasons(agent: Cluster) -> dict[str, str]:
    return {one["name"]: one["reason"] for one in agent.master_states()}


def soon_on_all(hosts: Hosts, resource: str, token: str) -> None:
    eventually(lambda: len(holding(hosts.masters, resource, token)) == 5, what=f"{resource} is on all five")


# Masters


def test_masters_that_are_all_killed_at_once_have_lost_nothing(hosts: Hosts, resource: str) -> None:
    app, waiting = App(hosts.here), App(hosts.there)
    session = app.lock(f"{resource}/session", MINUTE_MS)
    detached = app.lock(f"{resource}/detached", MINUTE_MS // 2, "DETACHED")
    soon_on_all(hosts, f"{resource}/session", session["token"])
    soon_on_all(hosts, f"{resource}/detached", detached["token"])
    counters = [on(master, "HGETALL", FENCES) for master in hosts.masters]
    for master in hosts.masters:
        master.kill()
    hosts.there.wait_voting(0)
    refusal = waiting.refused("LOCK", resource, MINUTE_MS)
    assert refusal.startswith("NOQUORUM")
    assert all(f"{name}=down" in refusal for name in ("m1", "m2", "m3", "m4", "m5")), "and not no-answer"
    waiting.send("LOCK", resource, MINUTE_MS, "WAIT", MINUTE_MS)
    for master in hosts.masters:
        master.start()
    waiting.locked()
    hosts.settle()
    for master, before in zip(hosts.masters, counters, strict=True):
        after = on(master, "HGETALL", FENCES)
        assert all(int(after[slot]) >= int(counter) for slot, counter in before.items())
    for name, lease in (("session", session), ("detached", detached)):
        assert len(holding(hosts.masters, f"{resource}/{name}", lease["token"])) == 5
        assert waiting.refused("LOCK", f"{resource}/{name}", MINUTE_MS).startswith("TAKEN")
    assert app.extend(f"{resource}/session", session["token"], MINUTE_MS)
    for name, lease in (("session", session), ("detached", detached)):
        assert app.ask("UNLOCK", f"{resource}/{name}", lease["token"]) == 1


def test_a_minority_that_is_down_when_the_agent_starts_comes_in_later(hosts: Hosts, resource: str) -> None:
    down = hosts.masters[:2]
    for master in down:
        master.kill()
    try:
        fresh = hosts.here.add_agent()
        fresh.wait_voting(3)
        app = App(fresh)
        lease = app.lock(resource, MINUTE_MS)
        eventually(lambda: "refused" in reasons(fresh)["m1"].lower(), what="why it is down is told")
        assert states(fresh)["m1"] == "down"
    finally:
        for master in down:
            master.start()
    fresh.wait_voting(5)
    app.extend(resource, lease["token"], MINUTE_MS)
    soon_on_all(hosts, resource, lease["token"])


def test_a_majority_that_stands_still_for_a_while_costs_no_lease(hosts: Hosts, resource: str) -> None:
    hasty = hosts.here.add_agent(timeouts={"dead_ms": 400})
    hasty.wait_voting(5)
    app = App(hasty)
    lease = app.lock(resource, MINUTE_MS, "WAIT", MINUTE_MS)
    with paused(hosts.masters[:3]):
        # Long enough for the connections to be given up; the kernel still accepts new ones.
        eventually(lambda: list(states(hasty).values())[:3] == ["down"] * 3, what="three are given up")
        assert app.refused("LOCK", resource + "/other", MINUTE_MS).startswith("NOQUORUM")
        assert app.ask("PING") == "PONG"
    hasty.wait_voting(5)
    # Where the machine is slow, it gives up some of them once more.
    eventually(lambda: app.extend(resource, lease["token"], MINUTE_MS), what="it is held")
    assert app.ask("UNLOCK", resource, lease["token"]) == 1
    hosts.nothing_left_of(resource)
    hosts.nothing_left_of(resource + "/other")


def test_connections_that_break_again_and_again_leave_nothing_behind(hosts: Hosts, resource: str) -> None:
    app = App(hosts.here)
    for turn in range(25):
        app.send("LOCK", f"{resource}/{turn}", MINUTE_MS, "WAIT", MINUTE_MS)
        cut_connections([hosts.masters[turn % 5], hosts.masters[(turn + 1) % 5]])
        lease = app.locked()
        app.send("UNLOCK", f"{resource}/{turn}", lease["token"])
        cut_connections([hosts.masters[(turn + 2) % 5]])
        assert app.reply() == 1
    hosts.settle()
    for turn in range(25):
        hosts.nothing_left_of(f"{resource}/{turn}")


def test_after_a_script_flush_everything_goes_on(hosts: Hosts, resource: str) -> None:
    app = App(hosts.here)
    lease = app.lock(resource, MINUTE_MS // 2)
    for master in hosts.masters:
        on(master, "SCRIPT", "FLUSH")
    App(hosts.there).lock(resource + "/other", MINUTE_MS, "WAIT", MINUTE_MS)
    extended = app.extend(resource, lease["token"], MINUTE_MS)
    assert extended["deadline_ns"] > lease["deadline_ns"]
    assert app.ask("UNLOCK", resource, lease["token"]) == 1
    hosts.settle()


# Masters that are not as they should be


def test_two_entries_that_lead_to_one_redis_have_one_vote(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(masters=3, start=False, master_settings={"bind": "127.0.0.1 127.0.0.2"})
    right = cluster.config()["masters"]
    wrong = [dict(entry) for entry in right]
    wrong[1]["address"] = f"127.0.0.2:{cluster.masters[0].port}"
    cluster.write_config(masters=wrong)
    cluster.agent.start()
    eventually(lambda: "duplicate" in states(cluster).values(), what="it is noticed")
    assert "Nothing was changed" in App(cluster).refused("FORM", "UNUSED")
    assert [on(master, "DBSIZE") for master in cluster.masters] == [0, 0, 0]
    cluster.write_config(masters=right)
    cluster.agent.restart()
    cluster.form()
    mistaken = cluster.add_agent(masters=wrong)
    mistaken.wait_voting(2)
    assert states(mistaken) == {"m1": "up", "m2": "duplicate", "m3": "up"}
    assert "the same Redis answers as m1" in reasons(mistaken)["m2"]
    cluster.masters[2].kill()
    mistaken.wait_voting(1)
    assert App(mistaken).refused("LOCK", "anything", 5_000).startswith("NOQUORUM")


# The agent


def test_an_agent_that_slept_through_a_deadline_tells_its_app_and_harms_nobody(
    hosts: Hosts, resource: str
) -> None:
    sleeper = hosts.here.add_agent()
    sleeper.wait_voting(5)
    app = App(sleeper)
    first = app.lock(resource, 1_000, "WAIT", MINUTE_MS)
    sleeper.agent.pause()
    try:
        heir = App(hosts.there)
        second = heir.lock(resource, MINUTE_MS, "WAIT", MINUTE_MS)
        assert boottime_ns() >= first["deadline_ns"]
    finally:
        sleeper.agent.resume()
    assert app.refused("UNLOCK", resource, first["token"]).startswith(("EXPIRED", "NOTHELD"))
    assert second["fence"] > first["fence"]
    assert app.refused("LOCK", resource, 1_000).startswith(("TAKEN", "EXPIRED"))
    # Where the first one's copies had not run out yet, it is put behind an extension.
    assert heir.extend(resource, second["token"], MINUTE_MS)
    assert heir.extend(resource, second["token"], MINUTE_MS)
    soon_on_all(hosts, resource, second["token"])


def test_an_agent_that_is_told_to_stop_refuses_who_waits_and_leaves_what_is_held(
    hosts: Hosts, resource: str
) -> None:
    stopping = hosts.here.add_agent()
    stopping.wait_voting(5)
    stubborn, waiting = App(stopping), App(stopping)
    kept = stubborn.lock(f"{resource}/kept", MINUTE_MS)
    soon_on_all(hosts, f"{resource}/kept", kept["token"])
    waiting.send("LOCK", f"{resource}/kept", MINUTE_MS, "WAIT", MINUTE_MS)
    eventually(lambda: "waiters:1" in stubborn.ask("INFO", "agent"), what="somebody waits")
    stopping.agent.terminate()
    assert waiting.refusal().startswith("DRAINING")
    assert stopping.agent.wait(PATIENCE_S)
    assert stopping.agent.exit_status == 0
    assert len(holding(hosts.masters, f"{resource}/kept", kept["token"])) == 5
    assert on(hosts.masters[0], "PTTL", lease_key(f"{resource}/kept")) > 0
    with pytest.raises((AssertionError, OSError)):
        stubborn.ask("PING")
    app = App(hosts.there)
    assert app.refused("LOCK", f"{resource}/kept", MINUTE_MS).startswith("TAKEN")
    assert app.ask("UNLOCK", f"{resource}/kept", kept["token"]) == 1
    assert not stopping.socket.exists()


def test_a_socket_that_an_agent_was_killed_while_making_is_in_nobodys_way(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(masters=1, start=False)
    # As it is between bind and chmod.
    with socket.socket(socket.AF_UNIX) as half_made:
        half_made.bind(str(cluster.socket))
    cluster.socket.chmod(0)
    if os.geteuid() == 0:
        # An agent's user is not one that no mode can stop.
        cluster.agent.command = ("setpriv", "--bounding-set=-dac_override", *cluster.agent.command)
    cluster.agent.start()
    assert App(cluster).ask("PING") == "PONG"


def test_steps_of_the_agents_own_wall_clock_change_nothing(
    hosts: Hosts, wall_clock: Clock, resource: str
) -> None:
    agent = hosts.here.add_agent()
    restart_under(wall_clock, [agent.agent])
    agent.wait_voting(5)
    app, others = App(agent), App(hosts.there)
    lease = app.lock(resource, MINUTE_MS)
    fences = []
    for ahead_s in (3_600, -7_200, 0):
        wall_clock.ahead_ns = ahead_s * S
        longer = app.extend(resource, lease["token"], MINUTE_MS)
        assert lease["deadline_ns"] <= longer["deadline_ns"] <= boottime_ns() + MINUTE_MS * MS
        for one in (app, others):
            fenced = one.lock(resource + "/fenced", MINUTE_MS)
            one.ask("UNLOCK", resource + "/fenced", fenced["token"])
            fences.append(fenced["fence"])
    assert fences == sorted(set(fences))
    assert agent.voting() == 5
    assert app.ask("UNLOCK", resource, lease["token"]) == 1


# Apps

AN_APP = """
import socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
words = [word.encode() for word in sys.argv[2:]]
link.sendall(b"*%d\\r\\n" % len(words) + b"".join(b"$%d\\r\\n%b\\r\\n" % (len(word), word) for word in words))
print(link.recv(999), flush=True)
link.recv(1)
"""


def an_app(agent: Cluster, name: str, *words: str | int) -> Child:
    """A process of its own that sends one command, prints the reply, and stays."""
    command = (sys.executable, "-S", "-c", AN_APP, str(agent.socket), *map(str, words))
    process = Child(name, command, agent.folder / "log" / f"{name}.log")
    process.start()
    return process


def test_apps_that_are_killed_free_what_they_hold_and_stand_in_nobodys_way(
    hosts: Hosts, resource: str
) -> None:
    observer = App(hosts.here)
    holder = an_app(hosts.here, "holder", "LOCK", resource, MINUTE_MS)
    waiting = None
    try:
        eventually(lambda: b"token" in holder.log(), what="it holds the lock")
        waiting = an_app(hosts.here, "waiting", "LOCK", resource, MINUTE_MS, "WAIT", MINUTE_MS)
        eventually(lambda: "waiters:1" in observer.ask("INFO", "agent"), what="it waits")
        heir, far = App(hosts.here), App(hosts.there)
        heir.send("LOCK", resource, MINUTE_MS, "WAIT", MINUTE_MS)
        eventually(lambda: "waiters:2" in observer.ask("INFO", "agent"), what="another waits behind it")
        waiting.kill()
        eventually(lambda: "waiters:1" in observer.ask("INFO", "agent"), what="the dead one was dropped")
        holder.kill()
        heir.locked()
        heir.close()
        far.lock(resource, MINUTE_MS, "WAIT", MINUTE_MS // 2)
    finally:
        holder.kill()
        if waiting is not None:
            waiting.kill()
    assert waiting.log() == b""


# Logging in to the masters

# All that the role allows an agent on a master; and that it may form clusters and bring its scripts, as where
# nobody else does. Each word is used: a test below counts.
RIGHTS = rights_of_agents("7.0.15").replace("%R~", "~") + " +script|load"
COMMANDS = [word.removeprefix("+") for word in RIGHTS.split() if word.startswith("+")]
USER = {"user lockd": "on >let-me-in " + RIGHTS}


def test_the_least_that_a_user_must_be_allowed_on_a_master_is_enough(
    make_cluster: MakeCluster, any_server: Path
) -> None:
    auth = {"username": "lockd", "password": "let-me-in"}
    cluster = make_cluster(masters=1, server=any_server, master_settings=USER, auth=auth)
    [master] = cluster.masters
    with redis.Redis(LOOPBACK, master.port) as link, link.pipeline(transaction=True) as at_once:
        at_once.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        at_once.execute_command("SCRIPT", "FLUSH")
        at_once.execute_command("CONFIG", "RESETSTAT")
        at_once.execute()
    cluster.wait_voting(1)
    app = App(cluster)
    lease = app.lock("a", MINUTE_MS // 2, "WAIT", MINUTE_MS)
    app.extend("a", lease["token"], MINUTE_MS)
    assert app.ask("HOLDER", "a")
    assert len(app.ask("LOCKS")) == 1
    assert app.ask("UNLOCK", "a", lease["token"]) == 1
    held, waiting = app.lock("b", MINUTE_MS, "DETACHED"), App(cluster)
    waiting.send("LOCK", "b", MINUTE_MS, "WAIT", MINUTE_MS)
    eventually(lambda: on(master, "EXISTS", "lockd:places:b"), what="who waits is noted")
    assert app.ask("UNLOCK", "b", held["token"]) == 1
    assert waiting.locked()
    refused = on(master, "ACL", "LOG")
    assert refused == []
    used = {name.removeprefix("cmdstat_") for name in on(master, "INFO", "commandstats")}
    if flavour(any_server) == "redis-6.2":  # which doesn't count subcommands
        used = {command for command in COMMANDS if command.split("|")[0] in used}
    assert set(COMMANDS) <= used, "nothing is allowed that is not needed"


def test_a_wrong_password_is_told_and_a_right_one_is_taken_without_a_restart(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("open-sesame\n")
    auth = {"username": "lockd", "password_file": str(secret)}
    cluster = make_cluster(masters=3, form=False, master_settings=USER, auth=auth)
    eventually(lambda: all("WRONGPASS" in why for why in reasons(cluster).values()), what="it is told")
    assert set(states(cluster).values()) == {"down"}
    assert "WRONGPASS" in App(cluster).refused("LOCK", "a", 5_000)
    secret.write_text("let-me-in\n")
    cluster.form()
    cluster.wait_voting(3)
    # One that is away for a while costs no master for ever.
    secret.rename(tmp_path / "away")
    cut_connections(cluster.masters[:1])
    cluster.wait_voting(2)
    eventually(lambda: "password" in reasons(cluster)["m1"], what="the reason is shown")
    (tmp_path / "away").rename(secret)
    cluster.wait_voting(3)
    assert "open-sesame" not in cluster.log_text()
    assert "let-me-in" not in cluster.log_text()


def test_a_user_who_may_not_do_enough_is_told_what_is_missing(make_cluster: MakeCluster) -> None:
    user = {"user lockd": USER["user lockd"].replace(" +time", "")}
    auth = {"username": "lockd", "password": "let-me-in"}
    cluster = make_cluster(masters=1, form=False, master_settings=user, auth=auth)
    why = eventually(lambda: _reason_with(cluster, "NOPERM"), what="it is told")
    assert "time" in why


def _reason_with(agent: Cluster, word: str) -> str | None:
    return next((why for why in reasons(agent).values() if word in why), None)


# TLS


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def make_authority(folder: Path, name: str) -> None:
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    out = ("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")
    _openssl("req", "-x509", *new_key, *out, "-subj", f"/CN={name}", "-days", "2")


def make_certificate(folder: Path, name: str, authority: str, names: str) -> None:
    """A certificate for these names ("IP:127.0.0.1,DNS:masters.test") by that authority."""
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    request, key = folder / f"{name}.csr", folder / f"{name}.key"
    _openssl("req", "-new", *new_key, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={names}\n")
    signed_by = ("-CA", folder / f"{authority}.pem", "-CAkey", folder / f"{authority}.key", "-CAcreateserial")
    out = folder / f"{name}.pem"
    _openssl("x509", "-req", "-in", request, *signed_by, "-days", "2", "-extfile", extensions, "-out", out)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine: certificates can't be made")
    for authority in ("ca", "strangers"):
        make_authority(tmp_path, authority)
    make_certificate(tmp_path, "masters", "ca", "DNS:masters.test,DNS:m1,IP:127.0.0.1")
    make_certificate(tmp_path, "agent", "ca", "DNS:agent.test")
    return tmp_path


def with_tls(master: LocalMaster, certificates: Path) -> None:
    if not has_tls(master.binary):
        pytest.skip(f"{master.binary} was built without TLS")
    files = {"ca-cert": "ca.pem", "cert": "masters.pem", "key": "masters.key"}
    master.settings |= {"port": "0", "tls-port": str(master.port)}
    master.settings |= {f"tls-{what}-file": str(certificates / name) for what, name in files.items()}
    master.restart()


def test_masters_with_tls_serve_who_shows_and_expects_the_right_certificate_and_nobody_else(
    make_cluster: MakeCluster, certificates: Path
) -> None:
    cluster = make_cluster(masters=3, start=False, timeouts={"connect_ms": 2_000})
    for master in cluster.masters:
        with_tls(master, certificates)
    own = {"cert_file": str(certificates / "agent.pem"), "key_file": str(certificates / "agent.key")}
    good = {"ca_file": str(certificates / "ca.pem"), **own}
    cluster.write_config(tls=good)
    cluster.agent.start()
    cluster.form()
    cluster.wait_voting(3)
    app = App(cluster)
    lease = app.lock("a", MINUTE_MS)
    assert app.ask("UNLOCK", "a", lease["token"]) == 1
    for master in ("m1", "m2", "m3"):
        end_s = cluster.metric("lockd_master_certificate_expiry_timestamp_seconds", master=master)
        assert end_s == pytest.approx(time.time() + 2 * 86_400, abs=3_600), "as certificates are made here"
        assert cluster.metric("lockd_master_aof_rewrite_ok", master=master) == 1

    named = cluster.add_agent(tls=good | {"server_name": "masters.test"})
    named.wait_voting(3)
    # The certificate is m1's: nobody else can answer in its place, though all have the same address.
    by_name = cluster.add_agent(tls=good | {"server_name": "{name}"})
    eventually(
        lambda: [one["state"] for one in by_name.master_states()] == ["up", "down", "down"],
        what="of three that show m1's certificate only m1 is believed",
    )
    for refused, told in (
        ({"server_name": "elsewhere.test"}, "mismatch"),
        ({"ca_file": str(certificates / "strangers.pem")}, "verify failed"),
        ({"cert_file": None, "key_file": None}, ""),
        (None, ""),  # it does not speak TLS
    ):
        agent = cluster.add_agent(tls=refused)

        def is_down(agent: Cluster = agent, told: str = told) -> bool:
            return all(one["state"] == "down" and told in one["reason"] for one in agent.master_states())

        eventually(is_down, what=f"without a good certificate all are down: {told}")
        assert App(agent).refused("LOCK", "a", 5_000).startswith("NOQUORUM")
