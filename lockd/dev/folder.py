"""The folder of one `lockd dev`: which process has it, and the configuration in it, which keeps the ports.

lockd.yml is written once. From then on the user may edit it: only a port that another program has taken
meanwhile is replaced, as text, so that comments and everything else stay as they were.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lockd.config.model import Config, load
from lockd.config.problems import ConfigError
from lockd.config.socket import SOCKET_PATH_BYTES
from lockd.dev.processes import LOOPBACK, default_server, find_servers, flavour, free_ports, port_is_free

DEFAULT_MASTERS = 5
EXIT_USAGE = 2
EXIT_BUSY = 3

_DEFAULT_METRICS_PORT = 9480
_DYING_WITHIN_S = 2.0
_MARK = "lockd dev"

_NEW_CONFIG = """\
# Written by `lockd dev`; edit it as you like. The next `lockd dev` on this folder reads it, and changes
# only ports that another program has taken meanwhile. The number of masters must stay the same.
cluster: dev
masters:
{masters}
max_ttl_ms: 60000
socket: {{path: "{socket}"}}
metrics: {metrics}
"""


class DevError(Exception):
    """`lockd dev` can't go on; the text says why and what to do."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class DevFolder:
    """The paths in the folder, and the lock that gives it to one `lockd dev` alone."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))
        self.config_path = self.path / "lockd.yml"
        self.socket_path = self.path / "lockd.sock"
        self.log_folder = self.path / "log"
        self._lock_path = self.path / "dev.lock"
        self._formed_path = self.path / "formed"
        self._server_path = self.path / "server"

    @property
    def formed(self) -> bool:
        """True when an agent has used these masters: they must never again be taken for unused ones."""
        return self._formed_path.exists()

    def remember_formed(self) -> None:
        self._formed_path.touch()

    def server(self) -> Path:
        """The server that wrote its data, or a newer one of its kind: others may not be able to read them. A
        new folder gets this machine's. Raises ServerNotFound or DevError."""
        wrote = self._server_path.read_text("utf-8").strip() if self._server_path.exists() else ""
        binary = _that_reads(wrote, find_servers()) if wrote else default_server()
        if binary is None:
            here = " and ".join(find_servers()) or "no such server"
            raise DevError(
                f"the data in {self.path} was written by {wrote}, and this machine has only {here}. Install "
                f"{wrote} again, or choose another --dir"
            )
        self._server_path.write_text(f"{flavour(binary)}\n", "utf-8")
        return binary

    @contextmanager
    def claimed(self) -> Iterator[DevFolder]:
        """Have it alone until the end of the block, or of this process. DevError when that can't be."""
        self._check_socket_path()
        try:
            self._make()
            lock = self._lock_path.open("a+", encoding="utf-8", errors="replace")
        except OSError as error:
            raise DevError(f"can't use {self.path}: {error}") from error
        with lock:
            self._lock(lock)
            yield self

    def shell_path(self, path: Path) -> str:
        """A path as one would type it here: relative when it is below the working directory, quoted."""
        relative = os.path.relpath(path)
        return shlex.quote(str(path) if relative.startswith("..") else relative)

    def _check_socket_path(self) -> None:
        size = len(os.fsencode(self.socket_path))
        if size > SOCKET_PATH_BYTES:
            raise DevError(
                f"the socket's path {self.socket_path} is {size} bytes long, and the maximum is "
                f"{SOCKET_PATH_BYTES}. Choose a shorter folder, such as --dir /tmp/lockd-dev"
            )

    def _make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        seen = self.path.stat()
        # Files in it are opened and written to as this user: a link there could lead anywhere.
        if seen.st_uid != os.geteuid() or seen.st_mode & stat.S_IWOTH:
            raise DevError(
                f"{self.path} can be used by other users (uid {seen.st_uid}). Choose another --dir"
            )
        if not self._lock_path.exists() and any(self.path.iterdir()):
            raise DevError(
                f"{self.path} is neither empty nor a folder of `lockd dev`, so it is not touched. Choose "
                "another --dir"
            )

    def _lock(self, lock: IO[str]) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._busy(_content(lock)) from None
        content = _content(lock)
        if content and not content.startswith(_MARK):
            raise DevError(f"{self._lock_path} is not from `lockd dev`, so {self.path} is not touched")
        lock.truncate(0)
        lock.write(f"{_MARK}\npid {os.getpid()}\n")
        lock.flush()

    def _busy(self, content: str) -> DevError:
        owner = content.partition("\n")[2].strip() or "just starting"
        return DevError(
            f"another `lockd dev` ({owner}) is already running on {self.path}. Apps reach it at "
            f"{self.socket_path}. To run a second one, choose another --dir",
            EXIT_BUSY,
        )


def metrics_value(text: str) -> str:
    """What lockd.yml has after `metrics:` for what --metrics says: an address in quotes, or null."""
    if text == "off":
        return "null"
    host, _, port = text.rpartition(":")
    if host not in (LOOPBACK, "localhost") or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        raise DevError(f"--metrics {text}: must be {LOOPBACK}:PORT, or off", EXIT_USAGE)
    return _quoted_address(int(port) or free_ports(1)[0])


def settle(home: DevFolder, masters: int | None, metrics: str | None, say: Callable[[str], None]) -> Config:
    """The configuration to run with, on ports that are free; `say` is called for each port that had to
    change.

    `masters`: how many, refused when the folder has another number; None: what it has, 5 in a new one.
    `metrics`: a `metrics_value`, or None for what the folder has. Raises DevError.
    """
    if not home.config_path.exists():
        home.config_path.write_text(_new_config(home, masters or DEFAULT_MASTERS), "utf-8")
    config = _load(home)
    _check_stays_here(home, config)
    if masters is not None and len(config.masters) != masters:
        raise DevError(
            f"{home.path} has {len(config.masters)} masters, and --masters asks for {masters}. Leave "
            "--masters out, choose another --dir, or remove the folder to start again"
        )
    text = home.config_path.read_text("utf-8")
    settled = _with_free_metrics_port(_with_free_ports(home, config, text, say), metrics, say)
    if settled != text:
        home.config_path.write_text(settled, "utf-8")
    return _load(home)


def _new_config(home: DevFolder, masters: int) -> str:
    lines = [
        f'  - {{name: m{number}, address: "{LOOPBACK}:{port}"}}'
        for number, port in enumerate(free_ports(masters), start=1)
    ]
    escaped = str(home.socket_path).replace("\\", "\\\\").replace('"', '\\"')
    metrics = _quoted_address(_DEFAULT_METRICS_PORT)
    return _NEW_CONFIG.format(masters="\n".join(lines), socket=escaped, metrics=metrics)


def _load(home: DevFolder) -> Config:
    try:
        return load(home.config_path)
    except ConfigError as error:
        raise DevError(f"{home.config_path} has problems:\n{error}") from error


def _check_stays_here(home: DevFolder, config: Config) -> None:
    """Refuse a configuration, edited by hand, that reaches beyond this folder or this machine."""
    path = home.config_path
    for master in config.masters:
        if master.host != LOOPBACK:
            raise DevError(f"{path}: master {master.name} is at {master.address}, not at {LOOPBACK}:PORT")
    if config.metrics is not None and config.metrics.rpartition(":")[0] != LOOPBACK:
        raise DevError(f"{path}: metrics is {config.metrics}, not {LOOPBACK}:PORT or null")
    if config.socket.path != home.socket_path:
        raise DevError(
            f"{path}: the socket is {config.socket.path}, not {home.socket_path}. If the folder was moved, "
            "write its new path there"
        )


def _with_free_ports(home: DevFolder, config: Config, text: str, say: Callable[[str], None]) -> str:
    ports = [master.port for master in config.masters]
    for master in config.masters:
        if _is_free_for(home, master.name, master.port):
            continue
        [port] = free_ports(1, avoid=ports)
        ports.append(port)
        say(f"{master.name}: port {master.port} is taken by another program, so it moves to {port}")
        # Not followed by a digit: 127.0.0.1:1234 must not be found in 127.0.0.1:12345.
        text = re.sub(re.escape(master.address) + r"(?!\d)", f"{LOOPBACK}:{port}", text)
    return text


def _is_free_for(home: DevFolder, name: str, port: int) -> bool:
    """Whether a master can have its port. If one runs on our data already, it must not get a second
    server."""
    deadline_s = time.monotonic() + _DYING_WITHIN_S
    while not port_is_free(port):
        owner = _redis_on(port)
        if owner.get("config_file") != str(home.path / name / "redis.conf"):
            return False
        if time.monotonic() > deadline_s:  # until then it may be dying with a `lockd dev` that was killed
            raise DevError(f"{name} is already running, started by hand: kill {owner.get('process_id')}")
        time.sleep(0.05)
    return True


def _with_free_metrics_port(text: str, wanted: str | None, say: Callable[[str], None]) -> str:
    if wanted is not None:
        text = _with_metrics(text, wanted)
    found = re.search(rf"^metrics:[^\n#]*{re.escape(LOOPBACK)}:(\d+)", text, re.MULTILINE)
    if found is None or port_is_free(int(found[1])):
        return text
    if wanted is not None:
        raise DevError(f"--metrics: port {found[1]} is taken by another program")
    [port] = free_ports(1)
    say(f"metrics: port {found[1]} is taken by another program, so it moves to {port}")
    return _with_metrics(text, _quoted_address(port))


def _with_metrics(text: str, value: str) -> str:
    line = f"metrics: {value}"
    changed, count = re.subn(r"^metrics:.*$", line, text, flags=re.MULTILINE)
    return changed if count else f"{text.rstrip()}\n{line}\n"


def _quoted_address(port: int) -> str:
    return f'"{LOOPBACK}:{port}"'


def _redis_on(port: int) -> dict[str, str]:
    """INFO server of the Redis that listens on that port; empty when it is no Redis, or says nothing."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=0.5) as link:
            link.sendall(b"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n")
            text = link.recv(65_536).decode("utf-8", "replace")
    except OSError:
        return {}
    fields = (line.partition(":") for line in text.splitlines())
    return {key: value for key, _, value in fields}


def _that_reads(wrote: str, servers: Mapping[str, Path]) -> Path | None:
    """Of these servers by flavour, the one that wrote it, else a newer one of its kind."""
    if wrote in servers:
        return servers[wrote]
    of_its_kind = {kind: binary for kind, binary in servers.items() if _kind(kind) == _kind(wrote)}
    return next((binary for kind, binary in of_its_kind.items() if _line(kind) > _line(wrote)), None)


def _kind(flavour_: str) -> str:
    return flavour_.partition("-")[0]


def _line(flavour_: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", flavour_)]


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
