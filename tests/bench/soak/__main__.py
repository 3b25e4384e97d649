"""See __init__.py."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

import tests.bench.soak as package
from tests.bench.attack.people import GREEDY, VICTIMS, Person, start, uid_of
from tests.bench.soak.curve import MOST_GROWN_MIB, Sample, grown_mib, picture
from tests.bench.soak.work import Done, reads_metrics, reads_nothing, works
from tests.harness.cluster import AS_IS, Cluster, running_cluster
from tests.harness.processes import memory_kib

_MASTERS = 3
_SAMPLE_S, _LOOK_S = 10.0, 1.0
_STARTS_S, _ENDS_S = 900.0, 180.0
MOST_FAILED = 0.01
"""Of all uses: a machine that is busy with tests stands still at times."""
LEAST_DONE = 0.5
"""Of what the rate asks for: with less it was not the use that it says."""
SETTINGS: dict[str, Any] = {
    "socket": {"mode": "0666"}, "defaults": AS_IS, "canary_ms": 10_000, "log_level": "warning",
}  # fmt: skip


@contextmanager
def agent() -> Iterator[Cluster]:
    """Whose socket every user finds."""
    with running_cluster(_MASTERS, **SETTINGS) as cluster:
        cluster.folder.chmod(0o755)
        yield cluster


def people(cluster: Cluster, rate: float, stack: ExitStack) -> list[Person]:
    """Users of their own, and an operator, where we may be others; else all are who we are."""
    is_root = os.geteuid() == 0
    apps: list[tuple[str | None, bool]] = [(name, False) for name in VICTIMS[:2]] + [(None, True)]
    found = [
        start(
            stack,
            uid_of(name) if name and is_root else None,
            partial(works, cluster.socket, rate, operator, seed),
        )
        for seed, (name, operator) in enumerate(apps)
    ]
    greedy = uid_of(GREEDY) if is_root else None
    found.append(start(stack, greedy, partial(reads_nothing, cluster.socket)))
    found.append(start(stack, None, partial(reads_metrics, cluster.metrics_port)))
    for one in found:
        if one.hear("ready", _STARTS_S) is None:
            raise RuntimeError("an app did not begin")
    return found


def watch(cluster: Cluster, seconds: float) -> Iterator[Sample]:
    """The least of ten seconds: what is under way comes and goes."""
    began_s = time.monotonic()
    lowest_kib, sample_s = None, began_s + _SAMPLE_S
    while (now_s := time.monotonic()) < began_s + seconds:
        time.sleep(_LOOK_S)
        found_kib = memory_kib(cluster.agent.pid)
        lowest_kib = found_kib if lowest_kib is None else min(lowest_kib, found_kib)
        if now_s >= sample_s:
            yield Sample(now_s - began_s, lowest_kib / 1024)
            lowest_kib, sample_s = None, now_s + _SAMPLE_S


def results(persons: Sequence[Person]) -> Done:
    for one in persons:
        one.stop()
    total = Done()
    for one in persons:
        done = one.hear("result", _ENDS_S)
        if done is None:
            total.failures["an app hangs"] += 1
            continue
        total.uses += done.uses
        total.skipped += done.skipped
        total.failures += done.failures
    return total


def wrong_with(samples: Sequence[Sample], done: Done) -> list[str]:
    """What makes the soak fail."""
    wrong = []
    try:
        if (grown := grown_mib(samples)) > MOST_GROWN_MIB:
            wrong.append(f"memory grows: {grown:.1f} MiB, more than {MOST_GROWN_MIB:g}")
    except ValueError as failure:
        wrong.append(str(failure))
    if done.uses < LEAST_DONE * (done.uses + done.skipped) or not done.uses:
        wrong.append(f"only {done.uses} of {done.uses + done.skipped} uses were done")
    if (failed := done.failures.total()) > MOST_FAILED * done.uses:
        wrong.append(f"{failed} of {done.uses} uses failed")
    return wrong


def report(samples: Sequence[Sample], done: Done, wrong: Sequence[str]) -> Iterator[str]:
    yield from picture(samples)
    yield f"{done.uses} uses, {done.skipped} left out for want of time, {done.failures.total()} failed"
    yield from (f"  {count} × {what}" for what, count in done.failures.most_common(12))
    if not any("samples" in one for one in wrong):
        yield f"by a line through what is not ·, memory has grown by {grown_mib(samples):+.2f} MiB"
    yield "; ".join(wrong) or f"ok: no more than {MOST_GROWN_MIB:g} MiB"


@click.command(help=package.__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", default=60.0, show_default=True, type=click.FloatRange(min=0, min_open=True))
@click.option("--rate", default=30.0, show_default=True, help="Uses a second of each of the three apps.")
@click.option("--json", "to", type=click.Path(path_type=Path), help="Write all samples there as well.")
def main(minutes: float, rate: float, to: Path | None) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with agent() as cluster, ExitStack() as stack:
        persons = people(cluster, rate, stack)
        samples = list(watch(cluster, minutes * 60))
        done = results(persons)
    wrong = wrong_with(samples, done)
    click.echo("\n".join(report(samples, done, wrong)))
    if to is not None:
        found = {"samples": [asdict(one) for one in samples], "done": done.figures(), "wrong": wrong}
        to.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
