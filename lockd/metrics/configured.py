"""Facts of the configuration that rules and dashboards need."""

from __future__ import annotations

from lockd import __version__
from lockd.build import build
from lockd.config.current import Current
from lockd.config.model import Config, LockClass
from lockd.metrics.classes import of_apps
from lockd.metrics.families import Measured, gauge, info


class ConfigMetrics(Measured):
    """Classes that were removed are shown as they last were, since their counters stay, too."""

    def __init__(self, current: Current) -> None:
        self._current = current
        self._classes: dict[str, LockClass] = {}

    def configure(self, config: Config) -> None:
        """Show these classes, too."""
        self._classes = self._classes | {label: config.class_named(label) for label in config.labels}

    @property
    def _config(self) -> Config:
        return self._current.config

    @info(
        "The version of the agent, and whether the code that every lock runs through is compiled or "
        "interpreted."
    )
    def build(self) -> dict[str, str]:
        return {"version": __version__, "build": build()}

    @info(
        "The configuration in use. Two agents with one fingerprint have the same configuration, apart from "
        "secrets and from where they listen."
    )
    def config(self) -> dict[str, str]:
        return {"fingerprint": self._config.fingerprint(), "name": self._config.cluster}

    @gauge("Masters that are configured.")
    def masters(self) -> int:
        return len(self._config.masters)

    @gauge("How many masters a lease needs.")
    def quorum(self) -> int:
        return self._config.quorum

    @gauge("The longest TTL that is granted.")
    def max_ttl_seconds(self) -> float:
        return self._config.max_ttl_ms / 1e3

    @gauge("How long a master may take to answer.")
    def master_timeout_seconds(self) -> float:
        return self._config.timeouts.master_ms / 1e3

    @gauge("How far a master's clock may be off the median before a fresh agent gives it no vote.")
    def clock_skew_allowance_seconds(self) -> float:
        return self._config.clock_skew_allowance_ms / 1e3

    @gauge(
        "Always 1. page_on_loss: whether losing a lease of this class pages somebody.",
        by=("class", "page_on_loss"),
    )
    def class_info(self) -> dict[str, dict[str, int]]:
        return {label: {str(of.page_on_loss).lower(): 1} for label, of in self._classes.items()}

    @gauge("A wait that takes longer than this counts as slow.", by="class")
    def class_wait_objective_seconds(self) -> dict[str, float]:
        return {label: of.wait_objective_ms / 1e3 for label, of in of_apps(self._classes).items()}

    @gauge("The longest that a LOCK may wait before it ends as TIMEOUT.", by="class")
    def class_max_wait_seconds(self) -> dict[str, float]:
        return {label: of.max_wait_ms / 1e3 for label, of in of_apps(self._classes).items()}
