"""A master's own small disk: an xfs on a loop device. It can lose power (what was not synced is gone) and be
filled. Needs root and xfsprogs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tests.harness.waiting import PATIENCE_S

_SIZE = 300 << 20  # mkfs.xfs makes none smaller


@contextmanager
def full_memory(folder: Path) -> Iterator[Path]:
    """A small file system in memory, as /run is. All of it is in the file `full` there."""
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder))
    try:
        with suppress(OSError), (folder / "full").open("wb", buffering=0) as full:
            while True:
                full.write(bytes(4_096))
        yield folder
    finally:
        _run("umount", "--lazy", str(folder))


class Disk:
    """Mounted at `path` as long as it is in use."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self._image = folder / f"{name}.img"
        self._ballast = self.path / "ballast"
        self._mounted = False

    def make(self) -> None:
        """A fresh file system, mounted."""
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(_SIZE)
        _run("mkfs.xfs", "-q", "-f", str(self._image))
        self.mount()

    def mount(self) -> None:
        # nouuid: the one that lost power may still be there (see `come_back`).
        _run("mount", "-o", "loop,nouuid", str(self._image), str(self.path))
        self._mounted = True

    def unmount(self) -> None:
        _run("umount", str(self.path))
        self._mounted = False

    def lose_power(self) -> None:
        """From now on nothing reaches the disk; what was not synced never will."""
        _run("xfs_io", "-x", "-c", "shutdown", str(self.path))

    def come_back(self) -> None:
        """Mount again what is left of it, when nobody uses it any more.

        A copy, because somebody else on this machine who has made a mount namespace meanwhile keeps the old
        file system alive, and to mount the same image again would only show that one: dead as it is.
        """
        self.unmount()
        copy = self._image.with_suffix(".copy")
        _run("cp", "--sparse=always", str(self._image), str(copy))
        copy.replace(self._image)
        self.mount()

    def fill(self) -> None:
        """Leave no room at all."""
        with self._ballast.open("wb") as ballast:
            size, step = 0, _SIZE
            while step >= 4096:
                try:
                    os.posix_fallocate(ballast.fileno(), size, step)
                    size += step
                except OSError:
                    step //= 2

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def remove(self) -> None:
        """Whatever state it is in."""
        if self._mounted:
            subprocess.run(["umount", "-l", self.path], check=False, capture_output=True, timeout=PATIENCE_S)
        self._image.unlink(missing_ok=True)


@cache
def why_no_disks() -> str:
    """Why there can be no such disks on this machine; '' when there can."""
    missing = [tool for tool in ("mkfs.xfs", "xfs_io") if shutil.which(tool) is None]
    if missing:
        return f"no {', no '.join(missing)} (Debian: xfsprogs)"
    if os.geteuid() != 0:
        return "only root can mount a file system"
    with tempfile.TemporaryDirectory(prefix="lockd-") as folder:
        disk = Disk(Path(folder), "trial")
        try:
            disk.make()
        except subprocess.SubprocessError as error:
            return f"no xfs can be mounted here: {_said(error)}"
        finally:
            disk.remove()
    return ""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)


def _said(error: subprocess.SubprocessError) -> str:
    stderr: bytes = getattr(error, "stderr", None) or b""
    return stderr.decode(errors="replace").strip() or str(error)
