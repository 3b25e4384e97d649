"""A program in some language that does with its Redis client what it is told, a line each.

    TAG open CLIENT MS       a client named so, with that time-out for replies
    TAG do CLIENT WORD…      a command
    TAG multi CLIENT WORD…   a transaction of that command
    TAG pipe CLIENT WORD…    ECHO a, that command and ECHO b, written at once
    TAG drop CLIENT          its connections are closed, as pools do with old ones; the next opens another

It answers `TAG + WORDS`, arrays and maps flattened, or `TAG - ERROR`, and need not answer in order.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from tests.harness.waiting import PATIENCE_S

PATIENT_MS = 60_000
HASTY_MS = 200
TTL_MS = 30_000
"""Longer than a machine stands still."""

Words = list[str]


class Refused(Exception):
    """What the client raised, or its error reply: for an app they are the same."""


class Program:
    """One that runs. `serial`: it runs a command when the one before is answered."""

    def __init__(
        self, command: Sequence[str | Path], environment: dict[str, str], serial: bool = False
    ) -> None:
        self.serial = serial
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, **environment},
        )
        self._tags = itertools.count()
        self._names = (chr(ord("a") + number) for number in itertools.count())
        self._asked: dict[str, Future[Words]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, verb: str, client: str, *words: object) -> Future[Words]:
        """Tell it to do so; its answer comes later."""
        tag = f"t{next(self._tags)}"
        answer: Future[Words] = Future()
        self._asked[tag] = answer
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join([tag, verb, client, *map(str, words)]) + "\n")
        return answer

    def client(self, timeout_ms: int = PATIENT_MS) -> Client:
        """A new client of it."""
        name = next(self._names)
        self.begin("open", name, timeout_ms).result(PATIENCE_S)
        return Client(self, name)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            tag, sign, *words = line.split()
            answer = self._asked.pop(tag)
            if sign == "+":
                answer.set_result(words)
            else:
                answer.set_exception(Refused(" ".join(words)))
        for answer in self._asked.values():
            answer.set_exception(EOFError("the program has ended"))


class Client:
    """What the language's library calls so: a connection, or a pool of them."""

    def __init__(self, program: Program, name: str) -> None:
        self._program = program
        self._name = name

    def begin(self, *words: object) -> Future[Words]:
        return self._program.begin("do", self._name, *words)

    def ask(self, *words: object) -> Words:
        return self.begin(*words).result(PATIENCE_S)

    def transact(self, *words: object) -> Words:
        return self._program.begin("multi", self._name, *words).result(PATIENCE_S)

    def pipe(self, *words: object) -> Words:
        return self._program.begin("pipe", self._name, *words).result(PATIENCE_S)

    def drop(self) -> None:
        self._program.begin("drop", self._name).result(PATIENCE_S)

    def lock(self, resource: str, *options: object) -> dict[str, str]:
        """The map of its reply."""
        return as_map(self.ask("LOCK", resource, TTL_MS, *options))


def as_map(words: Words) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=True))
