"""Ten thousand apps may connect at one moment, before the agent has let in the first."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.harness.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
# The kernel's bound belongs to a network namespace: one of our own, with what site.yml has a host set.
OWN_NETWORK = ["unshare", "--map-root-user", "--net"]
APPS = 10_000
STORM = """
import resource, socket, sys
from pathlib import Path
from lockd.config.model import Socket
from lockd.server.unix_socket import AppSocket

path, number, bound = sys.argv[1], int(sys.argv[2]), sys.argv[3]
Path("/proc/sys/net/core/somaxconn").write_text(bound)
resource.setrlimit(resource.RLIMIT_NOFILE, (number + 100, number + 100))
listening = AppSocket(Socket(path=path)).make_first()
apps, refused = [], 0
for _ in range(number):
    apps.append(socket.socket(socket.AF_UNIX))
    apps[-1].setblocking(False)
    try:
        apps[-1].connect(path)
    except BlockingIOError:
        refused += 1
print(refused)
"""


def what_site_yml_sets() -> str:
    tasks = yaml.safe_load((ROOT / "ansible/roles/lockd/tasks/configure.yml").read_text())
    [bound] = [
        task["ansible.posix.sysctl"]["value"]
        for task in tasks
        if task.get("ansible.posix.sysctl", {}).get("name") == "net.core.somaxconn"
    ]
    return str(bound)


def test_a_storm_of_clients_that_do_not_block_waits_to_be_let_in(tmp_path: Path) -> None:
    """They get EAGAIN where no more may wait, and take it for an agent that isn't there."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare here")
    program = [sys.executable, "-c", STORM, str(tmp_path / "s"), str(APPS), what_site_yml_sets()]
    done = subprocess.run(
        [*OWN_NETWORK, *program], capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT
    )
    if done.returncode and ("unshare:" in done.stderr or "setrlimit" in done.stderr):
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr
