"""Prometheus and Alertmanager with our rules and routes, and whom they tell.

The rules are the real ones, but every `for` and every range is divided by FACTOR: minutes become seconds.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lockd.dev.processes import LOOPBACK
from tests.harness.prometheus import ALERTS, RULES, Monitoring, Target, get

FACTOR = 20
"""5 minutes become 15 seconds. Ages written into a rule as a number of seconds stay what they are."""
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def shortened(text: str) -> str:
    """Every `for: 5m`, `[5m]`, `[1h:1m]`, `interval: 1m` and `group_wait: 30s` divided by FACTOR."""

    def divide(match: re.Match[str]) -> str:
        ms = int(match[2]) * SECONDS[match[3]] * 1_000 // FACTOR
        return f"{match[1]}{ms}ms"

    return re.sub(
        r"((?:for: |\[|:(?=\w+\])|\binterval: |group_wait: |group_interval: ))(\d+)([smhd])\b", divide, text
    )


@dataclass(frozen=True)
class Alert:
    """One that Alertmanager has."""

    name: str
    severity: str
    inhibited: bool


@dataclass(frozen=True)
class Page:
    """One incident at a receiver: whatever it is told of one group of alerts, until they are over."""

    group: str
    alerts: frozenset[str]


class Shortened(Monitoring):
    """With our own rules and routes, and whom they tell."""

    def __init__(self, folder: Path, targets: Sequence[Target]) -> None:
        folder.mkdir(parents=True)
        self._receiver = Receiver()
        for path in RULES:
            (folder / path.name).write_text(shortened(path.read_text()))
        routes = shortened((ALERTS / "alertmanager.yml").read_text())
        super().__init__(
            folder,
            targets,
            routes.replace(Receiver.STAND_IN, self._receiver.address),
            "--query.lookback-delta=5s",
            "--rules.alert.resend-delay=1s",
            rules=[folder / path.name for path in RULES],
        )

    def told(self, receiver: str) -> set[str]:
        """The names of the alerts that a receiver of alertmanager.yml has been told of."""
        return self._receiver.alerts(f"/{receiver}")

    def pages(self) -> list[Page]:
        """What the pager has been told, by incident."""
        return self._receiver.pages("/pager")

    def close(self) -> None:
        super().close()
        self._receiver.close()

    def alerts(self) -> list[Alert]:
        """Those that Alertmanager has now."""
        found = json.loads(get(f"{self.alertmanager_url}/api/v2/alerts"))
        return [
            Alert(one["labels"]["alertname"], one["labels"]["severity"], bool(one["status"]["inhibitedBy"]))
            for one in found
        ]


class Receiver:
    """Who gets the notifications: for each path of a webhook, the alerts that came there, by their group."""

    STAND_IN = "127.0.0.1:9095"
    """Where alertmanager.yml has its webhooks."""

    def __init__(self) -> None:
        came: dict[str, dict[str, set[str]]] = {}

        class Take(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                firing = [one for one in body["alerts"] if one["status"] == "firing"]
                names = came.setdefault(self.path, {}).setdefault(body["groupKey"], set())
                names.update(one["labels"]["alertname"] for one in firing)
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
        return {name for page in self.pages(path) for name in page.alerts}

    def pages(self, path: str) -> list[Page]:
        groups = dict(self._came.get(path, {}))
        return [Page(group, frozenset(names)) for group, names in groups.items()]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
