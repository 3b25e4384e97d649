"""A resolver and a user database that a test can silence, for the processes it starts: names_shim.c is
preloaded into them."""

from __future__ import annotations

from pathlib import Path

from tests.harness.clock_shim import Preloaded


class Names(Preloaded):
    """Hosts, users and groups whose names end in -held. Such a host is 127.0.0.1, and there is no such user
    or group. Nobody is told so while they are held."""

    def __init__(self, path: Path) -> None:
        super().__init__(Path(__file__).with_name("names_shim.c"), path)

    def hold(self) -> None:
        """From now on they wait for their answer."""
        self.setting[0] = 1

    def answer(self) -> None:
        """They get it, also those that wait."""
        self.setting[0] = 0
