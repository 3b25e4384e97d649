"""What a clean stop rests on, asked of Redis itself before it is told to stop (rule 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .delay import NS_PER_S
from .errors import Unproven
from .printable import one_word
from .redis_link import Ask

# How long Redis is to rest, by the wall clock, which may be slewed; and how much of that is relied on.
REST_MS, RELIED_ON_NS = 60_000, 50 * NS_PER_S

# With these, all that Redis answered is in its file when it ends well. Agents ask the same of it (rule 14).
_KEPT = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
# While the first rewrite after an `appendonly no` isn't over, its file lacks what came in between.
_NO_REWRITE = {"aof_rewrite_in_progress": "0", "aof_rewrite_scheduled": "0"}
_SOUND = {"loading": "0", "aof_enabled": "1"}
_WRITTEN = {"aof_last_bgrewrite_status": "ok", "aof_last_write_status": "ok"}
_PERSISTENCE = ("INFO", "persistence")


def rewrites(ask: Ask) -> bool:
    """True while Redis writes its file anew, or is about to. Raises Unproven."""
    [text] = ask(_PERSISTENCE)
    return bool(_unlike(_NO_REWRITE, _of_info(text)))


def have_rest(ask: Ask, data_dir: str) -> None:
    """In one transaction, look whether a clean stop of Redis now would be one, and have everybody wait: for
    ALL, or settings could still be changed. Raises Unproven."""
    looks = [("CONFIG", "GET", name) for name in (*_KEPT, "dir")]
    rest = ("CLIENT", "PAUSE", str(REST_MS), "ALL")
    *_, found = ask(("MULTI",), *looks, _PERSISTENCE, rest, ("EXEC",))
    try:
        *settings, persistence, rests = found
        # A master of another folder leaves its file where nobody looks.
        unlike = _unlike({**_KEPT, "dir": data_dir}, dict(settings))
        unlike = unlike or _unlike({**_SOUND, **_NO_REWRITE, **_WRITTEN}, _of_info(persistence))
    except (TypeError, ValueError):
        raise Unproven("it answers what Redis would not") from None
    if unlike or rests != "OK":
        raise Unproven(unlike or "it does not rest")


def _of_info(text: str) -> dict[str, str]:
    if type(text) is not str:
        raise Unproven("it answers what Redis would not")
    lines = [line.partition(":") for line in text.splitlines()]
    return {name: value for name, _, value in lines}


def _unlike(wanted: Mapping[str, str], found: Mapping[Any, Any]) -> str:
    """The first that is not as it should be, for an operator; nothing when all are."""
    for name, value in wanted.items():
        if found.get(name) != value:
            return f"{name} is {one_word(str(found.get(name))[:200])}, not {value}"
    return ""
