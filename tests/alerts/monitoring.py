"""Prometheus, Alertmanager and the exporters, as processes on the loopback address, and what they know.

The rules are the real ones, but every `for` and every range is divided by FACTOR: minutes become seconds.
"""

from __future__ import annotations

import json
import re
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lockd.dev.processes import LOOPBACK, Child, free_ports
from tests.harness.prometheus import ALERTS, alertmanager, get, prometheus
from tests.harness.waiting import eventually

FACTOR = 20
"""5 minutes become 15 seconds. Ages written into a rule as a number of seconds stay what they are."""
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def shortened(text: str) -> str:
    """Every `for: 5m`, `[5m]` and `group_wait: 30s` divided by FACTOR."""

    def divide(match: re.Match[str]) -> str:
        ms = int(match[2]) * SECONDS[match[3]] * 1_000 // FACTOR
        return f"{match[1]}{ms}ms"

    return re.sub(r"((?:for: |\[|group_wait: |group_interval: ))(\d+)([smhd])\b", divide, text)


@dataclass(frozen=True)
class Target:
    """What Prometheus scrapes, and the labels that it puts on all of it."""

    job: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Alert:
    """One that Alertmanager has."""

    name: str
    severity: str
    inhibited: bool


class Monitoring:
    """A fresh Prometheus and a fresh Alertmanager over the same targets, and whom that one tells."""

    def __init__(self, folder: Path, targets: Sequence[Target]) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.prometheus, self.alertmanager = (f"{LOOPBACK}:{port}" for port in free_ports(2))
        self._targets = [*targets, Target("alertmanager", self.alertmanager)]
        self._receiver = _Receiver()
        self._processes = [self._new_alertmanager(), self._new_prometheus()]

    def told(self, receiver: str) -> set[str]:
        """The names of the alerts that a receiver of alertmanager.yml has been told of."""
        return self._receiver.alerts(f"/{receiver}")

    def start(self) -> None:
        for process in self._processes:
            process.start()
        eventually(lambda: get(f"http://{self.alertmanager}/-/ready"), 30, "Alertmanager is ready")
        eventually(lambda: get(f"http://{self.prometheus}/-/ready"), 30, "Prometheus is ready")
        eventually(self._all_seen, 30, "Prometheus has scraped every target")

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
        self._receiver.close()

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """The samples of an instant query."""
        query = urllib.parse.urlencode({"query": expr})
        return json.loads(get(f"http://{self.prometheus}/api/v1/query?{query}"))["data"]["result"]

    def alerts(self) -> list[Alert]:
        """Those that Alertmanager has now."""
        found = json.loads(get(f"http://{self.alertmanager}/api/v2/alerts"))
        return [
            Alert(one["labels"]["alertname"], one["labels"]["severity"], bool(one["status"]["inhibitedBy"]))
            for one in found
        ]

    def _all_seen(self) -> bool:
        return len(self.ask("up == 1")) == len(self._targets)

    def _new_prometheus(self) -> Child:
        for rules in ALERTS.glob("lockd.*.yml"):
            (self._folder / rules.name).write_text(shortened(rules.read_text()))
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["lockd.*.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [self.alertmanager]}]}]},
            "scrape_configs": [
                {
                    "job_name": job,
                    "static_configs": [
                        {"targets": [one.address], "labels": dict(one.labels)}
                        for one in self._targets
                        if one.job == job
                    ],
                }
                for job in dict.fromkeys(one.job for one in self._targets)
            ],
        }
        options = ("--query.lookback-delta=5s", "--rules.alert.resend-delay=1s")
        return prometheus(self._folder, self.prometheus, config, *options)

    def _new_alertmanager(self) -> Child:
        text = shortened((ALERTS / "alertmanager.yml").read_text())
        path = self._folder / "alertmanager.yml"
        path.write_text(text.replace("127.0.0.1:9095", self._receiver.address))
        return alertmanager(self._folder, self.alertmanager, path)


class _Receiver:
    """Who gets the notifications: for each path of a webhook, the alerts that came there."""

    def __init__(self) -> None:
        came: dict[str, set[str]] = {}

        class Take(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                firing = [one for one in body["alerts"] if one["status"] == "firing"]
                came.setdefault(self.path, set()).update(one["labels"]["alertname"] for one in firing)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody reads it."""

        self._came = came
        self._server = ThreadingHTTPServer((LOOPBACK, 0), Take)
        self.address = f"{LOOPBACK}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def alerts(self, path: str) -> set[str]:
        return set(self._came.get(path, ()))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
