"""Why a start of Redis is not clean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Reason(str, Enum):
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
