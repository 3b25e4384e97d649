"""Apps at work on the app hosts while something happens to the cluster, and whether all went well for
them."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.lab import inventory
from tests.lab.host import Host
from tests.lab.lab import APPS, Lab
from tests.lab.report import REPORT
from tests.lab.waiting import PATIENCE_S, until

PYTHON = "/opt/lockd/current/venv/bin/python"
UNIT = "lab-app.service"
USER = "shop"

TTL_S = inventory.MAX_TTL_MS / 1000

# Each app gets so many locks at least, however soon all is over that is done meanwhile.
ENOUGH = 10


@dataclass
class Work:
    """What the apps have written down, by host; complete once the `with` of `at_work` is over."""

    lines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def all_lines(self) -> list[dict[str, Any]]:
        return [line for lines in self.lines.values() for line in lines]

    @property
    def grants(self) -> list[dict[str, Any]]:
        return [line for line in self.all_lines if "got_ns" in line]

    @property
    def errors(self) -> list[str]:
        return [line["error"] for line in self.all_lines if "error" in line]

    @property
    def longest_wait_ms(self) -> float:
        return max((line["got_ns"] - line["asked_ns"]) / 1e6 for line in self.grants)

    @property
    def summary(self) -> str:
        asked_again = sum(1 for line in self.all_lines if line.get("again"))
        return (
            f"{len(self.all_lines):5} locks, half of them without WAIT, {len(self.errors)} failed, "
            f"longest wait {self.longest_wait_ms:5.0f} ms"
            + (f", {asked_again} asked again while an agent restarted" if asked_again else "")
        )

    def must_be_flawless(self) -> None:
        """No request failed, with WAIT or without, no two had the same resource, and fences grew. That every
        host got its locks was waited for."""
        assert not self.errors, self.errors[:10]
        self.must_exclude()

    def must_exclude(self) -> None:
        """No two had the same resource, and fences grew; requests may have failed. An app that was not let
        run has a lock no longer than until its deadline."""
        holds = [line for line in self.grants if line["resource"] == "lab:shared"]
        for before, after in pairwise(sorted(holds, key=lambda line: line["got_ns"])):
            ended_ns = min(before["given_ns"], before["deadline_ns"])
            assert ended_ns <= after["got_ns"], f"both had it: {before} and {after}"
            assert before["fence"] < after["fence"], f"fences went back: {before} and {after}"


@contextmanager
def at_work(lab: Lab, while_: str, on: Sequence[str] = tuple(APPS)) -> Iterator[Work]:
    """An app on each of these app hosts takes and releases locks all the time inside the `with`; `while_`
    says what is done meanwhile, for the report."""
    hosts = [lab.host(name) for name in on]
    work = Work()
    for host in hosts:
        _begin(host)
    try:
        for host in hosts:
            _wait_for_locks(host, 1)
        began_s = time.monotonic()
        yield work
        took_s = time.monotonic() - began_s
        for host in hosts:
            _wait_for_locks(host, ENOUGH)
    finally:
        for host in hosts:
            host.run("systemctl", "stop", UNIT)
            work.lines[host.name] = lines_of(host)
    REPORT.worked(while_, took_s, work.summary)


def _begin(host: Host) -> None:
    shutil.copy(Path(__file__).with_name("app.py"), host.merged / "usr/local/lib/lab_app.py")
    host.run(
        "sh",
        "-c",
        f"id {USER} >/dev/null 2>&1 || useradd --system {USER}; usermod --append --groups lockd-apps {USER}",
    )
    host.run("install", "-d", "-o", USER, "/var/lib/lab-app")
    (host.merged / "var/lib/lab-app/lines").unlink(missing_ok=True)
    host.run(
        "systemd-run", "--quiet", f"--unit={UNIT}", f"--uid={USER}", "--collect",
        PYTHON, "/usr/local/lib/lab_app.py", host.name, "/var/lib/lab-app/lines", str(TTL_S), str(PATIENCE_S),
    )  # fmt: skip


def lines_of(host: Host) -> list[dict[str, Any]]:
    """What its app has written down so far."""
    path = host.merged / "var/lib/lab-app/lines"
    if not path.exists():
        return []
    # The last one may be half written.
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _wait_for_locks(host: Host, count: int) -> None:
    def granted() -> bool:
        return sum("got_ns" in line for line in lines_of(host)) >= count

    try:
        until(granted, f"the app of {host.name} has had {count} locks")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{host.run('journalctl', '-u', UNIT, '-n', '20')}") from None
