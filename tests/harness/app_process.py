"""An app in a process of its own, which has connections by number and does as it is told over a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.harness.waiting import eventually
from tests.harness.wire import Wire

PROJECT = Path(__file__).resolve().parents[2]


class AppProcess:
    """Its connections come to be when they are first used."""

    def __init__(self, path: Path | str, *before: str) -> None:
        """before: the words of a command that becomes it, as `unshare --pid --fork`."""
        command = [*before, sys.executable, "-m", "tests.harness.app_process", str(path)]
        self._process = subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._left: list[int] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def _do(self, what: str, connection: int = 0, *words: str | int) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([what, connection, *words]), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def ask(self, connection: int, *words: str | int) -> Any:
        """The reply, with text for bytes; an error as its text."""
        return self._do("ask", connection, *words)

    def lock(self, connection: int, resource: str, *options: str | int) -> dict[str, Any]:
        granted = self.ask(connection, "LOCK", resource, 30_000, *options)
        assert isinstance(granted, list), granted
        return dict(zip(granted[::2], granted[1::2], strict=True))

    def send(self, connection: int, *words: str | int) -> None:
        """And read nothing."""
        self._do("send", connection, *words)

    def wait_unread(self, connection: int, more_than: int = 0) -> int:
        """Until something has come that was not read: so many bytes."""
        return int(eventually(lambda: (n := self._do("unread", connection)) > more_than and n))

    def close(self, connection: int) -> None:
        self._do("close", connection)

    def shut(self, connection: int) -> None:
        """Its writing only."""
        self._do("shut", connection)

    def fork(self) -> int:
        """A child that does nothing, and has all its connections."""
        self._left.append(self._do("fork"))
        return self._left[-1]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> AppProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pid in self._left:
            end(pid)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def end(pid: int) -> None:
    """A child that `fork` has left."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _as_text(reply: Any) -> Any:
    if isinstance(reply, bytes):
        return reply.decode()
    if isinstance(reply, list):
        return [_as_text(one) for one in reply]
    if isinstance(reply, dict):
        return {_as_text(key): _as_text(value) for key, value in reply.items()}
    return reply if reply is None or isinstance(reply, int) else str(reply)


def main() -> None:
    wires: dict[int, Wire] = {}
    for line in sys.stdin:
        what, number, *words = json.loads(line)
        answer: Any = None
        if number not in wires and what in ("ask", "send"):
            wires[number] = Wire(sys.argv[1])
        if what == "ask":
            answer = _as_text(wires[number].ask(*words))
        elif what == "send":
            wires[number].send(*words)
        elif what == "unread":
            [answer] = struct.unpack("i", fcntl.ioctl(wires[number], termios.FIONREAD, bytes(4)))
        elif what == "close":
            wires.pop(number).close()
        elif what == "shut":
            wires[number].socket.shutdown(socket.SHUT_WR)
        elif (answer := os.fork()) == 0:
            os.close(0)
            os.close(1)
            while True:
                signal.pause()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
