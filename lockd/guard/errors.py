"""What keeps the guard from its work, and its exit statuses."""

from __future__ import annotations

EXIT_OK, EXIT_REFUSED, EXIT_QUARANTINED, EXIT_STOPPED = 0, 1, 3, 4
# Neither 0 nor 128 + a signal: systemd, or a SuccessExitStatus=, could take those for a success.
EXIT_INTERRUPTED, EXIT_CONFIG = 75, 78


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
    """Something that a clean stop rests on does not hold, or can't be seen."""


class Interrupted(Exception):
    """A signal asked the guard to end."""


def refusal(what: str, then: str) -> GuardError:
    return GuardError(f"{what}. Redis is not started, and the next start waits in full. Next: {then}")
