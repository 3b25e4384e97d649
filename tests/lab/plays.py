"""Running a playbook on the lab, and what came of it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.lab import inventory
from tests.lab.lab import Lab
from tests.lab.waiting import LIMIT_S

_RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Played:
    """What a run of ansible-playbook came to. `output`: all that it printed."""

    playbook: str
    status: int
    output: str
    took_s: float

    @property
    def changed(self) -> dict[str, int]:
        """Host to number of changes, as the recap has it."""
        return {host: int(changed) for host, _, changed, _, _ in _RECAP.findall(self.output)}

    @property
    def changed_hosts(self) -> list[str]:
        return [host for host, count in self.changed.items() if count]

    @property
    def recap(self) -> str:
        return self.output.partition("PLAY RECAP")[2].partition("\n")[2].strip()

    @property
    def said(self) -> str:
        """All in one line, as long messages are wrapped where it pleases Ansible."""
        return " ".join(self.output.split())

    def must_work(self) -> Played:
        assert self.status == 0, f"{self.playbook} ended with {self.status}:\n{self.output[-6000:]}"
        return self

    def must_stop_with(self, *words: str) -> Played:
        """It failed, changed nothing on any host, and says this."""
        assert self.status != 0, f"{self.playbook} should have stopped:\n{self.output[-3000:]}"
        assert self.changed_hosts == [], f"{self.playbook} changed {self.changed_hosts}"
        for word in words:
            assert word in self.said, f"'{word}' is not said:\n{self.output[-6000:]}"
        return self


def play(
    lab: Lab,
    playbook: str,
    *words: str,
    inventory_name: str = "inventory",
    as_users_do: bool = False,
    within_s: float = LIMIT_S,
) -> Played:
    """With Mitogen, unless `as_users_do`: the first site.yml, and where hosts get lost in a play. Whoever
    wonders whether Mitogen is to blame sets LOCKD_LAB_PLAIN=1."""
    command = inventory.playbook_command(lab, [playbook, *words], inventory_name)
    plain = as_users_do or "LOCKD_LAB_PLAIN" in os.environ
    environment = inventory.environment(lab) if plain else inventory.environment_of_mitogen(lab)
    began_s, log = time.monotonic(), new_log(lab, playbook)
    with log.open("w") as out:
        done = subprocess.run(
            command, cwd=inventory.ANSIBLE, env=environment, stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, check=False, timeout=within_s,
        )  # fmt: skip
    played = Played(playbook, done.returncode, log.read_text(), time.monotonic() - began_s)
    with log.open("a") as out:
        said = f"{playbook} {' '.join(words)}: status {played.status}, {played.took_s:.0f} s"
        print("\n", said, sep="", file=out)
    return played


def new_log(lab: Lab, playbook: str) -> Path:
    """All runs are kept beside the lab, for whoever looks for what goes wrong."""
    logs = lab.folder.with_suffix(".logs")
    logs.mkdir(exist_ok=True)
    return logs / f"{len(list(logs.iterdir())) + 1:02}-{Path(playbook).stem}.log"
