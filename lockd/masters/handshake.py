"""The first questions on a new connection to a master: who it is, what its settings are, and whether it may
be trusted with a vote."""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lockd.core.identities import Identity
from lockd.core.membership import REQUIRED_SETTINGS, Copying, MasterFacts, Memory, State
from lockd.masters import replies, scripts
from lockd.masters.failures import MasterError, Unfit, is_of_another_type

_MOST = (1 << 63) - 1
_WORD = 1_024
"""How much is kept of a name, a setting or a version; nine names with their numbers are shorter."""

Ask = Callable[..., "asyncio.Future[Any]"]


async def log_in(call: Ask, username: str | None, password: str | None) -> tuple[int, bool]:
    """Authenticate if there is a password, and name the connection. Returns its id on the master, and whether
    notices can be received among its answers."""
    if password is not None:
        words = (username, password) if username else (password,)
        await call("AUTH", *words)
    _, session = await asyncio.gather(call("CLIENT", "SETNAME", "lockd"), call("CLIENT", "ID"))
    try:
        await call("HELLO", 3)
    except MasterError:
        return replies.integer(session, 1, _MOST), False
    return replies.integer(session, 1, _MOST), True


async def read_facts(call: Ask, slots: Sequence[int]) -> MasterFacts:
    """What `judge` needs to know, and the fence counters of these slots. A master that is loading its data
    answers only INFO."""
    info = _fields(replies.text(await call("INFO")))
    version = (
        f"Valkey {info['valkey_version'][:_WORD]}"
        if "valkey_version" in info
        else f"Redis {info.get('redis_version', '?')[:_WORD]}"
    )
    run_id, role = info.get("run_id", "")[:_WORD], info.get("role", "")[:_WORD]
    if info.get("loading") == "1":
        return MasterFacts(run_id, version, role, 0, None, {}, loading=True)
    settings = [call("CONFIG", "GET", name) for name in REQUIRED_SETTINGS]
    keys, identity, counted, *values = await asyncio.gather(
        call("DBSIZE"),
        call("HGETALL", scripts.IDENTITY_KEY),
        _counted(call, slots),
        *settings,
    )
    return MasterFacts(
        run_id=run_id,
        version=version,
        role=role,
        keys=replies.integer(keys, 0, _MOST),
        identity=Identity.parse(_pairs(identity)),
        settings={k: v for reply in values for k, v in _pairs(reply).items()},
        copying=Copying(_count(info, "connected_slaves"), _has_second_id(info), known=counted[0] is not None),
        aof_rewrite_ok=_aof_rewrite_ok(info),
        has_counters=len(counted) > 1,
        counters=_counters(slots, counted[1:]),
        memory=Memory(*(_count(info, name) for name in ("used_memory", "maxmemory", "evicted_keys"))),
    )


async def _counted(call: Ask, slots: Sequence[int]) -> Sequence[bytes | None]:
    """The mark of a copy, and behind it these counters; nothing where they should be is a hash: an app host
    may have put anything there."""
    try:
        stored = await call("HMGET", scripts.FENCES_KEY, scripts.COPIED_FIELD, *slots)
    except MasterError as error:
        if not is_of_another_type(error):
            raise
        return (None,)
    return replies.texts(stored, 1 + len(slots))


def _counters(slots: Sequence[int], stored: Sequence[bytes | None]) -> dict[int, int]:
    """Without those that are no numbers: they give no vote as it is."""
    words = zip(slots, (word or b"0" for word in stored), strict=False)
    return {slot: int(word) for slot, word in words if word.isdigit() and len(word) <= 16}


def _aof_rewrite_ok(info: Mapping[str, str]) -> bool | None:
    status = info.get("aof_last_bgrewrite_status")
    return None if status is None else status == "ok"


def _has_second_id(info: Mapping[str, str]) -> bool:
    """Only a promoted replica has this: the id of the master that it copied."""
    return info.get("master_replid2", "").strip("0") != ""


async def have_scripts(call: Ask) -> None:
    """Check that our scripts are there. The master's unit loads them; if nobody does and this user may, we
    do. Raises Unfit: without them it can't vote."""
    there = replies.flags(
        await call("SCRIPT", "EXISTS", *(script.digest for script in scripts.ALL)), len(scripts.ALL)
    )
    missing = [script for script, known in zip(scripts.ALL, there, strict=True) if not known]
    try:
        for script in missing:
            await call("SCRIPT", "LOAD", script.text)
    except MasterError as refused:
        if not str(refused).startswith("NOPERM"):
            raise
        names = ", ".join(script.name for script in missing)
        raise Unfit(
            State.MISCONFIGURED,
            f"it lacks the scripts {names}, and this agent may not load them: on its host, "
            "sudo systemctl reload lockd-master",
        ) from refused


def certificate_end_s(connection: ssl.SSLObject | None) -> float | None:
    """When the certificate ends that the master has shown on this connection; None without TLS.

    It is for information only: if it can't be read, the connection is as good as before.
    """
    if connection is None:
        return None
    try:
        shown = connection.getpeercert()
        return float(ssl.cert_time_to_seconds(str(shown["notAfter"]))) if shown else None
    except (KeyError, ValueError):
        return None


def _count(info: Mapping[str, str], name: str) -> int:
    """A number of INFO; 0 if it is not a number, or larger than any counter of Redis gets."""
    text = info.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _fields(info: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in info.splitlines() if ":" in line and not line.startswith("#"))


def _pairs(flat: object) -> dict[str, str]:
    return {
        name.decode(errors="replace"): value.decode(errors="replace")[:_WORD]
        for name, value in replies.pairs(flat)
    }
