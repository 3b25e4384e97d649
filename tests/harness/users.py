"""Other users of this machine at the agent's socket, and what they were refused."""

from __future__ import annotations

import grp
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cluster import Cluster, running_cluster
from tests.harness.wire import Wire

NOBODY, DAEMON = 65_534, 1
NOGROUP = 65_534

Connect = Callable[..., Wire]

CONTAINERS = {
    "pid namespace": ["unshare", "--pid", "--mount-proc", "--fork"],
    "mount namespace": ["unshare", "--mount"],
}
"""What makes one."""


def name_of_group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        pytest.skip(f"no group {gid} on this machine")


def become(uid: int, groups: Sequence[int] = ()) -> None:
    """This process is that user from now on, in these groups and in no other that says anything."""
    os.setgroups(groups)
    os.setgid(NOGROUP)
    os.setuid(uid)


def in_child(work: Callable[[], object]) -> None:
    """Run `work` in a forked child; AssertionError when it fails there."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def by_another_user(work: Callable[[], object]) -> None:
    """Run `work` in a forked child of a user who may do nothing in particular."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")

    def as_another() -> None:
        become(NOBODY)
        work()

    in_child(as_another)


def connecting(stack: ExitStack) -> Connect:
    """`connect(cluster, uid, *gids)`: a connection of that user, with these groups besides its own, for as
    long as the stack."""

    def connect(cluster: Cluster, uid: int = 0, *gids: int) -> Wire:
        if uid != os.geteuid():
            return stack.enter_context(Wire(connected_as(uid, gids, cluster, stack)))
        return stack.enter_context(Wire(cluster.socket))

    return connect


def connected_as(uid: int, gids: Sequence[int], cluster: Cluster, stack: ExitStack) -> socket.socket:
    """A connection that a child has made as that user and handed over: the kernel keeps who connected. The
    child lives as long as the stack."""
    if os.geteuid() != 0:
        pytest.skip("only root can connect as another user")
    ours, its = socket.socketpair(socket.AF_UNIX)
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            # Connections that the test closes must not stay open here.
            os.closerange(3, its.fileno())
            os.closerange(its.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
            become(uid, gids)
            _connect_and_hand_over(cluster.socket, its)
        os._exit(0)
    stack.callback(os.waitpid, child, 0)
    stack.callback(ours.close)
    its.close()
    _, files, _, _ = socket.recv_fds(ours, 16, 1)
    assert files, f"uid {uid} could not connect"
    return socket.socket(fileno=files[0])


def _connect_and_hand_over(path: Path, to: socket.socket) -> None:
    """Returns when the other end of `to` is closed."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(path))
        socket.send_fds(to, [b"here"], [link.fileno()])
    to.recv(1)


@contextmanager
def living_as(uid: int, work: Callable[[], Any]) -> Iterator[Any]:
    """A process of that user, which does `work` and then lives on, as do those that it forks, for as long as
    the context. What is yielded is the result of `work`, as JSON has it."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.setsid()
            become(uid)
            os.write(its, json.dumps(work()).encode() + b"\n")
            signal.pause()
        os._exit(1)
    os.close(its)
    try:
        with open(ours) as told:
            line = told.readline()
        assert line, f"it failed as uid {uid}"
        yield json.loads(line)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


@contextmanager
def cluster_for_all_users(**overrides: Any) -> Iterator[Cluster]:
    """A formed cluster whose agent every user of this machine can reach."""
    with running_cluster(3, **overrides, socket={"mode": "0666"}) as running:
        running.folder.chmod(0o755)
        yield running


def refusals(cluster: Cluster, limit: str) -> float:
    """How often that limit was in somebody's way, as counted."""
    return cluster.metric("lockd_limit_refusals_total", limit=limit)
