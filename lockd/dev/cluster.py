"""`lockd dev`: a whole cluster on one machine, in one folder, up in a second and gone without a trace.

Plain Redis masters and one agent run as children, on 127.0.0.1 only. The agent is stopped first, and all of
them die with this process, however it ends. There is no restart guard here, as there is in production.
"""

from __future__ import annotations

import json
import select
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lockd.config.model import Config
from lockd.dev.folder import EXIT_USAGE, DevError, DevFolder, metrics_value, settle
from lockd.dev.processes import Child, LocalMaster, ServerNotFound, StartFailed
from lockd.dev.view import View, standard_view
from lockd.lockctl.tables import Snapshot

_CANARY = "lockd-dev-canary"
_READY_WITHIN_S = 20.0
_ALL_VOTE_WITHIN_S = 3.0
_STOP_WITHIN_S = 5.0
_SAMPLE_EVERY_S = 0.25
# However many leases there are to list, watching takes at most a tenth of this process's time.
_REST_PER_SAMPLE = 10

_REFUSED = (redis.RedisError, OSError)


def run(folder: Path, masters: int | None = None, metrics: str | None = None) -> int:
    """Run a cluster in that folder until a signal asks to stop. Returns the exit status.

    `masters` None: as many as the folder has, five in a new one. `metrics`: "127.0.0.1:PORT", "off", or None
    for what the folder has.
    """
    view = standard_view()
    try:
        if masters not in (None, 1, 3, 5, 7, 9):
            raise DevError(f"--masters {masters}: must be 1, 3, 5, 7 or 9", EXIT_USAGE)
        wanted_metrics = None if metrics is None else metrics_value(metrics)
        with DevFolder(folder).claimed() as home, StopSignals() as signals:
            binary = home.server()
            config = settle(home, masters, wanted_metrics, view.say)
            DevCluster(home, config, binary, view, signals).run()
    except (DevError, ServerNotFound, StartFailed) as error:
        print(f"lockd dev: {error}", file=sys.stderr, flush=True)
        return error.exit_status if isinstance(error, DevError) else 1
    return 0


class StopSignals:
    """SIGINT, SIGTERM and SIGHUP as a count: the first asks to stop, the second to stop at once.

    A signal that was ignored when this process started (nohup, a script's `&`) stays ignored.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.count = 0
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in self.NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()

    @property
    def stop(self) -> bool:
        return self.count > 0

    @property
    def force(self) -> bool:
        return self.count > 1

    def wait(self, seconds: float) -> None:
        """Sleep that long, or until the next signal."""
        readable, _, _ = select.select([self._reader], [], [], seconds)
        if readable:
            self._reader.recv(64)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


class AgentProcess(Child):
    """The agent as a child, and a connection to it."""

    def __init__(self, config_path: Path, socket_path: Path, log_path: Path) -> None:
        # -P: a redis.py in the user's working directory must not be imported in place of the real one.
        command = (sys.executable, "-P", "-m", "lockd", "serve", "--config", config_path)
        super().__init__("agent", command, log_path)
        self._client = redis.Redis(
            unix_socket_path=str(socket_path),
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=5,
            decode_responses=True,
            encoding_errors="backslashreplace",
        )

    def ask(self, *command: str | int) -> Any:
        """The reply to a command. Raises redis.RedisError, or OSError."""
        return self._client.execute_command(*command)  # type: ignore[no-untyped-call]

    def ask_map(self, *command: str | int) -> dict[str, Any]:
        return _as_map(self.ask(*command))

    def lock_once(self) -> None:
        """Take a lock and give it back, as an app would. Raises redis.RedisError, or OSError."""
        granted = self.ask_map("LOCK", _CANARY, 1000, "DETACHED")
        self.ask("UNLOCK", _CANARY, granted["token"])


class DevCluster:
    """The children of one `lockd dev`, from their start to their end."""

    def __init__(
        self, home: DevFolder, config: Config, binary: Path, view: View, signals: StopSignals
    ) -> None:
        self._home = home
        self._config = config
        self._view = view
        self._signals = signals
        self._agent = AgentProcess(home.config_path, config.socket.path, home.log_folder / "agent.log")
        self._masters = [
            LocalMaster(
                master.name,
                home.path / master.name,
                master.port,
                binary,
                log_path=home.log_folder / f"{master.name}.log",
            )
            for master in config.masters
        ]
        self._dead: set[str] = set()

    def run(self) -> None:
        """Start, watch, stop. Raises DevError or StartFailed, when everything is stopped too."""
        try:
            self._start_masters()
            self._agent.start()
            self._make_ready()
            self._wait_for_all_votes()
            if not self._stopping:
                self._announce()
            self._watch()
        finally:
            self._view.close()
            self._stop()

    @property
    def _stopping(self) -> bool:
        return self._signals.stop or self._view.gone

    # --- start

    def _start_masters(self) -> None:
        for master in self._masters:
            master.start(wait=False)
        while not self._stopping and not all(master.ready for master in self._masters):
            for master in self._masters:
                if not master.running:
                    master.wait_ready()  # raises, with the end of its log
            self._signals.wait(0.01)

    def _make_ready(self) -> None:
        """Form the cluster, and return when an app can really lock."""
        deadline_s = time.monotonic() + _READY_WITHIN_S
        told_s = 0.0
        while not self._stopping:
            self._check_agent()
            remaining_ms, trouble = self._form()
            self._check_max_ttl()
            trouble = self._lock_once() or trouble
            if trouble is None:
                return
            now_s = time.monotonic()
            if remaining_ms:
                deadline_s = now_s + _READY_WITHIN_S + remaining_ms / 1000
                if now_s - told_s > 10:
                    told_s = now_s
                    self._view.say(_waiting_line(remaining_ms))
            if now_s > deadline_s:
                raise DevError(f"no lock could be taken: {trouble}\n{self._agent.log_tail()}")
            self._signals.wait(0.05)

    def _form(self) -> tuple[int, Exception | None]:
        """Ask the agent to form the cluster: how many ms it still has to wait, and what went wrong."""
        try:
            command = ("FORM",) if self._home.formed else ("FORM", "UNUSED")
            reply = self._agent.ask_map(*command)
        except _REFUSED as error:
            return 0, error
        if reply["status"] == "waiting":
            return int(reply["remaining_ms"]), None
        self._home.remember_formed()
        return 0, None

    def _check_max_ttl(self) -> None:
        """The masters keep the one that they were formed with, and refuse all that is above it (rule 9)."""
        try:
            masters = [_as_map(master) for master in self._agent.ask("MASTERS")]
        except _REFUSED:
            return
        least_ms = min((int(one["max_ttl_ms"]) for one in masters if one["max_ttl_ms"]), default=None)
        if least_ms is not None and self._config.max_ttl_ms > least_ms:
            raise DevError(
                f"{self._home.config_path}: max_ttl_ms is {self._config.max_ttl_ms}, and these masters were "
                f"formed with {least_ms} and refuse more. Set it back to {least_ms}, or remove "
                f"{self._home.path} to start again with empty masters and {self._config.max_ttl_ms}"
            )

    def _lock_once(self) -> Exception | None:
        try:
            self._agent.lock_once()
        except _REFUSED as error:
            return error
        return None

    def _wait_for_all_votes(self) -> None:
        """A quorum is enough to lock; the other masters get a moment, so that the first picture is
        complete."""
        deadline_s = time.monotonic() + _ALL_VOTE_WITHIN_S
        while not self._stopping and time.monotonic() < deadline_s:
            if self._voting() == len(self._masters):
                return
            self._signals.wait(0.05)

    def _voting(self) -> int:
        try:
            return sum(_as_map(master)["vote"] == 1 for master in self._agent.ask("MASTERS"))
        except _REFUSED:
            return 0

    def _announce(self) -> None:
        metrics = self._config.metrics
        where = f", metrics http://{metrics}/metrics" if metrics else ""
        socket_path, config_path = (
            self._home.shell_path(path) for path in (self._home.socket_path, self._home.config_path)
        )
        self._view.say(
            f"ready: {self._voting()} of {len(self._masters)} masters vote, socket {socket_path},"
            f" configuration {config_path}{where}"
        )
        self._view.say("next, in another terminal:")
        for line in next_steps(self._home):
            self._view.say(f"  {line}")

    # --- run

    def _watch(self) -> None:
        while not self._stopping:
            self._check_agent()
            self._report_dead_masters()
            began_s = time.monotonic()
            try:
                self._view.show(self._snapshot())
            except _REFUSED as error:
                self._check_agent()
                self._view.say(f"the agent did not answer: {error}")
            took_s = time.monotonic() - began_s
            self._signals.wait(max(_SAMPLE_EVERY_S, _REST_PER_SAMPLE * took_s))

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            at_s=time.monotonic(),
            masters=[_as_map(one) for one in self._agent.ask("MASTERS")],
            leases=[_as_map(one) for one in self._agent.ask("LOCKS", "*", "LOCAL")],
            info=_as_info(self._agent.ask("INFO")),
            pids={master.name: master.pid for master in self._masters if master.running},
        )

    def _check_agent(self) -> None:
        if self._agent.wait(0):
            self._view.close()
            raise DevError(
                f"the agent {_ending(self._agent)}. "
                f"The end of {self._home.shell_path(self._agent.log_path)}:\n"
                f"{self._agent.log_tail()}"
            )

    def _report_dead_masters(self) -> None:
        for master in self._masters:
            if not master.running and master.name not in self._dead:
                self._dead.add(master.name)
                again = f"{shlex.quote(str(master.binary))} {self._home.shell_path(master.config_path)}"
                self._view.say(f"{master.name}: {_ending(master)}. To start it again: {again}")

    # --- stop: the agent first, while its masters can still take back what it holds

    def _stop(self) -> None:
        if self._agent.running:
            self._view.say("stopping")
        stop_children([self._agent], _STOP_WITHIN_S, self._signals)
        stop_children(self._masters, _STOP_WITHIN_S, self._signals)


def stop_children(children: Sequence[Child], within_s: float, signals: StopSignals) -> None:
    """End them all: asked to at first, killed when the time is over or a second signal has come."""
    for child in children:
        child.terminate()
    deadline_s = time.monotonic() + within_s
    while any(child.running for child in children) and not signals.force and time.monotonic() < deadline_s:
        signals.wait(0.01)
    for child in children:
        child.kill()


def next_steps(home: DevFolder) -> list[str]:
    """What to type next, each line as it works from the present working directory."""
    path = home.shell_path(home.socket_path)
    return [
        f"{_redis_cli()} -s {path} LOCK demo 30000 DETACHED",
        f"{_program('python')} -c {shlex.quote(_python_example(home.socket_path))}",
        f"{_program('lockctl')} --socket {path} run demo-shell -- sleep 5",
    ]


def _redis_cli() -> str:
    """Redis's or Valkey's command line, whichever is there; they are the same to the agent."""
    return "redis-cli" if shutil.which("redis-cli") or not shutil.which("valkey-cli") else "valkey-cli"


def _python_example(socket_path: Path) -> str:
    return (
        f"from lockd import Client; client = Client({json.dumps(str(socket_path))});"
        ' print(client.acquire("demo-python", ttl=30, detached=True).fence)'
    )


def _program(name: str) -> str:
    """A program of this installation: by its bare name when the shell would find that one, else by path."""
    here = Path(sys.executable).parent / name
    found = shutil.which(name)
    return name if found and Path(found) == here else shlex.quote(_relative(here))


def _relative(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _ending(child: Child) -> str:
    """How a child ended, in words."""
    status = child.exit_status
    if status is not None and status < 0:
        return f"was ended by {signal.Signals(-status).name} (pid {child.pid})"
    return f"ended with status {status} (pid {child.pid})"


def _waiting_line(remaining_ms: int) -> str:
    return (
        "forming the cluster again: its masters have lost their data, so every lease that they may have "
        f"granted must end first, {remaining_ms / 1000:.0f} s more"
    )


def _as_map(reply: Any) -> dict[str, Any]:
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def _as_info(reply: Any) -> dict[str, str]:
    if isinstance(reply, dict):  # redis-py has parsed it
        return {str(key): str(value) for key, value in reply.items()}
    fields = (line.partition(":") for line in str(reply).splitlines())
    return {key: value for key, _, value in fields}
