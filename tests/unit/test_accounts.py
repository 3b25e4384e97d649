"""Who pays: what only root can make, however many uids a user has."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lockd.server import accounts as accounts_module
from lockd.server.accounts import STRANGERS, Accounts, LocalUsers, UserDatabase, Where, where_is
from tests.harness.waiting import until

ID = "0123456789ab" + "c" * 52
POD = "6f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
CONTAINER = Where("container 0123456789ab")


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (f"/system.slice/docker-{ID}.scope", CONTAINER),
        (f"/docker/{ID}", CONTAINER),
        (f"/default/{ID}", CONTAINER),
        (f"/machine.slice/libpod-{ID}.scope/container", CONTAINER),
        ("/machine.slice/web1.service", Where("container web1")),
        ("/lxc.payload.db/init.scope", Where("container db")),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice"
            f"/cri-containerd-{ID}.scope",
            Where(f"pod {POD}"),
        ),
        (f"/kubepods/besteffort/pod{POD}/{ID}", Where(f"pod {POD}")),
        (f"/kubepods/pod{POD}/{ID}", Where(f"pod {POD}")),
        ("/user.slice/user-1000.slice/session-3.scope", Where(user=1000)),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", Where(user=1000)),
        (f"/user.slice/user-7.slice/docker/{ID}", Where(user=7)),
        (f"/user.slice/{ID}", Where()),
        ("/system.slice/nginx.service", Where()),
        (f"/system.slice/runner.service/docker-{ID}.scope", Where()),
        (f"/system.slice/runner.service/kubepods/pod{POD}", Where()),
        ("/", Where()),
        ("", Where()),
    ],
)
def test_a_cgroup_tells_a_container_or_whose_slice_it_is_and_none_that_a_service_may_have_made(
    path: str, where: Where
) -> None:
    assert where_is(f"0::{path}\n") == where
    assert where_is(f"12:cpu:/docker/{'f' * 64}\n1:name=systemd:{path}\n") == where


class AHost:
    """Its users, its ranges, and what the user database says when it is asked."""

    def __init__(self, folder: Path) -> None:
        self.now_ns = 0
        self.cgroups: dict[int, str] = {}
        self.asked: list[tuple[int, Callable[[bool], None]]] = []
        self.users, self.ranges = folder / "passwd", folder / "subuid"
        self.users.write_text("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbroken\n")
        self.ranges.write_text("alice:100000:65536\n1001:200000:65536\nldap:300000:65536\nbroken:x:y\n")
        self.accounts = Accounts(
            lambda: self.now_ns, self._ask, LocalUsers(self.users, self.ranges), self._cgroup_of
        )
        self.changed: list[str] = []

    def _ask(self, uid: int, told: Callable[[bool], None]) -> None:
        self.asked.append((uid, told))

    def _cgroup_of(self, pid: int) -> str:
        return self.cgroups.get(pid, "")

    def of(self, uid: int, cgroup: str = "") -> str:
        self.cgroups[7] = f"0::{cgroup}"
        return self.accounts.of(uid, 7 if cgroup else 0, self.changed.append)

    def says(self, is_in_it: bool) -> None:
        for _, told in self.asked:
            told(is_in_it)
        self.asked.clear()


@pytest.fixture
def host(tmp_path: Path) -> AHost:
    return AHost(tmp_path)


def test_a_container_is_one_account_whatever_its_uids_are(host: AHost) -> None:
    assert {host.of(uid, f"/docker/{ID}") for uid in (0, 1000, 100_001, 4_711)} == {"container 0123456789ab"}


def test_a_user_of_this_host_is_an_account_wherever_its_processes_are(host: AHost) -> None:
    for cgroup in ("", "/system.slice/cron.service", "/user.slice/user-1001.slice"):
        assert host.of(1000, cgroup) == "uid 1000"
    assert host.of(0) == "uid 0"


def test_all_uids_of_a_users_range_are_that_user(host: AHost) -> None:
    assert {host.of(100_000 + n) for n in (0, 1, 65_535)} == {"uid 1000"}
    assert host.of(200_000) == "uid 1001", "named by its number"
    assert host.of(300_000) == "user ldap", "it is not one of this host's own"
    assert host.asked == [], "a user with a thousand of them has nobody asked a thousand times"


def test_a_uid_of_nobody_in_a_users_slice_is_that_users(host: AHost) -> None:
    assert host.of(4_711, "/user.slice/user-1000.slice/x.scope") == "uid 1000"
    assert host.of(200_000, "/user.slice/user-1000.slice/x.scope") == "uid 1000", "the slice comes first"


def test_all_others_together_are_strangers(host: AHost) -> None:
    assert {host.of(uid) for uid in (4_711, 4_712)} == {STRANGERS}


def test_a_user_whom_only_the_user_database_knows_is_a_stranger_until_it_has_answered(host: AHost) -> None:
    assert host.of(5_000) == STRANGERS
    assert host.of(5_000) == STRANGERS
    assert [uid for uid, _ in host.asked] == [5_000], "asked once"
    host.says(True)
    assert host.changed == ["uid 5000"] * 2
    assert host.of(5_000) == "uid 5000"
    assert host.asked == []


def test_what_the_user_database_has_said_counts_until_it_is_asked_again(host: AHost) -> None:
    host.of(5_000)
    host.says(True)
    host.now_ns = 601 * 1_000_000_000
    assert host.of(5_000) == "uid 5000"
    host.says(False)
    assert host.of(5_000) == STRANGERS


def test_a_new_user_and_a_new_range_are_seen(host: AHost) -> None:
    assert host.of(1_002) == STRANGERS
    assert host.of(400_000) == STRANGERS
    host.users.write_text(host.users.read_text() + "bob:x:1002:1002::/:/bin/sh\n")
    host.ranges.write_text(host.ranges.read_text() + "bob:400000:65536\n")
    assert host.of(1_002) == host.of(400_001) == "uid 1002"
    host.ranges.unlink()
    assert host.of(400_001) == STRANGERS


def test_no_more_uids_are_remembered_than_so_many(host: AHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts_module, "_REMEMBERED_MOST", 10)
    for uid in range(5_000, 5_100):
        host.of(uid)
        host.says(False)
    assert len(host.accounts._known) == 10
    assert not host.accounts._asked


async def test_the_user_database_is_asked_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_in = list[str]()

    def look_up(uid: int) -> object:
        asked_in.append(threading.current_thread().name)
        if uid != os.geteuid():
            raise KeyError
        return uid

    monkeypatch.setattr(accounts_module.pwd, "getpwuid", look_up)
    answers, database = list[tuple[str, bool]](), UserDatabase()
    here = threading.current_thread().name
    for uid in (os.geteuid(), 1 << 30):
        database.ask(uid, lambda known: answers.append((threading.current_thread().name, known)))
    await until(lambda: len(answers) == 2)
    assert answers == [(here, True), (here, False)]
    assert set(asked_in) == {"user-database"}
    assert asyncio.get_running_loop().is_running()
