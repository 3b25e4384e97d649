"""The configuration, /etc/lockd/guard.conf."""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .delay import NS_PER_MS, quarantine_ns
from .disk import read_own, read_plain
from .errors import ConfigError

DEFAULT_CONFIG = "/etc/lockd/guard.conf"

MAX_CONFIG_BYTES = 65_536


@dataclass(frozen=True)
class GuardConfig:
    max_ttl_ms: int
    data_dir: Path
    unit: str
    append_dir: str = "appendonlydir"
    append_file: str = "appendonly.aof"
    state_dir: Path = Path("/var/lib/lockd-guard")
    textfile: Path | None = Path("/var/lib/lockd/node-exporter/lockd_guard.prom")
    delay_ms: int = 0
    clock_step_ms: int = 2
    socket: Path = Path("/run/lockd-master/redis.sock")
    user: str = "lockd_loader"
    password_file: Path | None = Path("/etc/lockd-master/loader.password")

    def quarantine_ns(self, longest_ttl_ms: int) -> int:
        """How long a quarantine is when leases of that length may live; never shorter than that takes."""
        return max(quarantine_ns(longest_ttl_ms), self.delay_ms * NS_PER_MS)

    def as_dict(self) -> dict[str, Any]:
        """The guard's settings. leases_over_ms: after this long, every lease of its max TTL is over."""
        keys = {key: str(value) if isinstance(value, Path) else value for key, value in vars(self).items()}
        return {**keys, "leases_over_ms": -(-quarantine_ns(self.max_ttl_ms) // NS_PER_MS)}


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise ValueError(f"must be a whole number from {low} to {high}, without a unit")
        return int(text)

    return parse


def _absolute(text: str) -> Path:
    if not text.startswith("/"):
        raise ValueError("must be an absolute path")
    return Path(text)


def _prom_file(text: str) -> Path | None:
    if text and not text.endswith(".prom"):
        raise ValueError("must end in .prom, so that node_exporter reads it")
    return _absolute(text) if text else None


def _absolute_or_none(text: str) -> Path | None:
    return _absolute(text) if text else None


def _user_name(text: str) -> str:
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError("must be the name of a Redis user, without spaces")
    return text


def _file_name(text: str) -> str:
    if not text or "/" in text or text in (".", ".."):
        raise ValueError("must be a file name, without a folder")
    return text


def _unit_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*\.service", text):
        raise ValueError("must be the name of a unit, ending in .service")
    return text


_KEYS: dict[str, Callable[[str], Any]] = {
    "max_ttl_ms": _whole(1_000, 86_400_000),
    "data_dir": _absolute,
    "unit": _unit_name,
    "append_dir": _file_name,
    "append_file": _file_name,
    "state_dir": _absolute,
    "textfile": _prom_file,
    "delay_ms": _whole(0, 7 * 86_400_000),
    # A larger value would let pass more than the shortest lease gives away for drift.
    "clock_step_ms": _whole(1, 2),
    "socket": _absolute,
    "user": _user_name,
    "password_file": _absolute_or_none,
}

_REQUIRED = ("max_ttl_ms", "data_dir", "unit")


def read_config(path: str, only_check: bool = False) -> GuardConfig:
    """The configuration in that file. Raises ConfigError with all its mistakes. Unless it is only checked, it
    also raises when others than this user and root may write to it."""
    parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=("#", ";"))
    read = read_plain if only_check else read_own
    try:
        parser.read_string(read(Path(path).absolute(), MAX_CONFIG_BYTES).decode())
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise _config_error(path, [" ".join(str(error).split())]) from None
    if parser.sections() != ["guard"] or parser.defaults():
        raise _config_error(path, ["it must have one section, [guard]"])
    given = dict(parser["guard"])
    mistakes = [f"{key}: is missing" for key in _REQUIRED if key not in given]
    values: dict[str, Any] = {}
    for key, text in given.items():
        try:
            values[key] = _KEYS[key](text)
        except KeyError:
            mistakes.append(f"{key}: no such key; there are {', '.join(_KEYS)}")
        except ValueError as error:
            mistakes.append(f"{key}: {error}, not {text!r}")
    if mistakes:
        raise _config_error(path, mistakes)
    config = GuardConfig(**values)
    least_ns = quarantine_ns(config.max_ttl_ms)
    if 0 < config.delay_ms * NS_PER_MS < least_ns:
        least = f"at least {-(-least_ns // NS_PER_MS)} (max_ttl_ms x 1.01 + 1 s), or 0"
        raise _config_error(path, [f"delay_ms: must be {least}, not {config.delay_ms}"])
    return config


def _config_error(path: str, mistakes: list[str]) -> ConfigError:
    return ConfigError(
        f"{path}: {'; '.join(mistakes)}. Nothing was changed and Redis is not started. Correct the file, "
        f"check it with `guard.py check --config {path}`, and start the unit again"
    )
