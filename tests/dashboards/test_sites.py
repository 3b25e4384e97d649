"""Dashboards for sites whose labels and addresses are others than ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards.__main__ import main
from tests.dashboards.evaluated import values

OPTIONS = [
    "--selector", 'job="locks", env="prod"', "--masters-selector", 'job="locks-nodes"',
    "--cluster-label", "lock_cluster", "--runbook-url", "https://wiki.test/runbooks/",
]  # fmt: skip
NOT_LABELS = re.compile(r"\$\{?cluster\b|\bcluster:\w|\bvar-cluster=")
"""The variable, and how names of recorded series begin."""


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, dict[str, Any]]:
    assert main([*OPTIONS, "--out", str(tmp_path)]) == 0
    return {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}


def texts(part: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(part, str):
        yield key, part
    elif isinstance(part, dict):
        for name, one in part.items():
            yield from texts(one, name)
    elif isinstance(part, list):
        for one in part:
            yield from texts(one, key)


def test_nothing_of_ours_is_left_in_the_dashboards_of_another_site(elsewhere: dict[str, Any]) -> None:
    assert len(elsewhere) == 4
    for key, text in texts(elsewhere):
        assert not re.search(r'job="lockd|docs\.example\.com', text)
        if key in ("expr", "query", "definition", "legendFormat", "titleFormat"):
            assert not re.search(r"\bcluster\b", NOT_LABELS.sub("", text)), text
    assert "https://wiki.test/runbooks" in {text for _, text in texts(elsewhere)}


def test_variables_keep_their_names_as_alerts_link_to_them(elsewhere: dict[str, Any]) -> None:
    for board in elsewhere.values():
        assert "cluster" in {one["name"] for one in board["templating"]["list"]}


@pytest.mark.parametrize(
    ("board", "title", "series", "shown"),
    [
        (
            "lockd-overview",
            "Agents down",
            {
                'up{job="locks", env="prod", lock_cluster="shop", instance="web1:9480"}': "0x60",
                'up{job="locks", env="prod", lock_cluster="shop", instance="web2:9480"}': "1x60",
                'up{job="locks", env="test", lock_cluster="shop", instance="web3:9480"}': "0x60",
            },
            {"{}": 1},
        ),
        (
            "lockd-masters",
            "Master host up",
            {
                'up{job="locks-nodes", lock_cluster="shop", master="m1", instance="m1:9100"}': "1x60",
                'up{job="locks-nodes", lock_cluster="shop", master="m2", instance="m2:9100"}': "0x60",
                'up{job="lockd-masters", lock_cluster="shop", master="m3", instance="m3:9100"}': "1x60",
            },
            {'{master="m1"}': 1, '{master="m2"}': 0},
        ),
    ],
)
def test_its_series_are_shown(
    elsewhere: dict[str, Any], board: str, title: str, series: dict[str, str], shown: dict[str, int],
    tmp_path: Path,
) -> None:  # fmt: skip
    [panel] = [one for one in elsewhere[board]["panels"] if one["title"] == title]
    [target] = panel["targets"]
    assert values(target["expr"], series, tmp_path) == shown


def test_a_label_that_prometheus_would_refuse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--cluster-label", "my-cluster", "--out", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
