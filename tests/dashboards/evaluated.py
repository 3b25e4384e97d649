"""What promtool makes of an expression, with series that are made up."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.dashboards.variables import concrete
from tests.harness.prometheus import program
from tests.harness.waiting import PATIENCE_S

NOW_S = 607
"""Between two scrapes, as nearly always: there `increase` makes a little more of 1 than 1."""
MADE_UP = Mapping[str, str]
"""Names of series with their values, as promtool writes them: '1x40' is 1 all the time."""


def values(expr: str, series: MADE_UP, folder: Path) -> dict[str, float]:
    """What an expression is at NOW_S, by the labels of what it returns."""
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": numbers} for name, numbers in series.items()],
        "promql_expr_test": [{"expr": concrete(expr), "eval_time": f"{NOW_S}s", "exp_samples": []}],
    }
    path = folder / "made-up.yml"
    path.write_text(json.dumps({"evaluation_interval": "15s", "tests": [test]}))  # JSON is YAML
    # It expects nothing, so that promtool complains about all that there is.
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(path)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    told = done.stdout + done.stderr
    if done.returncode == 0:
        return {}
    got = re.search(r"\n\s*got: (.*)", told)
    assert got, told
    return {labels: float(value) for labels, value in re.findall(r"(\{.*?\}) (\S+?)(?:,|$)", got[1])}
