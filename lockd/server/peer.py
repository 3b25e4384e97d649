"""Who is at the other end of the socket, according to the kernel (SO_PEERCRED), and what that user may do."""

import errno
import grp
import os
import pwd
import select
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from lockd.config.model import CANARY, Config, LockClass, Policy

_SO_PEERGROUPS = 59
_SO_PEERPIDFD = 77
# Python asks the kernel for at most 1024 bytes of an option.
_GROUP_BYTES = 1024
_GROUPS_MOST = 65_536
"""NGROUPS_MAX of Linux."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A process as it was when it connected."""

    pid: int
    uid: int
    groups: frozenset[int]

    @classmethod
    def of(cls, connection: socket.socket) -> "Peer":
        """The peer of a connected Unix socket, with all its groups."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, gid = struct.unpack("3i", credentials)
        return cls(pid, uid, frozenset((gid, *_more_groups(connection))))


def _more_groups(connection: socket.socket) -> Iterable[int]:
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUP_BYTES)
        return struct.unpack(f"{len(raw) // 4}I", raw)
    except OSError:
        return _all_groups(connection)


def _all_groups(connection: socket.socket) -> Iterable[int]:
    """More than fit. The user database is not asked instead: it may ask another host, while everybody waits.
    None for a kernel before 4.13."""
    # Only here: most agents never need it.
    import ctypes

    groups = (ctypes.c_uint32 * _GROUPS_MOST)()
    size = ctypes.c_uint32(ctypes.sizeof(groups))
    failed = ctypes.CDLL(None).getsockopt(
        connection.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, groups, ctypes.byref(size)
    )
    return () if failed else groups[: size.value // 4]


def peer_pidfd(connection: socket.socket) -> int | None:
    """A new file for the process that connected, whichever process has its number now. None: this kernel
    doesn't have them (Linux before 6.5). OSError when the process has ended, or no more files can be
    opened."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as failure:
        if failure.errno == errno.ENOPROTOOPT:
            return None
        raise


def pidfd_of(connection: socket.socket, pid: int) -> int:
    """As peer_pidfd. If the kernel has none, a file for the process that has this number now: call it when
    the connection is let in, and not later. OSError."""
    file = peer_pidfd(connection)
    return os.pidfd_open(pid) if file is None else file


def has_ended(pidfd: int) -> bool:
    """All its threads are dead."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def start_ticks(pid: int) -> int:
    """When it began, in clock ticks since boot. OSError, ValueError or IndexError if /proc doesn't say."""
    # Without a file object, which takes longer than all the rest.
    file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(file, 1024).rpartition(b")")[2].split()[19])
    finally:
        os.close(file)


_NOBODY = frozenset[int](), frozenset[int]()
FOR_OPERATORS = (
    "DENIED only for operators on this host: root, the agent's own user, or a member of admin_group"
)


class Permissions:
    """Which users may lock what, and which may do what only operators may. Names are looked up when it is
    made."""

    def __init__(self, config: Config) -> None:
        self._admins = frozenset({0, os.geteuid()})
        self.admin_groups = _gids((config.admin_group,) if config.admin_group else ())
        self.socket_group = next(iter(_gids((config.socket.group,) if config.socket.group else ())), None)
        classes = (*config.classes, config.other)
        self._allowed = {c.name: _allowed(c) for c in classes}

    def may_lock(self, peer: Peer, lock_class: LockClass) -> bool:
        return self._may_lock(peer, lock_class.name)

    def may_see(self, peer: Peer, label: str) -> bool:
        """Whether other users' leases of this class are shown. Operators see all. Others see those of classes
        that they may lock, which the agents' own class is not."""
        return self.is_admin(peer) or (label != CANARY and self._may_lock(peer, label))

    def _may_lock(self, peer: Peer, label: str) -> bool:
        # The class of a lease may have been removed since: then nobody may lock it.
        allowed = self._allowed.get(label, _NOBODY)
        return allowed is None or peer.uid in allowed[0] or not allowed[1].isdisjoint(peer.groups)

    def is_admin(self, peer: Peer) -> bool:
        return peer.uid in self._admins or not self.admin_groups.isdisjoint(peer.groups)


def _allowed(policy: Policy) -> tuple[frozenset[int], frozenset[int]] | None:
    """The uids and gids that may; None: everybody."""
    if policy.users is None and policy.groups is None:
        return None
    return _uids(policy.users or ()), _gids(policy.groups or ())


def _uids(names: tuple[str, ...]) -> frozenset[int]:
    """A name that this host doesn't know is nobody (check-config warns of it)."""
    found = set()
    for name in names:
        try:
            found.add(int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            continue
    return frozenset(found)


def _gids(names: tuple[str, ...]) -> frozenset[int]:
    found = set()
    for name in names:
        try:
            found.add(int(name) if name.isdigit() else grp.getgrnam(name).gr_gid)
        except KeyError:
            continue
    return frozenset(found)
