"""A lab: eight hosts on a network of their own, and as many more app hosts as one asks for; how to reach
them from this machine.

Two labs with different names know nothing of each other. One name is used by one process at a time
(`locked`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.harness.programs import loaded
from tests.lab import ground, image
from tests.lab.host import Host, call, mounts_below
from tests.lab.waiting import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[2]
WHEELHOUSE = REPOSITORY / "ansible/roles/lockd/files/wheelhouse.py"
GATEWAY = "10.77.0.1"
MASTERS = {f"m{number}": f"10.77.0.{10 + number}" for number in range(1, 6)}
APPS = {f"a{number}": f"10.77.0.{20 + number}" for number in range(1, 3)}
MONITORING = {"mon1": "10.77.0.31"}
ADDRESSES = {**MASTERS, **APPS, **MONITORING}
# How root on a master's host reaches it.
MASTER_SOCKET = "/run/lockd-master/redis.sock"

# As it was before testinfra, which can't be told of another, had the `ssh` of one lab put in front of it
# (conftest's `on`): that leads to hosts of the same addresses in the network of the one.
_PATH = os.environ["PATH"]

# So many boot side by side.
AT_ONCE = 20

# What is run on this machine for a lab is in the lab's control groups, with all that it starts and leaves
# behind: plays, and ssh that waits for the next of them. So it ends with the lab, whatever became of who
# started it.
_JOIN = """for group in {groups}; do echo $$ >$group/cgroup.procs; done"""

# ssh and what Ansible calls beside it, run where the hosts can be reached.
_INSIDE = """#!/bin/sh
{join}
exec nsenter --net=/run/netns/{lab} {program} "$@"
"""

_SSH_CONFIG = """{aliases}
Host *
  User {user}
  IdentityFile {folder}/id
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ConnectTimeout {patience:.0f}
  ControlMaster auto
  ControlPersist 60
  ControlPath {sockets}/%C
"""


class Busy(Exception):
    """Another process is using the lab of this name."""


def crowd(size: int) -> dict[str, str]:
    """So many more app hosts, w1 and so on, with their addresses."""
    return {f"w{number}": f"10.77.{number // 250 + 1}.{number % 250 + 1}" for number in range(1, size + 1)}


@dataclass(frozen=True)
class Lab:
    """The lab `name`: its namespace and control group are called so, and its folder is in the cache. `more`
    app hosts are there besides the eight hosts that each lab has. `release`: of Debian."""

    name: str
    more: int = 0
    release: str = image.RELEASE

    @property
    def addresses(self) -> dict[str, str]:
        return {**ADDRESSES, **crowd(self.more)}

    @property
    def folder(self) -> Path:
        return ground.cache_folder() / "labs" / self.name

    @property
    def hosts(self) -> dict[str, Host]:
        return {name: self.host(name) for name in self.addresses}

    def host(self, name: str) -> Host:
        return Host(
            self.name, name, self.addresses[name], self.folder / name, image.root_folder(self.release)
        )

    @property
    def sockets(self) -> Path:
        """Those of ssh: their paths have to be short."""
        return Path("/run") / self.name

    @contextmanager
    def locked(self, *, wait: bool = False) -> Iterator[None]:
        """Nobody else starts, uses or stops it meanwhile. Raises Busy, or waits until the other has ended."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"the lab {self.name} is in use by another process") from None
            yield

    def remove_if_dead(self) -> None:
        """What a run left that was killed: a lab that is in use is locked."""
        with suppress(Busy), self.locked():
            self.down()

    def up(self, only: Sequence[str] | None = None) -> None:
        """Fresh hosts, whatever was there before; returns when they have booted and let us in by ssh."""
        ground.require()
        ground.allow_watches(len(self.addresses))
        image.root(self.release)
        self.down()
        self._make_folder()
        self._make_network()
        self._make_keys()
        self._copy_source()
        self.start([self.host(name) for name in only or self.addresses])

    def _make_folder(self) -> None:
        """Hosts' disks are in this machine's memory, or on its disk where there is too little of it."""
        self.folder.mkdir(parents=True)
        self.sockets.mkdir(mode=0o700)
        size = ground.disk_in_memory_bytes(self.more)
        if size is None:
            print(f"{self.name}: too little memory, so its hosts share this machine's disk", file=sys.stderr)
        else:
            call("mount", "-t", "tmpfs", self.name, "-o", f"size={size},mode=755", str(self.folder))

    def start(self, hosts: Sequence[Host]) -> None:
        """Fresh ones, in a lab that is there; returns when they have booted."""
        for some in batched(hosts, AT_ONCE):
            for host in some:
                host.make(self._hosts_file(), self._public_key)
                host.start()
            for host in some:
                host.wait_booted()

    def new_machine(self, name: str, shelf: Path) -> None:
        """Another machine in place of that host's, which must not run, and is put away as the folder
        `shelf`."""
        host = self.host(name)
        host.take_out(shelf)
        host.make_machine(self._hosts_file(), self._public_key)

    def swap_machines(self, name: str, shelf: Path) -> None:
        """The one that was put away is in that host's place again, and the other is put away."""
        host, between = self.host(name), shelf.with_name(f"{shelf.name}-other")
        host.take_out(between)
        host.put_in(shelf)
        between.rename(shelf)

    @property
    def _public_key(self) -> str:
        return (self.folder / "id.pub").read_text()

    def down(self) -> None:
        """Remove all that carries its name: also what an interrupted run left half made."""
        for host in (*self._left_over(), *self.hosts.values()):
            host.remove()
        for path in mounts_below(self.folder):
            call("umount", path)
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)
        for tree in ground.cgroup_roots():
            if (tree / self.name).is_dir():
                (tree / self.name).rmdir()
        if self.folder.is_mount():
            call("umount", str(self.folder))
        if self.folder.exists():
            shutil.rmtree(self.folder)
        shutil.rmtree(self.sockets, ignore_errors=True)

    def _left_over(self) -> Iterator[Host]:
        """Whatever of this lab has processes or a disk: what works for it on this machine, and more hosts
        than it has now."""
        groups = (path for tree in ground.cgroup_roots() for path in (tree / self.name).glob("*/"))
        disks = (path.parent for path in self.folder.glob("*/merged"))
        for name in {path.name for path in chain(groups, disks)} - self.addresses.keys():
            yield Host(self.name, name, "", self.folder / name, image.root_folder(self.release))

    def _make_network(self) -> None:
        call("ip", "netns", "add", self.name)
        for words in (
            "link add br0 type bridge", f"addr add {GATEWAY}/16 dev br0", "link set br0 up", "link set lo up",
        ):  # fmt: skip
            call("ip", "-n", self.name, *words.split())
        for group in self._controller.cgroups:
            group.mkdir(parents=True)
        server = self.ours([sys.executable, str(Path(__file__).with_name("time_server.py")), GATEWAY])
        subprocess.Popen(
            [*self.inside, *server],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    @property
    def _controller(self) -> Host:
        """This machine, as far as it works for the lab: a host without a disk."""
        return Host(self.name, "controller", GATEWAY, self.folder / "controller", Path("/"))

    @property
    def _join(self) -> str:
        return _JOIN.format(groups=" ".join(map(str, self._controller.cgroups)))

    def ours(self, command: Sequence[str]) -> list[str]:
        """The command as one that ends with the lab, at the latest."""
        return ["sh", "-c", f'{self._join}; exec "$@"', self.name, *command]

    @property
    def inside(self) -> list[str]:
        """What to put before a command that is to reach the hosts over the network."""
        return ["nsenter", f"--net=/run/netns/{self.name}"]

    def _make_keys(self) -> None:
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(self.folder / "id"))
        for user in ("ops", "root"):
            config = _SSH_CONFIG.format(
                user=user,
                folder=self.folder,
                sockets=self.sockets,
                patience=PATIENCE_S,
                aliases=self._aliases(),
            )
            (self.folder / f"ssh_config.{user}").write_text(config)
        binaries = self.folder / "bin"
        binaries.mkdir()
        for program in ("ssh", "sftp", "scp"):
            script = binaries / program
            script.write_text(
                _INSIDE.format(join=self._join, lab=self.name, program=shutil.which(program, path=_PATH))
            )
            script.chmod(script.stat().st_mode | stat.S_IXUSR)

    @property
    def source(self) -> Path:
        """What is installed: a copy of the repository's product, as it was when the lab was started."""
        return self.folder / "source"

    def _copy_source(self) -> None:
        for path in loaded(WHEELHOUSE).code_files(REPOSITORY):
            copy = self.source / path.relative_to(REPOSITORY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)

    def _aliases(self) -> str:
        return "\n".join(f"Host {name}\n  HostName {address}" for name, address in self.addresses.items())

    def _hosts_file(self) -> str:
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self.addresses.items())]
        return "\n".join(lines) + "\n"

    def environment(self) -> Mapping[str, str]:
        """For commands on this machine that log in to the hosts: their `ssh` is one that gets there."""
        return {**os.environ, "PATH": f"{self.folder}/bin:{_PATH}"}


def batched(hosts: Sequence[Host], size: int) -> Iterator[Sequence[Host]]:
    for first in range(0, len(hosts), size):
        yield hosts[first : first + size]
