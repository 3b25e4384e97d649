"""configuration.md: every key with its default and its bounds from the model, and the commented example."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from docs.made.markdown import NOTE, REFERENCE, REPOSITORY, table
from lockd.config.model import Config, LockClass, Policy
from lockd.config.reload import RELOADED
from lockd.config.sections import REQUIRED, Key, Section

PAGE = REFERENCE / "configuration.md"
EXAMPLE = REPOSITORY / "lockd.example.yml"
HEAD = f"""# Configuration of an agent

{NOTE}
An agent reads one YAML file. `lockd check-config FILE` reports every mistake in it at once, each with its
place and what to write instead. `lockd serve --config FILE` runs the agent. Unknown keys, repeated keys,
anchors and tags are errors. Times are whole milliseconds.

With Ansible, write everything except names, addresses and secrets into `lockd_settings` of the inventory.

## Reloading

`systemctl reload lockd`, `lockctl reload` and SIGHUP read the file again. `lockctl reload --check` only says
what would change. The table below says which keys are reloaded; the others take a restart. If such a key
differs, or the file has a mistake, nothing changes at all: the log, the metric `lockd_config_restart_needed`,
`INFO` and `lockctl doctor` name the key.

A reload costs holders and waiters nothing. They keep the terms that they began with, and lose nothing to a
lower limit. A class that was removed keeps its series in the metrics until the agent restarts.

## Keys

A class may set every key of `defaults` besides its `name` and `match`; what it leaves out comes from
`defaults`.

"""


def page() -> str:
    keys = table(["key", "default", "what may be written", "changed by"], rows())
    example = EXAMPLE.read_text().rstrip()
    return f"{HEAD}{keys}\n## The commented example\n\n`lockd.example.yml`:\n\n```yaml\n{example}\n```\n"


def rows() -> Iterator[list[str]]:
    for name, key in Config.keys.items():
        if key.section is None:
            yield _row(name, key)
        else:
            yield from (_row(f"{name}.{inner}", of) for inner, of in _keys(key.section))


def _keys(section: type[Section]) -> Iterator[tuple[str, Key]]:
    """Of a class those that `defaults` has not."""
    inherited = Policy.keys if section is LockClass else {}
    yield from ((name, key) for name, key in section.keys.items() if name not in inherited)


def _row(path: str, key: Key) -> list[str]:
    name = path.partition(".")[0]
    reloaded = path in RELOADED or name in RELOADED
    return [f"`{path}`", _default(path, key), described(key), "reload" if reloaded else "restart"]


def described(key: Key) -> str:
    """In the words of its mistakes."""
    text = key.description or "octal digits in quotes"  # of socket.mode alone
    return text.removesuffix(", in plain digits")


def _default(path: str, key: Key) -> str:
    if key.default is REQUIRED:
        return "required"
    if path == "socket.mode":
        return f'`"{key.default:04o}"`'
    return f"`{_plain(key.default)}`"


def _plain(value: Any) -> str:
    """As YAML has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return str(value.value if isinstance(value, Enum) else value)
