"""Pictures of what people see: `make dev`, `lockctl top`, `lockctl doctor` and the agent's status page.

    make pictures                        into docs/pictures/
    make pictures ARGS='--out .preview'  somewhere else
    make pictures ARGS='--screen 80x24'  `lockctl top` at this size, as text, and no pictures

A real `lockd dev` runs with 200 classes, and this program takes 500 leases. Programs run at a terminal, and
what they write goes through a terminal emulator into an SVG. The page is a PNG by headless Chromium. Without
Chromium it is left out, and the program says so. Paths and the name of the machine are replaced by made-up
ones.
"""

from __future__ import annotations

import argparse
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

from lockd.dev.processes import LOOPBACK, free_ports
from tests.harness.drawing import lines_of, svg
from tests.harness.masters import short_folder
from tests.harness.terminal import Terminal
from tests.harness.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
BIN = Path(sys.executable).parent
MADE_UP = "/home/me/lockd"
CLASSES = 200
LEASES = 500
HOT = ("billing_12", "reports_3")
WIDE = (120, 36)
TOP = (120, 34)
SMALL = (80, 24)
PAGE_SIZE = "1200,1180"
AREAS = ("billing", "reports", "jobs", "imports", "mail")
PATIENT = "timeouts: {master_ms: 1000, dead_ms: 5000}\nclock_skew_allowance_ms: 2000\n"
"""A machine that is busy with other things is no master in trouble."""
QUIET = {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}


def class_names() -> list[str]:
    return [f"{area}_{number}" for number in range(CLASSES // len(AREAS)) for area in AREAS]


class Dev:
    """A `lockd dev` at a terminal of this size, in `folder`."""

    def __init__(self, folder: Path, size: tuple[int, int]) -> None:
        self.folder = folder
        self.socket = folder / ".dev" / "lockd.sock"
        self.metrics = f"{LOOPBACK}:{free_ports(1)[0]}"
        self.terminal = _terminal(
            folder, f"{BIN}/lockd dev --dir .dev --metrics {self.metrics}", size, "lockd dev"
        )

    def client(self) -> redis.Redis:
        """Its replies are maps, so RESP3."""
        options: dict[str, Any] = {
            "protocol": 3,
            "decode_responses": True,
            "socket_timeout": 30,
            "retry": None,
        }
        return redis.Redis(unix_socket_path=str(self.socket), **options)

    def stop(self) -> None:
        self.terminal.type("\x03")
        self.terminal.end()

    def written(self, terminal: Terminal) -> str:
        """What a program has written, without paths and names of this machine."""
        text = terminal.screen
        for path in sorted({str(self.folder), str(self.folder.resolve())}, key=len, reverse=True):
            text = text.replace(path, MADE_UP)
        return text.replace(str(BIN), ".venv/bin").replace(str(ROOT), MADE_UP)


def _terminal(folder: Path, command: str, size: tuple[int, int], name: str) -> Terminal:
    environment = QUIET | {"COLUMNS": str(size[0]), "LINES": str(size[1])}
    return Terminal("sh", "-c", f"cd {folder} && exec {command}", environment=environment)


@contextmanager
def running_dev(folder: Path, size: tuple[int, int]) -> Iterator[Dev]:
    dev = Dev(folder, size)
    try:
        dev.terminal.wait_for("ready: 5 of 5")
        yield dev
        dev.stop()
    finally:
        dev.terminal.close()


def with_classes(folder: Path) -> None:
    """Have `lockd dev` write its configuration, then add classes to it."""
    with running_dev(folder, WIDE):
        pass
    path = folder / ".dev" / "lockd.yml"
    classes = "".join(f'  - {{name: {name}, match: "{name}:*"}}\n' for name in class_names())
    path.write_text(f"{path.read_text()}{PATIENT}classes:\n{classes}")


class Load:
    """So many leases held, and apps that wait, are refused, and lock and unlock all the time."""

    def __init__(self, dev: Dev) -> None:
        self._dev = dev
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._held: list[redis.Redis] = []

    def __enter__(self) -> Load:
        names = class_names()
        client = self._dev.client()
        self._held.append(client)
        for number in range(LEASES - len(HOT)):
            # The first classes hold more than the last ones.
            label = names[int(CLASSES * (number / LEASES) ** 2)]
            client.execute_command("LOCK", f"{label}:{1000 + number}", 60_000)
        for label in HOT:
            holder = self._dev.client()
            self._held.append(holder)
            holder.execute_command("LOCK", f"{label}:nightly", 30_000)
            for _ in range(4):
                self._go(self._wait, f"{label}:nightly")
        for label in names[:40:3]:
            self._go(self._work, f"{label}:work")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for holder in self._held:
            holder.close()
        for thread in self._threads:
            thread.join()

    def _go(self, work: object, resource: str) -> None:
        thread = threading.Thread(target=work, args=(resource,), daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _wait(self, resource: str) -> None:
        with self._dev.client() as client:
            while not self._stop.is_set():
                try:
                    client.execute_command("LOCK", resource, 10_000, "WAIT", 20_000)
                    return
                except redis.RedisError:
                    continue

    def _work(self, resource: str) -> None:
        with self._dev.client() as client:
            while not self._stop.wait(random.uniform(0.05, 0.3)):
                # A machine that is busy with other things may have no quorum for a moment.
                with suppress(redis.ResponseError):
                    granted = client.execute_command("LOCK", resource, 10_000)
                    client.execute_command("UNLOCK", resource, granted["token"])


def top(dev: Dev, size: tuple[int, int], *words: str, looks: int = 3) -> str:
    """What `lockctl top` has written after some looks."""
    command = f"{BIN}/lockctl --socket {dev.socket} top {' '.join(words)}"
    terminal = _terminal(dev.folder, command, size, "top")
    try:
        for _ in range(looks):
            terminal.wait_for("masters vote.*grants/s.*fence")
        written = dev.written(terminal)
        terminal.type("q")
        terminal.end()
        return written
    finally:
        terminal.close()


def doctor(dev: Dev) -> str:
    command = f"{BIN}/lockctl --socket {dev.socket} doctor"
    terminal = _terminal(dev.folder, command, WIDE, "doctor")
    try:
        terminal.end()
        return dev.written(terminal)
    finally:
        terminal.close()


def page(dev: Dev, out: Path) -> None:
    """A picture of the status page, with a made-up name of the host."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no chromium on this machine: there is no picture of the status page")
        return
    with urllib.request.urlopen(f"http://{dev.metrics}/", timeout=30) as reply:
        text = reply.read().decode().replace(socket.gethostname(), "web1")
    with tempfile.TemporaryDirectory() as home:
        kept = Path(home) / "page.html"
        kept.write_text(text)
        subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--window-size={PAGE_SIZE}", f"--user-data-dir={home}/profile", f"--screenshot={out}",
             kept.as_uri()],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip


def lose_a_master(dev: Dev) -> None:
    with dev.client() as client:
        host, port = client.execute_command("MASTERS")[0]["address"].split(":")
        with redis.Redis(host=host, port=int(port)) as master:
            master.shutdown(nosave=True)
        eventually(lambda: client.execute_command("MASTERS")[0]["state"] == "down", "the agent sees it")


def draw(out: Path, name: str, title: str, written: str, size: tuple[int, int]) -> None:
    (out / f"{name}.svg").write_text(svg(lines_of(written, *size), title))
    print(out / f"{name}.svg")


def as_text(written: str, size: tuple[int, int]) -> str:
    lines = lines_of(written, *size)
    return "\n".join("".join(character for character, _ in line).rstrip() for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURES)
    parser.add_argument("--screen", help="COLUMNSxROWS")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with short_folder() as folder:
        with_classes(folder)
        with running_dev(folder, WIDE) as dev, Load(dev):
            if asked.screen:
                columns, rows = map(int, asked.screen.split("x"))
                print(as_text(top(dev, (columns, rows)), (columns, rows)))
                return
            time.sleep(4)  # the picture of a cluster that has run for a moment
            draw(asked.out, "dev", "make dev", _current(dev), WIDE)
            draw(asked.out, "top", "lockctl top", top(dev, TOP), TOP)
            chosen = top(dev, SMALL, "--class", "'billing_1*'", "--sort", "held")
            draw(
                asked.out,
                "top-class",
                "lockctl top --class 'billing_1*' --sort held",
                chosen,
                SMALL,
            )
            page(dev, asked.out / "status-page.png")
            lose_a_master(dev)
            draw(asked.out, "doctor", "lockctl doctor", doctor(dev), WIDE)


def _current(dev: Dev) -> str:
    dev.terminal.wait_for(f"{LEASES} held")
    return dev.written(dev.terminal)


if __name__ == "__main__":
    main()
