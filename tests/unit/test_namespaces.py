"""Who is seen to be on this host, by an agent without privileges and with mounts of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.waiting import PATIENCE_S

IN_A_CONTAINER = ["unshare", "--pid", "--mount-proc", "--fork"]
UNPRIVILEGED = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
SANDBOXED = ["unshare", "--mount", *UNPRIVILEGED]


def why_no_namespaces() -> str:
    """Root alone can make them, and not below a root folder that is no mount, as in a chroot. '': they can be
    made."""
    for program in ("unshare", "setpriv"):
        if not shutil.which(program):
            return f"no {program} here"
    done = subprocess.run(
        [*IN_A_CONTAINER, "true"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return done.stderr.strip() if done.returncode else ""


pytestmark = pytest.mark.skipif(bool(reason := why_no_namespaces()), reason=reason or "they can be made")

LOOKS = """
import socket, sys
from lockd.clock import boottime_ns
from lockd.server.namespaces import why_not_here
from lockd.server.peer import Peer
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[1])
    listening.listen()
    print("listens", flush=True)
    for _ in range(int(sys.argv[2])):
        connection = listening.accept()[0]
        peer = Peer.of(connection)
        print(peer.uid, why_not_here(connection, peer.pid, boottime_ns()), flush=True)
"""
CONNECTS = """
import socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect(sys.argv[1])
    link.recv(1)
"""


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lockd-", dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder) / "s"


def reads_lockd(agent: list[str]) -> bool:
    """An agent started so may not, where the sources are in a folder that is root's alone."""
    done = subprocess.run([*agent, sys.executable, "-c", "import lockd"], capture_output=True, check=False)
    return done.returncode == 0


def seen(agent: list[str], peers: list[list[str]], path: Path) -> list[str]:
    """What an agent started so says of peers started so."""
    python = [sys.executable, "-c"]
    with subprocess.Popen(
        [*agent, *python, LOOKS, str(path), str(len(peers))], stdout=subprocess.PIPE, text=True
    ) as looks:
        assert looks.stdout is not None
        assert looks.stdout.readline() == "listens\n"
        said = []
        for peer in peers:
            with subprocess.Popen([*peer, *python, CONNECTS, str(path)]) as connects:
                said.append(looks.stdout.readline().strip())
                connects.kill()
    return said


@pytest.mark.parametrize("agent", [[], UNPRIVILEGED, SANDBOXED], ids=["root", "unprivileged", "sandboxed"])
def test_roots_process_is_seen_to_be_here_and_a_containers_is_not(agent: list[str], path: Path) -> None:
    if agent and not reads_lockd(agent):
        pytest.skip("only root may read this folder")
    told = seen(agent, [[], ["unshare", "--mount"], IN_A_CONTAINER], path)
    assert told == [
        "0 None",
        "0 it is in a container: it has a separate mount namespace",
        "0 it is in a container: it has a separate pid namespace",
    ]


def test_in_a_container_the_agent_knows_its_own(path: Path) -> None:
    """As in the lab, whose hosts are containers."""
    both = f"import subprocess\nconnects = {CONNECTS!r}\n" + LOOKS.replace(
        'print("listens", flush=True)', "subprocess.Popen([sys.executable, '-c', connects, sys.argv[1]])"
    )
    asked = [*IN_A_CONTAINER, sys.executable, "-c", both, str(path), "1"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout.splitlines() == ["0 None"], done
