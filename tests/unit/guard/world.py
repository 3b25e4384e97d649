"""A host for the guard: its clocks are turned by hand, its disk may fail or lose power at any step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path

import pytest

from lockd.guard.config import GuardConfig
from lockd.guard.delay import NS_PER_S
from lockd.guard.disk import Disk
from lockd.guard.enter import enter
from lockd.guard.errors import GuardError, Unproven
from lockd.guard.guard import Guard
from lockd.guard.host import Host
from lockd.guard.leave import leave
from lockd.guard.marks import data_mark
from lockd.guard.reasons import Reason
from lockd.guard.records import encoded
from lockd.guard.redis_link import Ask
from lockd.guard.state_folder import MARK
from lockd.guard.stop import stop
from lockd.guard.watch import StepWatch

CLEAN = {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": "0"}
KILLED = {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"}
NEVER_RAN = {"SERVICE_RESULT": "success"}

# max TTL 60 s.
DELAY_NS = 61_600_000_000


class FakeRedis:
    """What answers on a master's socket: its settings, what INFO says, and how long it was told to rest."""

    def __init__(self, folder: Path) -> None:
        self.settings = {
            "appendonly": "yes",
            "appendfsync": "always",
            "no-appendfsync-on-rewrite": "no",
            "dir": str(folder),
        }
        self.persistence = {
            "loading": "0",
            "aof_enabled": "1",
            "aof_rewrite_in_progress": "0",
            "aof_rewrite_scheduled": "0",
            "aof_last_bgrewrite_status": "ok",
            "aof_last_write_status": "ok",
        }
        self.asked: list[tuple[str, ...]] = []
        self.refuses = ""
        self.before_transaction: Callable[[], None] = lambda: None

    def ask(self, *commands: tuple[str, ...]) -> list[object]:
        if self.refuses:
            raise Unproven(self.refuses)
        self.asked += commands
        if commands[0] != ("MULTI",):
            return [self._answer(command) for command in commands]
        assert commands[-1] == ("EXEC",)
        self.before_transaction()
        return ["OK", *["QUEUED"] * (len(commands) - 2), [self._answer(one) for one in commands[1:-1]]]

    def _answer(self, command: tuple[str, ...]) -> object:
        if command[:2] == ("CONFIG", "GET"):
            return [command[2], self.settings[command[2]]]
        if command == ("INFO", "persistence"):
            return "".join(f"{name}:{value}\r\n" for name, value in self.persistence.items())
        return "OK"


class FakeHost(Host):
    """Time passes only where somebody waits. `while_waiting` is called before each pause."""

    def __init__(self) -> None:
        super().__init__({})
        self.redis: FakeRedis | None = None
        self.now_ns = 1_000 * NS_PER_S
        self.ahead_ns = 1_700_000_000 * NS_PER_S
        self.slewed_ns = 0
        self.boot = "boot-1"
        self.machine = "machine-1"
        self.synchronised = True
        self.loaded = True
        self.while_waiting: Callable[[], None] = lambda: None
        # What a pause takes on BOOTTIME, as a share of what was asked for.
        self.pause_lasts = 1.0
        self.statuses: list[str] = []
        self.logged: list[dict[str, object]] = []
        self.kills: list[str] = []
        self.on_kill: Callable[[], str] = lambda: ""

    def boottime_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns + self.ahead_ns

    def monotonic_ns(self) -> int:
        return self.now_ns + self.slewed_ns

    def raw_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.while_waiting()
        self.now_ns += max(1, int(seconds * NS_PER_S * self.pause_lasts))

    def boot_id(self) -> str:
        return self.boot

    def host_id(self) -> str:
        return self.machine

    def clock_synchronised(self) -> bool:
        return self.synchronised

    def tell_systemd(self, message: str) -> None:
        self.statuses += [line[7:] for line in message.splitlines() if line.startswith("STATUS=")]

    @contextmanager
    def asking_redis(self, path: Path) -> Iterator[Ask]:
        if self.redis is None:
            raise ConnectionRefusedError(111, "Connection refused", str(path))
        yield self.redis.ask

    def kill_main_process(self, unit: str) -> str:
        self.kills.append(unit)
        return self.on_kill()

    def has_started(self, unit: str) -> bool:
        return self.loaded

    def log(self, level: str, event: str, **values: object) -> None:
        self.logged.append({"level": level, "event": event} | values)

    def events(self) -> list[object]:
        return [line["event"] for line in self.logged]

    def reboot(self, seconds_down: float = 30.0) -> None:
        """BOOTTIME begins anew; the wall clock goes on, and is right."""
        wall_ns = self.wall_ns() + int(seconds_down * NS_PER_S)
        self.boot = f"{self.boot}+"
        self.now_ns = 20 * NS_PER_S
        self.ahead_ns = wall_ns - self.now_ns


class World:
    """One master's host: its guard, and a Redis that is three files."""

    def __init__(self, folder: Path, disk: Disk | None = None, **settings: object) -> None:
        self.host = FakeHost()
        self.disk = disk or Disk()
        self.data = folder / "data"
        self.state = folder / "state"
        self.textfile = folder / "guard.prom"
        values: dict[str, object] = {
            "max_ttl_ms": 60_000,
            "data_dir": self.data,
            "unit": "lockd-master.service",
            "state_dir": self.state,
            "textfile": self.textfile,
            "password_file": None,
        }
        self.settings = values | settings
        self.write_data()
        self.note_data()
        self.redis = self.host.redis = FakeRedis(self.data)

    def note_data(self) -> None:
        """As the guard of a Redis that wrote what is there."""
        at_s = self.host.wall_ns() // NS_PER_S
        mark = data_mark(GuardConfig(**self.settings), self.host.machine, at_s, ended=False)  # type: ignore[arg-type]
        assert mark.file
        if isinstance(self.disk, FragileDisk):
            self.disk.begin_with(MARK, encoded(mark))
        else:
            self.state.mkdir(0o700, exist_ok=True)
            (self.state / MARK).write_bytes(encoded(mark))

    def write_data(self) -> None:
        aof = self.data / "appendonlydir"
        aof.mkdir(parents=True)
        (aof / "appendonly.aof.manifest").write_text("file appendonly.aof.1.incr.aof seq 1 type i\n")
        (aof / "appendonly.aof.1.base.rdb").write_bytes(b"REDIS0010")
        (aof / "appendonly.aof.1.incr.aof").write_bytes(b"*1\r\n" * 50_000)

    @property
    def aof(self) -> Path:
        return self.data / "appendonlydir" / "appendonly.aof.1.incr.aof"

    def guard(self) -> Guard:
        """As of the next process: nothing is remembered but what is on disk."""
        return Guard(GuardConfig(**self.settings), self.host, self.disk)  # type: ignore[arg-type]

    def enter(self) -> int:
        """Start Redis. Returns for how long that was delayed, in nanoseconds."""
        before_ns = self.host.now_ns
        enter(self.guard())
        return self.host.now_ns - before_ns

    def stop(self) -> None:
        """systemd is told to stop it, and first has it asked; it goes on whatever comes of that."""
        with suppress(GuardError):
            stop(self.guard())

    def ends(self, environ: Mapping[str, str]) -> None:
        """Redis has ended, and systemd says how."""
        self.host.environ = environ
        leave(self.guard())

    def leave(self, environ: Mapping[str, str]) -> None:
        """A stop that systemd was told to make, and how Redis has ended then."""
        self.stop()
        self.ends(environ)

    def run_and_stop(self) -> None:
        """A start, whatever it takes, and a clean stop."""
        self.enter()
        self.leave(CLEAN)

    def interrupted_after(self, seconds: int) -> None:
        """A start whose guard dies in its quarantine."""
        end_ns = self.host.now_ns + seconds * NS_PER_S

        def die() -> None:
            if self.host.now_ns >= end_ns:
                raise Dead

        self.host.while_waiting = die
        with pytest.raises(Dead):
            self.enter()
        self.host.while_waiting = lambda: None

    def counts(self) -> dict[str, int]:
        """Quarantines by reason, without those that never were."""
        state = self.guard().folder.state()
        return {reason: count for reason, count in state.quarantines.items() if count} if state else {}

    def start_for(self, reason: Reason) -> None:
        """Start, and look that it is a whole quarantine for that reason."""
        before = self.counts()
        assert self.enter() == DELAY_NS
        after = self.counts()
        assert after.pop(reason.value) == before.pop(reason.value, 0) + 1
        assert after == before

    def edit(self, name: str, **values: object) -> None:
        """Change fields of one of the guard's files."""
        path = self.state / name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    def spoil(self, name: str, damage: bytes | dict[str, object]) -> None:
        """Put that into one of the guard's files: in place of all of it, or of some fields."""
        if isinstance(damage, bytes):
            (self.state / name).write_bytes(damage)
        else:
            self.edit(name, **damage)

    def metrics(self) -> dict[str, float]:
        lines = [line for line in self.textfile.read_text().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


class Watched:
    """A watch over a host, looking when the test says so."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.watch = StepWatch(world.guard())
        self.watch.begin()
        self.watch.look()

    def after(self, seconds: float, stepped_ns: int = 0) -> None:
        self.world.host.now_ns += int(seconds * NS_PER_S)
        self.world.host.ahead_ns += stepped_ns
        self.watch.look()


class Dead(BaseException):
    """The process, or the whole host, ends at this point."""


class FragileDisk(Disk):
    """Files of one folder in memory. What was not synced may or may not survive a power cut.

    `dies_at`: the step, counted from 0, before which the guard's process dies; `steps` counts them.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._durable: dict[str, bytes] = {}
        self._pending: list[tuple[str, str, bytes]] = []
        self._unsynced: set[str] = set()
        self.steps = 0
        self.dies_at = -1

    def begin_with(self, name: str, data: bytes) -> None:
        if name not in self.files:
            self.files[name] = self._durable[name] = data

    def _step(self) -> None:
        if self.steps == self.dies_at:
            raise Dead
        self.steps += 1

    def make_folder(self, path: Path) -> None:
        pass

    def check_folder(self, path: Path) -> None:
        pass

    def read(self, path: Path) -> bytes:
        try:
            return self.files[path.name]
        except KeyError:
            raise FileNotFoundError(path) from None

    def write(self, path: Path, data: bytes, mode: int, sync: bool = True) -> None:
        # Two steps: the file without its content, and with it, synced.
        self._do("set", path.name, b"")
        self._do("set", path.name, data)
        self._unsynced.discard(path.name)
        if not sync:
            self._unsynced.add(path.name)

    def rename(self, source: Path, target: Path) -> None:
        if source.name not in self.files:
            raise FileNotFoundError(source)
        self._step()
        data = self.files[target.name] = self.files.pop(source.name)
        # The new name may be on disk before a content that nobody has synced.
        self._pending.append(("set", target.name, b"" if source.name in self._unsynced else data))

    def unlink(self, path: Path) -> None:
        if path.name not in self.files:
            raise FileNotFoundError(path)
        self._do("unlink", path.name, b"")

    def _do(self, what: str, name: str, data: bytes) -> None:
        self._step()
        self._pending.append((what, name, data))
        _apply(self.files, what, name, data)

    def sync_folder(self, path: Path) -> None:
        self._step()
        self._durable = dict(self.files)
        self._pending.clear()

    @contextmanager
    def lock(self, path: Path, wait_s: float | None = None) -> Iterator[None]:
        yield

    def after_power_cuts(self) -> list[FragileDisk]:
        """The disks that may be found then: any of the changes since the last sync can be missing."""
        found: dict[str, FragileDisk] = {}
        for kept in product((True, False), repeat=len(self._pending)):
            disk = FragileDisk()
            disk.files = dict(self._durable)
            for keep, (what, name, data) in zip(kept, self._pending, strict=True):
                if keep:
                    _apply(disk.files, what, name, data)
            disk._durable = dict(disk.files)
            found[repr(sorted(disk.files.items()))] = disk
        return list(found.values())

    def after_kill(self) -> FragileDisk:
        """The disk after the death of the process alone: what was done is done, synced or not."""
        disk = FragileDisk()
        disk.files, disk._durable, disk._pending = dict(self.files), dict(self._durable), list(self._pending)
        return disk


def _apply(files: dict[str, bytes], what: str, name: str, data: bytes) -> None:
    if what == "set":
        files[name] = data
    else:
        files.pop(name, None)


def fails(call: str, number: int, monkeypatch: pytest.MonkeyPatch, *, of: str) -> None:
    """That call of the kernel, for what has this in its name."""
    real = getattr(os, call)

    def fail(what: int | str, *arguments: object, **named: object) -> object:
        name = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else str(what)
        if of in name:
            raise OSError(number, os.strerror(number))
        return real(what, *arguments, **named)

    monkeypatch.setattr(os, call, fail)


class FailingDisk(Disk):
    """A real disk whose `fails_at`-th change (counted from 0) is refused by the kernel, and all after it."""

    def __init__(self) -> None:
        self.fails_at = -1
        self.changes = 0
        self.refused = 0

    def _change(self) -> None:
        self.changes += 1
        if 0 <= self.fails_at < self.changes:
            self.refused += 1
            raise OSError(28, "No space left on device")

    def write(self, path: Path, data: bytes, mode: int, sync: bool = True) -> None:
        self._change()
        super().write(path, data, mode, sync)

    def rename(self, source: Path, target: Path) -> None:
        self._change()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._change()
        super().unlink(path)

    def sync_folder(self, path: Path) -> None:
        self._change()
        super().sync_folder(path)
