"""Pictures of the dashboards as Grafana draws them, while a real cluster is well, and while it is not.

    make preview                         all states; pictures into .preview/
    make preview ARGS='--state well'     one of them
    make preview ARGS='--hosts 500'      a fleet of so many hosts, of series that a program made (fleet.py)
    make preview ARGS=--keep             those that documentation shows, of such fleets, into
                                         dashboards/pictures/

A cluster with guards, exporters and agents runs under some load (tests/harness/observatory.py); for each
state faults are made, and when the alerts have had their time, headless Chromium takes the pictures. Needs
Node.js, npm, Debian's chromium and prometheus packages, and 700 MB of npm packages, which is why it is no
part of `make test`.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

from dashboards.panels import CALM
from tests.harness import fleet
from tests.harness.cluster import Cluster
from tests.harness.made_up import prometheus_of
from tests.harness.masters import short_folder
from tests.harness.observatory import Observatory, running_observatory
from tests.harness.prometheus import CHAIN, ROOT, find
from tests.harness.waiting import eventually
from tests.harness.wire import as_map

HERE = Path(__file__).parent
MODULES = HERE / "node"
KEPT = ROOT / "dashboards" / "pictures"
BOARDS = ("lockd-overview", "lockd-classes", "lockd-masters", "lockd-agents")
KEEP = {5: ("lockd-overview",), 500: BOARDS}
"""What documentation shows, by how many hosts there are."""

LINE_COLORS = (*CALM, "#FF9830", "#F2495C", "#C4162A", "#FFA6B0")
WIDTH = 1500
SCRAPE_S = 2
MAX_TTL_MS = 40_000
CLASSES = [
    {"name": "billing", "match": "billing:*"},
    {"name": "jobs", "match": "job:*"},
    {"name": "reports", "match": "report:*"},
]


class Load:
    """Apps on each host that lock and unlock all the time: a few resources, held for a few milliseconds."""

    def __init__(self, hosts: list[Cluster]) -> None:
        self._hosts = hosts
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(
        self, hosts: int, apps: int, resource: str, *, held_s: float, wait_ms: int, rest_s: float
    ) -> None:
        """`apps` on each of the first `hosts`; `resource` may have {} for the app's number."""
        for host in self._hosts[:hosts]:
            for number in range(apps):
                work = functools.partial(self._work, host, resource.format(number), held_s, wait_ms, rest_s)
                self._threads.append(threading.Thread(target=work, daemon=True))
                self._threads[-1].start()

    def _work(self, host: Cluster, resource: str, held_s: float, wait_ms: int, rest_s: float) -> None:
        client = host.client()
        while not self._stop.wait(rest_s):
            with suppress(redis.RedisError, OSError):
                granted = as_map(client.execute_command("LOCK", resource, 5_000, "WAIT", wait_ms))
                self._stop.wait(held_s)
                client.execute_command("UNLOCK", resource, granted["token"])

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)


# The states


def well(own: Observatory, load: Load) -> None:
    own_time(20)


def quarantined(own: Observatory, load: Load) -> None:
    """m2 crashes. Its guard keeps it out for most of a minute; the picture is taken in the midst."""
    own.units[1].crashes()
    eventually(lambda: own.value('max(lockd_guard_quarantined{master="m2"})') == 1, "the quarantine")
    own_time(25)


def no_quorum(own: Observatory, load: Load) -> None:
    """m1, m2 and m3 die and nobody starts them again; some leases are held meanwhile, and lost."""
    holder = own.agents[0].client(protocol=3)
    for number in range(3):
        holder.execute_command("LOCK", f"billing:{number + 100}", 5_000)
    for one in own.units[:3]:
        one.master.kill()
    own_time(80)


def hot_class(own: Observatory, load: Load) -> None:
    """One report that everybody wants, and that takes its time."""
    load.add(3, 12, "report:monthly", held_s=1.0, wait_ms=60_000, rest_s=0.1)
    own_time(140)


def own_time(seconds: float) -> None:
    """For graphs and alerts to show it: how long a state is looked at is a part of what it is."""
    time.sleep(seconds)


STATES: dict[str, Callable[[Observatory, Load], None]] = {
    "well": well,
    "quarantined": quarantined,
    "no-quorum": no_quorum,
    "hot-class": hot_class,
}


# The pictures


def main() -> int:
    options = _options()
    _need_programs()
    modules = _install()
    output = ROOT / ".preview"
    output.mkdir(exist_ok=True)
    site = output / "site"
    subprocess.run(["node", HERE / "build.mjs", modules, site], check=True)
    for path in (ROOT / "dashboards").glob("*.json"):
        shutil.copy(path, site)
    with _served(site) as base:
        if options.keep:
            for hosts, boards in KEEP.items():
                _picture_fleet(hosts, boards, base, KEPT, modules)
        elif options.hosts:
            _picture_fleet(options.hosts, BOARDS, base, output, modules)
        else:
            for state in [options.state] if options.state else STATES:
                _picture_state(state, base, output, modules)
    return 0


def _picture_state(state: str, base: str, output: Path, modules: Path) -> None:
    print(f"{state}: starting", flush=True)
    with running_observatory(
        agents=3, max_ttl_ms=MAX_TTL_MS, scrape_s=SCRAPE_S, classes=CLASSES, canary_ms=2_000
    ) as own:
        load = Load(own.agents)
        load.add(3, 2, "billing:{}", held_s=0.02, wait_ms=2_000, rest_s=0.2)
        load.add(2, 1, "job:{}", held_s=0.2, wait_ms=5_000, rest_s=0.5)
        try:
            own_time(50)
            print(f"{state}: making it so", flush=True)
            STATES[state](own, load)
            now_s = int(time.time())
            firing = own.now('ALERTS{alertstate="firing"}')
            print(f"{state}: firing: {sorted({one['metric']['alertname'] for one in firing})}", flush=True)
        finally:
            load.stop()
        # All queries are asked about that instant: drawing may take its time.
        pictures = {board: output / f"{state}-{board}.png" for board in BOARDS}
        # What was before the first scrape is no part of them.
        span = {"from": int(own.began_s) + 15, "to": now_s, "scrape": SCRAPE_S}
        _shoot({"prometheus": own.url, **span}, base, pictures, modules)


def _picture_fleet(hosts: int, boards: Sequence[str], base: str, output: Path, modules: Path) -> None:
    now_s = int(time.time()) // fleet.SCRAPE_S * fleet.SCRAPE_S
    with short_folder() as folder, prometheus_of(folder, fleet.Fleet(hosts, now_s)) as url:
        pictures = {board: output / f"{hosts}-hosts-{board}.png" for board in boards}
        span = {"from": now_s - 60 * (fleet.MINUTES - 5), "to": now_s, "scrape": fleet.SCRAPE_S}
        _shoot({"prometheus": url, **span}, base, pictures, modules)


def _shoot(asked: dict[str, Any], base: str, pictures: dict[str, Path], modules: Path) -> None:
    asked = {"width": WIDTH, **asked}
    lines = [
        f"{base}/page.html?{urllib.parse.urlencode({'board': f'{board}.json', **asked})}\t{path}"
        for board, path in pictures.items()
    ]
    command = ["node", HERE / "shoot.mjs", modules, shutil.which("chromium"), str(WIDTH)]
    subprocess.run(command, input="\n".join(lines), text=True, check=True)
    for path in pictures.values():
        _shrink(path)
        print(f"  {path.relative_to(ROOT)} {path.stat().st_size // 1000} kB", flush=True)


def _shrink(path: Path) -> None:
    """A palette of 256 colours is enough for a dashboard, if those of thin lines are in it: else the most
    frequent ones take their place, and yellow becomes orange."""
    from PIL import Image, ImageColor

    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    frequent = picture.quantize(256 - len(LINE_COLORS), dither=Image.Dither.NONE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*frequent, *(part for name in LINE_COLORS for part in ImageColor.getrgb(name))])
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to know."""


def _install() -> Path:
    """Grafana's components from npm, once. What their packages would run at install time is not run."""
    MODULES.mkdir(exist_ok=True)
    wanted = (HERE / "package.json").read_text()
    there = MODULES / "package.json"
    if not (MODULES / ".installed").exists() or there.read_text() != wanted:
        there.write_text(wanted)
        flags = ["--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(["npm", "install", "--prefix", MODULES, *flags], check=True, timeout=1_200)
        (MODULES / ".installed").touch()
    return MODULES


def _need_programs() -> None:
    missing = [name for name in (*CHAIN, "chromium", "node", "npm") if find(name) is None]
    if missing:
        sys.exit(f"not on this machine: {', '.join(missing)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.preview", description=__doc__.partition("\n")[0])
    parser.add_argument("--state", choices=STATES, help="one of them only")
    parser.add_argument("--hosts", type=int, help="a made-up fleet of so many, instead of a real cluster")
    parser.add_argument(
        "--keep", action="store_true", help="what documentation shows, into dashboards/pictures/"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
