"""The configuration that an agent works with now, in one place."""

from __future__ import annotations

from lockd.config.model import Config


class Current:
    """A reload puts another one here, whole. So whoever wants a setting that a reload may change asks here
    each time, and keeps none. Replaced by the event loop; other threads may read it."""

    def __init__(self, config: Config) -> None:
        self.config = config
