"""What all commands of the guard share."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from .config import GuardConfig
from .delay import NS_PER_S
from .disk import Disk, Untrusted
from .errors import Busy, Unreadable
from .host import Host
from .metrics import GuardReading, metrics_text
from .reasons import Dirt
from .records import GuardState, Mark, Permit
from .state_folder import ENTER_LOCK, MARK, PERMIT, StateFolder

METRICS_EVERY_NS = 15 * NS_PER_S


class Guard:
    """One master's guard: its configuration, its machine and its files, for one command."""

    def __init__(self, config: GuardConfig, host: Host | None = None, disk: Disk | None = None) -> None:
        self.config = config
        self.host = host or Host()
        self.disk = disk or Disk()
        self.folder = StateFolder(self.disk, config.state_dir)

    def lock(self, name: str, wait_s: float | None = None) -> Any:
        return self.disk.lock(self.folder.path / name, wait_s)

    def begin_phase(self, state: GuardState, phase: str, dirt: Dirt | None) -> None:
        """Note what happens now. Each phase has a number, which ties proofs to it."""
        state.generation += 1
        state.phase = phase
        state.boot_id = self.host.boot_id()
        state.reason, state.detail = (dirt.reason.value, dirt.detail) if dirt else ("", "")
        state.revoked = ""
        state.until_ns = 0
        state.changed_at_s = self.host.wall_ns() // NS_PER_S

    def generation(self) -> int:
        """Changes with each start and stop; -1 when it can't be read."""
        try:
            state = self.folder.state()
        except Unreadable:
            return -1
        return state.generation if state else -1

    def in_service(self) -> int | None:
        """The generation of the start that has a permit in this boot; None when none has."""
        permit = self.folder.get_if_readable(PERMIT, Permit)
        if permit is None or permit.boot_id != self.host.boot_id():
            return None
        return permit.generation if permit.generation == self.generation() else None

    def now(self, state: GuardState) -> str:
        if state.boot_id == self.host.boot_id():
            if state.phase == "quarantine" and self._enter_runs():
                return "quarantined"
            if state.phase == "in_service" and self.is_there(PERMIT):
                return "in service"
        return "stopped"

    def _enter_runs(self) -> bool:
        try:
            with self.lock(ENTER_LOCK, 0):
                return False
        except Busy:
            return True

    def is_there(self, name: str) -> bool:
        try:
            self.disk.read(self.folder.path / name)
        except FileNotFoundError:
            return False
        return True

    def delay_s(self, state: GuardState) -> float:
        return self.config.quarantine_ns(max(self.config.max_ttl_ms, state.longest_ttl_ms)) / NS_PER_S

    def write_metrics(self) -> None:
        """The textfile, from what is on disk. A start or stop never fails for it."""
        if self.config.textfile is None:
            return
        # Not what node_exporter reads, until it is whole.
        new = self.config.textfile.with_name(f".{self.config.textfile.name}.{os.getpid()}")
        try:
            state = self.folder.state() or GuardState()
            self.disk.write(new, metrics_text(self._reading(state)).encode(), 0o644, sync=False)
            self.disk.rename(new, self.config.textfile)
        except (OSError, Unreadable) as error:
            then = (
                ("use a folder for `textfile` that only root can write to")
                if isinstance(error, Untrusted)
                else ""
            )
            self.host.log("error", "no_metrics", file=self.config.textfile, why=error, then=then)
            with suppress(OSError):
                self.disk.unlink(new)

    def _reading(self, state: GuardState) -> GuardReading:
        quarantined = state.phase == "quarantine" and state.boot_id == self.host.boot_id()
        ends_ns = self.host.wall_ns() + state.until_ns - self.host.boottime_ns()
        return GuardReading(
            state,
            quarantined=quarantined,
            until_s=round(ends_ns / NS_PER_S, 3) if quarantined else 0,
            delay_s=self.delay_s(state),
            marked_s=self._marked_s(state),
        )

    def _marked_s(self, state: GuardState) -> int:
        """When the data was last noted; only for a Redis that may run: a stopped one writes nothing."""
        if self.now(state) != "in service":
            return 0
        mark = self.folder.get_if_readable(MARK, Mark)
        return mark.at_s if mark else state.changed_at_s
