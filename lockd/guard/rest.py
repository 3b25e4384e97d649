"""The conditions of a clean stop, asked of Redis itself before it is told to stop (rule 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .delay import NS_PER_S
from .errors import Unproven
from .printable import one_word
from .redis_link import Ask

# How long Redis has to rest, by the wall clock, which may be slewed; and how much of that is relied on.
REST_MS, RELIED_ON_NS = 60_000, 50 * NS_PER_S

# With these, everything that Redis answered is in its file when it ends well. Agents require the same (rule
# 14).
_KEPT = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
# Until the first rewrite after an `appendonly no` is over, its file lacks what came in between.
_NO_REWRITE = {"aof_rewrite_in_progress": "0", "aof_rewrite_scheduled": "0"}
_SOUND = {"loading": "0", "aof_enabled": "1"}
_WRITTEN = {"aof_last_bgrewrite_status": "ok", "aof_last_write_status": "ok"}
_PERSISTENCE = ("INFO", "persistence")


def rewrites(ask: Ask) -> bool:
    """True while Redis rewrites its file, or is about to. Raises Unproven."""
    [text] = ask(_PERSISTENCE)
    return bool(_unlike(_NO_REWRITE, _of_info(text)))


def have_rest(ask: Ask, data_dir: str) -> None:
    """In one transaction, check whether a stop of Redis now would be clean, and make every client wait. For
    ALL commands, since settings could still be changed otherwise. Raises Unproven."""
    looks = [("CONFIG", "GET", name) for name in (*_KEPT, "dir")]
    rest = ("CLIENT", "PAUSE", str(REST_MS), "ALL")
    *_, found = ask(("MULTI",), *looks, _PERSISTENCE, rest, ("EXEC",))
    try:
        *settings, persistence, rests = found
        # A master with another folder leaves its file where nobody looks.
        unlike = _unlike({**_KEPT, "dir": data_dir}, dict(settings))
        unlike = unlike or _unlike({**_SOUND, **_NO_REWRITE, **_WRITTEN}, _of_info(persistence))
    except (TypeError, ValueError):
        raise Unproven("its answer is not one of Redis") from None
    if unlike or rests != "OK":
        raise Unproven(unlike or "it does not pause its clients")


def _of_info(text: str) -> dict[str, str]:
    if type(text) is not str:
        raise Unproven("its answer is not one of Redis")
    lines = [line.partition(":") for line in text.splitlines()]
    return {name: value for name, _, value in lines}


def _unlike(wanted: Mapping[str, str], found: Mapping[Any, Any]) -> str:
    """The first that is not as it should be, for an operator; nothing when all are."""
    for name, value in wanted.items():
        if found.get(name) != value:
            return f"{name} is {one_word(str(found.get(name))[:200])}, not {value}"
    return ""
