"""Real agents over real masters: started, asked and stopped by their own handles."""

from __future__ import annotations

import json
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from prometheus_client.parser import text_string_to_metric_families

from lockd.config.socket import operators_socket
from lockd.dev.processes import LOOPBACK, Child, LocalMaster, default_server, free_ports
from lockd.http.server import FRESH_S
from tests.harness.masters import running_masters, short_folder
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import answers_ping, as_map

PATIENT = {
    "timeouts": {"master_ms": 5_000, "connect_ms": 5_000, "dead_ms": 20_000},
    "clock_skew_allowance_ms": 20_000,
}
"""What holds of every agent of a test that doesn't say otherwise: a machine that is busy with other things is
no master in trouble."""
AS_IS = {"bound": "process"}
"""The `defaults` of classes as they are where nobody says otherwise."""


class AgentProcess(Child):
    """A `lockd serve` of its own. `on_port_taken` chooses another port for /metrics and writes it down."""

    def __init__(
        self,
        config_path: Path,
        socket_path: Path,
        log_path: Path,
        name: str = "agent",
        on_port_taken: Callable[[], None] = lambda: None,
    ) -> None:
        command = (sys.executable, "-m", "lockd", "serve", "--config", config_path)
        super().__init__(name, command, log_path)
        self.socket_path = socket_path
        self._on_port_taken = on_port_taken

    def start(self, wait: bool = True) -> None:
        """Start it; with `wait`, return when it answers a PING. AssertionError with its log when not."""
        super().start()
        if not wait:
            return
        for _ in range(3):
            try:
                self.wait_ready()
                return
            except AssertionError:
                # Another test run on this machine may have taken the port since it was found free.
                if self.running or b"can't serve /metrics" not in self.log():
                    raise
                self._on_port_taken()
                super().start()
        self.wait_ready()

    def wait_ready(self) -> None:
        try:
            eventually(lambda: not self.running or answers_ping(self.socket_path), "the agent answers a PING")
            assert self.running, f"the agent ended with status {self.exit_status}"
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_tail(30)}") from None

    def restart(self) -> None:
        self.stop()
        self.start()


class Cluster:
    """Masters, one agent over them, and ways to talk to it; made by the fixtures `cluster`, `make_cluster`.

    More agents over the same masters: `add_agent`. run: where the socket is, and the journal, if not in
    `folder` with all else.
    """

    def __init__(
        self,
        folder: Path,
        masters: list[LocalMaster],
        overrides: dict[str, Any],
        name: str = "agent",
        run: Path | None = None,
    ) -> None:
        self.folder = folder
        self.masters = masters
        self.name = name
        self.socket = (run or folder) / f"{name}.sock"
        self.config_path = folder / f"{name}.yml"
        self.told = folder / "told"
        self.metrics_port = self._free_port()
        self._overrides = overrides
        self._others: list[Cluster] = []
        self._clients: list[redis.Redis] = []
        self._links: list[socket.socket] = []
        self._scraped_s = float("-inf")
        self.write_config()
        log_path = folder / "log" / f"{name}.log"
        self.agent = AgentProcess(self.config_path, self.socket, log_path, name, self._move_metrics)

    @contextmanager
    def configuration_kept(self) -> Iterator[Cluster]:
        """What was written into its file meanwhile is taken back in the end; who asks for this reloads it."""
        started_with = self.config_path.read_text()
        yield self
        self.config_path.write_text(started_with)

    def _free_port(self) -> int:
        return free_ports(1, avoid=[master.port for master in self.masters])[0]

    def _move_metrics(self) -> None:
        self.metrics_port = self._free_port()
        self.write_config()

    def config(self) -> dict[str, Any]:
        """The document that the agent's configuration file holds."""
        defaults: dict[str, Any] = {
            "cluster": "test",
            "masters": [{"name": master.name, "address": master.address} for master in self.masters],
            "socket": {"path": str(self.socket)},
            "metrics": f"{LOOPBACK}:{self.metrics_port}",
            "canary_ms": 0,  # tests that count what is locked count their own locks
            # Tests are many apps in one process.
            "defaults": {"bound": "connection"},
            **PATIENT,
        }
        return merged(defaults, self._overrides)

    def write_config(self, **overrides: Any) -> None:
        """Write the configuration file anew, with more overrides; `agent.restart()` makes them count."""
        self._overrides = merged(self._overrides, overrides)
        self.config_path.write_text(json.dumps(self.config(), indent=1))  # JSON is YAML

    @property
    def operators_socket(self) -> Path:
        return Path(operators_socket(str(self.socket)))

    def operator(self, **options: Any) -> redis.Redis:
        """As `client`, over the operators' socket."""
        return self.client(unix_socket_path=str(self.operators_socket), **options)

    def client(self, protocol: int = 2, **options: Any) -> redis.Redis:
        """A new redis-py client over the agent's socket, closed at the end of the test. It does not retry."""
        ours = {"unix_socket_path": str(self.socket), "socket_timeout": PATIENCE_S}
        options = {**ours, "decode_responses": True, "retry": None} | options
        client = redis.Redis(protocol=protocol, **options)
        self._clients.append(client)
        return client

    def raw(self, timeout_s: float = PATIENCE_S) -> socket.socket:
        """A plain socket connected to the agent, closed at the end of the test."""
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(timeout_s)
        link.connect(str(self.socket))
        self._links.append(link)
        return link

    def form(self, unused: bool = True) -> None:
        """Form the cluster and return when it is; the agent may still be connecting to its masters."""
        command = ("FORM", "UNUSED") if unused else ("FORM",)

        def formed() -> bool:
            status = as_map(self._ask(*command))["status"]
            return status in ("formed", "already")

        eventually(formed, "the cluster is formed")

    def master_states(self) -> list[dict[str, Any]]:
        """MASTERS, as a list of dicts."""
        return [as_map(entry) for entry in self._ask("MASTERS")]

    def voting(self) -> int:
        return sum(entry["vote"] == 1 for entry in self.master_states())

    def wait_voting(self, count: int) -> None:
        """Return when exactly `count` masters have a vote."""
        try:
            eventually(lambda: self.voting() == count, f"{count} masters have a vote")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.describe()}") from None

    def describe(self) -> str:
        try:
            states = self.master_states()
        except (OSError, redis.RedisError) as error:
            return f"MASTERS failed: {error}"
        return ", ".join("{name}={state} vote={vote} {reason}".format(**one).strip() for one in states)

    def metrics(self) -> dict[str, float]:
        """/metrics now: 'name{label="value",…}' (labels in order of the alphabet) to its value."""
        # What is read a moment after it was made is as it was then.
        time.sleep(max(0.0, self._scraped_s + FRESH_S - time.monotonic()))
        url = f"http://{LOOPBACK}:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
            text = reply.read().decode()
        self._scraped_s = time.monotonic()
        return {
            _series(sample.name, sample.labels): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def metric(self, name: str, **labels: str) -> float:
        """The sum of all series of that name which carry these labels; 0 when there is none."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        total = 0.0
        for series, value in self.metrics().items():
            series_name, _, rest = series.partition("{")
            if series_name == name and wanted <= set(rest.rstrip("}").split(",")):
                total += value
        return total

    def log_text(self) -> str:
        """All that this agent has logged, over its restarts."""
        return self.agent.log_path.read_text(errors="replace")

    def add_agent(self, run: Path | None = None, **overrides: Any) -> Cluster:
        """One more agent over the same masters, as on another host: running, these overrides over its own."""
        name = f"agent{len(self._others) + 2}"
        other = Cluster(self.folder, self.masters, merged(self._overrides, overrides), name, run)
        self._others.append(other)
        other.agent.start()
        return other

    def end_others(self) -> None:
        """End the agents that were added."""
        for other in self._others:
            other.close()

    def close(self) -> None:
        """End the agents that belong to it and close its connections."""
        self.end_others()
        for client in self._clients:
            client.close()
        for link in self._links:
            link.close()
        self.agent.kill()

    def _ask(self, *command: str) -> Any:
        with redis.Redis(unix_socket_path=str(self.socket), decode_responses=True, retry=None) as client:
            return client.execute_command(*command)


MakeCluster = Callable[..., Cluster]
"""What the fixture `make_cluster` gives."""


@contextmanager
def running_cluster(masters: int = 3, *, program: str | None = None, **overrides: Any) -> Iterator[Cluster]:
    """A formed cluster on fresh masters that all vote. program: the module that its agent runs in, which
    tells and is told by the file `told`."""
    with short_folder() as folder, running_masters(folder, masters, default_server()) as running:
        cluster = Cluster(folder, running, overrides)
        if program is not None:
            agent = cluster.agent
            agent.command = (sys.executable, "-m", program, str(cluster.told), *agent.command[3:])
        try:
            cluster.agent.start()
            cluster.form()
            cluster.wait_voting(masters)
            yield cluster
        finally:
            cluster.close()


def merged(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """`base` with the overrides in it; sections are merged, everything else is replaced."""
    result = dict(base)
    for key, value in overrides.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def _series(name: str, labels: dict[str, str]) -> str:
    inside = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"{name}{{{inside}}}" if inside else name
