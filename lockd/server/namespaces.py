"""Whether a peer is on this host or in a container on it, as far as an agent without privileges can see that.

SO_PEERCRED says uid 0 for root in a container, too, unless the container has a separate user namespace. So
two more things are looked at, in /proc, relative to the agent, which may itself be in a container:

* `NSpid` in /proc/PID/status has one number: the peer is in the pid namespace of our /proc, not below it.
* /proc/PID/mountinfo has a mount in common with ours or with that of PID 1. The kernel gives ids to mounts,
  and never gives one id in two namespaces. This detects containers with the host's pids, too
  (`docker run --pid=host`).

A process that ended can't be looked at, and its number may be another's by now. So a pidfd of the peer, if
the kernel gives one (SO_PEERPIDFD, Linux 6.5), and its start before it connected have to agree. A peer that
can't be seen to be on the host counts as not on it. One case isn't seen: a process that has entered the
host's namespaces from a container (nsenter, a privileged container with the host's pids) is like root on the
host.
"""

import os
import socket
from contextlib import suppress

from lockd.core.validity import NS_PER_S
from lockd.server.peer import has_ended, peer_pidfd, start_ticks

_TICK_NS = NS_PER_S // os.sysconf("SC_CLK_TCK")


def why_not_here(connection: socket.socket, pid: int, connected_ns: int) -> str | None:
    """None when the process that connected, by CLOCK_BOOTTIME at that moment, is seen to be on this host."""
    if pid == 0:
        return "its process can't be seen from here: it runs in a container, or the agent does"
    pidfd = None
    try:
        pidfd = peer_pidfd(connection)
        reason = _looked_at(pid, connected_ns)
        # After the look: it really was at this process.
        if reason is None and pidfd is not None and has_ended(pidfd):
            return "the process that connected has ended"
        return reason
    except (OSError, ValueError, IndexError) as failure:
        return f"/proc/{pid} doesn't tell where it is: {failure}"
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _looked_at(pid: int, connected_ns: int) -> str | None:
    if start_ticks(pid) * _TICK_NS > connected_ns:
        return "the process that connected has ended"
    if len(_pids(pid)) != 1:
        return "it is in a container: it has a separate pid namespace"
    if not _mounts(pid) & (_mounts("self") | _mounts_of_the_first()):
        return "it is in a container: it has a separate mount namespace"
    return None


def _pids(pid: int) -> list[bytes]:
    """Its number in each of its pid namespaces, from that of our /proc down."""
    with open(f"/proc/{pid}/status", "rb") as file:
        return next(line.split()[1:] for line in file if line.startswith(b"NSpid:"))


def _mounts(process: int | str) -> set[bytes]:
    with open(f"/proc/{process}/mountinfo", "rb") as file:
        return {line.split(b" ", 1)[0] for line in file}


def _mounts_of_the_first() -> set[bytes]:
    """The mounts of PID 1: an agent in a sandbox of systemd has separate mounts, and operators have the
    host's."""
    with suppress(OSError):
        return _mounts(1)
    return set()
