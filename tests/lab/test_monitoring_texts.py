"""What the roles of the monitoring host write and link to, by their templates alone: no host is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lab.local_ansible import needs_ansible
from tests.lab.nowhere import inventory, rendered

pytestmark = needs_ansible


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({"lockd_grafana_listen_port": 3001}, "http://localhost:3001"),
        (
            {"lockd_grafana_listen_host": "0.0.0.0", "lockd_grafana_cert_file": "/cert.pem"},
            "https://127.0.3.1:3000",
        ),
    ],
)
def test_alerts_link_to_where_grafana_says_that_it_is(
    tmp_path: Path, variables: dict[str, Any], url: str
) -> None:
    hosts = inventory(tmp_path, **variables)
    assert rendered(hosts, "prometheus", url="{{ lockd_prometheus_grafana_url }}") == {"url": url}
    assert rendered(hosts, "grafana", url="{{ grafana_ini.server.root_url }}") == {"url": url}
