"""Telling systemd the state of the agent: sd_notify, in a few lines and without libsystemd."""

import os
import socket
import time
from collections.abc import Mapping


class Silence:
    """For an agent that was not started by systemd. Each method returns whether the message was sent."""

    def ready(self) -> bool:
        """The socket is there, and the masters were looked at: apps may connect."""
        return self._say("READY=1", wait_s=1.0)

    def reloading(self) -> bool:
        """It reads its configuration again, until `reloaded`."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
        return self._say(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    def reloaded(self, text: str) -> bool:
        """The reload is over, whether it worked or not. text: one line for `systemctl status`."""
        # Not for long: apps wait, too.
        return self._say(f"READY=1\nSTATUS={' '.join(text.split())}", wait_s=0.01)

    def stopping(self) -> bool:
        return self._say("STOPPING=1", wait_s=1.0)

    def watchdog(self) -> bool:
        """The event loop is alive. Send it every `watchdog_interval_s`."""
        return self._say("WATCHDOG=1")

    def close(self) -> None:
        """Nothing to close."""

    def _say(self, assignment: str, wait_s: float = 0.0) -> bool:
        return False


class Notifier(Silence):
    """Sends to the socket that systemd named. It never raises: an agent must not end because systemd is busy.

    Messages for which systemd waits may wait a moment for room in its socket's queue; all others are dropped
    when there is none.
    """

    def __init__(self, address: str) -> None:
        # A leading @ stands for the NUL of an abstract socket.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def close(self) -> None:
        self._socket.close()

    def _say(self, assignment: str, wait_s: float = 0.0) -> bool:
        try:
            self._socket.settimeout(wait_s)
            # Not connected once for all: systemd may replace its socket (daemon-reexec).
            self._socket.sendto(assignment.encode(errors="replace"), self._address)
        except OSError:
            return False
        return True


def notifier(environ: Mapping[str, str] = os.environ) -> Silence:
    """A Notifier for $NOTIFY_SOCKET, or one that sends nothing when that is unset or not a Unix socket."""
    address = environ.get("NOTIFY_SOCKET", "")
    return Notifier(address) if address[:1] in ("/", "@") and len(address) > 1 else Silence()


def watchdog_interval_s(environ: Mapping[str, str] = os.environ, pid: int | None = None) -> float | None:
    """How often to call `watchdog`: half the time after which systemd would end this process.

    None when systemd doesn't watch it.
    """
    if environ.get("WATCHDOG_PID", "") not in ("", str(pid or os.getpid())):
        return None
    timeout_us = environ.get("WATCHDOG_USEC", "")
    if not (timeout_us.isascii() and timeout_us.isdigit() and int(timeout_us)):
        return None
    return int(timeout_us) / 2e6
