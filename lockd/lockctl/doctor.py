"""The checks of `lockctl doctor`: is all well with lockd on this host, and if not, what to do?

First the facts are gathered, from the socket's file, the agent and two trial locks. Then each check looks at
the facts that it needs and returns its findings. A check asks nothing itself, so each can be tested
separately.
"""

from __future__ import annotations

import os
import socket as sockets
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from lockd import __version__
from lockd.clock import boottime_ns
from lockd.core.errors import ErrorWord
from lockd.core.slewing import MOST_PPM
from lockd.core.validity import NS_PER_MS
from lockd.core.values import quorum_of
from lockd.lockctl.agent import LISTING_WITHIN_S
from lockd.lockctl.errors import Refused, Unreachable

SLOW_PING_US = 100_000
# A quarter of the agent's usual patience with a master, 250 ms.
SLOW_MASTER_US = 62_500
# Half of 100 ms, by which the agent lets a clock be off before it refuses a vote.
CLOCK_OFF_US = 50_000
# A grant is answered at the quorum: the other masters follow at once.
SETTLED_MS = 1000
CANARY_TTL_MS = 5000
# A script that was refused longer ago is listed without a warning.
RECENT_MINUTES = 60
# With one of these in front, the kernel shows the agent one process for all apps. A name has 15 bytes there,
# so systemd-socket-proxyd is cut.
_PROXIES = (
    "docker-proxy", "envoy", "ghostunnel", "haproxy", "linkerd2-proxy", "nc", "ncat", "nginx",
    "nutcracker", "rootlessport", "socat", "ssh", "sshd", "sshd-session", "stunnel", "stunnel4",
    "systemd-socket-", "traefik",
)  # fmt: skip
_NOT_FOR_THIS_USER = (ErrorWord.DENIED, ErrorWord.LIMIT, ErrorWord.ERR)

Ask = Callable[..., Any]


class Severity(IntEnum):
    """How bad a finding is. The worst one is the exit status of `lockctl doctor`."""

    OK = 0
    WARNING = 1
    FAILURE = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found, and what to do next if something is wrong."""

    check: str
    severity: Severity
    what: str
    then: str = ""

    def as_row(self) -> dict[str, str]:
        return {
            "check": self.check,
            "verdict": self.severity.name.lower(),
            "what": self.what,
            "next": self.then,
        }


def worst_of(findings: Iterable[Finding]) -> Severity:
    """How bad the worst of them is."""
    return max((finding.severity for finding in findings), default=Severity.OK)


# The facts


@dataclass(frozen=True, slots=True)
class SocketFile:
    """The socket's file. `mode` and `folder_mode` are None if there is nothing to see; `writable`: by this
    user."""

    path: str
    mode: int | None = None
    writable: bool = False
    folder_mode: int | None = None

    @classmethod
    def at(cls, path: str) -> SocketFile:
        return cls(path, _mode(path), os.access(path, os.W_OK), _mode(os.path.dirname(path) or "."))


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What the agent says about itself, and how long a PING took. `info`: the fields of INFO."""

    took_us: int
    info: Mapping[str, Any]

    @property
    def version(self) -> str:
        return str(self.info.get("lockd_version", "unknown"))


class _FromRow:
    """Frozen types made from the agent's answers, which are maps; unknown fields are left out."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        return cls(**{field.name: row[field.name] for field in fields(cls)})  # type: ignore[arg-type]


@dataclass(frozen=True)
class MasterRow(_FromRow):
    """A master as the agent sees it. max_ttl_ms: the ceiling in its identity, None when it has none. notices:
    whether it tells this agent whose turn it is."""

    name: str
    state: str
    vote: int
    reason: str
    rtt_us: int
    clock_offset_us: int | None
    version: str
    max_ttl_ms: int | None
    notices: int


@dataclass(frozen=True)
class LeaseRow(_FromRow):
    """A lease that this host's agent has granted, on `masters` of `of` masters."""

    resource: str
    held_ms: int
    masters: int
    of: int
    via: str = "lock"


@dataclass(frozen=True, slots=True)
class Connected:
    """The processes connected to the agent that we may see: each one's number and name. unseen: how many
    connections are from processes that the agent can't see."""

    names: Mapping[int, str]
    unseen: int = 0

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> Self:
        pids = [int(key.removeprefix("process_")) for key in info if key.startswith("process_")]
        return cls({pid: _name_of(pid) for pid in pids}, int(info.get("unseen_connections", 0)))


def _name_of(pid: int) -> str:
    """'' when it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Grant:
    """A trial lock; the times are CLOCK_BOOTTIME as this process sees it."""

    asked_ns: int
    answered_ns: int
    ttl_ms: int
    fence: int
    deadline_ns: int

    @property
    def took_us(self) -> int:
        return (self.answered_ns - self.asked_ns) // 1000


@dataclass(frozen=True, slots=True)
class CanaryRun:
    """Trial locks that were taken, extended and released one after the other. trouble: why there are no more
    of them."""

    grants: tuple[Grant, ...] = ()
    trouble: Refused | Unreachable | None = None


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What a configuration file says. problems: why it can't be used; the rest is empty then."""

    path: str
    max_ttl_ms: int | None = None
    fingerprint: str = ""
    problems: str = ""

    @classmethod
    def at(cls, path: str) -> ConfigFile:
        from lockd.config.model import load
        from lockd.config.problems import ConfigError

        try:
            config = load(Path(path))
        except ConfigError as error:
            return cls(path, problems="; ".join(str(error).splitlines()))
        return cls(path, config.max_ttl_ms, config.fingerprint())


def examine(ask: Ask, socket_path: str, config_path: str | None = None) -> list[Finding]:
    """All checks, in the order in which one would look. `ask` sends the agent a command, or raises Refused or
    Unreachable."""
    findings = check_socket(SocketFile.at(socket_path))
    try:
        agent = _ask_agent(ask)
        held = [LeaseRow.from_row(row) for row in ask("LOCKS", "*", "LOCAL") if not row.get("lost")]
        connected = Connected.from_info(ask("INFO", "processes"))
        spoilt = _no_leases(ask)
        canary = fly_canary(ask)
        # Behind the trial: it shows what they refuse.
        masters = [MasterRow.from_row(row) for row in ask("MASTERS")]
    except (Refused, Unreachable) as error:
        return [*findings, no_answer(error)]
    configured = None if config_path is None else ConfigFile.at(config_path)
    return [
        *findings,
        *check_agent(agent),
        *check_configuration(configured, agent),
        *check_reload(agent),
        *check_quorum(masters),
        *check_masters(masters),
        *check_round_trips(masters),
        *check_notices(masters),
        *check_clocks(masters),
        *check_slewing(agent),
        *check_max_ttl(masters, configured),
        *check_versions(masters),
        *check_canary(canary),
        *check_fences(canary.grants),
        *check_boottime(canary.grants),
        *check_leases(held),
        *check_keys(spoilt),
        *check_owners(connected),
        *check_dropin(agent, held),
    ]


def _ask_agent(ask: Ask) -> AgentAnswer:
    ask("PING")  # the first one loads what asking needs
    started_ns = time.monotonic_ns()
    ask("PING")
    return AgentAnswer((time.monotonic_ns() - started_ns) // 1000, ask("INFO"))


def _no_leases(ask: Ask) -> list[str]:
    """What has the name of a lease on the masters, and is none. None is named where too few masters answer:
    check_quorum says that."""
    try:
        return [str(row["resource"]) for row in ask("LOCKS", "*", "NOLEASE", within_s=LISTING_WITHIN_S)]
    except Refused:
        return []


def fly_canary(ask: Ask, times: int = 2) -> CanaryRun:
    """Lock, extend and release a resource that nobody else uses, as an app would."""
    resource = f"lockctl-doctor:{sockets.gethostname()}:{os.getpid()}"
    grants: list[Grant] = []
    try:
        for _ in range(times):
            asked_ns = boottime_ns()
            lease = ask("LOCK", resource, CANARY_TTL_MS, "DETACHED")
            grants.append(Grant(asked_ns, boottime_ns(), CANARY_TTL_MS, lease["fence"], lease["deadline_ns"]))
            ask("EXTEND", resource, lease["token"], CANARY_TTL_MS)
            ask("UNLOCK", resource, lease["token"])
    except (Refused, Unreachable) as error:
        return CanaryRun(tuple(grants), error)
    return CanaryRun(tuple(grants))


# The checks


def check_socket(file: SocketFile) -> list[Finding]:
    """Is the socket there, may we use it, and can nobody replace it?"""

    def failure(what: str, then: str) -> list[Finding]:
        return [Finding("socket", Severity.FAILURE, f"{file.path} {what}", then)]

    if file.mode is None:
        then = "start the agent, or give its socket with --socket or LOCKD_SOCKET"
        return failure("is not there", f"{then}; if it runs, see LockdAppSocketGone.md")
    if not stat.S_ISSOCK(file.mode):
        return failure("is not a socket", "give the agent's socket with --socket or LOCKD_SOCKET")
    if not file.writable:
        mode = stat.S_IMODE(file.mode)
        return failure(
            f"has mode {mode:04o}, and you may not use it",
            ("add your user to its group, or change socket.group"),
        )
    others_may_replace = (
        file.folder_mode is not None and file.folder_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH
    )
    if others_may_replace:
        what = f"the folder of {file.path} is writable by everybody, so anybody could replace the socket"
        return [Finding("socket", Severity.WARNING, what, "chmod o-w that folder, or use /run/lockd")]
    return [Finding("socket", Severity.OK, f"{file.path}, mode {stat.S_IMODE(file.mode):04o}")]


def no_answer(error: Refused | Unreachable) -> Finding:
    """The agent doesn't answer: nothing more can be checked."""
    then = "check its status and log: systemctl status lockd, sudo journalctl -u lockd"
    return Finding("agent", Severity.FAILURE, str(error), then)


def check_agent(agent: AgentAnswer) -> list[Finding]:
    """Does it answer quickly, is it of our version, and does it still grant locks?"""
    found = []
    if agent.took_us > SLOW_PING_US:
        what = f"a PING took {agent.took_us / 1000:.0f} ms"
        found.append(
            Finding(
                "agent",
                Severity.WARNING,
                what,
                ("check whether this host is short of CPU, and see the agent's lockd_* metrics"),
            )
        )
    if agent.version != __version__:
        what = f"the agent is version {agent.version}, lockctl {__version__}"
        found.append(Finding("agent", Severity.WARNING, what, "if lockd was upgraded, restart the agent"))
    if int(agent.info.get("draining", 0)):
        found.append(
            Finding("agent", Severity.WARNING, "it is stopping and grants no locks", "start it again")
        )
    if trouble := agent.info.get("journal_trouble", ""):
        what = f"the journal can't be written, so the next agent can't take over leases: {trouble}"
        found.append(Finding("agent", Severity.WARNING, what, "before a restart, see LockdJournalNotKept.md"))
    what = f"answers in {agent.took_us / 1000:.1f} ms, version {agent.version}"
    return found or [Finding("agent", Severity.OK, what)]


def check_configuration(configured: ConfigFile | None, agent: AgentAnswer) -> list[Finding]:
    """Does the agent run with the configuration that is in the file?"""
    if configured is None:
        return []
    if configured.problems:
        then = f"lockd check-config {configured.path}"
        return [Finding("configuration", Severity.FAILURE, f"{configured.path}: {configured.problems}", then)]
    running = agent.info.get("config_fingerprint")
    if str(running) != configured.fingerprint:
        what = f"{configured.path} is {configured.fingerprint}, the agent runs with {running}"
        then = (
            "if the file was changed: lockctl reload; otherwise give the file that the agent was started with"
        )
        return [Finding("configuration", Severity.WARNING, what, then)]
    return [Finding("configuration", Severity.OK, f"the agent runs with {configured.path}")]


def check_reload(agent: AgentAnswer) -> list[Finding]:
    """Did the last reload of its configuration fail?"""
    last = agent.info.get("config_last_reload")
    if last == "refused":
        settings = ", ".join(str(agent.info.get("config_restart_needed")).split())
        what = f"the last reload was refused: a restart is needed for {settings}"
        then = "restart the agent, or undo that change and reload"
        return [Finding("reload", Severity.WARNING, what, then)]
    if last == "invalid":
        file = agent.info.get("config_file")
        then = f"lockd check-config {file} lists them; fix the file, then lockctl reload"
        return [Finding("reload", Severity.WARNING, f"the last reload failed: {file} has errors", then)]
    return []


def check_quorum(masters: Sequence[MasterRow]) -> list[Finding]:
    """How many votes are there, and how many of them can be lost?"""
    votes, quorum = sum(master.vote for master in masters), quorum_of(len(masters))
    what = f"{votes} of {len(masters)} masters have a vote, {quorum} are needed"
    if votes < quorum:
        then = "no locks are granted on this host: bring masters back, see below"
        return [Finding("quorum", Severity.FAILURE, what, then)]
    if votes == len(masters):
        return [Finding("quorum", Severity.OK, f"{what}: {votes - quorum} may fail")]
    spare = "none may fail" if votes == quorum else f"{votes - quorum} more may fail"
    return [Finding("quorum", Severity.WARNING, f"{what}: {spare}", "bring the others back, see below")]


def _as_operator(words: str) -> str:
    """To be pasted. Masters that the playbooks set up let only this user write identities."""
    return (
        f"sudo lockctl {words} --operator-user lockd_operator (in lockd dev without sudo and --operator-user)"
    )


_THEN = {
    "up": "wait, or check the clock of its host: chronyc tracking",
    "stalled": "it is slow to answer: check the disk of its host, and the network",
    "connecting": "wait a moment; if it persists, check the address, the network and the credentials",
    "down": (
        "check that Redis runs there (systemctl status lockd-master), that it is not in quarantine, and that "
        "no firewall is in between"
    ),
    "foreign": (
        "if its address is that of another cluster's master, correct it in the configuration. If cluster "
        "init or recover was interrupted, run it again. If a quorum has a vote, wipe the master and admit it"
    ),
    "copied": "wipe it and admit it; if a replica is attached, detach it first: see LockdMasterCopied.md",
    "other_members": "correct the list of masters in this host's configuration: see LockdMembersDiffer.md",
    "other_format": (
        "install the same version of lockd on all app hosts, then run "
        f"{_as_operator('cluster upgrade')}: see LockdMasterWrongIdentity.md"
    ),
    "replaced": "it is an old machine or has old data: switch it off, or wipe it and admit it",
    "misplaced": "move its address to the entry of that name, on all hosts",
    "duplicate": "two entries lead to the same Redis: give each a different address",
    "misconfigured": "correct the setting on the master: lockd is not safe without it",
    "miscounting": "if its clock is days behind, correct it; otherwise see LockdMasterMiscounting.md",
    "unidentified": "it holds other data. If it is meant for lockd, empty it and admit it",
    "loading": "wait until it has loaded its data",
}


def check_masters(masters: Sequence[MasterRow]) -> list[Finding]:
    """Which masters have no vote, and what gives it back to them?"""
    admit = _way_for_blank(masters)
    return [
        Finding(
            "master", Severity.WARNING, f"{master.name} has no vote: {_why(master)}", _then(master, admit)
        )
        for master in masters
        if not master.vote
    ]


def _way_for_blank(masters: Sequence[MasterRow]) -> str:
    """Depends on how many have their data: admit them one by one, recover the cluster around them, or form a
    new one."""
    blank = sum(master.state == "blank" for master in masters)
    if blank == len(masters):
        return _as_operator("cluster init")
    if blank > len(masters) - quorum_of(len(masters)):
        return (
            f"{_as_operator('cluster recover')}: too many masters lost their data to admit them one by one, "
            "see LockdMajorityWiped.md"
        )
    return _as_operator("master admit {name}")


def _why(master: MasterRow) -> str:
    return f"{master.state}, {master.reason}" if master.reason else master.state


def _then(master: MasterRow, admit: str) -> str:
    if master.state == "blank":
        return admit.format(name=master.name)
    if master.state == "outdated":
        return _as_operator(f"master admit {master.name}")
    if master.reason.startswith("it refuses "):
        return "see LockdVotesRefused.md"
    return _THEN.get(master.state, "see the agent's log")


def check_round_trips(masters: Sequence[MasterRow]) -> list[Finding]:
    """Is a master slow to answer?"""
    slow = [master for master in masters if master.vote and master.rtt_us > SLOW_MASTER_US]
    if slow:
        what = ", ".join(f"{master.name} takes {master.rtt_us / 1000:.0f} ms" for master in slow)
        then = "check the disk of its host (every write is synced) and the network"
        return [Finding("round trip", Severity.WARNING, what, then)]
    slowest = max((master.rtt_us for master in masters if master.vote), default=0)
    return [Finding("round trip", Severity.OK, f"{slowest / 1000:.1f} ms at most")]


def check_notices(masters: Sequence[MasterRow]) -> list[Finding]:
    """Do the masters tell this agent whose turn it is?"""
    mute = [master.name for master in masters if master.vote and not master.notices]
    if mute:
        what = f"{', '.join(mute)} can't tell this host whose turn it is: apps that wait here get fewer turns"
        then = "site.yml or upgrade_lockd.yml give the agents' users these rights (SUBSCRIBE to lockd:host:*)"
        return [Finding("notices", Severity.WARNING, what, then)]
    return [Finding("notices", Severity.OK, "all masters with a vote tell this host whose turn it is")]


def check_clocks(masters: Sequence[MasterRow]) -> list[Finding]:
    """Do the clocks of the masters agree?"""
    known = [
        (master, master.clock_offset_us)
        for master in masters
        if master.vote and master.clock_offset_us is not None
    ]
    off = [
        f"{master.name} by {offset_us / 1000:+.0f} ms"
        for master, offset_us in known
        if abs(offset_us) > CLOCK_OFF_US
    ]
    if off:
        what = f"off the median of the masters: {', '.join(off)}"
        then = "check chrony there: chronyc tracking. A master whose clock jumps loses its vote"
        return [Finding("clocks", Severity.WARNING, what, then)]
    most_us = max((abs(offset_us) for _, offset_us in known), default=0)
    return [Finding("clocks", Severity.OK, f"{most_us / 1000:.1f} ms from their median at most")]


def check_slewing(agent: AgentAnswer) -> list[Finding]:
    """Is this host's own clock slewed faster than leases allow for? Then no vote counts here."""
    if "clock_slew_ppm" not in agent.info:
        return []
    ppm = int(agent.info["clock_slew_ppm"])
    what = f"this host's clock is slewed by {ppm} ppm, {MOST_PPM} at most"
    if abs(ppm) <= MOST_PPM:
        return [Finding("slewing", Severity.OK, what)]
    then = "no locks are granted on this host: check chronyc tracking, and see LockdClockSlewed.md"
    return [Finding("slewing", Severity.FAILURE, what, then)]


def check_max_ttl(masters: Sequence[MasterRow], configured: ConfigFile | None) -> list[Finding]:
    """Does the TTL ceiling on the masters agree with itself, and with the configuration? The guards rest on
    it."""
    ceilings = {master.name: master.max_ttl_ms for master in masters if master.max_ttl_ms is not None}
    if not ceilings:
        return []
    lowest, highest = min(ceilings.values()), max(ceilings.values())
    if lowest != highest:
        what = "masters differ: " + ", ".join(f"{name} {ms} ms" for name, ms in ceilings.items())
        return [Finding("max ttl", Severity.WARNING, what, "finish changing max_ttl, guards first")]
    wanted = None if configured is None else configured.max_ttl_ms
    if wanted is not None and wanted > lowest:
        what = f"the configuration allows {wanted} ms, the masters refuse more than {lowest} ms"
        then = "raise it on the guards and masters first, or lower max_ttl_ms"
        return [Finding("max ttl", Severity.FAILURE, what, then)]
    if wanted is not None and wanted < lowest:
        what = f"the configuration allows {wanted} ms, the masters {lowest} ms"
        return [
            Finding("max ttl", Severity.WARNING, what, "finish changing max_ttl: masters next, guards last")
        ]
    return [Finding("max ttl", Severity.OK, f"{lowest} ms")]


def check_versions(masters: Sequence[MasterRow]) -> list[Finding]:
    """Do all masters run the same software?"""
    by_version: dict[str, list[str]] = {}
    for master in masters:
        if master.version:
            by_version.setdefault(master.version, []).append(master.name)
    if len(by_version) > 1:
        what = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(by_version.items()))
        return [Finding("versions", Severity.WARNING, what, "finish the upgrade, one master at a time")]
    return [Finding("versions", Severity.OK, f"all {version}") for version in by_version]


def check_canary(canary: CanaryRun) -> list[Finding]:
    """Can a lock be taken, extended and released?"""
    if canary.trouble is None:
        slowest_us = max(grant.took_us for grant in canary.grants)
        return [
            Finding(
                "lock",
                Severity.OK,
                f"taken, extended and released {len(canary.grants)} times, in {slowest_us / 1000:.1f} ms",
            )
        ]
    what = f"a lock could not be taken, extended and released: {canary.trouble}"
    if isinstance(canary.trouble, Refused) and canary.trouble.code in _NOT_FOR_THIS_USER:
        return [
            Finding("lock", Severity.WARNING, what, "run this as a user who may lock: it may work for others")
        ]
    return [Finding("lock", Severity.FAILURE, what, "check the masters above, and the agent's log")]


def check_fences(grants: Sequence[Grant]) -> list[Finding]:
    """Does each grant have a higher fence than the one before?"""
    if len(grants) < 2:
        return []
    fences = [grant.fence for grant in grants]
    text = ", ".join(map(str, fences))
    if all(before < after for before, after in pairwise(fences)):
        return [Finding("fences", Severity.OK, f"grow: {text}")]
    what = f"do not grow: {text}"
    return [
        Finding(
            "fences", Severity.FAILURE, what, "stop relying on fences, and report this with the agent's log"
        )
    ]


def check_boottime(grants: Sequence[Grant]) -> list[Finding]:
    """Do this process and the agent mean the same by a deadline?"""
    for grant in grants:
        if not grant.asked_ns < grant.deadline_ns <= grant.answered_ns + grant.ttl_ms * NS_PER_MS:
            off_ms = (grant.deadline_ns - grant.answered_ns) // NS_PER_MS
            what = f"a lease of {grant.ttl_ms} ms has a deadline {off_ms} ms from now"
            then = (
                "CLOCK_BOOTTIME differs between this process and the agent: check whether one of them is "
                "in a time namespace"
            )
            return [Finding("boottime", Severity.FAILURE, what, then)]
    return [Finding("boottime", Severity.OK, "deadlines are on this process's clock")] if grants else []


def check_owners(connected: Connected) -> list[Finding]:
    """Does the agent see which process each lock belongs to? A lock lives with the process that has
    connected."""
    then = "use LOCK … CONNECTION, or set `bound: connection` for their classes"
    found = [
        Finding(
            "owners",
            Severity.WARNING,
            f"{name} (pid {pid}) is a proxy: all apps behind it count as one process, and their locks live "
            "as long as the proxy",
            f"connect apps directly to the agent's socket; otherwise {then}",
        )
        for pid, name in connected.names.items()
        if name in _PROXIES
    ]
    if connected.unseen:
        what = (
            f"the processes behind {connected.unseen} connections can't be seen: their locks end with the "
            "connection, also when a pool closes it"
        )
        then = (
            "run the agent in the host's pid namespace, with enough open files, and keep pools from "
            "closing connections"
        )
        found.append(Finding("owners", Severity.WARNING, what, then))
    what = f"{len(connected.names)} processes are connected or hold locks, and all can be seen"
    return found or [Finding("owners", Severity.OK, what)]


def check_dropin(agent: AgentAnswer, held: Sequence[LeaseRow]) -> list[Finding]:
    """Which apps lock with Redis's own commands, and which of their scripts were refused? None: no
    finding."""
    libraries = sorted(_behind("library_", agent.info))
    found = [
        _refused_script(digest, script) for digest, script in _behind("refused_script_", agent.info).items()
    ]
    if libraries:
        plain = [lease for lease in held if lease.via != "lock"]
        more = f" and {len(plain) - 5} more" if len(plain) > 5 else ""
        named = f" ({', '.join(lease.resource for lease in plain[:5])}{more})" if plain else ""
        what = f"Redis's own commands are used by {', '.join(libraries)}: {len(plain)} leases now{named}"
        found.append(Finding("drop-in", Severity.OK, what))
    return found


def _refused_script(digest: str, script: Mapping[str, Any]) -> Finding:
    """One that was sent long ago may be fixed by now."""
    minutes, why = int(script["seconds_ago"]) // 60, unquote(str(script["why"]))
    what = (
        f"script {digest[:12]} of {script['library']} is not recognised: {why} "
        f"({script['count']} times, last {minutes} minutes ago)"
    )
    if minutes >= RECENT_MINUTES:
        return Finding("drop-in", Severity.OK, what)
    then = (
        "run `lockctl script` on it; see docs/reference/scripts.md. The agent's log has its normal form "
        "(script_not_recognised)"
    )
    return Finding("drop-in", Severity.WARNING, what, then)


def _behind(prefix: str, info: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of INFO whose names begin like this, by the rest of the name."""
    return {key.removeprefix(prefix): value for key, value in info.items() if key.startswith(prefix)}


def check_leases(held: Sequence[LeaseRow]) -> list[Finding]:
    """Is what is held on all masters? A lease on a mere quorum is one lost key away from a second holder."""
    thin = [lease for lease in held if lease.masters < lease.of and lease.held_ms >= SETTLED_MS]
    if not thin:
        return [Finding("leases", Severity.OK, f"{len(held)} held on this host, all of them on all masters")]
    named = ", ".join(f"{lease.resource} ({lease.masters} of {lease.of})" for lease in thin[:5])
    more = f" and {len(thin) - 5} more" if len(thin) > 5 else ""
    then = "renewals put them back when the masters return; detached leases stay as they are until extended"
    return [Finding("leases", Severity.WARNING, f"on fewer than all masters: {named}{more}", then)]


def check_keys(spoilt: Sequence[str]) -> list[Finding]:
    """Has somebody else than lockd put something on the masters under a lease's name? It is nobody's vote."""
    if not spoilt:
        return []
    named, more = ", ".join(spoilt[:5]), f" and {len(spoilt) - 5} more" if len(spoilt) > 5 else ""
    what = f"somebody else than lockd has written to the masters: {named}{more} can't be locked"
    then = (
        "find out which host wrote them, and shut it out: see LockdVotesRefused.md. Each ends by itself a "
        "max TTL after somebody has tried to lock it, or at once by lockctl force-release"
    )
    return [Finding("keys", Severity.FAILURE, what, then)]
