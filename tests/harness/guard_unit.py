"""A master's unit with its restart guard, without systemd: `Unit` plays its part."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import redis

from lockd.clock import boottime_ns
from lockd.dev.processes import LOOPBACK, LocalMaster, free_ports
from lockd.guard.delay import quarantine_ns
from lockd.guard.one_file import shipped
from tests.harness.masters import wait_on_some_port
from tests.harness.waiting import PATIENCE_S

MAX_TTL_MS = 1_000
DELAY_NS = quarantine_ns(MAX_TTL_MS)


class Unit:
    """A master's unit: `enter`, then Redis, then `leave` with what systemd would say in its environment."""

    def __init__(self, folder: Path, binary: Path, name: str = "m1", max_ttl_ms: int = MAX_TTL_MS) -> None:
        self.folder = folder
        [port] = free_ports(1)
        self.master = LocalMaster(name, folder / "data", port, binary)
        self.master.folder.mkdir(parents=True)
        self.socket = folder / "redis.sock"
        self.master.settings["unixsocket"] = str(self.socket)
        self.program = folder / "guard.py"
        self.program.write_text(shipped())
        self.config = folder / "guard.conf"
        self.textfile = folder / "guard.prom"
        self.configure(max_ttl_ms)
        self.heard: list[str] = []
        self.environment = {
            "PATH": os.environ["PATH"],
            "NOTIFY_SOCKET": str(folder / "notify"),
            "INVOCATION_ID": "0" * 32,
        }
        self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notified.bind(str(folder / "notify"))
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._started: list[subprocess.Popen[bytes]] = []

    def configure(self, max_ttl_ms: int) -> None:
        self.config.write_text(
            f"[guard]\nmax_ttl_ms = {max_ttl_ms}\ndata_dir = {self.master.folder}\n"
            f"unit = {self.master.name}.service\nstate_dir = {self.folder}/state\n"
            f"textfile = {self.textfile}\nsocket = {self.socket}\npassword_file =\n"
        )

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
        self.master.kill()
        self._notified.sendto(b"END", self._notified.getsockname())
        self._listener.join()
        self._notified.close()

    def _listen(self) -> None:
        while (message := self._notified.recv(65_536)) != b"END":
            self.heard += message.decode().splitlines()

    def run(
        self, command: str, *arguments: str, behind: tuple[str, ...] = (), **environ: str
    ) -> subprocess.Popen[bytes]:
        """Start the guard with that command, by the program that is named in `behind`."""
        with (self.folder / "guard.log").open("ab") as log:
            process = subprocess.Popen(
                [*behind, sys.executable, "-I", self.program, command, "--config", self.config, *arguments],
                env=self.environment | environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._started.append(process)
        return process

    def log(self) -> str:
        return (self.folder / "guard.log").read_text()

    def start(self) -> int:
        """A start that succeeds: returns for how long `enter` kept Redis out, in nanoseconds."""
        before_ns = boottime_ns()
        assert self.run("enter").wait(PATIENCE_S) == 0, self.log()
        waited_ns = boottime_ns() - before_ns
        self.start_redis()
        return waited_ns

    def enters(self) -> subprocess.Popen[bytes]:
        """systemd starts the unit: first the guard, which may wait."""
        return self.run("enter")

    def starts(self, entering: subprocess.Popen[bytes]) -> None:
        assert entering.wait(PATIENCE_S) == 0, self.log()
        self.start_redis()

    def crashes(self) -> subprocess.Popen[bytes]:
        """kill -9, and systemd starts it again at once: into quarantine."""
        self.kill()
        return self.enters()

    def comes_back(self) -> None:
        """After a crash: systemd starts it at once, and the guard makes it wait."""
        self.starts(self.enters())

    def start_redis(self) -> None:
        self.master.start(wait=False)
        wait_on_some_port(self.master)

    def ended(self) -> None:
        """Redis has ended, by itself or not: systemd runs `leave`."""
        status = self.master.exit_status
        assert status is not None
        if status < 0:
            says = {"EXIT_CODE": "killed", "EXIT_STATUS": signal.Signals(-status).name.removeprefix("SIG")}
            result = "success" if -status == signal.SIGTERM else "signal"
        else:
            says = {"EXIT_CODE": "exited", "EXIT_STATUS": str(status)}
            result = "exit-code" if status else "success"
        self.leave(SERVICE_RESULT=result, **says)

    def leave(self, **environ: str) -> None:
        assert self.run("leave", **environ).wait(PATIENCE_S) == 0, self.log()

    def stop(self) -> None:
        """`systemctl stop`."""
        self.ask_before_stop()
        assert self.master.stop(within_s=PATIENCE_S) == 0, self.master.log_tail()
        self.ended()

    def ask_before_stop(self) -> None:
        """ExecStop= while Redis runs: the guard's `stop`."""
        assert self.run("stop", MAINPID=str(self.master.pid)).wait(PATIENCE_S) == 0, self.log()

    def ends_by_itself(self) -> None:
        """systemd then runs ExecStop= without a main process."""
        assert self.master.wait(PATIENCE_S)
        assert self.run("stop").wait(PATIENCE_S) == 0, self.log()
        self.ended()

    def kill(self) -> None:
        self.master.kill()
        self.ended()

    def quarantines(self) -> dict[str, int]:
        """How many there were, by reason, as Prometheus would see it."""
        found: dict[str, int] = {}
        if not self.textfile.exists():
            return found
        for line in self.textfile.read_text().splitlines():
            name, _, count = line.rpartition(" ")
            if name.startswith("lockd_guard_quarantines_total{") and count != "0":
                found[name.split('"')[1]] = int(count)
        return found

    def starts_for(self, reason: str) -> None:
        """It starts only after a whole quarantine, for that reason."""
        before = self.quarantines()
        assert self.start() >= DELAY_NS
        assert self.quarantines() == before | {reason: before.get(reason, 0) + 1}

    def starts_at_once(self) -> None:
        """It starts without any quarantine, however slow this machine is."""
        before = self.quarantines()
        self.start()
        assert self.quarantines() == before

    def waits(self, why: str = "") -> bool:
        """True once systemd has heard how long the quarantine still is, and why."""
        pattern = re.compile(rf"STATUS=quarantined: \d+ s left .*{re.escape(why)}")
        return any(pattern.fullmatch(status) for status in self.heard)

    def client(self) -> redis.Redis:
        return redis.Redis(host=LOOPBACK, port=self.master.port, retry=None)


def come_back(units: Sequence[Unit]) -> None:
    """All at once: their quarantines need not add up."""
    entering = [unit.enters() for unit in units]
    for unit, process in zip(units, entering, strict=True):
        unit.starts(process)
