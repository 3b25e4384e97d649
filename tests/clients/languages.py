"""The clients whose programs are tried here, and how each is built and started on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NODE_MODULES = Path(__file__).parents[1] / ".node" / "node_modules"
DEBIAN_S_GO = Path("/usr/share/gocode")


@dataclass(frozen=True)
class Library:
    """A client. `made`: its program's command, built in a folder; it skips where something is missing.
    `shared`: all its commands go over one connection, which a time-out of its own does not close.
    `serial`: its program runs one command at a time. `quick`: it is tried in `make test`, too."""

    name: str
    made: Callable[[Path], list[str | Path]]
    shared: bool = False
    serial: bool = False
    quick: bool = False
    environment: dict[str, str] = field(default_factory=dict)


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program} on this machine")
    return path


def _needs(path: Path, package: str) -> None:
    if not path.exists():
        pytest.skip(f"{package} is not installed")


def _redis_py(_: Path) -> list[str | Path]:
    return [sys.executable, PROGRAMS / "redis_py.py"]


def _node(module: str, program: str) -> Callable[[Path], list[str | Path]]:
    def made(_: Path) -> list[str | Path]:
        node = _found("node")
        _needs(NODE_MODULES / module, module)
        return [node, PROGRAMS / program]

    return made


def _ruby(_: Path) -> list[str | Path]:
    ruby = _found("ruby")
    if subprocess.run([ruby, "-e", 'require "redis"'], capture_output=True, check=False).returncode:
        pytest.skip("ruby-redis is not installed")
    return [ruby, PROGRAMS / "redis_rb.rb"]


def _php(_: Path) -> list[str | Path]:
    php = _found("php")
    if b"redis" not in subprocess.run([php, "-m"], capture_output=True, check=True).stdout.split():
        pytest.skip("php-redis is not installed")
    return [php, PROGRAMS / "phpredis.php"]


def _hiredis(folder: Path) -> list[str | Path]:
    gcc = _found("gcc")
    _needs(Path("/usr/include/hiredis/hiredis.h"), "libhiredis-dev")
    program = folder / "hiredis"
    subprocess.run([gcc, "-O1", "-o", program, PROGRAMS / "hiredis.c", "-lhiredis"], check=True)
    return [program]


def _redigo(folder: Path) -> list[str | Path]:
    go = _found("go")
    _needs(DEBIAN_S_GO / "src/github.com/gomodule/redigo", "golang-github-gomodule-redigo-dev")
    program = folder / "redigo"
    offline = {"GO111MODULE": "off", "GOPATH": str(DEBIAN_S_GO), "GOTOOLCHAIN": "local"}
    command = [go, "build", "-o", program, PROGRAMS / "redigo.go"]
    subprocess.run(command, env={**os.environ, **offline}, check=True)
    return [program]


_OF_NODE = {"NODE_PATH": str(NODE_MODULES)}

LIBRARIES = [
    Library("redis-py", _redis_py, quick=True),
    Library("ioredis", _node("ioredis", "ioredis.js"), shared=True, environment=_OF_NODE),
    Library("node-redis", _node("redis", "node_redis.js"), shared=True, environment=_OF_NODE),
    Library("hiredis", _hiredis, serial=True),
    Library("phpredis", _php, serial=True),
    Library("redis-rb", _ruby),
    Library("redigo", _redigo),
]
