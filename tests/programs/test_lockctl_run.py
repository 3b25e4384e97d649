"""`lockctl run` with an agent that says what a test wants: too late, nonsense, or nothing at all."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest

from lockd.clock import boottime_ns
from lockd.lockctl.errors import Lost
from lockd.lockctl.run import job
from lockd.lockctl.run.keeper import Start, _Keeper
from lockd.lockctl.run.lease import Job, kill_margin_ns, term_margin_ns
from lockd.lockctl.run.supervisor import Supervisor
from tests.harness.clocks import MS
from tests.harness.lockctl import LOCKCTL
from tests.harness.processes import alive, children_of
from tests.harness.terminal import Terminal
from tests.harness.users import become
from tests.harness.waiting import PATIENCE_S, eventually

TOKEN = b"0123456789abcdef0123456789abcdef"
OTHER = b"f" * 32


class ScriptedAgent:
    """An agent in a thread that grants one lock, to one connection after the other. `asked` are the commands
    that it was sent.

    grants_ms: the validity of the lease. ahead_ns: how far its clock is ahead of ours. pushes: what follows
    the grant; news: what comes before it. unlock: its answer to an UNLOCK. closes_after: commands after which
    it closes, in this order.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.grants_ms = 10_000
        self.ahead_ns = 0
        self.pushes = self.news = b""
        self.unlock = b":1\r\n"
        self.extend: bytes | None = None
        self.closes_after: list[bytes] = []
        self.asked: list[list[bytes]] = []
        self.granted_ns = 0
        self.hung_up = threading.Event()
        """The connection was closed, and with it what was locked over it is free."""
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self._listening.accept()
                with link:
                    self._serve_one(link)
                self.hung_up.set()

    def _serve_one(self, link: socket.socket) -> None:
        reader = hiredis.Reader()
        while data := link.recv(4096):
            reader.feed(data)
            while words := reader.gets():
                self.asked.append(words)
                link.sendall(self._answer(words[0]))
                if self.closes_after[:1] == [words[0]]:
                    del self.closes_after[0]
                    return

    def _answer(self, command: bytes) -> bytes:
        if command == b"HELLO":
            return b"%0\r\n"
        if command == b"UNLOCK":
            return self.unlock
        if command == b"EXTEND" and self.extend is not None:
            return self.extend
        self.granted_ns = boottime_ns()
        return self.news + lease(self.granted_ns + self.grants_ms * MS, self.ahead_ns) + self.pushes

    def close(self) -> None:
        self._listening.close()


def lease(deadline_ns: int, ahead_ns: int = 0) -> bytes:
    """As an agent answers whose clock is so far ahead of ours."""
    words = (TOKEN, max(0, (deadline_ns - boottime_ns()) // MS), deadline_ns + ahead_ns)
    return (
        b"%%4\r\n$5\r\ntoken\r\n$32\r\n%b\r\n$5\r\nfence\r\n:7\r\n"
        b"$11\r\nvalidity_ms\r\n:%d\r\n$11\r\ndeadline_ns\r\n:%d\r\n" % words
    )


def renewed(token: bytes, deadline_ns: int) -> bytes:
    return b">4\r\n$7\r\nrenewed\r\n$1\r\nr\r\n$32\r\n%b\r\n:%d\r\n" % (token, deadline_ns)


def lost(token: bytes, deadline_ns: int) -> bytes:
    return b">5\r\n$4\r\nlost\r\n$1\r\nr\r\n$32\r\n%b\r\n$5\r\nmoved\r\n:%d\r\n" % (token, deadline_ns)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[ScriptedAgent]:
    scripted = ScriptedAgent(tmp_path / "s")
    yield scripted
    scripted.close()


def run(agent: ScriptedAgent, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LOCKCTL, "--socket", agent.path, "run", *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, start_new_session=True,
        check=False,
    )  # fmt: skip


STAMPING = "{trap} while :; do read up _ </proc/uptime; echo $up >>{file}; sleep 0.02; done"
"""A command of the shell that notes again and again that it is still there."""


def last_there_ns(file: Path) -> int:
    """When a command noted that for the last time; 0 if it was gone before it could. That it is gone a test
    itself may hear much later, where a machine is busy."""
    noted = file.read_text().splitlines() if file.exists() else []
    return int(float(noted[-1]) * 1e9) if noted else 0


@pytest.mark.parametrize("ttl_ms", [10, 100, 1000, 5000, 30_000, 86_400_000])
def test_sigkill_is_due_before_the_deadline_and_sigterm_before_that(ttl_ms: int) -> None:
    assert 0 < kill_margin_ns(ttl_ms) <= 500 * MS
    assert kill_margin_ns(ttl_ms) < term_margin_ns(ttl_ms) < ttl_ms * MS // 5
    assert term_margin_ns(ttl_ms) < 5000 * MS


def test_it_asks_for_a_session_lock_and_the_news_of_it(agent: ScriptedAgent) -> None:
    assert run(agent, "--ttl", "5s", "--wait", "2s", "--max-hold", "1m", "r", "--", "true").returncode == 0
    hello, lock, unlock = agent.asked
    assert hello == [b"HELLO", b"3"]
    assert lock[:5] == [b"LOCK", b"r", b"5000", b"NOTIFY", b"TOKEN"]
    assert (len(lock[5]), lock[6], lock[8:]) == (32, b"WAIT", [b"MAXHOLD", b"60000"])
    assert 0 < int(lock[7]) <= 2000
    assert unlock == [b"UNLOCK", b"r", TOKEN]


def test_the_next_agent_is_asked_to_go_on_with_the_lease_and_told_of_its_end(agent: ScriptedAgent) -> None:
    agent.grants_ms = 2_000
    agent.closes_after = [b"LOCK"]
    assert run(agent, "--ttl", "2s", "r", "--", "sleep", "1").returncode == 0
    assert [words[0] for words in agent.asked] == [b"HELLO", b"LOCK", b"HELLO", b"EXTEND", b"UNLOCK"]
    assert agent.asked[3] == [b"EXTEND", b"r", TOKEN, b"2000", b"NOTIFY"]


@pytest.mark.parametrize(
    ("closes_after", "asked"),
    [
        # An agent that is killed lets in for a moment, when it has closed what was open already.
        ([b"LOCK", b"HELLO"], [b"HELLO", b"HELLO", b"EXTEND"]),
        ([b"LOCK", b"EXTEND"], [b"HELLO", b"EXTEND", b"HELLO", b"EXTEND"]),
    ],
)
def test_an_agent_that_closes_at_once_again_is_not_waited_for_but_the_next_one_asked(
    agent: ScriptedAgent, closes_after: list[bytes], asked: list[bytes]
) -> None:
    agent.closes_after = closes_after
    assert run(agent, "--ttl", "5s", "r", "--", "sleep", "1").returncode == 0
    assert [words[0] for words in agent.asked] == [b"HELLO", b"LOCK", *asked, b"UNLOCK"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"-EXPIRED none had it\r\n", "none had it"),
        # Whether it says that no agent took over depends on whether it is asking one just then.
        (b"-NOQUORUM m1=down\r\n", "the agent did not renew it in time"),
    ],
)
def test_a_next_agent_that_does_not_go_on_with_it_ends_the_command_before_the_deadline(
    agent: ScriptedAgent, answer: bytes, told: str, tmp_path: Path
) -> None:
    agent.grants_ms = 4_000
    agent.closes_after = [b"LOCK"]
    agent.extend = answer
    there = tmp_path / "there"
    done = run(agent, "--ttl", "4s", "r", "--", "sh", "-c", STAMPING.format(trap="", file=there))
    assert (done.returncode, told in done.stderr) == (76, True), done
    assert last_there_ns(there) < agent.granted_ns + 4_000 * MS


def test_a_wait_goes_on_with_the_next_agent_by_the_same_token(agent: ScriptedAgent) -> None:
    agent.closes_after = [b"HELLO"]
    assert run(agent, "--wait", "20s", "r", "--", "true").returncode == 0
    locks = [words for words in agent.asked if words[0] == b"LOCK"]
    assert {words[5] for words in locks} == {locks[-1][5]}
    assert 0 < int(locks[-1][7]) <= 20_000


def test_a_lease_that_is_nearly_over_when_it_arrives_starts_nothing(
    agent: ScriptedAgent, tmp_path: Path
) -> None:
    agent.grants_ms = 100
    done = run(agent, "--ttl", "10s", "r", "--", "touch", tmp_path / "started")
    assert done.returncode == 76
    assert "was not started" in done.stderr
    assert "safe: nothing was started" in done.stderr
    assert "check what was done" not in done.stderr
    assert not (tmp_path / "started").exists()


def test_a_command_that_is_stopped_when_its_lease_ends_is_not_continued(
    agent: ScriptedAgent, tmp_path: Path
) -> None:
    """Stopped at the terminal, together with lockctl. Nobody has renewed it, and `fg` comes too late."""
    agent.grants_ms = 3_000
    written = tmp_path / "written"
    deaf = f"trap '' TERM; while :; do echo >>{written}; done"
    # The job control of a shell: its job is a group of its own, in the foreground.
    job = f"{LOCKCTL} --socket {agent.path} run --ttl 5s r -- sh -c {shlex.quote(deaf)}"
    script = f"set -m; {job}; stat -c %s {written} >{written}.then; sleep 4; fg"
    with Terminal("bash", "-ic", script) as terminal:
        eventually(lambda: written.exists() and written.stat().st_size > 100, "the command writes")
        terminal.type("\x1a")
        eventually(lambda: Path(f"{written}.then").exists(), "it has stopped")
        terminal.end()
    assert written.stat().st_size == int(Path(f"{written}.then").read_text())


def test_a_keeper_whose_lockctl_has_been_killed_already_starts_nothing(tmp_path: Path) -> None:
    start = Start(["touch", str(tmp_path / "started")], os.environb, lambda: None)
    report, report_end = os.pipe()
    lifeline, held_end = os.pipe()
    statuses, statuses_end = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        os.close(report)
        os.close(held_end)
        os.close(statuses)
        not_our_parent = os.getpid()
        _Keeper(not_our_parent, start, lifeline, statuses_end).run(report_end)
    for end in (report_end, lifeline, held_end, statuses_end):
        os.close(end)
    assert os.waitpid(keeper, 0)[1] == 0
    assert os.read(statuses, 100) == b""
    assert not (tmp_path / "started").exists()
    os.close(report)
    os.close(statuses)


def test_the_renewal_of_another_lease_is_none_of_ours(agent: ScriptedAgent) -> None:
    agent.grants_ms = 1000
    agent.pushes = renewed(OTHER, boottime_ns() + 60_000 * MS)
    assert run(agent, "--ttl", "1s", "r", "--", "sleep", "30").returncode == 76


def test_a_renewal_moves_the_deadline_and_is_not_taken_for_an_answer_nor_the_loss_of_another_for_ours(
    agent: ScriptedAgent,
) -> None:
    agent.grants_ms = 1000
    renewal = renewed(TOKEN, boottime_ns() + 60_000 * MS)
    agent.pushes = lost(OTHER, 0) + renewal
    agent.unlock = renewal + b":1\r\n"
    assert run(agent, "--ttl", "1s", "r", "--", "sleep", "1.5").returncode == 0


def test_the_loss_of_what_the_agent_before_had_granted_under_its_token_is_not_that_of_its_lease(
    agent: ScriptedAgent,
) -> None:
    """It asked again after a kill, and the first of a list was lost while it waited for the next: the list
    began anew, and was granted by the same token."""
    agent.news = lost(TOKEN, boottime_ns())
    done = run(agent, "--ttl", "10s", "r", "--", "sleep", "1")
    assert (done.returncode, done.stderr) == (0, "")


def test_deadlines_of_an_agent_in_another_time_namespace_are_not_taken_for_ours(
    agent: ScriptedAgent, tmp_path: Path
) -> None:
    agent.grants_ms = 4_000
    agent.ahead_ns = 600_000 * MS
    renewed_until_ns = boottime_ns() + 8_000 * MS
    agent.pushes = renewed(TOKEN, renewed_until_ns + agent.ahead_ns)
    there = tmp_path / "there"
    script = "echo $LOCKD_DEADLINE_NS; " + STAMPING.format(trap="", file=there)
    done = run(agent, "--ttl", "4s", "r", "--", "sh", "-c", script)
    assert done.returncode == 76
    assert agent.granted_ns + 4_000 * MS < boottime_ns()
    assert last_there_ns(there) < renewed_until_ns
    assert int(done.stdout) < agent.granted_ns + 5_000 * MS


def test_a_loss_with_an_earlier_deadline_kills_earlier(agent: ScriptedAgent, tmp_path: Path) -> None:
    agent.grants_ms = 20_000
    agent.pushes = lost(TOKEN, boottime_ns() + 2000 * MS)
    there = tmp_path / "there"
    script = STAMPING.format(trap="trap '' TERM;", file=there)
    done = run(agent, "--ttl", "20s", "r", "--", "sh", "-c", script)
    assert done.returncode == 76
    assert last_there_ns(there) < agent.granted_ns + 3000 * MS
    assert "moved" in done.stderr


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [(b"-EXPIRED none had it\r\n", 76, "none had it"), (b"-NOQUORUM m1=down\r\n", 3, "was not released")],
)
def test_an_unlock_that_fails_keeps_the_commands_status_but_one_that_comes_too_late_is_a_loss(
    agent: ScriptedAgent, answer: bytes, status: int, told: str
) -> None:
    agent.unlock = answer
    done = run(agent, "r", "--", "sh", "-c", "exit 3")
    assert done.returncode == status
    assert told in done.stderr


SPOILER = """
import fcntl, os, time
for file in map(int, os.listdir("/proc/self/fd")):
    if file > 2:
        try:
            fcntl.fcntl(file, fcntl.F_SETFL, 0)
            os.close(file)
        except OSError:
            pass
print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_a_command_that_spoils_the_lifeline_still_dies_with_lockctl(agent: ScriptedAgent) -> None:
    command = [LOCKCTL, "--socket", agent.path, "run", "r", "--", sys.executable, "-c", SPOILER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as lockctl:
        assert lockctl.stdout is not None
        pid = int(lockctl.stdout.readline())
        lockctl.kill()
        eventually(lambda: not alive(pid), "it dies")


# All that the command has started

FAMILY = """
import mmap, os, signal, sys, time
from pathlib import Path
kind, folder = sys.argv[1], Path(sys.argv[2])
(folder / "there").write_bytes(bytes(8))
with open(folder / "there", "r+b") as file:
    last = mmap.mmap(file.fileno(), 8)

def note_that_we_are_there():
    last[:] = time.clock_gettime_ns(time.CLOCK_BOOTTIME).to_bytes(8, "little")

def is_child(session=True):
    if os.fork():
        return False
    if session:
        os.setsid()
    return True

def stay(name):
    signal.signal(signal.SIGTERM, lambda *_: (folder / f"{name}.told").touch())
    (folder / name).write_text(str(os.getpid()))
    while True:
        note_that_we_are_there()
        time.sleep(0.01)

def hop():
    # One at a time, and none for long.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        note_that_we_are_there()
        if os.fork():
            os._exit(0)

def breed():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if is_child():
            time.sleep(0.05)
            note_that_we_are_there()
            os._exit(0)
        time.sleep(0.003)

if kind == "session" and is_child():
    stay("left")
if kind == "group" and is_child(session=False):
    os.setpgid(0, 0)
    stay("left")
if kind in ("daemon", "leaves a daemon") and is_child():
    if os.fork():
        os._exit(0)
    os.closerange(0, 256)
    stay("left")
if kind == "hopping" and is_child():
    hop()
if kind == "breeding":
    for _ in range(4):
        if is_child():
            breed()
if kind == "leaves a daemon":
    while not (folder / "left").exists():
        time.sleep(0.01)
    sys.exit(3)
stay("command")
"""


def family(kind: str, folder: Path) -> tuple[str | Path, ...]:
    """A command whose processes ignore SIGTERM, and of which one has left its group in this way."""
    return sys.executable, "-c", FAMILY, kind, folder


def those_of(folder: Path) -> list[int]:
    """Every process with that folder on its command line: the family, lockctl and its keeper."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if os.fsencode(folder) in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of a family, which does not outlive the test."""
    own = tmp_path / "family"
    own.mkdir()
    yield own
    while left := those_of(own):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def running(agent: ScriptedAgent, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
    command = [LOCKCTL, "--socket", agent.path, "run", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as lockctl:
        # Popen waits for its end, also when a test fails.
        try:
            yield lockctl
        finally:
            lockctl.kill()


def number_in(path: Path) -> int:
    return int(eventually(lambda: path.exists() and path.read_text(), f"{path.name} is there"))


STAYING = ["session", "group", "daemon"]
WAYS = [*STAYING, "hopping", "breeding"]


@pytest.mark.parametrize("way", WAYS)
def test_whatever_left_the_group_of_the_command_is_told_and_gone_before_the_deadline(
    agent: ScriptedAgent, folder: Path, way: str
) -> None:
    agent.grants_ms = 4_000
    done = run(agent, "--ttl", "4s", "r", "--", *family(way, folder))
    assert those_of(folder) == []
    last_ns = int.from_bytes((folder / "there").read_bytes(), "little")
    assert 0 < last_ns < agent.granted_ns + 4_000 * MS
    assert done.returncode == 76, done
    assert "did not renew it in time" in done.stderr
    if way in STAYING:
        assert (folder / "left.told").exists()
        assert (folder / "command.told").exists()


@pytest.mark.parametrize("way", WAYS)
def test_a_lockctl_that_is_killed_frees_the_lock_when_all_of_them_are_gone(
    agent: ScriptedAgent, folder: Path, way: str
) -> None:
    with running(agent, "r", "--", *family(way, folder)) as lockctl:
        number_in(folder / "command")
        if way in STAYING:
            number_in(folder / "left")
        lockctl.kill()
        assert agent.hung_up.wait(60)
        assert [pid for pid in those_of(folder) if pid != lockctl.pid] == []


@pytest.mark.parametrize("way", ["daemon", "breeding"])
def test_a_lockctl_that_is_killed_frees_the_lock_at_the_next_agent_only_when_all_of_them_are_gone(
    agent: ScriptedAgent, folder: Path, way: str
) -> None:
    agent.closes_after = [b"LOCK"]
    with running(agent, "r", "--", *family(way, folder)) as lockctl:
        assert agent.hung_up.wait(60)
        eventually(lambda: agent.asked[-1][0] == b"EXTEND", "the next one goes on with it")
        number_in(folder / "command")
        agent.hung_up.clear()
        lockctl.kill()
        assert agent.hung_up.wait(60)
        assert [pid for pid in those_of(folder) if pid != lockctl.pid] == []


@pytest.mark.parametrize("way", STAYING)
def test_a_keeper_that_is_killed_is_a_loss_at_once_and_nobody_gets_away(
    agent: ScriptedAgent, folder: Path, way: str
) -> None:
    with running(agent, "r", "--", *family(way, folder)) as lockctl:
        number_in(folder / "command")
        number_in(folder / "left")
        [keeper] = children_of(lockctl.pid)
        os.kill(keeper, signal.SIGKILL)
        assert lockctl.wait(60) == 76
        assert lockctl.stderr is not None
        assert "supervises the command was killed" in lockctl.stderr.read()
        assert those_of(folder) == []


# What supervises a command, with a walk that is overtaken: who ends in the middle of it hands those below him
# to where the walk has been already.
OVERTAKEN = """
import os, signal, sys, time
from pathlib import Path
from lockd.lockctl.run.descendants import Descendants
from lockd.lockctl.run.keeper import CommandProcess, Start

folder, words = Path(sys.argv[1]), sys.argv[2:]
command = CommandProcess(Start(words, os.environb, lambda: None))
while not (folder / "left").exists() or not (folder / "left").read_text():
    time.sleep(0.01)
os.kill(command._keeper, signal.SIGKILL)
while command.kept:
    list(command.changes())
walk, Descendants._walk = Descendants._walk, lambda self: iter(())
command.send_all(signal.SIGKILL)
Descendants._walk = walk
while not command.gone:
    list(command.changes())
    command.send_all(signal.SIGKILL)
"""


def test_a_walk_that_finds_nobody_is_no_proof_that_nobody_is_left(folder: Path) -> None:
    words = (sys.executable, "-c", OVERTAKEN, folder, *family("session", folder))
    assert subprocess.run(words, timeout=PATIENCE_S, check=False).returncode == 0
    assert those_of(folder) == []


def test_a_daemon_that_the_command_leaves_behind_goes_on(agent: ScriptedAgent, folder: Path) -> None:
    assert run(agent, "r", "--", *family("leaves a daemon", folder)).returncode == 3
    assert agent.asked[-1][0] == b"UNLOCK"
    assert those_of(folder) == [number_in(folder / "left")]


@pytest.mark.parametrize("keeper_dies", [False, True], ids=["its lease ends", "its keeper is killed"])
def test_what_a_shell_had_started_before_it_became_lockctl_is_left_alone(
    agent: ScriptedAgent, folder: Path, keeper_dies: bool
) -> None:
    agent.grants_ms = 60_000 if keeper_dies else 2_000
    script = 'sleep 600 >/dev/null 2>&1 & echo $!; exec "$@"'
    family_of = family("group" if keeper_dies else "daemon", folder)
    words = (LOCKCTL, "--socket", agent.path, "run", "--ttl", "2s", "r", "--", *family_of)
    with subprocess.Popen(["sh", "-c", script, "sh", *words], stdout=subprocess.PIPE, text=True) as lockctl:
        assert lockctl.stdout is not None
        stranger = int(lockctl.stdout.readline())
        try:
            if keeper_dies:
                number_in(folder / "left")
                [keeper] = set(children_of(lockctl.pid)) - {stranger}
                os.kill(keeper, signal.SIGKILL)
            assert lockctl.wait(60) == 76
            assert keeper_dies or those_of(folder) == []
            assert alive(stranger)
        finally:
            os.kill(stranger, signal.SIGKILL)
            lockctl.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a program that becomes root")
@pytest.mark.parametrize("way", ["the command itself", "beside it"])
def test_who_runs_as_another_user_is_named_and_holds_nothing_up(
    agent: ScriptedAgent, folder: Path, way: str
) -> None:
    """As behind sudo. lockctl itself is somebody here who may not end root's processes."""
    become_root = folder / "becomes-root"
    shutil.copy(shutil.which("setpriv") or pytest.skip("no setpriv here"), become_root)
    become_root.chmod(0o4755)
    agent.path.chmod(0o777)
    for path in folder.parents:
        if path.is_relative_to(tempfile.gettempdir()) and path != Path(tempfile.gettempdir()):
            path.chmod(0o711)  # others of these folders are looked at by tests beside this one
    as_root = f"{become_root} --reuid 0 --regid 0 --clear-groups sleep 3"
    script = f"exec {as_root}" if way == "the command itself" else f"{as_root} & exec sleep 60"
    agent.grants_ms = 2_000
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 2)
        become(65_534)
        try:
            job.run(Job(str(agent.path), (b"r",), 2_000, 0, None, ["sh", "-c", script]))
        except Lost:
            os._exit(76)
        os._exit(1)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    said = os.read(reader, 65_536).decode()
    os.close(reader)
    assert os.waitstatus_to_exitcode(status) == 76, said
    assert re.search(r"sleep \(pid \d+\) runs as another user and can't be killed", said), said


class Told:
    """A command, as its supervisor sees it: which signals it was sent."""

    def __init__(self) -> None:
        self.keeper_got: set[int] = set()
        self.sent: list[int] = []
        self.send_group = self.sent.append


TO_ALL_MS = 1_000
"""More than a signal for all takes."""


@pytest.mark.parametrize(("to_all", "sent"), [(True, []), (False, [signal.SIGTERM])])
def test_a_signal_is_passed_on_once_and_not_if_it_came_to_all(to_all: bool, sent: list[int]) -> None:
    """systemd ends a whole unit by one signal to each of its processes."""
    told: Any = Told()
    nothing: Any = SimpleNamespace(lent=False, ours=lambda: False)
    supervisor = Supervisor(nothing, 10_000, told, nothing, nothing)
    for _ in range(2):
        supervisor._forward(bytes([signal.SIGTERM, signal.SIGUSR1]))
        assert told.sent == [signal.SIGUSR1], "nothing else is kept back"
        if to_all:
            told.keeper_got.add(signal.SIGTERM)
        for _ in range(2):
            supervisor._pass_on_what_was_kept_back(boottime_ns() + TO_ALL_MS * MS)
        assert told.sent[1:] == sent
        told.sent.clear()


def test_what_the_keeper_got_alone_keeps_no_later_signal_back() -> None:
    told: Any = Told()
    nothing: Any = SimpleNamespace(lent=False, ours=lambda: False)
    supervisor = Supervisor(nothing, 10_000, told, nothing, nothing)
    told.keeper_got.add(signal.SIGTERM)
    supervisor._pass_on_what_was_kept_back(boottime_ns())
    supervisor._forward(bytes([signal.SIGTERM]))
    supervisor._pass_on_what_was_kept_back(boottime_ns() + TO_ALL_MS * MS)
    assert told.sent == [signal.SIGTERM]


KEPT = """
import os, signal, sys
from lockd.lockctl.run.keeper import CommandProcess, Start
command = CommandProcess(Start(["sleep", "1000"], os.environb, lambda: None))
os.kill(command._keeper, signal.SIGTERM)
while not command.keeper_got:
    assert list(command.changes()) == []
print(command.keeper_got == {signal.SIGTERM} and command.kept)
"""


def test_a_keeper_says_which_signal_it_got_and_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KEPT], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == "True\n"
