"""The first words on a new connection to a master: who it is, how it is set, and whether it may be trusted
with a vote."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from lockd.config import Config, Master
from lockd.core.membership import REQUIRED_SETTINGS, Facts, Identity
from lockd.masters import scripts

Call = Callable[..., "asyncio.Future[Any]"]


async def log_in(call: Call, config: Config) -> int:
    """Authenticate when so configured, and give the connection a name; returns its id on the master."""
    password = config.password()
    if password is not None:
        words = (config.auth.username, password) if config.auth.username else (password,)
        await call("AUTH", *words)
    _, session = await asyncio.gather(call("CLIENT", "SETNAME", "lockd"), call("CLIENT", "ID"))
    return int(session)


async def read_facts(call: Call) -> Facts:
    """What `judge` needs to know. A master that is loading its data answers nothing but INFO."""
    info = _fields((await call("INFO")).decode(errors="replace"))
    version = (
        f"Valkey {info['valkey_version']}"
        if "valkey_version" in info
        else f"Redis {info.get('redis_version', '?')}"
    )
    run_id, role = info.get("run_id", ""), info.get("role", "")
    if info.get("loading") == "1":
        return Facts(run_id, version, role, 0, None, {}, loading=True)
    settings = [call("CONFIG", "GET", name) for name in REQUIRED_SETTINGS]
    keys, identity, *values = await asyncio.gather(
        call("DBSIZE"), call("HGETALL", scripts.IDENTITY_KEY), *settings
    )
    return Facts(
        run_id=run_id,
        version=version,
        role=role,
        keys=int(keys),
        identity=Identity.parse(_pairs(identity)),
        settings={k: v for reply in values for k, v in _pairs(reply).items()},
    )


async def load_scripts(call: Call) -> None:
    await asyncio.gather(*(call("SCRIPT", "LOAD", script.text) for script in scripts.ALL))


def tls_context(config: Config) -> ssl.SSLContext | None:
    """What the connection is encrypted with, or None when it isn't."""
    if config.tls is None:
        return None
    context = ssl.create_default_context(cafile=str(config.tls.ca_file))
    if config.tls.cert_file is not None:
        context.load_cert_chain(config.tls.cert_file, config.tls.key_file)
    return context


def tls_name(config: Config, master: Master) -> str | None:
    """The name that the master's certificate has to carry."""
    if config.tls is None:
        return None
    return config.tls.server_name or master.host


def _fields(info: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in info.splitlines() if ":" in line and not line.startswith("#"))


def _pairs(flat: list[bytes]) -> dict[str, str]:
    texts = [word.decode(errors="replace") for word in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))
