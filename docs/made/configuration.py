"""configuration.md: every key with its default and its bounds from the model, and the commented example."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from docs.made.markdown import NOTE, REFERENCE, REPOSITORY, table
from lockd.config.model import Config, LockClass, Policy
from lockd.config.reload import RELOADED

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
    for name, field in Config.model_fields.items():
        section = _section_in(field.annotation)
        if section is None:
            yield _row(name, field)
        else:
            yield from (_row(f"{name}.{key}", inner) for key, inner in _fields(section))


def _fields(section: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Of a class those that `defaults` has not."""
    inherited = Policy.model_fields if section is LockClass else {}
    yield from ((key, field) for key, field in section.model_fields.items() if key not in inherited)


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """Also of one that may be left out."""
    for one in (annotation, *get_args(annotation)):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
    return None


def _row(path: str, field: FieldInfo) -> list[str]:
    name = path.partition(".")[0]
    reloaded = path in RELOADED or name in RELOADED
    return [f"`{path}`", _default(path, field), described(field), "reload" if reloaded else "restart"]


def described(field: FieldInfo) -> str:
    """In the words of its mistakes; they are on the field, or on its type."""
    inner = (one.description for one in _infos(field))
    text = next(filter(None, (field.description, *inner)), "octal digits in quotes")  # of socket.mode alone
    return text.removesuffix(", in plain digits")


def _infos(field: FieldInfo) -> Iterator[FieldInfo]:
    for one in (*field.metadata, *get_args(field.annotation)):
        yield from (
            found for found in (one, *getattr(one, "__metadata__", ())) if isinstance(found, FieldInfo)
        )


def _default(path: str, field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if path == "socket.mode":
        return f'`"{field.default:04o}"`'
    return f"`{_plain(field.default)}`"


def _plain(value: Any) -> str:
    """As YAML has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return str(value.value if isinstance(value, Enum) else value)
