"""A run that was killed leaves hosts, plays and connections behind: the next one removes all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.conftest import LEFT_BEHIND, MakeLab
from tests.lab.ground import cgroup_roots
from tests.lab.lab import Busy, Lab
from tests.lab.waiting import PATIENCE_S, until

# One host, a play that goes on, and a connection that waits for the next one. Then it waits to be killed.
RUN = """
import subprocess, sys
from tests.lab.lab import Lab
lab = Lab(sys.argv[1])
with lab.locked():
    lab.up(["m1"])
    play = [sys.executable, "-c", "import time; time.sleep(10**6)", f"{lab.name}/play"]
    subprocess.Popen(lab.ours(play), start_new_session=True)
    ssh = [lab.folder / "bin/ssh", "-F", lab.folder / "ssh_config.root", "m1", "true"]
    subprocess.run(ssh, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print("all of it runs", flush=True)
    sys.stdin.read()
"""


def traces(lab: Lab) -> list[str]:
    """Where this machine shows anything of it."""
    mounts = Path("/proc/self/mountinfo").read_text()
    namespaces = [path.name for path in Path("/run/netns").glob(f"{lab.name}*")]
    places = [lab.folder, lab.sockets, *(tree / lab.name for tree in cgroup_roots())]
    commands = [path.read_bytes().decode(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline")]
    return [
        *namespaces,
        *(str(path) for path in places if path.exists()),
        *([f"mounts: {lab.folder}"] if str(lab.folder) in mounts else []),
        *(command for command in commands if f"{lab.name}/" in command or f"{lab.name}\0" in command),
    ]


def test_what_a_run_that_was_killed_left_is_removed_by_the_next_one(make_lab: MakeLab) -> None:
    lab = Lab(LEFT_BEHIND)
    running = subprocess.Popen(
        [sys.executable, "-c", RUN, lab.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "all of it runs\n"
    with pytest.raises(Busy), lab.locked():
        pass
    lab.remove_if_dead()
    assert lab.host("m1").running, "it is in use, and nobody takes it away"
    running.kill()
    running.wait(PATIENCE_S)
    assert lab.host("m1").running
    assert len(list(lab.sockets.iterdir())) == 1
    lab.remove_if_dead()

    def clean() -> bool:
        assert traces(lab) == []
        return True

    until(clean, "nothing is left")
