"""The configuration that an agent works with now, in one place."""

from __future__ import annotations

from lockd.config.model import Config


class Current:
    """A reload replaces the whole configuration here. So read a setting that a reload may change from here
    each time, and keep no copy. The event loop replaces it; other threads may read it."""

    def __init__(self, config: Config) -> None:
        self.config = config
