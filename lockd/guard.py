"""The restart guard of a master: after a restart that may have lost data, Redis stays out (quarantine) until
every lease that it may have voted for is over.

One file, standard library only: it is copied to the masters' hosts and run there by the distribution's Python
(3.9 or newer), apart from lockd. `guard.py --help` says how; this says why.

The rules (design: safety rules 9, 10 and 11b)
    9   No lease is longer than the master's max TTL, so `max_ttl x 1.01 + 1 s` outlasts them all.
    10  Restarts are dirty unless proven clean, and no time that passed while down is credited.
    11b A forward step of the wall clock, by which Redis expires leases, makes the master dirty.

Only proofs let Redis start at once. Nothing ever has to be written to make a master dirty: that is what it is
when a file is missing. So a full disk, a lost file, a crash between any two steps and a power cut all end in
a quarantine. There are three proofs, each in a file of the state folder, each good for one use:
    permit.json  "Redis was let start, in this boot": written as the last step of `enter`.
    rest.json    "Redis rests until it is stopped, and all that it was told is in its file": by `stop`.
    marker.json  "Redis stopped cleanly, and its data was this": written as the last step of `leave`.

    enter   takes them away and makes that durable BEFORE it looks at anything, so that whatever happens next,
            to it or to Redis or to the host, finds no proof. Then: is the marker sound? Permit, and start.
            Else wait, in full, on CLOCK_BOOTTIME (it counts suspend), then permit, and start. Whoever ends it
            early (SIGTERM, kill -9, power) ends it without a permit, and the next one waits from the start.
    stop    before Redis is told to stop: in one transaction it asks for the settings that a clean stop rests
            on (an exit with 0 says nothing of a Redis that was told `appendonly no` before) and has every
            client wait for a minute. So nothing can be changed or voted between that and the end, by anybody;
            an end that comes later proves nothing, nor one that nobody asked systemd for (SHUTDOWN).
    leave   takes the permit away, makes that durable, and only when there was one, of this boot and of the
            latest enter, and systemd says success AND exited AND 0 (a master that dies of SIGTERM in its
            first millisecond is a 'success'), and it rests since a `stop` of that very start, syncs the data,
            looks at it, and writes the marker last.
    watch   on a forward step takes the proofs away FIRST (unlink: it needs no space, and no sync: a power cut
            leaves no marker anyway), then kills Redis with SIGKILL, and only then does the slow things. In
            the other order Redis could end by itself and `leave` could call it clean. A kill that finds no
            process is repeated until the permit's start is over: Redis may be just about to start.

A marker is sound when its version, host and generation (it is counted at each enter and leave) are right, the
AOF is what it was (every file: inode, size, both times, last 64 KiB; a restored, copied, wiped or missing one
differs), and the wall clock has not been stepped forward since: REALTIME - BOOTTIME has not risen. Slewing
moves both clocks alike and never shows there; faster than 1,000 ppm it ends leases early all the same, so the
watch looks at it too, on the clock that nobody slews. After a host's reboot that can't be seen: then the
kernel must have called its clock synchronised at the stop and must again now, else it is a quarantine
(clock_unproven).
The same comparison is made by `leave` against the permit, and by `watch` when it starts, so a step is also
found when nobody watched. The max TTL needs no comparison: the delay is for the largest one that the guard
was ever told, until a quarantine of that length has been sat out; raising it counts at once.

Data that was restored, copied or shortened is not only dirty: its fence counters are from the past, and votes
are missing. So the guard keeps outside of it what the data was when last seen (mark.json): on which machine,
in which folders, and of the AOF's last file the inode, how much of it was on disk for certain, and what stood
there. `enter` notes that (also that there is none: Redis begins it), the watch every few seconds, `leave` at
every stop. It syncs the file before it counts what is in it: an end that a power cut tears off was never
noted. A start that is not proven clean compares: where the data is another's, older or shorter, it is moved
aside (never deleted), and the master comes up blank, without a vote until it is admitted. Only what shows
that counts: where data or mark can't be read, Redis stays out, and systemd tries again. The watch compares
too: what was put under a running Redis is never noted, and no stop of it is clean.

A rewrite puts another file in the place of the one that was noted. After a note of `leave` there is none: it
must be the very file. Else it may be any number of rewrites since (a watch that was dead notes nothing; the
alert LockMasterDataUnmarked says so), and what is lost is: files that were restored, after a power cut or a
kill of the guard itself, *into* the same folder, with a higher number in their manifest and times that are
not from before the note. Redis 6.2's AOF in one file has no number: any other file may be a rewrite then.

Data that is not there is no reason to forget it: its disk may not be mounted. The mark is kept beside
(mark.previous.json), and when data comes back that fits that, it is accepted, as after any dirty stop. A
master that was admitted in its place meanwhile has another admission number: what came back has no vote.

What it can't see: a whole machine restored from a snapshot, marks and data alike. Never restore a master.

`enter` and `leave` are systemd's: by hand, beside a running Redis, they would end its permit and its notes.
Without INVOCATION_ID in their environment, which it sets, they do nothing, unless told --by-hand.

It runs as root, and trusts nobody else. It writes only into folders where nobody else can have put anything:
they and all above them are root's, and each file is made anew (O_EXCL), so no planted link or FIFO is ever
written through. What it reads, Redis's own files above all, is opened without following links and without
waiting, must be a plain file, and is read up to a bound. Whatever is strange is no proof: the start is a
dirty one, or none. Metrics are the one thing that it goes on without.

The unit of a master (the + runs the guard as root)
    [Unit]
    After=time-sync.target chrony-wait.service lockd-guard-watch.service
    Wants=time-sync.target chrony-wait.service lockd-guard-watch.service
    RequiresMountsFor=/var/lib/lockd-master /var/lib/lockd-guard
    StartLimitIntervalSec=0
    [Service]
    Type=notify
    NotifyAccess=exec
    ExecStartPre=+/usr/bin/python3 -I /usr/local/lib/lockd/guard.py enter
    ExecStart=/usr/bin/redis-server /etc/lockd/master.conf
    ExecStop=-+/usr/bin/python3 -I /usr/local/lib/lockd/guard.py stop
    ExecStopPost=+/usr/bin/python3 -I /usr/local/lib/lockd/guard.py leave
    Restart=always
    RestartSec=1
    TimeoutStartSec=infinity
    TimeoutStopSec=infinity
and of the watch, lockd-guard-watch.service
    [Unit]
    After=time-sync.target chrony-wait.service
    RequiresMountsFor=/var/lib/lockd-guard
    StartLimitIntervalSec=0
    [Service]
    Type=notify
    ExecStart=/usr/bin/python3 -I /usr/local/lib/lockd/guard.py watch
    Restart=always
    RestartSec=1
    WatchdogSec=10
Both must see one boot id: in a container, what gives a unit another /proc (ProtectKernelTunables=,
ProtectControlGroups=, ProtectProc=) shows it the machine's, and to the watch each permit is of another boot.

The configuration, /etc/lockd/guard.conf (`guard.py check` reads it and says what is wrong)
    [guard]
    max_ttl_ms = 60000                      # not below the masters' identity and any agent's
    data_dir = /var/lib/lockd-master        # Redis's `dir`
    unit = lockd-master.service             # what the watch kills
    append_dir = appendonlydir              # Redis's appenddirname (the rest may be left out; defaults shown)
    append_file = appendonly.aof            # Redis's appendfilename
    state_dir = /var/lib/lockd-guard        # root's alone
    textfile = /var/lib/lockd/node-exporter/lockd_guard.prom    # in a folder of root's; empty: no metrics
    delay_ms = 0                            # stay out for longer than max_ttl x 1.01 + 1 s; 0: for that long
    clock_step_ms = 2                       # 1 or 2: a lease gives away 2 ms for drift, however short it is
    socket = /run/lockd-master/redis.sock   # Redis's `unixsocket`
    user = lockd_loader                     # with +multi +exec +info +config|get +client|pause
    password_file = /etc/lockd-master/loader.password   # root's; empty: as Redis's default user

Metrics (the watch writes the file every 15 s: an old `node_textfile_mtime_seconds` means that it is dead)
    redis_lock_guard_quarantined, redis_lock_guard_quarantine_until_timestamp_seconds,
    redis_lock_guard_quarantines_total{reason}, redis_lock_guard_delay_seconds,
    redis_lock_guard_overrides_total, redis_lock_guard_clock_steps_total{direction},
    redis_lock_guard_data_moved_aside_total, redis_lock_guard_data_marked_timestamp_seconds
"""

from __future__ import annotations

import argparse
import configparser
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

DEFAULT_CONFIG = "/etc/lockd/guard.conf"

# The files of the state folder.
MARKER, PERMIT, STATE, OVERRIDE = "marker.json", "permit.json", "state.json", "override.json"
MARK, PREVIOUS_MARK, REST = "mark.json", "mark.previous.json", "rest.json"
ENTER_LOCK, STATE_LOCK = "enter.lock", "state.lock"
FORMAT = 1

# An override that nobody used must not end a quarantine months later.
OVERRIDE_VALID_NS = 15 * 60 * NS_PER_S
# Faster than this is no drift of an honest clock; many small steps are found as surely as a large one.
DRIFT_PER_MILLE = 1
TAIL_BYTES = 65_536
# No command of ours, nor a transaction, is longer in the AOF: a torn one that Redis cuts off when it loads.
TORN_BYTES = 65_536
# A file that is older than a note by more can't have been written after it, whatever the clock did.
REWRITE_SLACK_S = 3_600
# Of what others may have made endless: more is damage, not data. Redis's AOF is a handful of files.
MAX_CONFIG_BYTES, MAX_RECORD_BYTES, MAX_AOF_FILES = 65_536, 4_194_304, 1_000
METRICS_EVERY_NS = 15 * NS_PER_S
MARK_EVERY_S = 5.0
# While there is no data yet: a crash before the first note leaves only "Redis has begun".
MARK_SOON_S = 0.5
SAMPLE_EVERY_S = 0.1
KILL_AGAIN_S = 0.02
# How long Redis is to rest, by the wall clock, which may be slewed; and how much of that is relied on.
REST_MS, RELIED_ON_NS = 60_000, 50 * NS_PER_S
# Whoever has taken over Redis may answer slowly, strangely or for ever.
ANSWER_WITHIN_S, MAX_ANSWER_BYTES, MAX_ANSWER_WORDS = 10.0, 65_536, 100
REWRITE_WITHIN_NS, LOOK_AGAIN_S = 30 * NS_PER_S, 0.1

EXIT_OK, EXIT_REFUSED, EXIT_QUARANTINED, EXIT_STOPPED = 0, 1, 3, 4
# Neither 0 nor 128 + a signal: systemd, or a SuccessExitStatus=, could take those for a success.
EXIT_INTERRUPTED, EXIT_CONFIG = 75, 78


class Reason(str, Enum):  # noqa: UP042 - StrEnum came with Python 3.11
    """Why a master is quarantined: the same words in the log, in STATUS= and as labels."""

    FIRST_START = "first_start"  # no record of any start: a new host, or a wiped state folder
    UNCLEAN_STOP = "unclean_stop"  # systemd saw Redis end, and not well
    SETTINGS_UNPROVEN = "settings_unproven"  # it ended well, but its file may not hold all that it was told
    NO_MARKER = "no_marker"  # nobody saw it end: the host was killed or lost power
    QUARANTINE_INTERRUPTED = "quarantine_interrupted"  # stopped before a quarantine was over
    MARKER_INVALID = "marker_invalid"  # another version's, an older one, or not readable
    OTHER_HOST = "other_host"  # the state folder came from another machine
    DATA_CHANGED = "data_changed"  # the data is not what Redis left
    CLOCK_STEP = "clock_step"  # the wall clock went forward
    CLOCK_UNPROVEN = "clock_unproven"  # rebooted, and nobody vouches for the wall clock
    STATE_UNREADABLE = "state_unreadable"  # the guard's own record is damaged

    @property
    def words(self) -> str:
        return self.value.replace("_", " ")


@dataclass(frozen=True)
class Dirt:
    """Why a start is not clean."""

    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{self.reason.words}: {self.detail}" if self.detail else self.reason.words


class GuardError(Exception):
    """What happened, what is safe and what to do next, for an operator."""

    exit_status = EXIT_REFUSED


class ConfigError(GuardError):
    """The configuration is missing or wrong."""

    exit_status = EXIT_CONFIG


class Busy(Exception):
    """Another process holds the lock."""


class Unreadable(Exception):
    """A file is there, and is not what it should be."""


class Unproven(Exception):
    """What a clean stop rests on is not so, or can't be seen."""


class Interrupted(Exception):
    """A signal asked the guard to end."""


# The configuration


@dataclass(frozen=True)
class Config:
    max_ttl_ms: int
    data_dir: Path
    unit: str
    append_dir: str = "appendonlydir"
    append_file: str = "appendonly.aof"
    state_dir: Path = Path("/var/lib/lockd-guard")
    textfile: Path | None = Path("/var/lib/lockd/node-exporter/lockd_guard.prom")
    delay_ms: int = 0
    clock_step_ms: int = 2
    socket: Path = Path("/run/lockd-master/redis.sock")
    user: str = "lockd_loader"
    password_file: Path | None = Path("/etc/lockd-master/loader.password")

    def quarantine_ns(self, longest_ttl_ms: int) -> int:
        """How long a quarantine is when leases of that length may live; never shorter than that takes."""
        return max(quarantine_ns(longest_ttl_ms), self.delay_ms * NS_PER_MS)


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise ValueError(f"must be a whole number from {low} to {high}, without a unit")
        return int(text)

    return parse


def _absolute(text: str) -> Path:
    if not text.startswith("/"):
        raise ValueError("must be an absolute path")
    return Path(text)


def _prom_file(text: str) -> Path | None:
    if text and not text.endswith(".prom"):
        raise ValueError("must end in .prom, or node_exporter does not read it")
    return _absolute(text) if text else None


def _absolute_or_none(text: str) -> Path | None:
    return _absolute(text) if text else None


def _user_name(text: str) -> str:
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError("must be the name of a user of Redis, without blanks")
    return text


def _file_name(text: str) -> str:
    if not text or "/" in text or text in (".", ".."):
        raise ValueError("must be a file name, without a folder")
    return text


def _unit_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*\.service", text):
        raise ValueError("must be the name of a unit, ending in .service")
    return text


_KEYS: dict[str, Callable[[str], Any]] = {
    "max_ttl_ms": _whole(1_000, 86_400_000),
    "data_dir": _absolute,
    "unit": _unit_name,
    "append_dir": _file_name,
    "append_file": _file_name,
    "state_dir": _absolute,
    "textfile": _prom_file,
    "delay_ms": _whole(0, 7 * 86_400_000),
    # More would be let pass than the shortest lease gives away for drift.
    "clock_step_ms": _whole(1, 2),
    "socket": _absolute,
    "user": _user_name,
    "password_file": _absolute_or_none,
}
_REQUIRED = ("max_ttl_ms", "data_dir", "unit")


def read_config(path: str, only_check: bool = False) -> Config:
    """The configuration in that file. Raises ConfigError with all its mistakes, and unless it is only checked
    also when others than this user and root may write to it."""
    parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=("#", ";"))
    read = read_plain if only_check else read_own
    try:
        parser.read_string(read(Path(path).absolute(), MAX_CONFIG_BYTES).decode())
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise _config_error(path, [" ".join(str(error).split())]) from None
    if parser.sections() != ["guard"] or parser.defaults():
        raise _config_error(path, ["it must have one section, [guard]"])
    given = dict(parser["guard"])
    mistakes = [f"{key}: is missing" for key in _REQUIRED if key not in given]
    values: dict[str, Any] = {}
    for key, text in given.items():
        try:
            values[key] = _KEYS[key](text)
        except KeyError:
            mistakes.append(f"{key}: no such key; there are {', '.join(_KEYS)}")
        except ValueError as error:
            mistakes.append(f"{key}: {error}, not {text!r}")
    if mistakes:
        raise _config_error(path, mistakes)
    config = Config(**values)
    least_ns = quarantine_ns(config.max_ttl_ms)
    if 0 < config.delay_ms * NS_PER_MS < least_ns:
        least = f"at least {-(-least_ns // NS_PER_MS)} (max_ttl_ms x 1.01 + 1 s), or 0"
        raise _config_error(path, [f"delay_ms: must be {least}, not {config.delay_ms}"])
    return config


def _config_error(path: str, mistakes: list[str]) -> ConfigError:
    return ConfigError(
        f"{path}: {'; '.join(mistakes)}. Nothing was changed and Redis is not started. Mend the file"
        f" (`guard.py check --config {path}` reads it) and start the unit again"
    )


# The machine


@dataclass(frozen=True)
class Offset:
    """REALTIME - BOOTTIME as read at `at_ns` on BOOTTIME: certainly within [low_ns, high_ns]."""

    low_ns: int
    high_ns: int
    at_ns: int


# Sends commands in one go, and returns the answers, whatever Redis has for strings as text. Raises Unproven.
Ask = Callable[..., "list[Any]"]


class Host:
    """The machine that the guard runs on, apart from its files. Tests pass in another one."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.environ = environ

    def boottime_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Slewed as the wall clock is, and never stepped; stands still in suspend, as `raw_ns` does."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def raw_ns(self) -> int:
        """What nobody slews."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def sleep(self, seconds: float) -> None:
        """The clock of this pause stops in suspend: whoever waits looks at BOOTTIME afterwards."""
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
            raise Unproven("it had ended before it was asked")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as link:
            link.settimeout(ANSWER_WITHIN_S)
            link.connect(str(path))
            # Who listens there, or the password could be told to anybody, and he attest for another.
            pid, _, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if str(pid) != main_pid:
                raise Unproven(f"process {pid} listens on its socket, not its own ({main_pid})")
            yield RedisLink(link).ask

    def kill_main_process(self, unit: str) -> str:
        """SIGKILL to the main process of that unit. Returns what went wrong, or nothing."""
        # --kill-who is the name in systemd 249, and an abbreviation of today's --kill-whom.
        command = ["systemctl", "kill", "--kill-who=main", "--signal=KILL", unit]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return "" if done.returncode == 0 else " ".join(done.stderr.split()) or f"status {done.returncode}"

    def has_started(self, unit: str) -> bool:
        """True when it has told systemd that it is ready, its data loaded. False when that is not known."""
        command = ["systemctl", "is-active", "--quiet", unit]
        with suppress(OSError, subprocess.TimeoutExpired):
            return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
        return False

    def log(self, level: str, event: str, **values: object) -> None:
        """One line on stderr, as lockd's own. Never raises: a log that is gone must not stop the guard."""
        priority = {"info": "<6>", "warning": "<4>", "error": "<3>"}[level]
        words = "".join(f" {key}={_one_word(value)}" for key, value in values.items())
        prefix = priority if "JOURNAL_STREAM" in self.environ else ""
        with suppress(OSError):
            os.write(2, f"{prefix}level={level} event={event}{words}\n".encode(errors="replace"))


def _said(error: OSError) -> str:
    """An error about a file whose name may be anything, a terminal's commands too."""
    return str(error) if str(error).isascii() and str(error).isprintable() else _one_word(str(error))


def _one_word(value: object) -> str:
    text = str(value)
    return text if re.fullmatch(r"[A-Za-z0-9_.:/@+-]+", text) else json.dumps(text)


def read_offset(host: Host) -> Offset:
    """How far the wall clock is ahead of BOOTTIME."""
    return _offset(host.wall_ns, host.boottime_ns)


def read_slewing(host: Host) -> Offset:
    """How far clocks are ahead of the one that nobody slews, by slewing alone."""
    return _offset(host.monotonic_ns, host.raw_ns)


def _offset(of_ns: Callable[[], int], from_ns: Callable[[], int]) -> Offset:
    """A pause in between widens the bounds: it tries again."""
    best: Offset | None = None
    for _ in range(5):
        before_ns = from_ns()
        read_ns = of_ns()
        after_ns = from_ns()
        if best is None or after_ns - before_ns < best.high_ns - best.low_ns:
            best = Offset(read_ns - after_ns, read_ns - before_ns, after_ns)
        if best.high_ns - best.low_ns < NS_PER_MS // 10:
            break
    assert best is not None
    return best


def quarantine_ns(max_ttl_ms: int) -> int:
    """After this long, every lease that may have been granted before is over: max_ttl x 1.01 + 1 s."""
    return max_ttl_ms * NS_PER_MS * 101 // 100 + NS_PER_S


def allowed_rise_ns(clock_step_ms: int, elapsed_ns: int, longest_ns: int) -> int:
    """How much REALTIME - BOOTTIME may have risen in `elapsed_ns` without a step that could end a lease
    early. No lease is older than `longest_ns`, so drift adds up for no longer."""
    watched_ns = min(max(elapsed_ns, 0), longest_ns)
    return clock_step_ms * NS_PER_MS + watched_ns * DRIFT_PER_MILLE // 1000


# Files


class Untrusted(OSError):
    """Others than this user and root may write there: what it holds may be anybody's."""


_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_READ = os.O_RDONLY | _OPEN
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _OPEN


@contextmanager
def opened(path: Path | str, flags: int, folder: int | None = None, mode: int = 0) -> Iterator[int]:
    """That file, open, by its name in `folder` where one is given."""
    file = os.open(path, flags, mode, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def own_folder(path: Path) -> Iterator[int]:
    """That folder, open: nobody but this user and root can have put there what is in it, now or later, since
    it and all above it are theirs, and no link was followed. Raises Untrusted, OSError."""
    here = Path("/")
    folder = os.open(here, _FOLDER)
    try:
        for part in path.parts[1:]:
            _check_owner(folder, here, above=True)
            here /= part
            above, folder = folder, _open_below(folder, here)
            os.close(above)
        _check_owner(folder, here)
        yield folder
    finally:
        os.close(folder)


def _open_below(folder: int, path: Path) -> int:
    try:
        return os.open(path.name, _FOLDER, dir_fd=folder)
    except NotADirectoryError as error:
        raise OSError(error.errno, "Not a folder, or a link, which is not followed", str(path)) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _check_owner(file: int, path: Path, above: bool = False) -> None:
    """`above`: in a folder like /tmp others may add names, and can't touch ours."""
    seen = os.fstat(file)
    shared = seen.st_mode & 0o022 and not (above and seen.st_mode & stat.S_ISVTX)
    if shared or seen.st_uid not in (0, os.geteuid()):
        who = f"it is uid {seen.st_uid}'s, mode {stat.S_IMODE(seen.st_mode):04o}"
        raise Untrusted(errno.EPERM, f"Others than root may write to it ({who})", str(path))


@contextmanager
def plain_file(path: Path | str, folder: int | None = None) -> Iterator[int]:
    """That file, open for reading. Raises OSError when it is a link, a FIFO, a device …, and never waits."""
    with opened(path, _READ, folder) as file:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "Not a plain file", str(path))
        yield file


def read_plain(path: Path, max_bytes: int) -> bytes:
    """What that plain file holds. Raises OSError, also when it is larger."""
    with plain_file(path) as file:
        return _read_whole(file, path, max_bytes)


def read_own(path: Path, max_bytes: int) -> bytes:
    """The same of a file that nobody but this user and root may have written. Raises Untrusted, OSError."""
    with own_folder(path.parent) as folder, plain_file(path.name, folder) as file:
        _check_owner(file, path)
        return _read_whole(file, path, max_bytes)


def _read_whole(file: int, path: Path, max_bytes: int) -> bytes:
    data = b""
    while chunk := os.read(file, max_bytes + 1 - len(data)):
        data += chunk
        if len(data) > max_bytes:
            raise OSError(errno.EFBIG, f"More than {max_bytes} bytes", str(path))
    return data


class Disk:
    """The few things done to the guard's files. Each is one step, before or after which power may be cut, and
    each is done by a name in a folder that is ours alone at that very moment. Raises Untrusted otherwise."""

    def make_folder(self, path: Path) -> None:
        with own_folder(path.parent) as above, suppress(FileExistsError):
            os.mkdir(path.name, 0o700, dir_fd=above)

    def check_folder(self, path: Path) -> None:
        with own_folder(path):
            pass

    def read(self, path: Path) -> bytes:
        return read_own(path, MAX_RECORD_BYTES)

    def write(self, path: Path, data: bytes, mode: int, sync: bool = True) -> None:
        with own_folder(path.parent) as folder:
            # What an earlier process left half done, or anything else: its name is freed, it is never opened.
            with suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=folder)
            with opened(path.name, _MAKE, folder, mode) as file:
                os.fchmod(file, mode)
                view = memoryview(data)
                while view:
                    view = view[os.write(file, view) :]
                if sync:
                    os.fsync(file)

    def rename(self, source: Path, target: Path) -> None:
        """Within one folder."""
        with own_folder(source.parent) as folder:
            os.rename(source.name, target.name, src_dir_fd=folder, dst_dir_fd=folder)

    def unlink(self, path: Path) -> None:
        with own_folder(path.parent) as folder:
            os.unlink(path.name, dir_fd=folder)

    def sync_folder(self, path: Path) -> None:
        with own_folder(path) as folder:
            os.fsync(folder)

    @contextmanager
    def lock(self, path: Path, wait_s: float | None = None) -> Iterator[None]:
        """Hold that file's lock; the kernel frees it when this process ends. Raises Busy after `wait_s`."""
        with own_folder(path.parent) as folder:
            with suppress(FileExistsError), opened(path.name, _MAKE, folder, 0o600):
                pass
            # A lock needs no right to write.
            with plain_file(path.name, folder) as file:
                _check_owner(file, path)
                if wait_s is None:
                    fcntl.flock(file, fcntl.LOCK_EX)
                else:
                    self._lock_within(file, wait_s)
                yield

    def _lock_within(self, file: int, wait_s: float) -> None:
        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    raise Busy from None
            time.sleep(0.01)


Record = TypeVar("Record")
_KINDS: dict[str, type] = {"int": int, "str": str, "bool": bool, "dict": dict}


def encoded(record: Any) -> bytes:
    """A dataclass as a line of JSON."""
    return json.dumps({"version": FORMAT, **asdict(record)}, sort_keys=True).encode() + b"\n"


def decoded(kind: type[Record], data: bytes) -> Record:
    """The dataclass that was written there. What an earlier guard did not know has its default. Raises
    Unreadable when other fields are missing, or there are unknown ones."""
    try:
        document = json.loads(data)
        if document.pop("version") != FORMAT:
            raise Unreadable("another version wrote it")
        items = fields(kind)  # type: ignore[arg-type]
        wanted = {item.name: str(item.type).partition("[")[0] for item in items}
        needed = {item.name for item in items if item.default is MISSING and item.default_factory is MISSING}
        if not needed <= document.keys() <= wanted.keys():
            raise Unreadable("fields are missing, or there are unknown ones")
        for name, value in document.items():
            if type(value) is not _KINDS[wanted[name]]:
                raise Unreadable(f"{name} is a {type(value).__name__}")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise Unreadable(f"damaged ({error})") from None
    return kind(**document)


@dataclass(frozen=True)
class Permit:
    """Redis was let start. offset_ns: the wall clock's lead over BOOTTIME at most, at `at_ns`."""

    generation: int
    boot_id: str
    at_ns: int
    offset_ns: int
    longest_ttl_ms: int


@dataclass(frozen=True)
class Rest:
    """Redis was asked before its stop. fault: why that proves nothing; else all is in its file, and nobody's
    command is run until `until_ns`, on BOOTTIME."""

    generation: int
    boot_id: str
    until_ns: int
    fault: str


@dataclass(frozen=True)
class Marker:
    """Redis stopped cleanly, and left this data. The clock as in Permit."""

    generation: int
    host_id: str
    boot_id: str
    at_ns: int
    offset_ns: int
    synchronised: bool
    longest_ttl_ms: int
    data: dict[str, str]


@dataclass(frozen=True)
class Mark:
    """The data as it was when last seen: at least that is to be there. folders: their inodes; rewrites: how
    many the AOF has had; file: the last one in it, none when there is no data; `size` bytes of which were on
    disk, with that `tail`. ended: nobody writes to it since; else Redis does, and may begin or rewrite it.

    loaded: how large the file was when Redis was let start, 0 when that no longer matters: as it loads it, it
    may cut off a torn end.
    """

    host_id: str
    folders: str
    rewrites: int
    file: str
    inode: int
    size: int
    tail: str
    at_s: int = 0
    ended: bool = False
    loaded: int = 0


@dataclass(frozen=True)
class Override:
    """An operator wants the next start, or the one that waits now, not to wait. Good for one use."""

    boot_id: str
    at_ns: int
    by: str
    reason: str


def _no_quarantines() -> dict[str, int]:
    return {reason.value: 0 for reason in Reason}


@dataclass
class State:
    """What the guard remembers. It proves nothing: it says why, how long and how often.

    `reason` and `detail` say why a quarantine runs (phase 'quarantine'), or why the next start will have one
    (phase 'stopped'; empty after a clean stop). `revoked`: why the watch took the proofs away since.
    """

    generation: int = 0
    phase: str = "new"
    boot_id: str = ""
    reason: str = ""
    detail: str = ""
    revoked: str = ""
    until_ns: int = 0
    changed_at_s: int = 0
    longest_ttl_ms: int = 0
    overrides: int = 0
    steps_forward: int = 0
    steps_backward: int = 0
    moved_aside: int = 0
    # Where the latest of that is, and why.
    aside: str = ""
    # There was a mark: one that is gone was taken away.
    marked: bool = False
    quarantines: dict[str, int] = field(default_factory=_no_quarantines)


class StateFolder:
    """The guard's own files."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def prepare(self) -> None:
        """Make the folder when it isn't there. Raises GuardError when somebody else may write to it."""
        try:
            self._disk.make_folder(self.path)
            self._disk.check_folder(self.path)
        except Untrusted as error:
            raise _refusal(
                f"others than root could forge a clean stop in {self.path} ({error})",
                f"chown root: {error.filename} && chmod go-w {error.filename}",
            ) from None
        except OSError as error:
            raise _refusal(f"the state folder can't be used ({error})", "make it writable") from None

    def get(self, name: str, kind: type[Record]) -> Record | None:
        """What is in that file, None when it isn't there. Raises Unreadable."""
        try:
            return decoded(kind, self._disk.read(self.path / name))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreadable(str(error)) from None

    def get_if_readable(self, name: str, kind: type[Record]) -> Record | None:
        """None as well when it can't be read."""
        try:
            return self.get(name, kind)
        except Unreadable:
            return None

    def put(self, name: str, record: Any) -> None:
        """Write it so that after a power cut there is the old file or the new one, whole."""
        new = self.path / f".{name}.new"
        self._disk.write(new, encoded(record), 0o600)
        self._disk.rename(new, self.path / name)
        self._disk.sync_folder(self.path)

    def unlink(self, *names: str) -> None:
        """Take those files away, when they are there. A power cut may bring them back: see `remove`."""
        for name in names:
            with suppress(FileNotFoundError):
                self._disk.unlink(self.path / name)

    def remove(self, *names: str) -> None:
        """Take those files away for good. Synced also when none was there: whoever removed them may have
        died before that."""
        self.unlink(*names)
        self.sync()

    def sync(self) -> None:
        self._disk.sync_folder(self.path)

    def keep_damaged_state(self) -> None:
        """Set a damaged record aside for whoever wants to know."""
        with suppress(FileNotFoundError):
            self._disk.rename(self.path / STATE, self.path / f"{STATE}.damaged")

    def state(self) -> State | None:
        """The record, None on a host without one. Raises Unreadable."""
        state = self.get(STATE, State)
        if state is None:
            return None
        counts = state.quarantines
        if any(type(count) is not int for count in counts.values()):
            raise Unreadable("a count is no number")
        state.quarantines = {**_no_quarantines(), **counts}
        return state


def _refusal(what: str, then: str) -> GuardError:
    return GuardError(f"{what}. Redis is not started, and the next start waits in full. Next: {then}")


# The data


def data_fingerprint(config: Config, sync: bool = False) -> dict[str, str]:
    """What the AOF is now, file by file. Raises OSError when there is none, or it can't be read.

    Redis 7 keeps a folder (a manifest and what it names; nothing else lives there), earlier ones a file. The
    time of the last inode change can't be set by anybody, so a file that was restored shows. The tail is
    read as well: a disk that lies may keep a size and lose what was written last. With `sync`, each file is
    synced before: a disk that can't is no place for a clean stop.

    All of it is Redis's, so it may be anything: see `plain_file`. Reading is bounded whatever the sizes.
    """
    with opened(config.data_dir, _FOLDER & ~os.O_NOFOLLOW) as data:
        if _is_there(config.append_dir, data):
            with opened(config.append_dir, _FOLDER, data) as folder:
                if _is_there(f"{config.append_file}.manifest", folder):
                    return {".": f"{_inode(data)} {_inode(folder)}", **_of_folder(folder, sync)}
        return {".": _inode(data), config.append_file: _of_file(config.append_file, data, sync)}


def _inode(file: int) -> str:
    return str(os.fstat(file).st_ino)


def _is_there(name: str | Path, folder: int | None = None) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=folder is None)
    except FileNotFoundError:
        return False
    return True


def _of_folder(folder: int, sync: bool) -> dict[str, str]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, MAX_AOF_FILES + 1))
    if len(names) > MAX_AOF_FILES:
        raise OSError(errno.E2BIG, f"More than {MAX_AOF_FILES} files")
    found = {name: _of_file(name, folder, sync) for name in names}
    if sync:
        os.fsync(folder)
    return found


def _of_file(name: str, folder: int, sync: bool) -> str:
    with plain_file(name, folder) as file:
        if sync:
            os.fsync(file)
        seen = os.fstat(file)
        tail = os.pread(file, TAIL_BYTES, max(0, seen.st_size - TAIL_BYTES))
        facts = _facts(seen)
        if _facts(os.fstat(file)) != facts:
            raise OSError(errno.EBUSY, "It changes while it is read", name)
    return f"{facts} {hashlib.sha256(tail).hexdigest()}"


def _facts(seen: os.stat_result) -> str:
    return f"{seen.st_ino} {seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns}"


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Which files differ, for an operator; nothing when none does."""
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if "." in names:
        return "the data folder is another one"
    shown = ", ".join(map(_one_word, names[:3])) + (" and others" if len(names) > 3 else "")
    return f"not as Redis left it: {shown}" if names else ""


@dataclass(frozen=True)
class Aof:
    """Which files Redis would load. rewrites: the number of the base; files: the base, when there is one, and
    those that are written to, in their order; none at all where Redis would begin empty."""

    folders: str
    rewrites: int
    files: tuple[str, ...]

    @property
    def data_folder(self) -> str:
        return self.folders.partition(" ")[0]

    @property
    def in_one_file(self) -> bool:
        """As before Redis 7."""
        return " " not in self.folders


@contextmanager
def opened_aof(config: Config) -> Iterator[tuple[Aof, int]]:
    """What the AOF is, and the folder with its files. Raises OSError, also for what is none of Redis's."""
    if not _is_there(config.data_dir):
        yield Aof("", 0, ()), -1
        return
    with opened(config.data_dir, _FOLDER & ~os.O_NOFOLLOW) as data:
        if _is_there(config.append_dir, data):
            with opened(config.append_dir, _FOLDER, data) as folder:
                manifest = f"{config.append_file}.manifest"
                if _is_there(manifest, folder):
                    with plain_file(manifest, folder) as file:
                        text = _read_whole(file, Path(manifest), MAX_RECORD_BYTES)
                    yield _aof_of(text, f"{_inode(data)} {_inode(folder)}"), folder
                    return
        in_one_file = _is_there(config.append_file, data)
        yield Aof(_inode(data), 0, (config.append_file,) if in_one_file else ()), data


_MANIFEST_LINE = re.compile(rb"file ([A-Za-z0-9_.-]{1,255}) seq ([0-9]{1,18}) type ([bhi])(?: .*)?")


def _aof_of(manifest: bytes, folders: str) -> Aof:
    lines = [_MANIFEST_LINE.fullmatch(line) for line in manifest.splitlines() if line.strip()]
    found = [(int(line[2]), line[1].decode(), line[3]) for line in lines if line is not None]
    bases = sorted((seq, name) for seq, name, kind in found if kind == b"b")[-1:]
    # None where Redis 7 has just put 6.2's file into a folder: it is the base then.
    appended = sorted((seq, name) for seq, name, kind in found if kind == b"i")
    if len(found) < len(lines) or not bases + appended:
        raise OSError(errno.EINVAL, "Not a manifest of Redis's")
    return Aof(folders, bases[0][0] if bases else 0, tuple(name for _, name in bases + appended))


def data_mark(config: Config, host_id: str, at_s: int, *, ended: bool, loading: bool = False) -> Mark:
    """The data as it is now on disk. `loading`: Redis may yet cut off a torn end. Raises OSError."""
    with opened_aof(config) as (aof, folder):
        if not aof.files:
            return Mark(host_id, aof.folders, 0, "", 0, 0, "", at_s, ended)
        name = aof.files[-1]
        with plain_file(name, folder) as file:
            # The size first: what is written meanwhile may not be on disk.
            whole = os.fstat(file).st_size
            os.fsync(file)
            os.fsync(folder)
            size = max(0, whole - TORN_BYTES) if loading else whole
            inode, tail = os.fstat(file).st_ino, _tail(file, size)
    loaded = whole if loading else 0
    return Mark(host_id, aof.folders, aof.rewrites, name, inode, size, tail, at_s, ended, loaded)


def _tail(file: int, size: int) -> str:
    begins = max(0, size - TAIL_BYTES)
    return hashlib.sha256(os.pread(file, size - begins, begins)).hexdigest()


def why_not_ours(config: Config, mark: Mark, host_id: str) -> str:
    """Why this data is not what was last seen here, or came of it; nothing when it is, or when there is none.
    Raises OSError."""
    with opened_aof(config) as (aof, folder):
        if not aof.files:
            return ""
        if mark.host_id != host_id:
            return "it was written on another machine"
        noted = Aof(mark.folders, mark.rewrites, (mark.file,))
        if aof.data_folder != noted.data_folder:
            return "its folder is another one"
        if not mark.file:
            none = "there was none when Redis was last seen"
            return none if mark.ended else _why_from_before(aof, folder, mark)
        if noted.in_one_file and not aof.in_one_file:
            return _why_not_upgraded(aof, folder, mark)
        if aof.folders != mark.folders:
            return "its folder is another one"
        if mark.file not in aof.files:
            return _why_no_rewrite(aof, folder, mark)
        return _why_not_grown(aof, mark.file, folder, mark)


def _why_not_upgraded(aof: Aof, folder: int, mark: Mark) -> str:
    """Redis 7 puts 6.2's file into a folder, as the base, before it does anything else."""
    if aof.rewrites > 1:
        return _why_no_rewrite(aof, folder, mark)
    return _why_not_grown(aof, aof.files[0], folder, mark)


def _why_not_grown(aof: Aof, name: str, folder: int, mark: Mark) -> str:
    with plain_file(name, folder) as file:
        seen = os.fstat(file)
        if seen.st_ino != mark.inode:
            # What a rewrite makes has a number since Redis 7, and never the same one again.
            return _why_no_rewrite(aof, folder, mark) if aof.in_one_file else f"{name} is another file"
        if seen.st_size < mark.size:
            return f"{name} is shorter than it was: {seen.st_size} bytes of {mark.size}"
        return "" if _tail(file, mark.size) == mark.tail else f"{name} is not what Redis wrote"


def _why_no_rewrite(aof: Aof, folder: int, mark: Mark) -> str:
    """Why other files than the one that was noted are not its rewrite."""
    if mark.ended or (aof.rewrites <= mark.rewrites and not aof.in_one_file):
        return "it is older, or another's"
    return _why_from_before(aof, folder, mark)


def _why_from_before(aof: Aof, folder: int, mark: Mark) -> str:
    """What Redis has begun since the note is no older; who restores files often keeps their times."""
    with plain_file(aof.files[0], folder) as file:
        is_older = os.fstat(file).st_mtime < mark.at_s - REWRITE_SLACK_S
    return f"{aof.files[0]} is from before it was last seen" if is_older else ""


# What says for certain that these are no files of Redis's making. Anything else may pass.
_NOT_REDIS = (errno.ENOENT, errno.EINVAL, errno.ELOOP, errno.ENOTDIR, errno.EFBIG, errno.ENXIO)


def move_aside(config: Config, suffix: str) -> str:
    """Take the data out of Redis's way, by names that it does not load. Returns the names. Raises OSError."""
    moved = []
    with opened(config.data_dir, _FOLDER & ~os.O_NOFOLLOW) as data:
        for name in (config.append_dir, config.append_file):
            if _is_there(name, data):
                aside = f"{name}.aside-{suffix}"
                if _is_there(aside, data):
                    raise OSError(errno.EEXIST, "It is there already", aside)
                os.rename(name, aside, src_dir_fd=data, dst_dir_fd=data)
                moved.append(aside)
        os.fsync(data)
    return ", ".join(moved)


# What a clean stop rests on


class RedisLink:
    """A connection to Redis. It may be anybody's by now: what it answers is bounded, in bytes and in time."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._left = b""
        self._taken = 0
        self._deadline_s = 0.0

    def ask(self, *commands: Sequence[str]) -> list[Any]:
        """Raises Unproven, also for an answer that is an error."""
        self._left, self._taken = b"", 0
        self._deadline_s = time.monotonic() + ANSWER_WITHIN_S
        try:
            self._link.sendall(b"".join(map(_encoded, commands)))
            return [self._answer(depth=0) for _ in commands]
        except ValueError:
            raise Unproven("it answers what Redis would not") from None
        except OSError as error:
            raise Unproven(f"it does not answer ({error})") from None

    def _answer(self, depth: int) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == "-":
            raise Unproven(f"it answers {_one_word(rest[:200])}")
        if kind == "*" and depth < 2:
            return [self._answer(depth + 1) for _ in range(_count(rest, MAX_ANSWER_WORDS))]
        if kind == "$":
            return self._bytes(_count(rest, MAX_ANSWER_BYTES) + 2)[:-2].decode(errors="replace")
        if kind in ("+", ":"):
            return rest
        raise ValueError(line)

    def _line(self) -> str:
        while b"\r\n" not in self._left:
            self._receive()
        line, _, self._left = self._left.partition(b"\r\n")
        return line.decode(errors="replace")

    def _bytes(self, count: int) -> bytes:
        while len(self._left) < count:
            self._receive()
        found, self._left = self._left[:count], self._left[count:]
        return found

    def _receive(self) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._link.settimeout(left_s)
        chunk = self._link.recv(MAX_ANSWER_BYTES)
        self._taken += len(chunk)
        if not chunk or self._taken > MAX_ANSWER_BYTES:
            raise OSError("it hung up" if not chunk else f"more than {MAX_ANSWER_BYTES} bytes")
        self._left += chunk


def _encoded(command: Sequence[str]) -> bytes:
    words = [word.encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _count(text: str, most: int) -> int:
    count = int(text)
    if not 0 <= count <= most:
        raise ValueError(text)
    return count


# With these, all that Redis answered is in its file when it ends well. Agents ask the same of it (rule 14).
_KEPT = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
# While the first rewrite after an `appendonly no` isn't over, its file lacks what came in between.
_NO_REWRITE = {"aof_rewrite_in_progress": "0", "aof_rewrite_scheduled": "0"}
_SOUND = {"loading": "0", "aof_enabled": "1"}
_WRITTEN = {"aof_last_bgrewrite_status": "ok", "aof_last_write_status": "ok"}
_PERSISTENCE = ("INFO", "persistence")


def rewrites(ask: Ask) -> bool:
    """True while Redis writes its file anew, or is about to. Raises Unproven."""
    [text] = ask(_PERSISTENCE)
    return bool(_unlike(_NO_REWRITE, _of_info(text)))


def have_rest(ask: Ask, data_dir: str) -> None:
    """In one transaction, look whether a clean stop of Redis now would be one, and have everybody wait: for
    ALL, or settings could still be changed. Raises Unproven."""
    looks = [("CONFIG", "GET", name) for name in (*_KEPT, "dir")]
    rest = ("CLIENT", "PAUSE", str(REST_MS), "ALL")
    *_, found = ask(("MULTI",), *looks, _PERSISTENCE, rest, ("EXEC",))
    try:
        *settings, persistence, rests = found
        # A master of another folder leaves its file where nobody looks.
        unlike = _unlike({**_KEPT, "dir": data_dir}, dict(settings))
        unlike = unlike or _unlike({**_SOUND, **_NO_REWRITE, **_WRITTEN}, _of_info(persistence))
    except (TypeError, ValueError):
        raise Unproven("it answers what Redis would not") from None
    if unlike or rests != "OK":
        raise Unproven(unlike or "it does not rest")


def _of_info(text: str) -> dict[str, str]:
    if type(text) is not str:
        raise Unproven("it answers what Redis would not")
    lines = [line.partition(":") for line in text.splitlines()]
    return {name: value for name, _, value in lines}


def _unlike(wanted: Mapping[str, str], found: Mapping[Any, Any]) -> str:
    """The first that is not as it should be, for an operator; nothing when all are."""
    for name, value in wanted.items():
        if found.get(name) != value:
            return f"{name} is {_one_word(str(found.get(name))[:200])}, not {value}"
    return ""


# Metrics


def metrics_text(state: State, *, quarantined: bool, until_s: float, delay_s: float, marked_s: float) -> str:
    """What node_exporter's textfile collector reads."""
    reasons = {f'{{reason="{reason.value}"}}': state.quarantines[reason.value] for reason in Reason}
    steps = {'{direction="forward"}': state.steps_forward, '{direction="backward"}': state.steps_backward}
    families: list[tuple[str, str, str, Mapping[str, float]]] = [
        ("quarantined", "gauge", "1 while Redis waits to be let start.", {"": int(quarantined)}),
        (
            "quarantine_until_timestamp_seconds",
            "gauge",
            "When the quarantine ends, by the wall clock; 0 when there is none.",
            {"": until_s},
        ),
        ("quarantines_total", "counter", "Starts of Redis that had to wait, and why.", reasons),
        ("delay_seconds", "gauge", "How long a quarantine takes.", {"": delay_s}),
        ("overrides_total", "counter", "Quarantines that an operator cut short.", {"": state.overrides}),
        ("clock_steps_total", "counter", "Steps of the wall clock that the watch saw.", steps),
        (
            "data_moved_aside_total",
            "counter",
            "Starts that found data of another, or older or shorter than it was, and moved it aside.",
            {"": state.moved_aside},
        ),
        (
            "data_marked_timestamp_seconds",
            "gauge",
            "When it was last noted what Redis has written, by the wall clock; 0 while Redis is not let run.",
            {"": marked_s},
        ),
    ]
    lines = []
    for name, kind, text, samples in families:
        name = f"redis_lock_guard_{name}"
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{labels} {value:.15g}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"


# The guard


class Guard:
    """What happens at a start (`enter`), at a stop (`leave`), and what operators ask for."""

    def __init__(self, config: Config, host: Host | None = None, disk: Disk | None = None) -> None:
        self.config = config
        self.host = host or Host()
        self.disk = disk or Disk()
        self.folder = StateFolder(self.disk, config.state_dir)

    # A start

    def enter(self) -> None:
        """Return when Redis may start. Raises GuardError, or Interrupted, when it may not."""
        self.folder.prepare()
        try:
            with self._lock(ENTER_LOCK, 5.0):
                self._enter()
        except Busy:
            raise _refusal(
                "another `enter` runs already", "`guard.py status`; stop the one by hand"
            ) from None
        except OSError as error:
            raise _refusal(
                f"the guard's files can't be changed ({error})",
                f"mend {self.config.state_dir} (is its disk full, read-only or failing?)",
            ) from None

    def _enter(self) -> None:
        with self._lock(STATE_LOCK):
            marker, permit, unsound = self._consume()
            offset = read_offset(self.host)
            state, dirt = self._weigh(marker, unsound, offset)
            delay_ns = self._note_longest(state, marker, permit)
            if dirt is not None:
                dirt = self._without_foreign_data(state, dirt)
                self._note_data(state, ended=True)
            if dirt is None:
                self._discard_override()
                self._admit(state, offset)
            else:
                until_ns = self.host.boottime_ns() + delay_ns
                self._begin_quarantine(state, dirt, until_ns)
        if dirt is None:
            self._say_admitted("clean stop, no quarantine")
            return
        overridden = self._sit_out(dirt, until_ns)
        with self._lock(STATE_LOCK):
            self._end_quarantine(overridden)
        self._say_admitted(f"quarantine {'cut short by an operator' if overridden else 'is over'}")

    def _consume(self) -> tuple[Marker | None, Permit | None, str]:
        """Take the proofs: before anything is done with them they are gone for good.

        Returns what they said, and why the marker is no marker when it isn't one.
        """
        marker, permit, unsound = None, None, ""
        try:
            marker = self.folder.get(MARKER, Marker)
        except Unreadable as error:
            unsound = str(error)
        permit = self.folder.get_if_readable(PERMIT, Permit)
        self.folder.remove(MARKER, PERMIT, REST)
        return marker, permit, unsound

    def _weigh(self, marker: Marker | None, unsound: str, offset: Offset) -> tuple[State, Dirt | None]:
        """The state to go on with, and why this start is dirty, None when it is proven clean."""
        try:
            state = self.folder.state()
        except Unreadable as error:
            self.folder.keep_damaged_state()
            return State(), Dirt(Reason.STATE_UNREADABLE, f"{STATE} is {error}")
        if unsound:
            return state or State(), Dirt(Reason.MARKER_INVALID, unsound)
        if state is None and marker is not None:
            return State(), Dirt(Reason.STATE_UNREADABLE, f"{STATE} is gone, the marker is not")
        if marker is None:
            return state or State(), why_no_marker(state)
        assert state is not None
        return state, self._unsound_marker(marker, state, offset)

    def _unsound_marker(self, marker: Marker, state: State, offset: Offset) -> Dirt | None:
        if marker.generation != state.generation:
            return Dirt(Reason.MARKER_INVALID, "it is not that of the latest stop")
        if marker.host_id != self.host.host_id():
            return Dirt(Reason.OTHER_HOST, "it was written on another machine")
        return self._changed_data(marker) or self._stepped_clock(marker, offset)

    def _changed_data(self, marker: Marker) -> Dirt | None:
        try:
            changed = difference(marker.data, data_fingerprint(self.config))
        except OSError as error:
            changed = f"the AOF can't be read ({_said(error)})"
        return Dirt(Reason.DATA_CHANGED, changed) if changed else None

    def _stepped_clock(self, marker: Marker, offset: Offset) -> Dirt | None:
        """Has the wall clock gone further since the stop than time itself?

        Where the offset has not risen, it has not, whatever was booted in between: after a reboot BOOTTIME
        began anew, so it shows less time than has passed, never more.
        """
        rise_ns = self._unexplained_rise_ns(marker, offset)
        if rise_ns <= 0:
            return None
        if marker.boot_id == self.host.boot_id():
            return Dirt(Reason.CLOCK_STEP, f"forward by {rise_ns / NS_PER_S:.3f} s since the stop")
        if marker.synchronised and self.host.clock_synchronised():
            return None
        return Dirt(Reason.CLOCK_UNPROVEN, "rebooted, and the clock was not synchronised then or is not now")

    def _unexplained_rise_ns(self, then: Marker | Permit, now: Offset) -> int:
        """How much the wall clock certainly gained on BOOTTIME since `then`; 0 when that may be drift."""
        longest_ns = quarantine_ns(max(then.longest_ttl_ms, self.config.max_ttl_ms))
        allowed_ns = allowed_rise_ns(self.config.clock_step_ms, now.at_ns - then.at_ns, longest_ns)
        rise_ns = now.low_ns - then.offset_ns
        return rise_ns if rise_ns > allowed_ns else 0

    # What the data was

    def _without_foreign_data(self, state: State, dirt: Dirt) -> Dirt:
        """Data that is not what was last seen here is moved aside: the master comes up blank."""
        why = self._why_foreign(state)
        if not why:
            return dirt
        suffix = str(self.host.wall_ns())
        state.moved_aside += 1
        state.aside = f"{self.config.data_dir}/*.aside-{suffix} ({why})"
        # First: who dies after it has moved a part finds the rest as foreign as before.
        self.folder.put(STATE, state)
        try:
            aside = move_aside(self.config, suffix)
        except OSError as error:
            raise _refusal(
                f"its data is not what it was ({why}), and can't be moved aside ({_said(error)})",
                f"move it out of {self.config.data_dir} yourself, and never back",
            ) from None
        self.host.log("error", "data_moved_aside", why=why, to=aside)
        return Dirt(dirt.reason, f"{dirt.detail}; its data was moved aside, admit it as a new one: {why}")

    def _why_foreign(self, state: State) -> str:
        """What shows that the data is not what this master wrote here; nothing when nothing does. What can't
        be read shows nothing: then this refuses, and systemd tries again."""
        try:
            mark = self.folder.get(MARK, Mark)
        except Unreadable as error:
            raise _refusal(
                f"what its data was can't be read ({MARK} is {error})",
                f"if that stays so: remove {self.folder.path / MARK}, which gives this master's data up. It"
                " is moved aside then, and the master is blank, to be admitted as a new one",
            ) from None
        if mark is not None:
            why = self._why_not_ours(mark)
            return "" if not why or self._came_back() else why
        with self._reading_data():
            data = self._seen_data(ended=True)
        # The first start with a guard that takes marks knows nothing of what was there before.
        known = state.generation > 0 and not state.marked
        return "" if not data.file or known else "nothing says that it was written here"

    def _why_not_ours(self, mark: Mark) -> str:
        with self._reading_data():
            try:
                return why_not_ours(self.config, mark, self.host.host_id())
            except OSError as error:
                if error.errno not in _NOT_REDIS:
                    raise
                return f"Redis has not written this ({_said(error)})"

    @contextmanager
    def _reading_data(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _refusal(
                f"its data can't be compared with what it was ({_said(error)})",
                f"nothing, if it passes: systemd tries again. Else mend the disk of {self.config.data_dir}",
            ) from None

    def _came_back(self) -> bool:
        """Is it the data that was gone at an earlier start?"""
        try:
            gone = self.folder.get(PREVIOUS_MARK, Mark)
        except Unreadable as error:
            self.host.log("error", "no_previous_mark", why=error)
            return False
        if gone is None or self._why_not_ours(gone):
            return False
        self.host.log("warning", "data_back", why="it is what was here before it was gone")
        return True

    def _note_data(self, state: State, *, ended: bool) -> None:
        """What is there now, at a start. Raises OSError."""
        with self._reading_data():
            now = self._seen_data(ended=ended, loading=not ended)
        before = self.folder.get_if_readable(MARK, Mark)
        if before is not None and before.file and not now.file:
            self.folder.put(PREVIOUS_MARK, before)
            self.host.log("error", "data_gone", why="moved aside, removed, or its disk is not mounted")
        self.folder.put(MARK, now)
        state.marked = True

    def _seen_data(self, *, ended: bool, loading: bool = False) -> Mark:
        at_s = self.host.wall_ns() // NS_PER_S
        return data_mark(self.config, self.host.host_id(), at_s, ended=ended, loading=loading)

    def mark_data(self) -> str:
        """While Redis is in service: note what is on disk. Returns why not, when it is not what Redis wrote:
        it was put there meanwhile, and the older note stays. Raises OSError."""
        before = self._in_service()
        if before is None:
            return ""
        # Not under the lock: a slow disk must not hold up anybody.
        now, why = self._seen_since(self.folder.get_if_readable(MARK, Mark), ended=False)
        if why:
            return why
        with self._lock(STATE_LOCK):
            # Only what Redis itself wrote counts, and not what somebody put there when it had ended.
            if self._in_service() == before:
                self.folder.put(MARK, now)
        return ""

    def _seen_since(self, mark: Mark | None, *, ended: bool) -> tuple[Mark, str]:
        """The data now, and why it is not what came of what was noted; looked at first, then compared: what
        is put there in between is not noted. Raises OSError."""
        now = self._seen_data(ended=ended)
        if mark is None:
            return now, ""
        if mark.file and not now.file:
            return now, "it is gone"
        why = why_not_ours(self.config, mark, self.host.host_id())
        if not ended and self._may_be_loading(mark, now):
            now = replace(mark, at_s=now.at_s)
        return now, why

    def _may_be_loading(self, mark: Mark, now: Mark) -> bool:
        untouched = mark.loaded > 0 and (mark.inode, mark.loaded) == (now.inode, now.size)
        return untouched and not self.host.has_started(self.config.unit)

    def awaits_data(self) -> bool:
        """True while the last note says that there is none."""
        mark = self.folder.get_if_readable(MARK, Mark)
        return mark is not None and not mark.file

    def _in_service(self) -> int | None:
        """The generation of the start that has a permit in this boot; None when none has."""
        permit = self.folder.get_if_readable(PERMIT, Permit)
        if permit is None or permit.boot_id != self.host.boot_id():
            return None
        return permit.generation if permit.generation == self.generation() else None

    def _mark_at_the_end(self) -> str:
        """What Redis left, however it ended. An older note is as good when that fails. Returns why it is not
        noted when Redis did not write it."""
        try:
            now, why = self._seen_since(self.folder.get_if_readable(MARK, Mark), ended=True)
            if not why:
                self.folder.put(MARK, now)
        except OSError as error:
            self.host.log("warning", "no_mark", why=_said(error))
            return ""
        if why:
            self.host.log("error", "data_replaced", why=why)
        return why

    def _note_longest(self, state: State, marker: Marker | None, permit: Permit | None) -> int:
        """The delay: for the largest max TTL that is known of, since leases of that length may live."""
        known = [self.config.max_ttl_ms, state.longest_ttl_ms]
        known += [proof.longest_ttl_ms for proof in (marker, permit) if proof is not None]
        state.longest_ttl_ms = max(known)
        return self.config.quarantine_ns(state.longest_ttl_ms)

    def _begin_quarantine(self, state: State, dirt: Dirt, until_ns: int) -> None:
        self._turn(state, "quarantine", dirt)
        state.until_ns = until_ns
        state.quarantines[dirt.reason.value] += 1
        self.folder.put(STATE, state)
        self.write_metrics()
        delay_s = (until_ns - self.host.boottime_ns()) / NS_PER_S
        self.host.log(
            "warning",
            "quarantine",
            reason=dirt.reason.value,
            detail=dirt.detail,
            delay_s=f"{delay_s:.1f}",
            max_ttl_ms=state.longest_ttl_ms,
        )

    def _sit_out(self, dirt: Dirt, until_ns: int) -> Override | None:
        """Return when the quarantine is over, or with the override that ended it."""
        written_ns = self.host.boottime_ns()
        while True:
            now_ns = self.host.boottime_ns()
            left_ns = until_ns - now_ns
            if left_ns <= 0:
                return None
            override = self._take_override()
            if override is not None:
                return override
            self.host.status(f"quarantined: {-(-left_ns // NS_PER_S)} s left ({dirt})")
            if now_ns - written_ns >= METRICS_EVERY_NS:
                self.write_metrics()
                written_ns = now_ns
            self.host.sleep(min(1.0, left_ns / NS_PER_S))

    def _end_quarantine(self, overridden: Override | None) -> None:
        try:
            state = self.folder.state()
        except Unreadable as error:
            raise OSError(f"{STATE} is {error}") from None
        if state is None:
            raise OSError(f"{STATE} has gone")
        self._look_again()
        if overridden is None:
            # Whatever was longer than today's max TTL is over now.
            state.longest_ttl_ms = self.config.max_ttl_ms
        else:
            state.overrides += 1
            self.host.log("warning", "overridden", by=overridden.by, reason=overridden.reason)
        self._admit(state, read_offset(self.host))

    def _look_again(self) -> None:
        """A quarantine is long enough for somebody to put other data there."""
        mark = self.folder.get_if_readable(MARK, Mark)
        why = self._why_not_ours(mark) if mark else "the note of it is gone"
        if why:
            raise _refusal(
                f"its data was changed during its quarantine ({why})", "nothing: it begins anew by itself"
            )

    def _admit(self, state: State, offset: Offset) -> None:
        """The permit comes last: without it the next stop is a dirty one."""
        self._note_data(state, ended=False)
        self._turn(state, "in_service", None)
        self.folder.put(STATE, state)
        self.write_metrics()
        permit = Permit(state.generation, state.boot_id, offset.at_ns, offset.high_ns, state.longest_ttl_ms)
        self.folder.put(PERMIT, permit)

    def _say_admitted(self, text: str) -> None:
        self.host.status(f"let start: {text}")
        self.host.log("info", "let_start", why=text)

    # A stop

    def stop(self) -> None:
        """Before Redis is told to stop: have it rest, and note that, or why not. Raises GuardError."""
        self.folder.prepare()
        generation = self._in_service()
        if generation is None:
            self.host.log("warning", "not_asked", why="there is no permit: this stop is no clean one")
            return
        until_ns, fault = self._rest()
        rest = Rest(generation, self.host.boot_id(), until_ns, fault)
        try:
            with self._lock(STATE_LOCK):
                self.folder.put(REST, rest)
        except OSError as error:
            raise GuardError(
                f"that Redis rests can't be written down ({error}). That is safe: the next start waits in"
                f" full. Next: mend {self.config.state_dir} (is its disk full, read-only or failing?)"
            ) from None
        self.host.log("warning" if fault else "info", "asked_before_stop", why=fault or "all is in its file")

    def _rest(self) -> tuple[int, str]:
        """Until when Redis rests, or why it was not found to be well."""
        try:
            with self.host.asking_redis(self.config.socket) as ask:
                self._say_who_asks(ask)
                self._wait_for_rewrites(ask)
                until_ns = self.host.boottime_ns() + RELIED_ON_NS
                have_rest(ask, os.path.realpath(self.config.data_dir))
                return until_ns, ""
        except (Unproven, OSError) as error:
            return 0, _said(error) if isinstance(error, OSError) else str(error)

    def _say_who_asks(self, ask: Ask) -> None:
        if self.config.password_file is not None:
            ask(
                (
                    "AUTH",
                    self.config.user,
                    read_own(self.config.password_file, 1_000).decode(errors="replace").strip(),
                )
            )

    def _wait_for_rewrites(self, ask: Ask) -> None:
        """An ordinary one is no fault, and soon over. From here it can't be told from one that is."""
        ends_ns = self.host.boottime_ns() + REWRITE_WITHIN_NS
        while rewrites(ask) and self.host.boottime_ns() < ends_ns:
            self.host.sleep(LOOK_AGAIN_S)

    def leave(self) -> None:
        """Write the marker when this stop was clean, and why it was not otherwise. Raises GuardError."""
        self.folder.prepare()
        try:
            with self._lock(STATE_LOCK):
                dirt = self._leave()
        except OSError as error:
            raise GuardError(
                f"the stop can't be written down ({error}). That is safe: the next start waits in full. Next:"
                f" mend {self.config.state_dir} (is its disk full, read-only or failing?)"
            ) from None
        level = "warning" if dirt else "info"
        self.host.log(level, "stopped", clean="no" if dirt else "yes", why=dirt or "clean stop")

    def _leave(self) -> Dirt | None:
        permit, unsound = None, ""
        try:
            permit = self.folder.get(PERMIT, Permit)
        except Unreadable as error:
            unsound = f"the permit is {error}"
        rest, restless = None, "it ended without systemd's having been told to stop it"
        try:
            rest = self.folder.get(REST, Rest)
        except Unreadable as error:
            restless = f"the note of it is {error}"
        # The marker as well: none of an earlier stop may outlive this one.
        self.folder.remove(PERMIT, REST, MARKER)
        try:
            state = self.folder.state() or State()
        except Unreadable as error:
            # Left as it is, for the next enter to see.
            return Dirt(Reason.STATE_UNREADABLE, f"{STATE} is {error}")
        offset = read_offset(self.host)
        dirt = self._unclean(permit, unsound, state, offset) or self._restless(rest, restless, state)
        if permit is not None and permit.generation == state.generation:
            replaced = self._mark_at_the_end()
            if replaced and dirt is None:
                dirt = Dirt(Reason.DATA_CHANGED, f"not by Redis: {replaced}")
        data: dict[str, str] = {}
        if dirt is None:
            try:
                data = data_fingerprint(self.config, sync=True)
            except OSError as error:
                dirt = Dirt(Reason.DATA_CHANGED, f"the AOF could not be synced ({_said(error)})")
        self._turn(state, "stopped", dirt)
        self.folder.put(STATE, state)
        self.write_metrics()
        if dirt is None:
            self.folder.put(MARKER, self._marker(state, offset, data))
        return dirt

    def _marker(self, state: State, offset: Offset, data: dict[str, str]) -> Marker:
        return Marker(
            generation=state.generation,
            host_id=self.host.host_id(),
            boot_id=state.boot_id,
            at_ns=offset.at_ns,
            offset_ns=offset.high_ns,
            synchronised=self.host.clock_synchronised(),
            longest_ttl_ms=state.longest_ttl_ms,
            data=data,
        )

    def _unclean(self, permit: Permit | None, unsound: str, state: State, offset: Offset) -> Dirt | None:
        """Why this stop is not clean, None when it is."""
        ended = how_it_ended(self.host.environ)
        if state.revoked:
            return Dirt(Reason.CLOCK_STEP, state.revoked)
        if permit is None:
            return without_permit(state, ended, unsound)
        if permit.boot_id != self.host.boot_id() or permit.generation != state.generation:
            return Dirt(Reason.NO_MARKER, "the permit was of an earlier start")
        if ended:
            return Dirt(Reason.UNCLEAN_STOP, ended)
        rise_ns = self._unexplained_rise_ns(permit, offset)
        if rise_ns:
            return Dirt(Reason.CLOCK_STEP, f"forward by {rise_ns / NS_PER_S:.3f} s since the start")
        return None

    def _restless(self, rest: Rest | None, restless: str, state: State) -> Dirt | None:
        """Why its file may not hold all that Redis was told, None when it does."""
        if rest is None:
            return Dirt(Reason.SETTINGS_UNPROVEN, restless)
        if rest.boot_id != self.host.boot_id() or rest.generation != state.generation:
            return Dirt(Reason.SETTINGS_UNPROVEN, "it was last asked at an earlier stop")
        if rest.fault:
            return Dirt(Reason.SETTINGS_UNPROVEN, rest.fault)
        if self.host.boottime_ns() > rest.until_ns:
            return Dirt(Reason.SETTINGS_UNPROVEN, "it ended long after it was asked")
        return None

    # A step of the clock

    def revoke(self, step_ns: int, stop_redis: Callable[[], None]) -> int | None:
        """The wall clock went forward: no proof is good any more, then `stop_redis`, then the books.

        Returns the generation of the permit that was taken away, None when there was none. Raises OSError.
        """
        try:
            with self._lock(STATE_LOCK, 0.1):
                return self._revoke(step_ns, stop_redis)
        except Busy:
            # Somebody's slow disk must not keep Redis alive. Enter and leave compare the clocks themselves.
            stop_redis()
        with self._lock(STATE_LOCK):
            return self._revoke(step_ns, lambda: None)

    def _revoke(self, step_ns: int, stop_redis: Callable[[], None]) -> int | None:
        permit, failed = None, None
        try:
            permit = self.folder.get_if_readable(PERMIT, Permit)
            self.folder.unlink(PERMIT)
            # A marker of an earlier boot is weighed by `enter`: a clock that is set at boot is no step of it.
            if self._marker_is_of_this_boot():
                self.folder.unlink(MARKER)
        except OSError as error:
            failed = error
        stop_redis()
        if failed is not None:
            raise failed
        self.folder.sync()
        self._count_step(forward=True, revoked=f"forward by {step_ns / NS_PER_S:.3f} s")
        return permit.generation if permit else None

    def _marker_is_of_this_boot(self) -> bool:
        try:
            marker = self.folder.get(MARKER, Marker)
        except Unreadable:
            return True
        return marker is not None and marker.boot_id == self.host.boot_id()

    def count_backward_step(self) -> None:
        """A step backwards ends no lease early: it is only counted. Raises OSError."""
        with self._lock(STATE_LOCK):
            self._count_step(forward=False, revoked="")

    def _count_step(self, forward: bool, revoked: str) -> None:
        try:
            state = self.folder.state() or State()
        except Unreadable:
            return  # left as it is, for the next enter to see
        state.steps_forward += forward
        state.steps_backward += not forward
        # A quarantine that runs now outlasts the step, and a boot's own setting of the clock took nothing.
        if revoked and state.phase in ("in_service", "stopped") and state.boot_id == self.host.boot_id():
            state.revoked = revoked
        self.folder.put(STATE, state)
        self.write_metrics()

    def rise_since_start_ns(self) -> int:
        """How far the clock was stepped forward since Redis was let start in this boot; 0 when not."""
        permit = self.folder.get_if_readable(PERMIT, Permit)
        if permit is None or permit.boot_id != self.host.boot_id():
            return 0
        return self._unexplained_rise_ns(permit, read_offset(self.host))

    def generation(self) -> int:
        """Changes with each start and stop; -1 when it can't be read."""
        try:
            state = self.folder.state()
        except Unreadable:
            return -1
        return state.generation if state else -1

    # Operators

    def write_override(self, reason: str) -> str:
        """Let the start that waits now, or the next one, not wait. Returns what that means."""
        self.folder.prepare()
        by = self.host.environ.get("SUDO_USER") or self.host.environ.get("USER") or f"uid {os.getuid()}"
        override = Override(self.host.boot_id(), self.host.boottime_ns(), by, reason)
        try:
            self.folder.put(OVERRIDE, override)
        except OSError as error:
            raise GuardError(
                f"the override can't be written ({error}). Nothing has changed. Next: mend"
                f" {self.config.state_dir}"
            ) from None
        self.host.log("warning", "override_written", by=by, reason=reason)
        minutes = OVERRIDE_VALID_NS // (60 * NS_PER_S)
        return f"the quarantine that runs now, or a start in the next {minutes} minutes, is not waited for"

    def _take_override(self) -> Override | None:
        """The override, used up. It counts only once it is gone for good. Raises OSError."""
        try:
            override = self.folder.get(OVERRIDE, Override)
        except Unreadable as error:
            self.folder.remove(OVERRIDE)
            self.host.log("error", "override_ignored", why=f"it is {error}")
            return None
        if override is None:
            return None
        self.folder.remove(OVERRIDE)
        age_ns = self.host.boottime_ns() - override.at_ns
        if override.boot_id == self.host.boot_id() and 0 <= age_ns <= OVERRIDE_VALID_NS:
            return override
        self.host.log("warning", "override_ignored", why="it is too old", by=override.by)
        return None

    def _discard_override(self) -> None:
        override = self._take_override()
        if override is not None:
            self.host.log("warning", "override_discarded", why="this start needs none", by=override.by)

    def status(self) -> dict[str, Any]:
        """How things are, for operators. Raises GuardError when that can't be read."""
        try:
            state = self.folder.state() or State()
            return self._status(state)
        except (Unreadable, OSError) as error:
            raise GuardError(
                f"the guard's record can't be read ({error}). That changes nothing now; if it stays"
                " so, the next start waits in full. Next: are you root?"
            ) from None

    def _status(self, state: State) -> dict[str, Any]:
        now = self._now(state)
        left_ns = max(0, state.until_ns - self.host.boottime_ns()) if now == "quarantined" else 0
        clean = now == "stopped" and not state.reason and self._is_there(MARKER)
        return {
            "state": now.replace(" ", "_"),
            "reason": state.reason,
            "detail": state.detail,
            "left_s": -(-left_ns // NS_PER_S),
            "next_start": "at once" if clean else "after a quarantine" if now == "stopped" else "",
            "delay_s": self._delay_s(state),
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(state.changed_at_s)),
            "quarantines": state.quarantines,
            "overrides": state.overrides,
            "clock_steps": {"forward": state.steps_forward, "backward": state.steps_backward},
            "moved_aside": {"count": state.moved_aside, "latest": state.aside},
        }

    def _now(self, state: State) -> str:
        if state.boot_id == self.host.boot_id():
            if state.phase == "quarantine" and self._enter_runs():
                return "quarantined"
            if state.phase == "in_service" and self._is_there(PERMIT):
                return "in service"
        return "stopped"

    def _enter_runs(self) -> bool:
        try:
            with self._lock(ENTER_LOCK, 0):
                return False
        except Busy:
            return True

    def _is_there(self, name: str) -> bool:
        try:
            self.disk.read(self.folder.path / name)
        except FileNotFoundError:
            return False
        return True

    # For all of them

    def _lock(self, name: str, wait_s: float | None = None) -> Any:
        return self.disk.lock(self.folder.path / name, wait_s)

    def _turn(self, state: State, phase: str, dirt: Dirt | None) -> None:
        """Note what happens now. Each turn has a number of its own, which ties proofs to it."""
        state.generation += 1
        state.phase = phase
        state.boot_id = self.host.boot_id()
        state.reason, state.detail = (dirt.reason.value, dirt.detail) if dirt else ("", "")
        state.revoked = ""
        state.until_ns = 0
        state.changed_at_s = self.host.wall_ns() // NS_PER_S

    def _delay_s(self, state: State) -> float:
        return self.config.quarantine_ns(max(self.config.max_ttl_ms, state.longest_ttl_ms)) / NS_PER_S

    def write_metrics(self) -> None:
        """The textfile, from what is on disk. A start or stop never fails for it."""
        if self.config.textfile is None:
            return
        # Not what node_exporter reads, until it is whole.
        new = self.config.textfile.with_name(f".{self.config.textfile.name}.{os.getpid()}")
        try:
            state = self.folder.state() or State()
            self.disk.write(new, self._metrics(state).encode(), 0o644, sync=False)
            self.disk.rename(new, self.config.textfile)
        except (OSError, Unreadable) as error:
            then = "give `textfile` a folder of root's own" if isinstance(error, Untrusted) else ""
            self.host.log("error", "no_metrics", file=self.config.textfile, why=error, then=then)
            with suppress(OSError):
                self.disk.unlink(new)

    def _metrics(self, state: State) -> str:
        quarantined = state.phase == "quarantine" and state.boot_id == self.host.boot_id()
        ends_ns = self.host.wall_ns() + state.until_ns - self.host.boottime_ns()
        return metrics_text(
            state,
            quarantined=quarantined,
            until_s=round(ends_ns / NS_PER_S, 3) if quarantined else 0,
            delay_s=self._delay_s(state),
            marked_s=self._marked_s(state),
        )

    def _marked_s(self, state: State) -> int:
        """When the data was last noted; of a Redis that may run only: a stopped one writes nothing."""
        if self._now(state) != "in service":
            return 0
        mark = self.folder.get_if_readable(MARK, Mark)
        return mark.at_s if mark else state.changed_at_s


def why_no_marker(state: State | None) -> Dirt:
    """A start without a marker: what is known about the stop before."""
    if state is None:
        return Dirt(Reason.FIRST_START, "no earlier start is on record")
    if state.revoked:
        return Dirt(Reason.CLOCK_STEP, state.revoked)
    if state.phase == "stopped" and state.reason in [reason.value for reason in Reason]:
        return Dirt(Reason(state.reason), state.detail)
    if state.phase == "quarantine":
        return _interrupted(state)
    if state.phase == "in_service":
        return Dirt(Reason.NO_MARKER, "nobody saw Redis end: the host was killed or lost power")
    return Dirt(Reason.NO_MARKER, "an earlier start, or the stop before it, was cut short")


def _interrupted(state: State) -> Dirt:
    before = f"; it was for: {state.reason.replace('_', ' ')}" if state.reason else ""
    return Dirt(Reason.QUARANTINE_INTERRUPTED, f"it begins anew{before}")


def how_it_ended(environ: Mapping[str, str]) -> str:
    """What systemd says of a stop that is not clean; nothing when it is: all three conditions."""
    result, code, exit_status = (
        environ.get(name, "") for name in ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS")
    )
    if (result, code, exit_status) == ("success", "exited", "0"):
        return ""
    if not code:
        return f"Redis did not run (result {result or 'unknown'})"
    how = f"exited with status {exit_status}" if code == "exited" else f"{code} by SIG{exit_status}"
    return how if result in ("success", "exit-code", "signal", "core-dump") else f"{how} (result {result})"


def without_permit(state: State, ended: str, unsound: str) -> Dirt:
    """A stop of what had no permit: it never started, or its start was not this guard's doing."""
    if state.phase == "quarantine":
        return _interrupted(state)
    if state.phase == "stopped" and state.reason in [reason.value for reason in Reason]:
        return Dirt(Reason(state.reason), state.detail)
    return Dirt(Reason.NO_MARKER, unsound or f"it had not been let start; {ended or 'clean exit'}")


# The watch


class WallClock:
    """Has the wall clock been stepped? The lowest offset that it can have had, rising with drift, is a floor:
    whatever is certainly above that by more than the tolerance is a step forward (as lockd's agents do)."""

    def __init__(self, first: Offset, clock_step_ms: int, longest_ns: int) -> None:
        self._tolerance_ns = clock_step_ms * NS_PER_MS
        self._longest_ns = longest_ns
        self._floor_ns = first.high_ns
        self._low_ns = first.low_ns
        self._at_ns = first.at_ns

    def look(self, now: Offset) -> int:
        """The step found, in nanoseconds: above 0 forward, below 0 backward, 0 when there is none."""
        drift_ns = allowed_rise_ns(0, now.at_ns - self._at_ns, self._longest_ns)
        floor_ns, low_ns = self._floor_ns + drift_ns, self._low_ns - drift_ns
        self._at_ns = now.at_ns
        forward_ns, backward_ns = now.low_ns - floor_ns, low_ns - now.high_ns
        if max(forward_ns, backward_ns) > self._tolerance_ns:
            self._floor_ns, self._low_ns = now.high_ns, now.low_ns
            return forward_ns if forward_ns > 0 else -backward_ns
        self._floor_ns, self._low_ns = min(floor_ns, now.high_ns), max(low_ns, now.low_ns)
        return 0


_TFD_TIMER_ABSTIME, _TFD_TIMER_CANCEL_ON_SET = 1, 2


class ClockAlarm:
    """Wakes up when somebody sets the wall clock: a timer of the kernel that this cancels. Where there is no
    such thing it only sleeps; whoever waits looks at the clock either way."""

    def __init__(self) -> None:
        self._file = -1
        self._poll = select.poll()
        with suppress(OSError, AttributeError):
            self._libc = ctypes.CDLL(None, use_errno=True)
            # Its struct is written here as four longs, which it is where a long has 64 bits.
            if ctypes.sizeof(ctypes.c_long) == 8:
                flags = os.O_CLOEXEC | os.O_NONBLOCK
                self._file = self._libc.timerfd_create(time.CLOCK_REALTIME, flags)
        self._arm()
        if self._file >= 0:
            self._poll.register(self._file, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Return after that time, or as soon as the clock is set."""
        if self._poll.poll(seconds * 1000):
            with suppress(OSError):  # ECANCELED: that is the news
                os.read(self._file, 8)
            self._arm()

    def _arm(self) -> None:
        if self._file < 0:
            return
        never = (ctypes.c_long * 4)(0, 0, 2**40, 0)
        flags = _TFD_TIMER_ABSTIME | _TFD_TIMER_CANCEL_ON_SET
        if self._libc.timerfd_settime(self._file, flags, ctypes.byref(never), None) != 0:
            self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Watch:
    """Looks at the clocks ten times a second, and whenever it is set."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._host = guard.host
        first = read_offset(self._host)
        # A lease may be as long as the guard's own delay says.
        longest_ns = quarantine_ns(guard.config.max_ttl_ms)
        self._clock = WallClock(first, guard.config.clock_step_ms, longest_ns)
        # 1,000 ppm are drift to it: what is slewed faster adds up to a step, and ends leases as early.
        self._slewing = WallClock(read_slewing(self._host), guard.config.clock_step_ms, longest_ns)
        self._kill_of: int | None = None
        self._told_ns = self._written_ns = -METRICS_EVERY_NS

    def run(self, alarm: ClockAlarm) -> None:
        """Watch until Interrupted."""
        self.begin()
        # Beside, since it waits for the disk: a step of the clock is not to wait with it.
        threading.Thread(target=self._mark_for_ever, daemon=True).start()
        self._host.tell_systemd("READY=1\nSTATUS=watching the wall clock")
        while True:
            alarm.wait(KILL_AGAIN_S if self.killing else SAMPLE_EVERY_S)
            self.look()

    def _mark_for_ever(self) -> None:
        failed = ""
        while True:
            try:
                why = self._guard.mark_data()
                why = f"it is not what Redis wrote: {why}" if why else ""
            except OSError as error:
                why = _said(error)
            if why and why != failed:
                self._host.log("error", "no_mark", why=why)
            failed = why
            time.sleep(MARK_SOON_S if self._guard.awaits_data() else MARK_EVERY_S)

    def begin(self) -> None:
        """A step may have come while nobody watched."""
        self._guard.folder.prepare()
        rise_ns = self._guard.rise_since_start_ns()
        if rise_ns:
            self._forward(rise_ns)

    @property
    def killing(self) -> bool:
        """True while a Redis that has lost its permit may still run, or be about to."""
        return self._kill_of is not None

    def look(self) -> None:
        """One look at the clock, and what follows from it."""
        step_ns = self._clock.look(read_offset(self._host))
        slewed_ns = self._slewing.look(read_slewing(self._host))
        if slewed_ns > 0:
            step_ns = max(step_ns, slewed_ns)
        if step_ns > 0:
            self._forward(step_ns)
        elif step_ns < 0:
            self._backward(step_ns)
        elif self.killing:
            self._kill_again()
        self._say_alive(self._host.boottime_ns())

    def _say_alive(self, now_ns: int) -> None:
        if now_ns - self._told_ns >= NS_PER_S:
            self._host.tell_systemd("WATCHDOG=1")
            self._told_ns = now_ns
        if now_ns - self._written_ns >= METRICS_EVERY_NS:
            self._guard.write_metrics()
            self._written_ns = now_ns

    def _forward(self, step_ns: int) -> None:
        failures: list[str] = []

        def stop_redis() -> None:
            failures.append(self._host.kill_main_process(self._guard.config.unit))

        revoked = None
        try:
            revoked = self._guard.revoke(step_ns, stop_redis)
        except OSError as error:
            self._host.log("error", "step_not_recorded", why=error)
        killed = "" in failures
        # Killed or not there: with a permit it may be on its way.
        self._kill_of = None if killed else revoked
        self._host.log(
            "error",
            "clock_step",
            forward_s=f"{step_ns / NS_PER_S:.3f}",
            killed="yes" if killed else "no",
            why="" if killed else "; ".join(failures),
        )

    def _kill_again(self) -> None:
        if self._guard.generation() != self._kill_of:
            self._kill_of = None  # that start is over; the next one was weighed after the step
        elif not self._host.kill_main_process(self._guard.config.unit):
            self._kill_of = None
            self._host.log("error", "killed", why="its permit was revoked for a clock step")

    def _backward(self, step_ns: int) -> None:
        self._host.log("warning", "clock_step", backward_s=f"{-step_ns / NS_PER_S:.3f}")
        try:
            self._guard.count_backward_step()
        except OSError as error:
            self._host.log("error", "step_not_recorded", why=error)


# The command line

_EPILOG = """\
exit status:
  0   done; `status`: in service
  1   refused, or impossible: the message says what is safe and what to do next. `enter`: Redis must not start
  2   usage
  3   `status`: quarantined
  4   `status`: stopped
  75  interrupted by a signal. `enter`: Redis must not start, and the next start waits in full
  78  the configuration is missing or wrong

The head of this file has the units, the configuration and the reasons.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status."""
    options = _parser().parse_args(arguments)
    host = Host()
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Ignored by whoever started us by hand (nohup), it stays so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        guard = Guard(read_config(options.config, options.command == "check"), host)
        _refuse_by_hand(options, guard)
        return _run(options, guard)
    except GuardError as error:
        host.log("error", f"{options.command}_refused", why=error)
        host.status(f"refused: {error}")
        return error.exit_status
    except Interrupted:
        host.log("warning", f"{options.command}_interrupted")
        return EXIT_OK if options.command == "watch" else EXIT_INTERRUPTED


def _interrupt(number: int, frame: object) -> None:
    raise Interrupted


def _refuse_by_hand(options: argparse.Namespace, guard: Guard) -> None:
    """A start or stop that systemd knows nothing of: Redis may be running."""
    if getattr(options, "by_hand", True) or guard.host.environ.get("INVOCATION_ID"):
        return
    unit = guard.config.unit
    raise GuardError(
        f"`{options.command}` is run by systemd, as part of {unit}; by hand, while Redis runs, it would"
        f" end what shows that its data is its own. Nothing was changed. Next: `systemctl start {unit}`, or"
        " `stop`; --by-hand where a master has no unit, and Redis does not run"
    )


def _run(options: argparse.Namespace, guard: Guard) -> int:
    if options.command == "enter":
        guard.enter()
    elif options.command == "stop":
        guard.stop()
    elif options.command == "leave":
        guard.leave()
    elif options.command == "watch":
        Watch(guard).run(ClockAlarm())
    elif options.command == "override":
        print(guard.write_override(options.reason))
    elif options.command == "status":
        return _show(guard.status(), options.json)
    return EXIT_OK


def _show(status: dict[str, Any], as_json: bool) -> int:
    print(json.dumps(status) if as_json else described(status))
    return {"in_service": EXIT_OK, "quarantined": EXIT_QUARANTINED}.get(status["state"], EXIT_STOPPED)


def described(status: Mapping[str, Any]) -> str:
    """The status in a few lines."""
    why = f" ({status['reason'].replace('_', ' ')}: {status['detail']})" if status["reason"] else ""
    left = f", {status['left_s']} s left" if status["state"] == "quarantined" else ""
    counts = ", ".join(f"{reason} {count}" for reason, count in status["quarantines"].items() if count)
    steps, aside = status["clock_steps"], status["moved_aside"]
    lines = [
        f"state:       {status['state'].replace('_', ' ')}{left}{why}",
        f"since:       {status['since']}",
        f"next start:  {status['next_start']}" if status["next_start"] else "",
        f"delay:       {status['delay_s']:g} s",
        f"quarantines: {counts or 'none'}",
        f"overrides:   {status['overrides']}",
        f"clock steps: {steps['forward']} forward, {steps['backward']} backward",
        f"moved aside: {aside['count']}, latest {aside['latest']}" if aside["count"] else "",
    ]
    return "\n".join(line for line in lines if line)


def _a_reason(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty: it is what the log will say")
    return text


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", default=DEFAULT_CONFIG, metavar="FILE", help="default: %(default)s")
    parser = argparse.ArgumentParser(
        prog="guard.py",
        description="The restart guard of a lock master: Redis stays out after a restart that may lose data.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common], help=text, description=text)

    enter = command("enter", "ExecStartPre=: return when Redis may start; waits after an unclean stop")
    command("stop", "ExecStop=: have Redis rest, and note whether what a clean stop rests on is in force")
    leave = command("leave", "ExecStopPost=: note how Redis ended, as systemd's environment says")
    for one in (enter, leave):
        text = "though systemd does not run it (no INVOCATION_ID); only where Redis does not run"
        one.add_argument("--by-hand", action="store_true", help=text)
    command("watch", "a service of its own: on a forward step of the wall clock, kill Redis into quarantine")
    override = command("override", "as root: end the quarantine that runs now, or skip the next one (once)")
    override.add_argument("--reason", required=True, type=_a_reason, help="for the log: why that is safe")
    command("status", "is it in service, quarantined or stopped, and why").add_argument(
        "--json", action="store_true", help="as one JSON object"
    )
    command("check", "only read the configuration")
    return parser


if __name__ == "__main__":
    sys.exit(main())
