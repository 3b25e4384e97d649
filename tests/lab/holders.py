"""Apps that hold a lock each while something happens to their agents, and whether they kept it.

On each app host: a command of `lockctl run`, a redis-py whose pool has closed the connection meanwhile, and a
program in C. On the other host somebody tries for all of these locks all the time.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab import inventory
from tests.lab.host import Host
from tests.lab.lab import APPS, Lab
from tests.lab.load import PYTHON, USER
from tests.lab.report import REPORT
from tests.lab.waiting import until

SOCKET = "/run/lockd/lockd.sock"
LOCKCTL = "/opt/lockd/current/venv/bin/lockctl"
TTL_MS = inventory.MAX_TTL_MS
HERE = Path(__file__).parent
RUN = (
    "exec {lockctl} run --ttl {ttl}ms {resource} -- sh -c "
    "'exec 2>/dev/null; trap \"exit 0\" TERM; echo held $LOCKD_FENCE; while :; do sleep 0.1; done'; "
)


@dataclass(frozen=True, slots=True)
class Holder:
    """One app. It has written what it was granted and what came of its UNLOCK into its file."""

    host: Host
    kind: str

    @property
    def resource(self) -> str:
        return f"lab:held:{self.kind}:{self.host.name}"

    @property
    def unit(self) -> str:
        return f"lab-holder-{self.kind}.service"

    @property
    def said(self) -> list[str]:
        return said_by(self.host, self.kind)

    def command(self) -> list[str]:
        arguments = [SOCKET, self.resource, str(TTL_MS)]
        return {
            "pool": [PYTHON, "/usr/local/lib/lab_holder.py", *arguments],
            "c": ["/usr/local/lib/lab_holder", *arguments],
            "run": ["/bin/sh", "-c", RUN.format(lockctl=LOCKCTL, ttl=TTL_MS, resource=self.resource)],
        }[self.kind]

    def begin(self) -> None:
        (self.host.merged / f"var/lib/lab-app/{self.kind}").unlink(missing_ok=True)
        start(self.host, self.unit, self.kind, self.command())

    def end(self) -> None:
        """SIGTERM, and wait until it has ended; one that has ended by itself is no unit any more."""
        stop(self.host, self.unit)

    @property
    def kept(self) -> bool:
        """It had it until it gave it back by itself; of a command, lockctl says nothing then."""
        return len(self.said) == (1 if self.kind == "run" else 2) and self.said[1:] in ([], ["unlocked :1"])


@dataclass
class Holding:
    """What the holders and their rivals have said; complete once the `with` of `holding` is over."""

    holders: Sequence[Holder]
    ended: list[str]
    granted_to_rivals: list[str]

    def must_have_been_kept(self) -> None:
        assert not self.ended, "; ".join(self.ended)
        assert not self.granted_to_rivals, "; ".join(self.granted_to_rivals)


@contextmanager
def holding(lab: Lab, while_: str) -> Iterator[Holding]:
    """These hold their locks inside the `with`; `while_` says what is done meanwhile, for the report."""
    hosts = [lab.host(name) for name in APPS]
    for host in hosts:
        _bring(host)
    holders = [Holder(host, kind) for host in hosts for kind in ("run", "pool", "c")]
    result = Holding(holders, [], [])
    try:
        for holder in holders:
            holder.begin()
        for holder in holders:
            until(lambda holder=holder: holder.said, f"{holder.resource} is asked for")
            assert holder.said[0].startswith("held "), holder.said
        for host in hosts:
            others = [holder.resource for holder in holders if holder.host is not host]
            (host.merged / "var/lib/lab-app/rival").unlink(missing_ok=True)
            start(
                host, "lab-rival.service", "rival", [PYTHON, "/usr/local/lib/lab_rival.py", SOCKET, *others]
            )
        yield result
    finally:
        for host in hosts:
            stop(host, "lab-rival.service")
            result.granted_to_rivals += said_by(host, "rival")
        for holder in holders:
            holder.end()
        result.ended = [f"{holder.resource}: {holder.said}" for holder in holders if not holder.kept]
    REPORT.held(while_, len(holders), len(result.ended))


def start(host: Host, unit: str, name: str, command: Sequence[str]) -> None:
    host.run(
        "systemd-run", "--quiet", f"--unit={unit}", f"--uid={USER}", "--collect",
        f"--property=StandardOutput=append:/var/lib/lab-app/{name}",
        f"--property=StandardError=append:/var/lib/lab-app/{name}", "--property=KillMode=mixed", *command,
    )  # fmt: skip


def stop(host: Host, unit: str) -> None:
    no_such_unit = 5
    host.run("sh", "-c", f"systemctl stop {unit} || [ $? = {no_such_unit} ]")


def said_by(host: Host, name: str) -> list[str]:
    path = host.merged / f"var/lib/lab-app/{name}"
    return path.read_text().splitlines() if path.exists() else []


def _bring(host: Host) -> None:
    host.run(
        "sh",
        "-c",
        f"id {USER} >/dev/null 2>&1 || useradd --system {USER}; usermod --append --groups lockd-apps {USER}",
    )
    host.run("install", "-d", "-o", USER, "/var/lib/lab-app")
    shutil.copy(HERE / "holder.py", host.merged / "usr/local/lib/lab_holder.py")
    shutil.copy(HERE / "rival.py", host.merged / "usr/local/lib/lab_rival.py")
    built = host.merged / "usr/local/lib/lab_holder"
    subprocess.run(["gcc", "-O2", "-static", "-o", built, HERE / "holder.c"], check=True)
