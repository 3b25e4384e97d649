"""INFO: what the agent knows about itself, in sections as Redis has them."""

import os
import re
import time
from collections.abc import Iterator
from urllib.parse import quote

from lockd import __version__
from lockd.build import build
from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.core.owners import Process
from lockd.core.validity import NS_PER_MS, NS_PER_S
from lockd.masters.fleet import Fleet
from lockd.metrics.collector import Metrics
from lockd.metrics.occupancy import ClassOccupancy
from lockd.server.commands.command import Argument, Command, Group
from lockd.server.commands.connection import REDIS_VERSION
from lockd.server.commands.readings import Readings
from lockd.server.dropin.script_cache import RefusedScript, ScriptCache
from lockd.server.dropin.usage import UNNAMED, Usage
from lockd.server.peer import Peer
from lockd.server.resp import replies
from lockd.server.session import Session
from lockd.server.shared import Shared

COMMANDS = Group()

_PLAIN = "".join(chr(code) for code in range(ord(" "), ord("~") + 1) if chr(code) not in "%,=")


class Info:
    def __init__(
        self,
        current: Current,
        shared: Shared,
        fleet: Fleet,
        metrics: Metrics,
        readings: Readings,
        usage: Usage,
        scripts: ScriptCache,
    ) -> None:
        self._current = current
        self._locks = shared.locks
        self._quotas = shared.quotas
        self._shared = shared
        self._fleet = fleet
        self._metrics = metrics
        self._readings = readings
        self._usage = usage
        self._scripts = scripts
        self._started_s = time.monotonic()

    @COMMANDS(
        Command(
            "info",
            -1,
            "server",
            ("loading", "stale"),
            "Returns the state of the agent.",
            "text: lines of field:value under # headings",
            (Argument("section", optional=True),),
        )
    )
    def _info(self, session: Session, words: list[bytes]) -> None:
        wanted = {word.decode(errors="replace").lower() for word in words[1:]}
        # Not part of `all`: they have to look at all leases, and all connections.
        if wanted == {"classes"}:
            session.later(lambda _place: self.classes(session))
        elif wanted == {"processes"}:
            session.later(lambda _place: self.processes(session))
        else:
            session.later(lambda _place: self.info(session, wanted))

    async def info(self, session: Session, wanted: set[str]) -> bytes:
        return await self._shared.turns.answer(
            session.account,
            lambda: replies.bulk(self._text(wanted, session.peer).encode(), session.protocol),
        )

    def _text(self, wanted: set[str], peer: Peer) -> str:
        """The text of INFO: sections as Redis has them, so that clients that look for `loading:0` find it."""
        canary, config = self._metrics.canary.trouble, self._current.config
        sections: dict[str, dict[str, object]] = {
            "server": {
                "redis_version": REDIS_VERSION,
                "lockd_version": __version__,
                "build": build(),
                "process_id": os.getpid(),
                "uptime_in_seconds": int(time.monotonic() - self._started_s),
                "config_file": config.source or "",
                "config_fingerprint": config.fingerprint(),
                "config_last_reload": self._metrics.reload.status,
                "config_restart_needed": " ".join(self._metrics.reload.restart_needed),
                "cluster": config.cluster,
                "max_ttl_ms": config.max_ttl_ms,
                "tcp_port": 0,
            },
            "persistence": {"loading": 0},
            "replication": {"role": "master"},
            "clients": {
                "connected_clients": self._quotas.all.connections,
                "buffered_bytes": self._quotas.all.buffered_bytes,
            },
            "agent": {
                "leases": self._locks.held,
                "waiters": self._locks.waiting,
                "masters": len(self._fleet.links),
                "quorum": config.quorum,
                "masters_voting": self._fleet.giving().bit_count(),
                "clock_slew_ppm": self._fleet.slewing.ppm,
                "draining": int(self._locks.draining),
                "canary_failures": canary.failures,
                "canary_trouble": canary.code,
                "journal_trouble": self._metrics.agent.journal_trouble(),
                **self._metrics.leases.totals(),
            },
        }
        sections["dropin"] = {
            **{f"library_{_word(name)}": f"requests={count}" for name, count in self._usage.requests.items()},
            **{
                f"refused_script_{one.digest}": _refused_script(one)
                for one in self._scripts.refused.values()
                if peer.uid in one.uids or self._shared.permissions.is_admin(peer)
            },
        }
        everything = not wanted or wanted & {"all", "everything", "default"}
        texts = (
            f"# {name.capitalize()}\r\n" + "".join(f"{k}:{v}\r\n" for k, v in fields.items())
            for name, fields in sections.items()
            if everything or name in wanted
        )
        return "\r\n".join(texts)

    async def classes(self, session: Session) -> bytes:
        """The section of INFO that has to look at all leases: what is held and waited for, by class."""
        async with self._readings.listings.slot(session.account):
            await self._shared.turns.through(session.account, self._metrics.occupancy.steps())
        occupancy = self._metrics.occupancy.last
        totals = self._metrics.leases.totals_by_class()
        lines = (_class_line(label, of, totals[label]) for label, of in occupancy.by_class.items())
        return replies.bulk("".join(("# Classes\r\n", *lines)).encode(), session.protocol)

    async def processes(self, session: Session) -> bytes:
        """The section of INFO that says whose locks live with which process. Operators see all processes,
        others only theirs."""
        peer, lines = session.peer, list[str]()
        sees_all, unseen = self._shared.permissions.is_admin(peer), 0

        def steps() -> Iterator[None]:
            nonlocal unseen
            for connection in list(self._shared.sessions):
                unseen += connection.ties.process is None and not connection.for_operators
                yield
            for process in list(self._shared.processes.all):
                if sees_all or process.uid == peer.uid:
                    lines.append(_process_line(process))
                yield

        async with self._readings.listings.slot(session.account):
            await self._shared.turns.through(session.account, steps())
        text = "".join(("# Processes\r\n", f"unseen_connections:{unseen}\r\n", *lines))
        return replies.bulk(text.encode(), session.protocol)


def _process_line(process: Process) -> str:
    numbers = f"uid={process.uid},connections={len(process.connections)},leases={len(process.leases)}"
    return f"process_{process.pid}:{numbers}\r\n"


def _word(text: str) -> str:
    """As part of a field's name or value, without the characters that separate those."""
    return re.sub(r"[^!-~]|[:,=]", "_", text)


def _escaped(text: str) -> str:
    """As a field's value: percent signs encode the characters that separate values, and all that is not plain
    text."""
    return quote(text, safe=_PLAIN)


def _refused_script(script: RefusedScript) -> str:
    ago_s = (boottime_ns() - script.last_ns) // NS_PER_S
    library = _word(script.library) or UNNAMED
    return f"library={library},why={_escaped(script.why)},count={script.count},seconds_ago={ago_s}"


def _class_line(label: str, of: ClassOccupancy, totals: dict[str, int]) -> str:
    """As Redis writes its keyspace: name:key=value,key=value."""
    numbers = {
        "leases": of.leases,
        "waiters": of.waiters,
        "oldest_wait_ms": of.oldest_wait_ns // NS_PER_MS,
        "lost": of.lost,
        "on_fewer_masters": of.on_fewer,
        **totals,
    }
    return f"class_{label}:{','.join(f'{key}={value}' for key, value in numbers.items())}\r\n"
