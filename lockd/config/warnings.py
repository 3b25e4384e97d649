"""Settings that work but are probably not intended, judged on this host and at this moment."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterator

from lockd.config.globs import matcher
from lockd.config.model import Config, Policy


def warnings_of(config: Config) -> list[str]:
    return [
        *_warn_of_numbers(config),
        *_warn_of_classes(config),
        *_warn_of_unknown_names(config),
        *_warn_of_open_secrets(config),
    ]


def _warn_of_numbers(config: Config) -> Iterator[str]:
    if len(config.masters) == 1:
        yield "masters: there is only one, and its failure stops all locking; write 3, 5, 7 or 9"
    drift_ms = config.min_ttl_ms // 100 + 2
    if config.min_ttl_ms - drift_ms <= config.min_validity_ms:
        yield (
            f"min_ttl_ms: a lease of {config.min_ttl_ms} ms is never granted: {drift_ms} ms for drift and "
            f"min_validity_ms ({config.min_validity_ms}) leave nothing of it; raise min_ttl_ms"
        )


def _warn_of_classes(config: Config) -> Iterator[str]:
    for index, one in enumerate(config.classes):
        shadow = next((first for first in config.classes[:index] if _covers(first.match, one.match)), None)
        if shadow is not None:
            yield (
                f"classes[{index}]: {one.name} is never used: {shadow.name} before it matches all of "
                f"{one.match!r}; put {one.name} first"
            )
        if "[!" in one.match:
            yield (
                f"classes[{index}]: [! in {one.match!r} is a set that contains '!'; to negate a set, write [^"
            )
        if (one.users, one.groups) != (None, None) and not one.users and not one.groups:
            yield f"classes[{index}]: nobody may lock {one.name}; name someone in its users or groups"


def _covers(earlier: str, later: str) -> bool:
    """Whether a glob certainly matches everything that a later one does; [, ? and \\ are not analysed."""
    plain = not set("[?\\").intersection(earlier) and not set("[\\").intersection(later)
    return earlier == later or (plain and matcher(_bytes(earlier))(_bytes(later)))


def _bytes(glob: str) -> bytes:
    return glob.encode("utf-8", "surrogateescape")


def _warn_of_unknown_names(config: Config) -> Iterator[str]:
    named = [("admin_group", "group", config.admin_group), ("socket.group", "group", config.socket.group)]
    policies: dict[str, Policy] = {"defaults": config.defaults}
    policies |= {f"classes[{index}]": one for index, one in enumerate(config.classes)}
    for path, policy in policies.items():
        named += [(f"{path}.users", "user", name) for name in policy.users or ()]
        named += [(f"{path}.groups", "group", name) for name in policy.groups or ()]
    for path, kind, name in named:
        if name is not None and not _on_this_host(kind, name):
            yield f"{path}: there is no {kind} {name!r} on this host; create it, or correct the name"


def _on_this_host(kind: str, name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name) if kind == "user" else grp.getgrnam(name))
    except (KeyError, ValueError):
        return False


def _warn_of_open_secrets(config: Config) -> Iterator[str]:
    for name, path in (
        ("password", config.source if config.auth.password else None),
        ("password_file", config.auth.password_file),
    ):
        if path is not None and path.exists() and path.stat().st_mode & 0o004:
            yield f"auth.{name}: everybody on this host can read it; chmod o-r {path}"
