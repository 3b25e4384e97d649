"""How much memory the agent may have: by its control group, which systemd sets from MemoryMax."""

from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def memory_limit(cgroups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int | None:
    """In bytes, the least of its group's and those above; None: there is none, or it can't be seen."""
    try:
        path = next(line.split("::")[1] for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    folder, limits = cgroups / path.lstrip("/"), list[int]()
    while folder != cgroups.parent:
        limits += _limit_in(folder)
        folder = folder.parent
    return min(limits, default=None)


def _limit_in(folder: Path) -> list[int]:
    try:
        text = (folder / "memory.max").read_text().strip()
    except OSError:
        return []
    return [int(text)] if text.isdigit() else []
