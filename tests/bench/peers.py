"""Other lock services to stand beside: three members each of etcd and of ZooKeeper, as their packages are.

Both write each change to disk before it counts, as the masters do, and are used by their best known clients
for Python. A peer whose server or client is not there is left out, and it is said why.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from lockd.dev.processes import LOOPBACK, Child, free_ports

ETCD, ZOOKEEPER = "etcd", "zookeeper"
_MEMBERS = 3
_READY_S = 60.0
_ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")
# The generated code of its client is from before protobuf 4; this way any version of that runs it.
_OLD_PROTOBUF = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}


class Missing(Exception):
    """What a peer takes is not on this machine; the text says what."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Those that run: where each listens, and their processes."""

    ports: dict[str, list[int]] = field(default_factory=dict)
    members: dict[str, list[Child]] = field(default_factory=dict)


@contextmanager
def running_peers(names: Sequence[str], folder: Path) -> Iterator[Peers]:
    """Of these, those that are there. The others are named on standard error."""
    peers = Peers()
    with ExitStack() as started:
        for name in names:
            ports, members = _MAKERS[name](folder / name)
            peers.ports[name], peers.members[name] = ports, members
            for member in members:
                started.callback(member.kill)
                member.start()
        for name, members in peers.members.items():
            _wait_ready(name, peers.ports[name], members)
        yield peers


def why_missing(name: str) -> str:
    """What is not there of a peer; '' if all is."""
    client = {ETCD: "etcd3", ZOOKEEPER: "kazoo"}[name]
    if importlib.util.find_spec(client) is None:
        return f"{client} is not installed (make bench installs it)"
    if name == ETCD and which("etcd") is None:
        return "there is no etcd (apt-get install etcd-server)"
    if name == ZOOKEEPER and (not _ZOOKEEPER_JAR.exists() or which("java") is None):
        return "there is no ZooKeeper (apt-get install zookeeper)"
    return ""


def server_of(name: str) -> str:
    """What runs, with its version: a figure is one of that version."""
    if name == ETCD:
        said = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True).stdout
        return f"etcd {said.split()[2]}"
    versioned = next(_ZOOKEEPER_JAR.parent.glob("zookeeper-[0-9]*.jar"), _ZOOKEEPER_JAR)
    return versioned.stem.replace("-", " ")


def _etcd(folder: Path) -> tuple[list[int], list[Child]]:
    os.environ.update(_OLD_PROTOBUF)
    ports = free_ports(2 * _MEMBERS)
    clients, peers = ports[:_MEMBERS], ports[_MEMBERS:]
    cluster = ",".join(f"e{n}=http://{LOOPBACK}:{port}" for n, port in enumerate(peers))
    members = []
    for n, (client, peer) in enumerate(zip(clients, peers, strict=True)):
        command = (
            "etcd", "--name", f"e{n}", "--data-dir", folder / f"e{n}", "--initial-cluster", cluster,
            "--listen-client-urls", f"http://{LOOPBACK}:{client}",
            "--advertise-client-urls", f"http://{LOOPBACK}:{client}",
            "--listen-peer-urls", f"http://{LOOPBACK}:{peer}",
            "--initial-advertise-peer-urls", f"http://{LOOPBACK}:{peer}",
            "--logger", "zap", "--log-level", "error",
        )  # fmt: skip
        members.append(Child(f"etcd e{n}", command, folder / f"e{n}.log"))
    return clients, members


def _zookeeper(folder: Path) -> tuple[list[int], list[Child]]:
    ports = free_ports(3 * _MEMBERS)
    clients, others = ports[:_MEMBERS], ports[_MEMBERS:]
    servers = "".join(
        f"server.{n + 1}={LOOPBACK}:{others[2 * n]}:{others[2 * n + 1]}\n" for n in range(_MEMBERS)
    )
    members = []
    for n, port in enumerate(clients):
        data = folder / f"z{n}"
        data.mkdir(parents=True)
        (data / "myid").write_text(f"{n + 1}\n")
        settings = data / "zoo.cfg"
        settings.write_text(
            f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={data}\nclientPort={port}\n"
            f"clientPortAddress={LOOPBACK}\nmaxClientCnxns=0\nadmin.enableServer=false\n{servers}"
        )
        command = (
            "java", "-Xms256m", "-Xmx256m", "-Dzookeeper.root.logger=ERROR,CONSOLE", "-cp",
            f"/etc/zookeeper/conf:{_ZOOKEEPER_JAR}",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", settings,
        )  # fmt: skip
        members.append(Child(f"zookeeper z{n}", command, folder / f"z{n}.log"))
    return clients, members


_MAKERS = {ETCD: _etcd, ZOOKEEPER: _zookeeper}


def _wait_ready(name: str, ports: Sequence[int], members: Sequence[Child]) -> None:
    """Every member takes connections and serves them."""
    until_s = time.monotonic() + _READY_S
    while not all(_serves(name, port) for port in ports):
        for member in members:
            if not member.running:
                raise RuntimeError(f"{member.name} did not start:\n{member.log_tail()}")
        if time.monotonic() > until_s:
            raise RuntimeError(f"{name} is not ready after {_READY_S:.0f} s:\n{members[0].log_tail()}")
        time.sleep(0.2)


_ASKS = {
    ETCD: (b"GET /health HTTP/1.0\r\n\r\n", b'"true"'),
    ZOOKEEPER: (b"srvr\n", b"Mode: "),
}


def _serves(name: str, port: int) -> bool:
    question, sign = _ASKS[name]
    heard = b""
    with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=2.0) as link:
        link.sendall(question)
        while data := link.recv(4096):
            heard += data
    return sign in heard
