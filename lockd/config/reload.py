"""Which settings a running agent can reload from its file, and which take a restart.

A setting can be reloaded if it is only read when something begins: a LOCK, a connection, a line of the log.
What has begun then keeps its terms. The rest is built into links, clocks, sockets and leases under way, or
has to be the same on all hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from lockd.config.model import Config
from lockd.config.sections import Section

_RELOADED = {"min_ttl_ms", "admin_group", "canary_ms", "defaults", "classes", "limits", "log_level"}
# Agents on other hosts list locks by it, and a held lease with a longer name could not be named.
_BUT = {"limits.resource_bytes"}


def _settings() -> Iterator[str]:
    """By path, as `masters` or `timeouts.dead_ms`."""
    for name, key in Config.keys.items():
        if isinstance(key.default, Section):
            yield from (f"{name}.{inner}" for inner in key.default.keys)
        else:
            yield name


SETTINGS = tuple(_settings())
RELOADED = tuple(one for one in SETTINGS if one.partition(".")[0] in _RELOADED and one not in _BUT)
RESTARTED = tuple(one for one in SETTINGS if one not in RELOADED)
"""They take a restart. So does any setting that is not listed above."""


class Changes(NamedTuple):
    """The settings that differ between two configurations."""

    reloaded: tuple[str, ...]
    restarted: tuple[str, ...]


def changes(before: Config, after: Config) -> Changes:
    def differing(settings: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(one for one in settings if _value(before, one) != _value(after, one))

    return Changes(differing(RELOADED), differing(RESTARTED))


def _value(config: Config, setting: str) -> Any:
    value: Any = config
    for name in setting.split("."):
        value = getattr(value, name)
    return value
