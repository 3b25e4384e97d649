"""Reading the configuration again while the agent works (SIGHUP, RELOAD): all of it takes effect at one
moment, or none of it.

What takes time, and what may fail, is done first, and in a separate thread: the file is read and checked,
users and groups are looked up. Then nothing is left that could go wrong half-way. If a directory of users
does not answer, the reload ends, and the agent can still stop.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.config.model import Config, load
from lockd.config.problems import ConfigError, Problem
from lockd.config.reload import Changes, changes
from lockd.config.warnings import warnings_of
from lockd.metrics.collector import Metrics
from lockd.server.canary import Canary
from lockd.server.log import EventLog
from lockd.server.peer import Permissions
from lockd.server.shared import Shared
from lockd.server.systemd import Silence
from lockd.threads import in_thread

T = TypeVar("T")
PATIENCE_S = 10.0


class Outcome(NamedTuple):
    """What a reload did, or would do.

    status: `reloaded` (`changed`, if it only looked) or `unchanged`. Or nothing was changed, because some
    settings take a restart (`refused`) or the file has errors (`invalid`).
    """

    status: str
    changes: Changes = Changes((), ())
    problems: tuple[str, ...] = ()


class _Loaded(NamedTuple):
    """What can't fail any more."""

    config: Config
    permissions: Permissions
    warnings: list[str]

    @classmethod
    def of(cls, config: Config) -> "_Loaded":
        """Asks the user database."""
        return cls(config, Permissions(config), warnings_of(config))


class Reload:
    def __init__(
        self,
        current: Current,
        shared: Shared,
        metrics: Metrics,
        canary: Canary,
        log: EventLog,
        notify: Silence,
        adopted: Callable[[], None],
    ) -> None:
        self._current = current
        self._shared = shared
        self._metrics = metrics
        self._canary = canary
        self._log = log
        self._notify = notify
        self._adopted = adopted
        self._one_at_a_time = asyncio.Lock()

    async def begin(self) -> None:
        """Look up what the configuration names that the agent was started with. It takes as long as the user
        database does."""
        async with self._one_at_a_time:
            loaded = await in_thread(partial(_Loaded.of, self._current.config))
            self._shared.permissions = loaded.permissions
            self._warn(loaded)

    async def look(self) -> Outcome:
        """What it would do."""
        async with self._one_at_a_time:
            outcome, _ = await self._load()
            return outcome._replace(status="changed") if outcome.status == "reloaded" else outcome

    async def run(self, by: str) -> Outcome:
        """Do it. by: who asked for it, for the log."""
        async with self._one_at_a_time:
            self._notify.reloading()
            said = "reload failed: see the log"
            try:
                outcome, loaded = await self._load()
                if loaded is not None:
                    self._adopt(loaded)
                said = self._tell(outcome, loaded, by)
            finally:
                self._notify.reloaded(said)
            return outcome

    async def _load(self) -> tuple[Outcome, _Loaded | None]:
        """The result, and what has to be adopted."""
        try:
            loaded = await in_time(self._read)
        except ConfigError as error:
            return Outcome("invalid", problems=tuple(map(str, error.problems))), None
        found = changes(self._current.config, loaded.config)
        if found.restarted:
            return Outcome("refused", found), None
        return Outcome("reloaded" if found.reloaded else "unchanged", found), loaded

    def _read(self) -> _Loaded:
        source = self._current.config.source
        if source is None:
            raise ConfigError([Problem("configuration", "was not read from a file", "start it with one")])
        return _Loaded.of(load(source))

    def _adopt(self, loaded: _Loaded) -> None:
        """Everything in one turn of the event loop."""
        self._metrics.configure(loaded.config)
        self._current.config = loaded.config
        self._shared.permissions = loaded.permissions
        self._shared.quotas.reconfigure()
        self._log.set_level(loaded.config.log_level)
        self._canary.changed()
        self._shared.locks.keep_no_longer(boottime_ns())
        self._adopted()

    def _tell(self, outcome: Outcome, loaded: _Loaded | None, by: str) -> str:
        """To metrics and log; returns a line for `systemctl status`."""
        for problem in outcome.problems:
            self._log.always("reload_problem", problem=problem)
        if loaded is not None:
            self._warn(loaded)
        fingerprint, (changed, restart_needed) = self._current.config.fingerprint(), outcome.changes
        self._log.always(
            "reload",
            status=outcome.status,
            changed=",".join(changed),
            restart_needed=",".join(restart_needed),
            problems=len(outcome.problems),
            fingerprint=fingerprint,
            by=by,
        )
        if outcome.status == "invalid":
            self._metrics.reload.invalid()
            return "reload failed: the file has errors, so the configuration of before is in use"
        if outcome.status == "refused":
            self._metrics.reload.refused(restart_needed)
            return f"reload refused: a restart is needed for {', '.join(restart_needed)}"
        self._metrics.reload.worked()
        return f"serving with configuration {fingerprint}"

    def _warn(self, loaded: _Loaded) -> None:
        for warning in loaded.warnings:
            self._log.warning("config", warning=warning)


async def in_time(work: Callable[[], T], within_s: float = PATIENCE_S) -> T:
    """Returns the result. Raises ConfigError when it takes too long."""
    try:
        async with asyncio.timeout(within_s):
            return await in_thread(work)
    except TimeoutError as late:
        what = f"could not be read, with its users and groups looked up, within {within_s:g} s"
        raise ConfigError(
            [Problem("configuration", what, ("check the disk, and the lookup of users and groups"))]
        ) from late
