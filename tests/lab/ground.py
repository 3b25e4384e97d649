"""Whether this machine can carry the lab, and what is missing when it can't."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# program: the Debian package that has it
PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "dpkg-scanpackages": "dpkg-dev",
    "ip": "iproute2",
    "ssh": "openssh-client",
}

# What the eight hosts of a lab write, each with plays for an hour, and what another app host does. The rest
# must be left for all that runs.
_WRITTEN_BY_EIGHT_BYTES = 4 << 30
_WRITTEN_BY_ONE_MORE_BYTES = 200 << 20
_LEFT_BYTES = 6 << 30

_INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_NEIGHBOURS = Path("/proc/sys/net/ipv4/neigh/default")
_LABS_AT_ONCE = 4


class Unfit(Exception):
    """This machine can't carry the lab; the text says why, and what to do."""


def cache_folder() -> Path:
    """Where root file systems and running labs are kept: never in the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lockd-lab"


def require() -> None:
    """Raises Unfit with the first thing that is missing."""
    if os.geteuid() != 0:
        raise Unfit("the lab needs root: network namespaces, overlay mounts and systemd-nspawn")
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        raise Unfit(f"not installed: {' '.join(missing)} (apt-get install them)")
    if not cgroup_roots():
        raise Unfit("no cgroup file system is mounted at /sys/fs/cgroup")
    _try_overlay()


def cgroup_roots() -> list[Path]:
    """Where a host's processes get a cgroup of their own: systemd's and the unified tree, or the only one."""
    root = Path("/sys/fs/cgroup")
    split = [root / "systemd", root / "unified"]
    if all(tree.is_dir() for tree in split):
        return split
    return [root] if (root / "cgroup.controllers").exists() else []


def allow_watches(hosts: int) -> None:
    """The kernel lets a user have 128 instances of inotify, and systemd with its services takes some ten on
    each host. Without one a host doesn't boot, or its Prometheus has no targets. It stays so until this
    machine boots: other labs may run by the time this one ends."""
    wanted = 32 * hosts * _LABS_AT_ONCE
    if int(_INOTIFY_INSTANCES.read_text()) < wanted:
        with suppress(OSError):  # where that is not ours to change, one lab finds room
            _INOTIFY_INSTANCES.write_text(str(wanted))


@contextmanager
def many_hosts(count: int) -> Iterator[None]:
    """All namespaces together may know 1,024 neighbours, and each app host has seven: the masters, the
    monitoring host and the controller, which know it as well. Many hosts need more while they run."""
    # The least that is kept, and from where on some, then all that is too much is forgotten.
    wanted = {_NEIGHBOURS / f"gc_thresh{step}": 32 * count * step for step in (1, 2, 3)}
    before = {setting: setting.read_text() for setting in wanted}
    for setting, least in wanted.items():
        setting.write_text(str(max(int(before[setting]), least)))
    try:
        yield
    finally:
        for setting, value in before.items():
            setting.write_text(value)


def disk_in_memory_bytes(more: int) -> int | None:
    """How much memory the disks of a lab with so many more app hosts may take; None where that is too much.

    Each master waits for its own disk before it answers. Five on this machine's one disk wait for each other,
    and for whatever else the machine writes: when that disk stands still, five masters are silent at once,
    which five hosts never are. In memory no disk stands still.
    """
    size = _WRITTEN_BY_EIGHT_BYTES + more * _WRITTEN_BY_ONE_MORE_BYTES
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) << 10
            return size if available >= size + _LEFT_BYTES else None
    return None


def _try_overlay() -> None:
    """Mount one and look: whether it works depends on the kernel, the file system and the container we
    are in."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="try-", dir=cache) as name:
        folder = Path(name)
        for part in ("lower", "upper", "work", "merged"):
            (folder / part).mkdir()
        options = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
        mounted = subprocess.run(
            ["mount", "-t", "overlay", "lockd-lab-try", "-o", options, str(folder / "merged")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if mounted.returncode != 0:
            raise Unfit(f"overlayfs can't be mounted here: {mounted.stderr.strip()}")
        subprocess.run(["umount", str(folder / "merged")], check=True)
