"""What the rules cost a Prometheus that watches many agents: python -m tests.alerts.cost (make rules-cost)

A real Prometheus scrapes so many agents, each with the series of a real one that has ten classes, and
evaluates the rules. Long windows find history: what rules read over 30 minutes or more is written into its
database first, agents' counters every --step seconds, what rules record every 15 s as Prometheus does.

For each group: how long an evaluation takes, and what share of the time until the next one that is. --against
COMMIT measures the rules and the agents of that commit, too. Real scrapes come every 15 s: rules that read
agents' counters over days then read 300 / 15 = 20 times as many samples as here.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

import click
from prometheus_client.parser import text_string_to_metric_families

from lockd.dev.processes import LOOPBACK, Child, free_ports
from tests.harness.prometheus import ROOT, find, get, output_of, program, wait_ready

CLASSES = 10
SCRAPE_S = 15
LONG_S = 1_800
"""Windows from here on need history."""
BLOCK_S = 7_200
"""Of Prometheus. promtool reads its whole input for each, so it is given one after the other."""
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_GROWS = {"granted", "worked", "released", "taken", "locked", "vote", "probe", "lock"}
"""Words of what happens all the time where all is well. Nothing else does, so that no alert fires."""
_GROW_WITHOUT_WORD = (
    "lockd_grants",
    "lockd_hand_offs",
    "lockd_hold_seconds",
    "lockd_release_margin",
    "process_cpu",
)
_WORDS = ("outcome", "reason", "question", "via")


@dataclass(frozen=True)
class Series:
    """One of an agent: `text` as a page has it, its value at first, and how fast it grows."""

    name: str
    text: str
    value: float
    per_second: float

    def at(self, seconds: float) -> float:
        return self.value + self.per_second * seconds


class Agent:
    """The page of an agent, by the exporter of the package in `tree`."""

    def __init__(self, tree: Path) -> None:
        command = [sys.executable, str(ROOT / "tests/harness/agent_series.py"), str(CLASSES)]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        page = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        self.series = list(_series_of(page))

    def page(self, seconds: float) -> bytes:
        return "".join(f"{one.text} {one.at(seconds):.15g}\n" for one in self.series).encode()


def _series_of(page: str) -> Iterator[Series]:
    now_s = time.time()
    for family in text_string_to_metric_families(page):
        rank: dict[str, int] = {}
        for sample in family.samples:
            labels = {label: word for label, word in sample.labels.items() if label != "le"}
            own = str(sorted(labels.items()))
            # Buckets hold those before them, and the last one holds what is counted.
            rank[own] = rank.get(own, 0) + sample.name.endswith("_bucket")
            grows = family.type in ("counter", "histogram", "summary") and _grows(sample.name, labels)
            value = now_s if sample.name.endswith("timestamp_seconds") and sample.value else sample.value
            yield Series(
                sample.name, _text(sample.name, sample.labels), value, max(1, rank[own]) if grows else 0
            )


def _grows(name: str, labels: dict[str, str]) -> bool:
    words = [labels[label] for label in _WORDS if label in labels]
    return words[0] in _GROWS if words else name.startswith(_GROW_WITHOUT_WORD)


def _text(name: str, labels: dict[str, str]) -> str:
    inside = ",".join(f'{label}="{word}"' for label, word in labels.items())
    return f"{name}{{{inside}}}" if inside else name


@contextmanager
def serving(agent: Agent) -> Iterator[str]:
    """The address at which every path is an agent. Its page is made once a second."""
    begun, made = time.time(), (-1, b"")

    class Page(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            nonlocal made
            second = int(time.time() - begun)
            if made[0] != second:
                made = (second, agent.page(second))
            page = made[1]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{LOOPBACK}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True)
class Side:
    """One of the two that are compared: its rules, and its agents."""

    name: str
    rules: tuple[Path, ...]
    agent: Agent

    def long_windows(self) -> set[str]:
        """The series that rules read over LONG_S or more."""
        found = set()
        for path in self.rules:
            for name, number, unit in re.findall(
                r"([a-z_:][\w:]*)(?:\{[^{}]*\})?\[(\d+)([smhd])(?::\w+)?\]", path.read_text()
            ):
                if int(number) * _SECONDS[unit] >= LONG_S:
                    found.add(name)
        return found


def side(name: str, tree: Path) -> Side:
    return Side(name, tuple(sorted((tree / "alerts").glob("lockd.*.yml"))), Agent(tree))


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """The files of a commit."""
    with tempfile.TemporaryDirectory(prefix="lockd-cost-") as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(folder)
        yield Path(folder)


def write_history(side: Side, hosts: int, hours: float, step_s: int, folder: Path) -> int:
    """Into the database in `folder`, until three minutes ago; returns how many samples that were."""
    names = side.long_windows()
    of_agents = [one for one in side.agent.series if one.name in names]
    recorded = [
        _text(
            name,
            {"cluster": "shop"} | ({"class": f"class{number}"} if name.startswith("cluster_class:") else {}),
        )
        for name in sorted(names)
        if ":" in name
        for number in range(CLASSES if name.startswith("cluster_class:") else 1)
    ]
    until_s = int(time.time()) - 180
    samples = 0
    for from_s in range(until_s - int(hours * 3_600), until_s, BLOCK_S):
        to_s = min(from_s + BLOCK_S, until_s)
        path = folder / "history.txt"
        with path.open("w") as lines:
            for one in of_agents:
                values = [(at_s, one.at(at_s - until_s)) for at_s in range(from_s, to_s, step_s)]
                for host in range(hosts):
                    text = _with_labels(one.text, f'cluster="shop",instance="web{host}:9480",job="lockd"')
                    lines.writelines(f"{text} {value:.15g} {at_s}\n" for at_s, value in values)
                    samples += len(values)
            for text in recorded:
                times = range(from_s, to_s, SCRAPE_S)
                lines.writelines(f"{text} 1 {at_s}\n" for at_s in times)
                samples += len(times)
            lines.write("# EOF\n")
        if samples:
            output_of(
                program("promtool"),
                "tsdb",
                "create-blocks-from",
                "openmetrics",
                "-q",
                str(path),
                f"{folder}/tsdb",
            )
        path.unlink()
    return samples


def _with_labels(text: str, more: str) -> str:
    name, _, inside = text.rstrip("}").partition("{")
    return f"{name}{{{','.join(filter(None, (more, inside)))}}}"


@dataclass
class Group:
    """Of rules: how long its evaluations took."""

    interval_s: float
    rules: int
    took_s: dict[str, float]
    """By when it was evaluated."""
    left_out: frozenset[str] = frozenset()

    def evaluated(self, when: str, took_s: float) -> None:
        if when not in self.left_out:
            self.took_s[when] = took_s

    def leave_out(self) -> None:
        """All evaluations until now."""
        self.left_out = frozenset(self.took_s)
        self.took_s.clear()

    @property
    def median_s(self) -> float:
        """Others on the machine delay some of them."""
        return median(self.took_s.values()) if self.took_s else 0.0


@dataclass
class Cost:
    """seconds_a_minute: of evaluations, all groups together."""

    hosts: int
    history: int
    groups: dict[str, Group]
    series: float = 0
    memory_bytes: float = 0
    samples_a_second: float = 0
    cpus: float = 0

    @property
    def seconds_a_minute(self) -> float:
        return sum(group.median_s * 60 / group.interval_s for group in self.groups.values())


def measure(side: Side, hosts: int, seconds: int, hours: float, step_s: int) -> Cost:
    folder = Path(tempfile.mkdtemp(prefix="lockd-cost-"))
    try:
        history = write_history(side, hosts, hours, step_s, folder)
        with serving(side.agent) as agents, _prometheus(folder, side, agents, hosts) as url:
            cost = Cost(hosts, history, {})
            _watch(url, cost, seconds)
        return cost
    finally:
        shutil.rmtree(folder)


@contextmanager
def _prometheus(folder: Path, side: Side, agents: str, hosts: int) -> Iterator[str]:
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    targets = [
        {
            "targets": [agents],
            "labels": {"cluster": "shop", "instance": f"web{host}:9480", "__metrics_path__": f"/{host}"},
        }
        for host in range(hosts)
    ]
    config = {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": [str(path) for path in side.rules],
        "scrape_configs": [{"job_name": "lockd", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    process = Child(
        "prometheus",
        (
            program("prometheus"),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address={address}",
            "--log.level=warn",
        ),
        folder / "prometheus.log",
    )
    process.start()
    try:
        wait_ready(f"http://{address}")
        yield f"http://{address}"
    finally:
        process.kill()


def _watch(url: str, cost: Cost, seconds: int) -> None:
    """The first minute warms it up, and is not counted. Then each group is evaluated once, at least."""
    begun_s = time.monotonic()
    first: dict[str, float] | None = None
    while True:
        now = _scalars(get(f"{url}/metrics"))
        _see_groups(url, cost)
        age_s = time.monotonic() - begun_s
        if first is None and age_s >= min(60, seconds / 2):
            first, first_s = now, age_s
            for group in cost.groups.values():
                group.leave_out()
        if first is not None and age_s >= seconds and all(group.took_s for group in cost.groups.values()):
            between_s = age_s - first_s
            cost.series = now["prometheus_tsdb_head_series"]
            cost.memory_bytes = now["process_resident_memory_bytes"]
            appended = "prometheus_tsdb_head_samples_appended_total"
            cost.samples_a_second = (now[appended] - first[appended]) / between_s
            cost.cpus = (now["process_cpu_seconds_total"] - first["process_cpu_seconds_total"]) / between_s
            return
        time.sleep(2)


def _scalars(page: str) -> dict[str, float]:
    """The sums of all series of one name."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def _see_groups(url: str, cost: Cost) -> None:
    for found in json.loads(get(f"{url}/api/v1/rules"))["data"]["groups"]:
        group = cost.groups.setdefault(found["name"], Group(found["interval"], len(found["rules"]), {}))
        if found["evaluationTime"]:
            group.evaluated(found["lastEvaluation"], found["evaluationTime"])


def table(name: str, cost: Cost) -> str:
    memory = f"{cost.memory_bytes / 2**20:,.0f} MiB"
    lines = [
        f"{name}, {cost.hosts} agents: {cost.series:,.0f} series, {memory}, {cost.cpus:.2f} CPUs, "
        f"{cost.samples_a_second:,.0f} samples a second; {cost.history:,} samples of history",
        f"  {'group':<32} {'every':>6} {'rules':>6} {'took':>10} {'of the time':>12}",
    ]
    for group_name, group in cost.groups.items():
        often, took = f"{group.interval_s:.0f} s", f"{group.median_s * 1e3:.1f} ms"
        share = f"{group.median_s / group.interval_s:.2%}"
        lines.append(f"  {group_name:<32} {often:>6} {group.rules:>6} {took:>10} {share:>12}")
    lines.append(f"  all together {cost.seconds_a_minute:.2f} s of each minute")
    return "\n".join(lines)


def machine() -> str:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return (
        f"{os.cpu_count()} CPUs ({model[1] if model else platform.machine()}), {gib:.0f} GiB, "
        f"load {load}; {output_of(program('prometheus'), '--version').splitlines()[0]}"
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
@click.option("--hosts", multiple=True, type=int, default=(50,), show_default=True, help="How many agents.")
@click.option("--seconds", default=180, show_default=True, help="For how long each is watched.")
@click.option("--hours", default=72.0, show_default=True, help="Of history.")
@click.option("--step", default=300, show_default=True, help="Seconds between agents' samples in it.")
@click.option("--against", metavar="COMMIT", help="Measure the rules and agents of that commit, too.")
def main(hosts: tuple[int, ...], seconds: int, hours: float, step: int, against: str | None) -> None:
    missing = [name for name in ("prometheus", "promtool") if find(name) is None]
    if missing:
        raise click.ClickException(
            f"not on this machine: {', '.join(missing)} (make prometheus unpacks them)"
        )
    click.echo(machine())
    sides = [side("now", ROOT)]
    if against:
        with tree_of(against) as tree:
            measure_all([side(against, tree), *sides], hosts, seconds, hours, step)
    else:
        measure_all(sides, hosts, seconds, hours, step)


def measure_all(sides: list[Side], hosts: tuple[int, ...], seconds: int, hours: float, step_s: int) -> None:
    for number in hosts:
        for one in sides:
            click.echo(table(one.name, measure(one, number, seconds, hours, step_s)))


if __name__ == "__main__":
    main()
