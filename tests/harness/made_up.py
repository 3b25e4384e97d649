"""A real Prometheus over series that a program made: states that no cluster on one machine can be in."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lockd.dev.processes import LOOPBACK, Child, free_ports
from tests.harness.prometheus import output_of, program, wait_ready

Samples = Iterable[tuple[float, float]]
"""Times in seconds, and what was then."""


def series(name: str, labels: Mapping[str, str]) -> str:
    """Its name as Prometheus writes it."""
    written = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{written}}}"


@contextmanager
def prometheus_of(folder: Path, made_up: Iterable[tuple[str, Samples]]) -> Iterator[str]:
    """The address of a Prometheus that knows these series and scrapes nothing."""
    text, data = folder / "made-up.txt", folder / "tsdb"
    with text.open("w") as lines:
        for name, samples in made_up:
            lines.writelines(f"{name} {value} {time_s:.3f}\n" for time_s, value in samples)
        lines.write("# EOF\n")
    output_of(program("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data))
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    (folder / "prometheus.yml").write_text("{}\n")
    command: Sequence[str] = (
        program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=10y",
        f"--web.listen-address={address}",
        "--log.level=warn",
    )
    server = Child("made-up", command, folder / "made-up.log")
    try:
        server.start()
        wait_ready(f"http://{address}")
        yield f"http://{address}"
    finally:
        server.kill()


def query_range(expr: str, start_s: float, end_s: float, step_s: float) -> str:
    """What to ask it."""
    asked = {"query": expr, "start": start_s, "end": end_s, "step": step_s}
    return f"/api/v1/query_range?{urllib.parse.urlencode(asked)}"


def points(answer: Mapping[str, Any]) -> list[list[float]]:
    """The values of each series of an answer, in the order of time."""
    return [[float(value) for _, value in one["values"]] for one in answer["data"]["result"]]
