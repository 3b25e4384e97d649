"""`lockctl run` as scripts and people meet it: real commands under a real agent, which is then hurt.

What has to hold is told by the clock: when a command's processes are gone is compared with the deadline of
the lease that it ran under.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from lockd.clock import boottime_ns
from lockd.lockctl.run.lease import term_margin_ns
from tests.harness.clients import take_all_away, take_away
from tests.harness.clocks import MS
from tests.harness.cluster import AS_IS, Cluster
from tests.harness.lockctl import LOCKCTL, Done, lockctl
from tests.harness.processes import alive, children_of, state_of
from tests.harness.terminal import Terminal, unread_terminal
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import as_map
from tests.redis.module_cluster import module_cluster

TAKEN, UNREACHABLE, LOST, DENIED, WRONG, USAGE = 75, 69, 76, 77, 65, 64

# A command that won't go: two processes that only note when SIGTERM came, each with its pid in a file.
STUBBORN = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
who = "child" if os.fork() == 0 else "parent"

def note(name, text):
    # Both note the deadline, each by a file of its own, or the second finds its file renamed already.
    own = folder / f".{name}.{who}"
    own.write_text(text)
    own.rename(folder / name)

def told(number, frame):
    note(f"{who}.told", str(time.clock_gettime_ns(time.CLOCK_BOOTTIME)))

signal.signal(signal.SIGTERM, told)
note(f"{who}.pid", str(os.getpid()))
note("deadline", os.environ["LOCKD_DEADLINE_NS"])
while True:
    time.sleep(60)
"""


cluster = module_cluster(
    5, defaults=AS_IS, classes=[{"name": "vault", "match": "vault:*", "users": ["nobody"]}]
)
"""One for all tests here: each locks resources of its own, and leaves the agent running."""


@pytest.fixture(autouse=True)
def _agent_is_well_afterwards(cluster: Cluster) -> Iterator[None]:
    yield
    if cluster.agent.running:
        cluster.agent.resume()
    else:
        cluster.agent.start()
        cluster.wait_voting(5)
    take_all_away(cluster)


class Running:
    """A `lockctl run` in the background, in a session of its own: it has no terminal."""

    def __init__(self, cluster: Cluster, *words: str | Path, **options: Any) -> None:
        settings: dict[str, Any] = {
            "env": os.environ | {"LOCKD_SOCKET": str(cluster.socket)},
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "start_new_session": True,
        }
        self.process = subprocess.Popen([LOCKCTL, "run", *map(str, words)], **settings | options)

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> int:
        """Its exit status, when it has ended by itself."""
        return self.process.wait(PATIENCE_S)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return str(self.process.stderr.read())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


Start = Callable[..., Running]


@pytest.fixture
def start(cluster: Cluster) -> Iterator[Start]:
    """Starts a `lockctl run` with these words, gone after the test."""
    started: list[Running] = []

    def begin(*words: str | Path, **options: Any) -> Running:
        started.append(Running(cluster, *words, **options))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def finish(cluster: Cluster, *words: str | Path, **options: Any) -> Done:
    """A `lockctl run` from its start to its end."""
    return lockctl(cluster, "run", *words, start_new_session=True, **options)


class Stubborn:
    """The two processes of a command that ignores SIGTERM, and what they have noted."""

    def __init__(self, folder: Path) -> None:
        self.command: tuple[str | Path, ...] = (sys.executable, "-c", STUBBORN, folder)
        self._folder = folder

    def wait_up(self) -> None:
        eventually(
            lambda: all((self._folder / f"{who}.pid").exists() for who in ("parent", "child")), "both run"
        )

    def number(self, name: str) -> int:
        return int((self._folder / name).read_text())

    @property
    def pids(self) -> tuple[int, int]:
        return self.number("parent.pid"), self.number("child.pid")

    @property
    def deadline_ns(self) -> int:
        """That of the grant."""
        return self.number("deadline")

    def told_ns(self) -> int:
        """When the later one of them got SIGTERM."""
        return max(self.number("parent.told"), self.number("child.told"))

    def gone_ns(self) -> int:
        """When both are gone, as seen from here."""
        eventually(lambda: not any(map(alive, self.pids)), "both are gone")
        return boottime_ns()


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[Stubborn]:
    command = Stubborn(tmp_path)
    yield command
    for name in ("parent.pid", "child.pid"):
        if (tmp_path / name).exists() and alive(command.number(name)):
            with suppress(ProcessLookupError):
                os.kill(command.number(name), signal.SIGKILL)


def is_free(cluster: Cluster, resource: str) -> bool:
    return cluster.client().execute_command("HOLDER", resource) is None


# As flock(1)


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 128 + 9),
        (["no-such-command-here"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_the_exit_status_is_that_of_the_command_and_the_lock_is_free(
    cluster: Cluster, command: list[str], status: int
) -> None:
    done = finish(cluster, "status", "--", *command)
    assert done.returncode == status
    assert status < 126 or status > 128 or command[0] in done.stderr
    assert is_free(cluster, "status")


def test_the_command_gets_its_arguments_and_stdin_as_they_are(cluster: Cluster, tmp_path: Path) -> None:
    done = finish(cluster, "arguments", "--", "printf", "%s|", "a b", "--ttl", "", "--", "*")
    assert done.stdout == "a b|--ttl||--|*|"
    (tmp_path / "in").write_text("hello\n")
    with (tmp_path / "in").open() as file:
        assert finish(cluster, "stdin", "--", "cat", stdin=file).stdout == "hello\n"


def test_the_command_is_told_what_it_holds(cluster: Cluster) -> None:
    before_ns = boottime_ns()
    name = os.fsdecode("told:ü".encode() + b"\xff\x01")
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    done = finish(cluster, "--ttl", "60s", name, "--", sys.executable, "-c", script)
    told = json.loads(done.stdout)
    assert told["LOCKD_RESOURCE"] == name
    assert re.fullmatch("[0-9a-f]{32}", told["LOCKD_TOKEN"])
    assert int(told["LOCKD_FENCE"]) > 0
    assert before_ns < int(told["LOCKD_DEADLINE_NS"]) < boottime_ns() + 60_000 * MS


def test_a_command_runs_while_several_are_locked_and_ends_when_one_of_them_is_lost(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    script = f"env | grep LOCKD_RES | sort > {tmp_path}/env; touch {tmp_path}/up; exec sleep 600"
    running = start("several:b", "several:a", "--", "sh", "-c", script)
    eventually((tmp_path / "up").exists, what="it runs")
    refused = finish(cluster, "several:c", "several:a", "--", "true")
    assert (refused.returncode, "'several:a'" in refused.stderr) == (TAKEN, True)
    assert is_free(cluster, "several:c")
    assert (tmp_path / "env").read_text().split() == [
        "LOCKD_RESOURCE=several:b", "LOCKD_RESOURCE_2=several:a"
    ]  # fmt: skip
    take_away(cluster, "several:a")
    assert running.end() == LOST
    eventually(lambda: is_free(cluster, "several:b"), what="the other is free, too")


def test_the_command_inherits_no_file_of_ours_but_the_lifeline(cluster: Cluster) -> None:
    done = finish(cluster, "files", "--", "sh", "-c", "readlink /proc/$$/fd/*")
    links = done.stdout.splitlines()
    assert sum(link.startswith("socket:") for link in links) == 0
    assert sum(link.startswith("pipe:") for link in links) == 3, links  # stdout, stderr and the lifeline


def test_ignored_signals_stay_ignored_as_under_nohup(cluster: Cluster) -> None:
    def ignore_hangups() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    done = finish(cluster, "nohup", "--", "grep", "SigIgn", "/proc/self/status", preexec_fn=ignore_hangups)
    ignored = int(done.stdout.split()[1], 16)
    # Not the two that the C library keeps for itself: a parent that ignored those leaves them so for ever.
    assert [n for n in signal.valid_signals() if ignored >> (n - 1) & 1] == [signal.SIGHUP]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on_to_the_command(cluster: Cluster, start: Start, number: signal.Signals) -> None:
    script = f"trap 'echo caught; exit 5' {number.name[3:]}; echo up; while :; do sleep 0.05; done"
    running = start("signals", "--", "sh", "-c", script)
    assert running.process.stdout is not None
    assert running.process.stdout.readline() == "up\n"
    running.process.send_signal(number)
    assert running.end() == 5
    assert running.process.stdout.read() == "caught\n"
    assert is_free(cluster, "signals")


def test_a_sigint_that_somebody_sent_ends_as_128_and_2(cluster: Cluster, start: Start) -> None:
    running = start("interrupted", "--", "sh", "-c", "echo up; exec sleep 600")
    assert running.process.stdout is not None
    running.process.stdout.readline()
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 128 + signal.SIGINT


# Refusals


def test_a_refusal_has_a_status_of_its_own_and_the_command_is_not_started(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.client().execute_command("LOCK", "taken", 60_000)
    started, nowhere = tmp_path / "started", str(tmp_path / "none.sock")
    command = ("--", "touch", started)
    for words, status, told in (
        (["taken"], TAKEN, "TAKEN"),
        (["--wait", "300ms", "taken"], TAKEN, "TIMEOUT"),
        (["vault:x"], DENIED, "DENIED"),
        (["--ttl", "2h", "x"], WRONG, "ttl"),
        (["--ttl", "soon", "x"], USAGE, "soon"),
    ):
        done = finish(cluster, *words, *command)
        assert (done.returncode, told in done.stderr) == (status, True), done
    quiet = finish(cluster, "--quiet", "taken", *command)
    assert (quiet.returncode, quiet.stderr) == (TAKEN, "")
    words = [LOCKCTL, "--socket", nowhere, "run", "x", *command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, nowhere in done.stderr) == (UNREACHABLE, True)
    assert not started.exists()


def test_it_waits_for_its_turn_and_leaves_the_queue_when_it_is_interrupted(
    cluster: Cluster, start: Start
) -> None:
    def waiters() -> int:
        [lease] = cluster.client().execute_command("LOCKS", "queue", "LOCAL")
        return int(as_map(lease)["waiters"])

    holder = cluster.client()
    token = as_map(holder.execute_command("LOCK", "queue", 60_000))["token"]
    interrupted, waiting = (start("--wait", "60s", "queue", "--", "true") for _ in range(2))
    eventually(lambda: waiters() == 2)
    interrupted.process.send_signal(signal.SIGINT)
    assert interrupted.end() == -signal.SIGINT
    eventually(lambda: waiters() == 1)
    holder.execute_command("UNLOCK", "queue", token)
    assert waiting.end() == 0


# The lease as long as the command, the command no longer than the lease


def test_a_lease_taken_by_force_ends_the_command_at_once(cluster: Cluster, start: Start) -> None:
    running = start("--ttl", "60s", "forced", "--", "sleep", "600")
    eventually(lambda: not is_free(cluster, "forced"), what="it is held")
    [command] = eventually(lambda: children_of(running.pid), what="the command runs")
    take_away(cluster, "forced")
    assert running.end() == LOST
    assert not alive(command)
    assert "by force" in running.errors()


# What an agent that says nothing any more leaves to lockctl alone is done in time by the real clock: a
# machine that stands still when SIGKILL is due, half a second before the deadline, fails these tests.


def for_no_longer_than(seconds: int) -> tuple[str, ...]:
    """The lease is not renewed: its first deadline stays its last."""
    return ("--ttl", f"{seconds}s", "--max-hold", f"{seconds}s")


@pytest.mark.parametrize("end", ["kill", "pause"])
def test_an_agent_that_is_killed_or_frozen_ends_the_command_before_the_deadline_grandchildren_too(
    cluster: Cluster, start: Start, stubborn: Stubborn, end: str
) -> None:
    running = start(*for_no_longer_than(6), f"agent-{end}", "--", *stubborn.command)
    stubborn.wait_up()
    getattr(cluster.agent, end)()
    gone_ns = stubborn.gone_ns()
    assert gone_ns < stubborn.deadline_ns, "SIGKILL comes before the deadline"
    early_ns = stubborn.deadline_ns - stubborn.told_ns()
    assert early_ns <= term_margin_ns(6_000), "SIGTERM waits for the next agent, with its margin"
    assert running.end() == LOST


def test_a_command_outlives_the_end_of_its_agent_and_the_next_one_knows_when_it_has_ended(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    up, done = tmp_path / "up", tmp_path / "done"
    script = f"touch {up}; until [ -e {done} ]; do sleep 0.05; done; exit 7"
    running = start("--ttl", "60s", "agent-restarted", "beside-it", "--", "sh", "-c", script)
    eventually(up.exists, "it runs")
    waiting = start("--ttl", "60s", "--wait", "60s", "agent-restarted", "--", "true")
    for end in (cluster.agent.kill, cluster.agent.terminate):
        end()
        eventually(lambda: not cluster.agent.running, "it has ended")
        cluster.agent.start()
        cluster.wait_voting(5)
    assert (running.process.poll(), waiting.process.poll()) == (None, None)
    done.touch()
    assert running.end() == 7, "its release was confirmed: it had it all the time"
    assert waiting.end() == 0


def test_a_command_that_cleans_up_has_the_time_for_it_and_its_children_too(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    on_term = f"trap 'sleep 0.3; touch {tmp_path}/cleaned; exit' TERM"
    inner = f"{on_term}; touch {tmp_path}/up; while :; do sleep 0.05; done"
    # SIGTERM comes three seconds before its end, SIGKILL half a second.
    running = start(*for_no_longer_than(15), "clean-up", "--", "sh", "-c", f"sh -c {inner!r} & wait")
    eventually((tmp_path / "up").exists)
    assert running.end() == LOST
    assert (tmp_path / "cleaned").exists()


@contextmanager
def full_pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    os.write(writer, b"x" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
    yield writer
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("unread", [full_pipe, unread_terminal])
def test_neither_a_stopped_command_nor_an_unread_stderr_holds_the_end_up(
    cluster: Cluster,
    start: Start,
    stubborn: Stubborn,
    unread: Callable[[], AbstractContextManager[int]],
) -> None:
    with unread() as stderr:
        running = start(*for_no_longer_than(5), "unread", "--", *stubborn.command, stderr=stderr)
        stubborn.wait_up()
        os.kill(stubborn.number("parent.pid"), signal.SIGSTOP)
        cluster.agent.kill()
        assert stubborn.gone_ns() < stubborn.deadline_ns
    running.end()


# At a terminal


AtTerminal = Callable[..., Terminal]


@pytest.fixture
def at_terminal(cluster: Cluster) -> Iterator[AtTerminal]:
    path = f"{LOCKCTL.parent}:{os.environ['PATH']}"
    environment = {"LOCKD_SOCKET": str(cluster.socket), "PATH": path, "PS1": "$ "}
    with ExitStack() as stack:
        yield lambda *words: stack.enter_context(Terminal(*words, environment=environment))


@pytest.fixture
def shell(at_terminal: AtTerminal) -> Terminal:
    """An interactive bash with job control."""
    bash = at_terminal("bash", "--norc", "--noprofile", "-i")
    bash.wait_for(r"\$ ")
    return bash


def test_a_command_that_handles_ctrl_c_has_the_last_word(at_terminal: AtTerminal) -> None:
    script = "trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.05; done"
    terminal = at_terminal(LOCKCTL, "run", "ctrl-c-handled", "--", "sh", "-c", script)
    terminal.wait_for("ready")
    terminal.type("\x03")
    terminal.wait_for("caught")
    assert terminal.end() == 4


def test_ctrl_c_ends_the_command_lockctl_and_the_script_around_it_and_frees_the_lock(
    cluster: Cluster, at_terminal: AtTerminal
) -> None:
    script = "lockctl run script -- sh -c 'echo ready; exec sleep 600'; echo the script went on"
    terminal = at_terminal("bash", "-c", f"{script}; true")
    terminal.wait_for("ready")
    terminal.type("\x03")
    assert terminal.end() == -signal.SIGINT
    assert "went on" not in terminal.screen
    assert is_free(cluster, "script")


def test_ctrl_c_ends_a_whole_pipeline(cluster: Cluster, shell: Terminal) -> None:
    shell.type("lockctl run pipeline -- sh -c 'echo re''ady; exec sleep 600' | cat; echo status $?\n")
    shell.wait_for("ready")
    shell.type("\x03")
    shell.wait_for(r"\$ ")
    eventually(lambda: is_free(cluster, "pipeline"), what="its lock is free")


def test_ctrl_z_stops_the_job_and_fg_goes_on_with_the_lock_held(cluster: Cluster, shell: Terminal) -> None:
    """For longer than its TTL: its agent renews it meanwhile, and the command goes on after its first
    deadline."""
    shell.type(
        "lockctl run --ttl 4s job -- sh -c 'echo re''ady; read line; echo got $line'; echo status $?\n"
    )
    shell.wait_for("ready")
    granted_ns = boottime_ns()
    shell.type("\x1a")
    shell.wait_for("Stopped")
    shell.wait_for(r"\$ ")
    eventually(lambda: boottime_ns() > granted_ns + 4_000 * MS, "its first deadline is over")
    assert not is_free(cluster, "job")
    shell.type("fg\n")
    shell.wait_for("lockctl run")
    shell.type("it\n")
    shell.wait_for("got it")
    eventually(lambda: is_free(cluster, "job"), what="its lock is free")


def test_a_job_in_the_background_gets_the_terminal_with_fg(shell: Terminal) -> None:
    shell.type("lockctl run backgrounded -- sh -c 'echo re''ady; read line; echo got $line' &\n")
    shell.wait_for("ready")
    # The shell tells of a job before its next prompt: asked for one too early, it would have nothing to tell.
    eventually(lambda: "T" in map(state_of, children_of(shell.pid)), what="the job has stopped, as it reads")
    shell.type("\n")
    shell.wait_for("Stopped")
    shell.type("fg\n")
    shell.wait_for("lockctl run")
    shell.type("it\n")
    shell.wait_for("got it")
    shell.type("echo shell is ba''ck\n")
    shell.wait_for("shell is back")


def test_a_running_background_job_gets_the_terminal_with_fg_when_it_reads(
    shell: Terminal, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    shell.type(f"lockctl run bg-runs -- sh -c 'echo re''ady; until [ -e {gate} ]; do sleep 0.05; done;")
    shell.type(" read line; echo got $line' &\n")
    shell.wait_for("ready")
    shell.type("fg\n")
    shell.wait_for("lockctl run")
    gate.touch()
    shell.type("it\n")
    shell.wait_for("got it")


def test_others_in_a_pipeline_keep_the_terminal(shell: Terminal) -> None:
    """As in `lockctl run … | less`: it is less that reads the keys."""
    pager = "sh -c 'read line; echo $line; read key </dev/tty; echo key $key'"
    shell.type(f"lockctl run paged -- sh -c 'echo re''ady; exec sleep 600' | {pager}\n")
    shell.wait_for("ready")
    shell.type("q\n")
    shell.wait_for("key q")


def test_a_command_in_a_pipeline_gets_the_terminal_when_it_reads_it(shell: Terminal) -> None:
    shell.type("lockctl run asks -- sh -c 'read word </dev/tty; echo wo''rd $word' | cat\n")
    shell.type("open\n")
    shell.wait_for("word open")


def test_the_terminal_is_the_shells_again_afterwards(shell: Terminal) -> None:
    shell.type("sh -c 'lockctl run inner -- true; read line; echo got $line'\n")
    shell.type("it\n")
    shell.wait_for("got it")
    shell.type("echo ba''ck\n")
    shell.wait_for("back")
