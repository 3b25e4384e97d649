"""The machine that the guard runs on, apart from its files."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .disk import read_plain
from .errors import Unproven
from .printable import one_word
from .redis_link import ANSWER_WITHIN_S, Ask, RedisLink

WRITTEN_WITHIN_S = 0.1


class Host:
    """The machine that the guard runs on, apart from its files. Tests pass in another one."""

    _writer: threading.Thread | None = None

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.environ = environ

    def boottime_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """It is slewed as the wall clock is, and never stepped; it stands still in suspend, as `raw_ns`
        does."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def raw_ns(self) -> int:
        """The clock that is never slewed."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def sleep(self, seconds: float) -> None:
        """The clock of this pause stops in suspend: callers look at BOOTTIME afterwards."""
        time.sleep(seconds)

    def boot_id(self) -> str:
        return read_plain(Path("/proc/sys/kernel/random/boot_id"), 100).decode().strip()

    def host_id(self) -> str:
        return read_plain(Path("/etc/machine-id"), 100).decode().strip()

    def clock_synchronised(self) -> bool:
        """True when the kernel calls its wall clock synchronised: something like chrony vouches for it."""
        try:
            # struct timex, all zero (modes 0: only look), with room to spare. 5 is TIME_ERROR.
            return 0 <= int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))) < 5
        except (OSError, AttributeError):
            return False

    def tell_systemd(self, message: str) -> None:
        address = self.environ.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@"):
            return
        if address.startswith("@"):  # stands for the NUL of an abstract socket
            address = "\0" + address[1:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link:
            link.settimeout(1)
            with suppress(OSError):
                link.sendto(message.encode(errors="replace"), address)

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self.tell_systemd(f"STATUS={' '.join(text.split())}")

    @contextmanager
    def asking_redis(self, path: Path) -> Iterator[Ask]:
        """A way to ask the main process of the unit whose ExecStop= this is. Raises Unproven, OSError."""
        main_pid = self.environ.get("MAINPID", "")
        if not main_pid:
            raise Unproven("it had already ended")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as link:
            link.settimeout(ANSWER_WITHIN_S)
            link.connect(str(path))
            # Check who listens there: otherwise the password could go to any process, and its answer vouch
            # for another.
            pid, _, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if str(pid) != main_pid:
                raise Unproven(f"process {pid} listens on its socket, not the main process ({main_pid})")
            yield RedisLink(link).ask

    def kill_main_process(self, unit: str) -> str:
        """SIGKILL to the main process of that unit. Returns what went wrong, or nothing."""
        # --kill-who is the name in systemd 249, and an abbreviation of today's --kill-whom.
        command = ["systemctl", "kill", "--kill-who=main", "--signal=KILL", unit]
        try:
            done = subprocess.run(
                command, capture_output=True, encoding="utf-8", errors="replace", timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return "" if done.returncode == 0 else " ".join(done.stderr.split()) or f"status {done.returncode}"

    def has_started(self, unit: str) -> bool:
        """True when the unit has told systemd that it is ready, with its data loaded. False when that is not
        known."""
        command = ["systemctl", "is-active", "--quiet", unit]
        with suppress(OSError, subprocess.TimeoutExpired):
            return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
        return False

    def log(self, level: str, event: str, **values: object) -> None:
        """One line on stderr, as lockd's own. Never raises, and waits for no reader: a log that is gone, or
        that nobody reads, must not stop the guard. While a line finds no room, the next ones are left out."""
        priority = {"info": "<6>", "warning": "<4>", "error": "<3>"}[level]
        words = "".join(f" {key}={one_word(value)}" for key, value in values.items())
        prefix = priority if "JOURNAL_STREAM" in self.environ else ""
        line = f"{prefix}level={level} event={event}{words}\n".encode(errors="replace")
        if self._writer is not None:
            self._writer.join(WRITTEN_WITHIN_S)
        if self._writer is None or not self._writer.is_alive():
            writer = threading.Thread(target=_say, args=(line,), daemon=True)
            with suppress(RuntimeError):  # it may have no more threads
                writer.start()
                self._writer = writer
                writer.join(WRITTEN_WITHIN_S)


def _say(line: bytes) -> None:
    with suppress(OSError):
        os.write(2, line)
