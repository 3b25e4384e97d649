"""One host of the lab: systemd as process 1 in a container, on an overlay of the shared root, with an
address.

All that it has carries the lab's name: mount points and files in the lab's folder, a network namespace and a
control group. So it can be found and removed without anything having been written down, also after a run that
was interrupted anywhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.lab.ground import cgroup_roots
from tests.lab.waiting import PATIENCE_S, until

# What nspawn returns when systemd inside wants to reboot: start it again.
_REBOOT = 133

_BOOT = """
for tree in {cgroups}; do echo $$ >$tree/cgroup.procs; done
while :; do
  {nspawn}
  [ $? = {reboot} ] || break
done
"""


@dataclass(frozen=True)
class Host:
    """`name` within the lab `lab`, whose folder is `folder`; `address` in the lab's own network."""

    lab: str
    name: str
    address: str
    folder: Path
    root: Path

    @property
    def namespace(self) -> str:
        return f"{self.lab}-{self.name}"

    @property
    def merged(self) -> Path:
        """Its root file system, as seen from the machine."""
        return self.folder / "merged"

    @property
    def console(self) -> Path:
        return self.folder / "console.log"

    @property
    def cgroups(self) -> list[Path]:
        return [tree / self.lab / self.name for tree in cgroup_roots()]

    @property
    def running(self) -> bool:
        return bool(self._processes())

    def make(self, hosts_file: str, public_key: str) -> None:
        """A machine and its place in the network. It is not started."""
        self.make_machine(hosts_file, public_key)
        self._make_network()

    def make_machine(self, hosts_file: str, public_key: str) -> None:
        """A disk with the root file system on it, a name, a key that may log in, an id of its own."""
        for part in ("upper", "work", "merged"):
            (self.folder / part).mkdir(parents=True)
        (self.folder / "id").write_text(uuid.uuid4().hex)
        self._mount()
        etc = self.merged / "etc"
        (etc / "hostname").write_text(self.name + "\n")
        (etc / "hosts").write_text(hosts_file)
        # However old the image is: a host of the same repository has read what is in it a moment ago.
        os.utime(self.merged / "var/lib/apt/lists")
        for home, owner in (("root", 0), ("home/ops", 1000)):
            self._let_in(self.merged / home / ".ssh", owner, public_key)

    def _mount(self) -> None:
        # xino: a folder keeps its number when the disk is mounted again, as on a real one, though the layers
        # are on two file systems. The guard knows its data by that.
        layers = f"lowerdir={self.root},upperdir={self.folder}/upper,workdir={self.folder}/work,xino=on"
        call("mount", "-t", "overlay", self.namespace, "-o", layers, str(self.merged))

    def take_out(self, shelf: Path) -> None:
        """The machine, which must not run, is put away as that folder. Its place in the network stays."""
        for path in mounts_below(self.folder):
            call("umount", path)
        self.folder.rename(shelf)

    def put_in(self, shelf: Path) -> None:
        """A machine that was put away is in this place now. It is not started."""
        shelf.rename(self.folder)
        self._mount()

    def _let_in(self, folder: Path, owner: int, public_key: str) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        keys = folder / "authorized_keys"
        keys.write_text(public_key)
        for path in (folder, keys):
            shutil.chown(path, owner, owner)

    def _make_network(self) -> None:
        port = self.port
        call("ip", "netns", "add", self.namespace)
        call("ip", "-n", self.lab, "link", "add", port, "type", "veth", "peer", "name", "host0",
             "netns", self.namespace)  # fmt: skip
        call("ip", "-n", self.lab, "link", "set", port, "master", "br0", "up")
        call("ip", "-n", self.namespace, "addr", "add", f"{self.address}/16", "dev", "host0")
        for link in ("lo", "host0"):
            call("ip", "-n", self.namespace, "link", "set", link, "up")

    @property
    def port(self) -> str:
        """Its end of the cable, in the lab's namespace: `ip -n LAB link set PORT down` cuts it off."""
        return f"v-{self.name}"[:15]

    def start(self) -> None:
        for group in self.cgroups:
            group.mkdir(parents=True, exist_ok=True)
        script = _BOOT.format(
            cgroups=" ".join(map(str, self.cgroups)), nspawn=" ".join(self._nspawn()), reboot=_REBOOT
        )
        with self.console.open("ab") as console:
            subprocess.Popen(
                ["bash", "-c", script],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
            )  # fmt: skip

    def _nspawn(self) -> list[str]:
        # The same id at each boot: guards and journals know a machine by it.
        machine_id = (self.folder / "id").read_text()
        return [
            "env", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1", "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network",
            "SYSTEMD_NSPAWN_LOCK=0", "systemd-nspawn", "--quiet", "--boot", "-D", str(self.merged),
            # nspawn has a folder for each machine's name, and takes it away when one of that name starts.
            "-M", self.namespace, f"--hostname={self.name}",
            f"--uuid={machine_id}", "--register=no", "--keep-unit",
            f"--network-namespace-path=/run/netns/{self.namespace}", "--resolv-conf=off", "--timezone=off",
            # The network namespace is ours and not one that nspawn made, so it would not let the host run
            # its firewall.
            "--capability=CAP_NET_ADMIN", "--console=pipe",
        ]  # fmt: skip

    def wait_booted(self) -> None:
        """Until systemd has started everything. AssertionError with the end of the console when it
        doesn't."""
        try:
            until(lambda: self._state() in ("running", "degraded"), f"{self.name} has booted")
        except AssertionError as error:
            raise AssertionError(f"{error}; its console ends with:\n{self.console_tail()}") from None

    def console_tail(self) -> str:
        return self.console.read_text(errors="replace")[-3000:] if self.console.exists() else ""

    def _state(self) -> str:
        leader = self.leader()
        if leader is None:
            return "not started"
        asked = subprocess.run(
            [*enter(leader), "systemctl", "is-system-running"],
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        return asked.stdout.strip()

    def leader(self) -> int | None:
        """Process 1 of the host, as the machine numbers it."""
        for pid in self._processes():
            if _pid_inside(pid) == 1:
                return pid
        return None

    def run(self, *command: str) -> str:
        """Run as root inside, without ssh; returns what it printed. CalledProcessError when it fails."""
        leader = self.leader()
        if leader is None:
            raise RuntimeError(f"{self.name} is not running")
        done = subprocess.run(
            [*enter(leader), *command], capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
        return done.stdout

    def kill(self) -> None:
        """As if the power went: no process of it gets to do anything more. Its disk stays."""
        until(self._killed, f"{self.name} has no process any more")

    def _killed(self) -> bool:
        for group in self.cgroups:
            with contextlib.suppress(OSError):
                (group / "cgroup.kill").write_text("1")
        # A program for what has no cgroup.kill: only what is in our own group is ended.
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        return not self._processes()

    def _processes(self) -> list[int]:
        """All processes in its control groups and those below, which come and go meanwhile. Some are in the
        group of one tree alone."""
        pids: set[int] = set()
        for group, _, _ in chain.from_iterable(map(os.walk, self.cgroups)):
            with contextlib.suppress(OSError):
                pids.update(int(line) for line in Path(group, "cgroup.procs").read_text().split())
        return sorted(pids)

    def remove(self) -> None:
        """Stop it and take away all it had. Works on whatever an interrupted run has left."""
        self.kill()
        for path in mounts_below(self.folder):
            call("umount", path)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False, capture_output=True)
        for group in self.cgroups:
            _remove_group(group)
        if self.folder.exists():
            shutil.rmtree(self.folder)


def _pid_inside(pid: int) -> int:
    """The number that a process has in its own, innermost namespace; 0 when it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1]) if len(line.split()) > 2 else 0
    return 0


def enter(leader: int) -> Sequence[str]:
    """What to put before a command that is to run inside."""
    return ("nsenter", "-t", str(leader), "-m", "-u", "-i", "-n", "-p", "-C", "--")


def mounts_below(folder: Path) -> list[str]:
    """Mount points below the folder, the deepest first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((point for point in points if point.startswith(f"{folder}/")), key=len, reverse=True)


def _remove_group(group: Path) -> None:
    for path, _, _ in os.walk(group, topdown=False):
        os.rmdir(path)


def call(*command: str) -> None:
    """Run it; what it had to say is in the error when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
