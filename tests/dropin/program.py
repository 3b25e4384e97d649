"""A program of a library, in a process of its own, which locks as it is told: JSON objects, a line each."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.harness.waiting import PATIENCE_S


class Trouble(Exception):
    """The library raised what is no refusal: an error of the server, or of the connection."""


class Program:
    """One that runs; it does one thing after the other."""

    def __init__(self, command: Sequence[str | Path], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, **environment},
        )
        self._said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def begin(self, verb: str, name: str, **words: Any) -> None:
        """Tell it to do so; `answer` is what came of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": verb, "name": name, **words}) + "\n")

    def answer(self) -> Any:
        """What the library returned; False where it refused, None where it does not say."""
        line = self._said.get(timeout=PATIENCE_S)
        if not line:
            raise Trouble(f"its program ended with status {self._process.wait()}")
        said = json.loads(line)
        if "error" in said:
            raise Trouble(said["error"])
        return said.get("ok")

    def ask(self, verb: str, name: str, **words: Any) -> Any:
        self.begin(verb, name, **words)
        return self.answer()

    def acquire(self, name: str, ttl_ms: int | None, **options: Any) -> bool:
        """One try, unless it may wait."""
        return bool(self.ask("acquire", name, ttl_ms=ttl_ms, **options))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._said.put(line)
        except ValueError:  # closed
            pass
        self._said.put("")
