"""What became of the last reload of the configuration."""

from __future__ import annotations

import time

from lockd.config.reload import RESTARTED
from lockd.metrics.families import Measured, gauge

WORKED, REFUSED, INVALID = "ok", "refused", "invalid"


class ReloadMetrics(Measured):
    """status: of the last one, WORKED before the first. restart_needed: the settings that it was refused for.

    The start counts as the first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.status = WORKED
        self.restart_needed: tuple[str, ...] = ()
        self._loaded_s = time.time()

    @gauge("Whether the configuration's last reload worked, 1 or 0; the start of the agent was one.")
    def config_last_reload_successful(self) -> int:
        return int(self.status == WORKED)

    @gauge("When the configuration was last loaded.")
    def config_last_reload_success_timestamp_seconds(self) -> float:
        return self._loaded_s

    @gauge(
        "Whether the last reload was refused, since this setting differs and takes a restart: 1 or 0.",
        by="setting",
    )
    def config_restart_needed(self) -> dict[str, int]:
        needed = self.restart_needed
        return {setting: int(setting in needed) for setting in RESTARTED}

    def worked(self) -> None:
        self.status, self.restart_needed = WORKED, ()
        self._loaded_s = time.time()

    def refused(self, settings: tuple[str, ...]) -> None:
        """These differ, and take a restart."""
        self.status, self.restart_needed = REFUSED, settings

    def invalid(self) -> None:
        """The file has mistakes."""
        self.status, self.restart_needed = INVALID, ()
