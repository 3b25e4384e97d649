"""The outcome of the last reload of the configuration."""

from __future__ import annotations

import time

from lockd.metrics.families import Measured, gauge

WORKED, REFUSED, INVALID = "ok", "refused", "invalid"


class ReloadMetrics(Measured):
    """status: of the last reload, WORKED before the first. restart_needed: the settings for which it was
    refused.

    The start of the agent counts as the first.
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
        "Always 1: the last reload was refused, because this setting has changed and takes a restart. Absent"
        " for all other settings.",
        by="setting",
    )
    def config_restart_needed(self) -> dict[str, int]:
        return dict.fromkeys(self.restart_needed, 1)

    def worked(self) -> None:
        self.status, self.restart_needed = WORKED, ()
        self._loaded_s = time.time()

    def refused(self, settings: tuple[str, ...]) -> None:
        """These differ, and take a restart."""
        self.status, self.restart_needed = REFUSED, settings

    def invalid(self) -> None:
        """The file has errors."""
        self.status, self.restart_needed = INVALID, ()
