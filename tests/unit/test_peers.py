"""Who is at the other end of a connection."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from lockd.server.peer import Peer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose its groups")


def refuses(*_about: object) -> None:
    raise AssertionError("the user database was asked, and everybody waits for it")


@pytest.fixture
def _own_groups() -> Iterator[None]:
    own = os.getgroups()
    yield
    os.setgroups(own)


@pytest.mark.usefixtures("_own_groups")
@pytest.mark.parametrize("number", [1, 256, 257, 5_000])
def test_however_many_groups_a_user_is_in_the_kernel_tells_all_of_them(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = range(10_000, 10_000 + number)
    os.setgroups(groups)
    monkeypatch.setattr(os, "getgrouplist", refuses)
    monkeypatch.setattr(pwd, "getpwuid", refuses)
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        peer = Peer.of(ours)
    assert peer.groups == {os.getgid(), *groups}
