#!/usr/bin/env python3
"""Runs the parts of `make test` or `make test-all`, and says where their time went.

    parts.py NAME [--keep] --first TITLE COMMAND … --lane TITLE COMMAND … [--lane TITLE COMMAND …]

What comes first has to succeed; then the lanes run side by side, and in each lane one part after the other.
A part that fails stops no other, so that one run tells all that is wrong. What a part prints is shown when it
ends.

The figures go to build/results/NAME.json; with --keep, and by `make keep-results`, also to tests/results,
which is committed: there the next run finds what it is compared with, and how old the last `make test-all`
is.

Exit status: 0 each part succeeded, 1 one failed, 2 wrong usage, 130 it was told to stop.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests/results"
MADE = ROOT / "build/results"
BEAT_S = 60.0
LAST_LINE = re.compile(r"\b(passed|failed|errors?|no tests ran)\b.* in \d")
COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped|rerun)\b")


@dataclass(slots=True)
class Part:
    """One command. cpu_s: of all processes that it has waited for; status: None while it has not ended."""

    title: str
    command: str
    status: int | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    tests: Counter[str] = field(default_factory=Counter)
    pid: int = 0

    def run(self) -> None:
        """Run it, and show what it printed when it has ended."""
        began_s = time.monotonic()
        log = MADE / f"{re.sub('[^a-z]+', '-', self.title.lower()).strip('-')}.log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                ["sh", "-c", self.command], cwd=ROOT, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            self.pid = child.pid
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        self.wall_s = time.monotonic() - began_s
        self.cpu_s = used.ru_utime + used.ru_stime
        said = log.read_text(errors="replace")
        self.tests = counted(said)
        self.status = child.returncode
        how = "well" if self.status == 0 else f"FAILED with status {self.status}"
        show(f"=== {self.title}\n{said.rstrip()}\n=== {self.title}: {how}, {minutes(self.wall_s)}\n")

    def figures(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "status": self.status,
            "wall_s": round(self.wall_s, 1),
            "cpu_s": round(self.cpu_s, 1),
            "tests": dict(self.tests),
        }


_showing = threading.Lock()


def show(text: str) -> None:
    with _showing:
        sys.stdout.write(text)
        sys.stdout.flush()


def counted(said: str) -> Counter[str]:
    """What pytest's last line counts."""
    last = [line for line in said.splitlines() if LAST_LINE.search(line)][-1:]
    found = COUNTED.findall("".join(last))
    return Counter({word: int(number) for number, word in found})


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def run_side_by_side(lanes: Sequence[Sequence[Part]]) -> None:
    """And say now and then what is under way."""

    def follow(lane: Sequence[Part]) -> None:
        for part in lane:
            part.run()

    threads = [threading.Thread(target=follow, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    began_s = last_s = time.monotonic()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.2)
        if time.monotonic() - last_s > BEAT_S:
            last_s = time.monotonic()
            under_way = [part.title for lane in lanes for part in lane if part.pid and part.status is None]
            show(f"... {minutes(last_s - began_s)}: {', '.join(under_way)}\n")


def end(parts: Sequence[Part]) -> None:
    """What is under way, with all that it has started in its own session."""
    for part in parts:
        if part.pid and part.status is None:
            os.killpg(part.pid, signal.SIGTERM)


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def result(name: str, parts: Sequence[Part], wall_s: float) -> dict[str, Any]:
    return {
        "run": name,
        "commit": git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain") else ""),
        "date": date.today().isoformat(),
        "processors": os.cpu_count(),
        "wall_s": round(wall_s),
        "parts": [part.figures() for part in parts],
    }


def kept(name: str) -> dict[str, Any] | None:
    try:
        text = (KEPT / f"{name}.json").read_text()
    except FileNotFoundError:
        return None
    found: dict[str, Any] = json.loads(text)
    return found


def table(now: dict[str, Any], before: dict[str, Any] | None) -> Iterator[str]:
    """A line for each part: its time, its processor time and its tests, and by how much they changed."""
    then = {part["title"]: part for part in before["parts"]} if before else {}
    yield f"{'':32}{'wall':>8}{'':>8}{'cpu s':>8}{'':>8}  tests"
    for part in now["parts"]:
        was = then.get(part["title"])
        changes = [f"{part[key] - was[key]:+.0f}" if was else "new" for key in ("wall_s", "cpu_s")]
        tests = ", ".join(
            f"{number} {word}" for word, number in part["tests"].items() if word != "deselected"
        )
        failed = "" if part["status"] == 0 else "  FAILED"
        yield (
            f"{part['title']:32}{minutes(part['wall_s']):>8}{changes[0]:>8}{part['cpu_s']:>8.0f}{changes[1]:>8}"
            f"  {tests}{failed}"
        )
    twice = sum(part["tests"].get("rerun", 0) for part in now["parts"])
    if twice:
        yield f"{twice} tests were run once more, as the machine had stood still (RERUN, above)"
    change = f"{now['wall_s'] - before['wall_s']:+.0f}" if before else "new"
    yield f"{'together':32}{minutes(now['wall_s']):>8}{change:>8}"
    if before:
        on = f"{before['processors']} processors"
        yield f"(changes: seconds against {before['commit']} of {before['date']}, {on})"


def age_of_the_whole() -> str:
    """When everything was last run, in words."""
    whole = kept("test-all")
    if whole is None:
        return "make test-all: no run was kept"
    days = (date.today() - date.fromisoformat(whole["date"])).days
    behind = git("rev-list", "--count", f"{whole['commit'].rstrip('+')}..HEAD")
    failed = [part["title"] for part in whole["parts"] if part["status"] != 0]
    how = f"FAILED: {', '.join(failed)}" if failed else "all well"
    ago = f"{days} days ago, {behind or 'an unknown number of'} commits before this one"
    return f"make test-all: last run {ago}, {minutes(whole['wall_s'])} min, {how}"


def parse(words: Sequence[str]) -> tuple[str, bool, list[Part], list[list[Part]]]:
    """The name of the run, whether its figures are kept, what comes first, and the lanes.

    ValueError, IndexError: wrong usage.
    """
    name, *rest = words
    keep = "--keep" in rest
    groups: list[list[str]] = []
    for word in rest:
        if word in ("--first", "--lane"):
            groups.append([])
        elif word != "--keep":
            groups[-1].append(word)
    first, *lanes = [[Part(*pair) for pair in zip(one[::2], one[1::2], strict=True)] for one in groups]
    return name, keep, first, lanes


def main() -> int:
    try:
        name, keep, first, lanes = parse(sys.argv[1:])
    except (ValueError, IndexError):
        print(__doc__, file=sys.stderr)
        return 2
    MADE.mkdir(parents=True, exist_ok=True)
    parts = [*first, *(part for lane in lanes for part in lane)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began_s = time.monotonic()
    try:
        for part in first:
            run_side_by_side([[part]])
        if all(part.status == 0 for part in first):
            run_side_by_side(lanes)
    except KeyboardInterrupt:
        return 130
    finally:
        end(parts)  # also where whoever read this has gone
    now = result(name, [part for part in parts if part.status is not None], time.monotonic() - began_s)
    lines = ["", *table(now, kept(name)), age_of_the_whole()]
    for folder in (MADE, KEPT) if keep else (MADE,):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(now, indent=1) + "\n")
    print("\n".join(lines), flush=True)
    return 0 if all(part.status == 0 for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
