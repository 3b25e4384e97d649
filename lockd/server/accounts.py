"""Who pays: the account of a process. A uid is cheap, since with a user namespace any user has 65,536 of
them. An account is what only root can make, the first of these that fits:

1. a container or pod outside of users' slices, whatever its uids are, 0 included;
2. a uid in the user database;
3. the user in whose slice the process is (`user-N.slice`);
4. the owner of the range in /etc/subuid that has the uid;
5. everything else together: `strangers`.

It says who pays and who is served next (core/turns.py). Rights go by uid and groups, as they always did.
"""

import asyncio
import pwd
import re
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final

from lockd.core.validity import NS_PER_S

STRANGERS: Final = "strangers"
_ID: Final = "([0-9a-f]{64})"
_CONTAINERS: Final = re.compile(
    # From the root on: below its own cgroup a service or a container may make what it likes. `systemd`, then
    # `cgroupfs`, as container runtimes call their two ways to name them.
    rf"/kubepods(?:\.slice)?(?:/[^/]*)?/[^/]*pod(?P<pod>[0-9a-f_-]{{32,36}})(?:\.slice)?(?:/|$)"
    rf"|/system\.slice/[a-z-]+-{_ID}\.scope(?:/|$)"
    rf"|/machine\.slice/[a-z-]+-{_ID}\.scope(?:/|$)"
    rf"|/machine\.slice/([^/]+)\.(?:scope|service)(?:/|$)"
    rf"|/(?!user\.slice/|system\.slice/)[^/]+/{_ID}(?:/|$)"
    rf"|/lxc(?:\.payload\.|\.payload/|/)([^/]+)"
)
_USER_SLICE: Final = re.compile(r"/user\.slice/user-(\d+)\.slice(?:/|$)")
_ASKED_AGAIN_NS: Final = 600 * NS_PER_S
_REMEMBERED_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Where:
    """What a process's cgroup says: the container that it is in, or the user in whose slice it is."""

    container: str | None = None
    user: int | None = None


def where_is(cgroup: str) -> Where:
    """From the text of /proc/PID/cgroup."""
    path = _path_in(cgroup)
    if (slice_of := _USER_SLICE.match(path)) is not None:
        return Where(user=int(slice_of[1]))
    found = _CONTAINERS.match(path)
    if found is None:
        return Where()
    if found["pod"]:
        return Where(f"pod {found['pod'].replace('_', '-')}")
    name = next(group for group in found.groups() if group)
    return Where(f"container {name[:12] if len(name) == 64 else name[:64]}")


def _path_in(cgroup: str) -> str:
    """In the one hierarchy of today, or in systemd's of those that were before."""
    for line in cgroup.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers in ("", "name=systemd"):
            return path
    return ""


def _cgroup_of(pid: int) -> str:
    """'' if it can't be read."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_text("utf-8", "replace")
    except OSError:
        return ""


class LocalUsers:
    """Those in /etc/passwd, and the ranges in /etc/subuid. Both are read again when they have changed."""

    def __init__(self, users: Path = Path("/etc/passwd"), ranges: Path = Path("/etc/subuid")) -> None:
        self._files = users, ranges
        self._read_as: tuple[tuple[int, int], ...] = ()
        self._uids: dict[str, int] = {}
        self._here: frozenset[int] = frozenset()
        self._ranges: list[tuple[int, int, str]] = []

    def has(self, uid: int) -> bool:
        return uid in self._here

    def owner_of(self, uid: int) -> str | None:
        """The account that has that uid in a range."""
        return next((owner for first, count, owner in self._ranges if first <= uid < first + count), None)

    def look(self) -> None:
        """Read them again if they have changed: before anything is asked."""
        seen = tuple(map(_version_of, self._files))
        if seen != self._read_as:
            users, ranges = map(_fields_in, self._files)
            self._uids = {one[0]: int(one[2]) for one in users if len(one) > 2 and one[2].isdigit()}
            self._here = frozenset(self._uids.values())
            self._ranges = [
                (int(one[1]), int(one[2]), self._account_of(one[0]))
                for one in ranges
                if len(one) == 3 and one[1].isdigit() and one[2].isdigit()
            ]
            self._read_as = seen

    def _account_of(self, owner: str) -> str:
        """The file names users by name or by number. Both are one account."""
        uid = owner if owner.isdigit() else self._uids.get(owner)
        return f"user {owner}" if uid is None else f"uid {uid}"


def _version_of(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _fields_in(file: Path) -> list[list[str]]:
    try:
        return [line.split(":") for line in file.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return []


AccountOf = Callable[[int, int, Callable[[str], None]], str]


def by_uid(uid: int, _pid: int, _changed: Callable[[str], None]) -> str:
    """Where nothing else is known."""
    return f"uid {uid}"


class Accounts:
    """ask: asks the user database, and calls back on the event loop. local: this host's own users and the
    ranges that they have. now_ns: a clock."""

    def __init__(
        self,
        now_ns: Callable[[], int],
        ask: Callable[[int, Callable[[bool], None]], None],
        local: LocalUsers | None = None,
        cgroup_of: Callable[[int], str] = _cgroup_of,
    ) -> None:
        self._now_ns = now_ns
        self._ask = ask
        self._local = local or LocalUsers()
        self._cgroup_of = cgroup_of
        self._known: OrderedDict[int, tuple[bool, int]] = OrderedDict()
        """Whether a uid is in the user database, and until when that is believed."""
        self._asked: dict[int, list[Callable[[], None]]] = {}

    def of(self, uid: int, pid: int, changed: Callable[[str], None]) -> str:
        """The account of that process; pid: 0 if it can't be seen. While the user database has not answered,
        its users are strangers; `changed` is called when it has."""
        where = where_is(self._cgroup_of(pid)) if pid else Where()
        if where.container is not None:
            return where.container
        self._local.look()
        if self._is_asked_about(uid):
            self._asked[uid].append(lambda: changed(self._outside_of_containers(uid, where)))
        return self._outside_of_containers(uid, where)

    def of_user(self, uid: int) -> str:
        """As far as that is known without its process, and without asking anybody."""
        self._local.look()
        return self._outside_of_containers(uid, Where())

    def _outside_of_containers(self, uid: int, where: Where) -> str:
        owner = self._local.owner_of(uid)
        if self._local.has(uid) or (owner is None and self._known.get(uid, (False, 0))[0]):
            return f"uid {uid}"
        if where.user is not None:
            return f"uid {where.user}"
        return owner or STRANGERS

    def _is_asked_about(self, uid: int) -> bool:
        """Not about who is known here. What the user database has said before counts until it answers
        again."""
        if self._local.has(uid) or self._local.owner_of(uid) is not None:
            return False
        known = self._known.get(uid)
        if known is not None and self._now_ns() < known[1]:
            return False
        if uid not in self._asked:
            self._asked[uid] = []
            self._ask(uid, lambda is_in_it: self._answered(uid, is_in_it))
        return uid in self._asked

    def _answered(self, uid: int, is_in_it: bool) -> None:
        self._known[uid] = is_in_it, self._now_ns() + _ASKED_AGAIN_NS
        self._known.move_to_end(uid)
        if len(self._known) > _REMEMBERED_MOST:
            self._known.popitem(last=False)
        for tell in self._asked.pop(uid, ()):
            tell()


class UserDatabase:
    """Asked in a thread, one uid after the other: it may ask another host, for seconds. The thread may
    outlive the agent's loop."""

    def __init__(self) -> None:
        self._questions: SimpleQueue[tuple[int, asyncio.AbstractEventLoop, Callable[[bool], None]]]
        self._questions = SimpleQueue()
        self._thread: Thread | None = None

    def ask(self, uid: int, told: Callable[[bool], None]) -> None:
        """told: is called on the running event loop."""
        if self._thread is None:
            self._thread = Thread(target=self._answer, name="user-database", daemon=True)
            self._thread.start()
        self._questions.put((uid, asyncio.get_running_loop(), told))

    def _answer(self) -> None:
        while True:
            uid, loop, told = self._questions.get()
            answer = _is_in_user_database(uid)
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(told, answer)


def _is_in_user_database(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except (KeyError, OSError):
        return False
    return True
