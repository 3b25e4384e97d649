"""One master, asked as an agent asks it."""

from __future__ import annotations

import time
from copy import copy
from typing import Any

import redis

from lockd.core.fences import BLOCK
from lockd.core.identities import Identity, Members
from lockd.dev.processes import LocalMaster
from lockd.masters import scripts

MAX_TTL_MS = 60_000
TTL_MS = 30_000
"""Longer than a machine stands still."""
IDENTITY = Identity("test", "m1", MAX_TTL_MS, cluster_id="7" * 32, members=Members.first(["m1", "m2", "m3"]))
LATER = IDENTITY.with_members(IDENTITY.members.with_number("m3", 2))
ELECTORATE = IDENTITY.members_digest
OWNER = "host-1 4711 1000"
RESOURCE = "orders/7"
SLOT = 17
MINE, ANOTHERS = "1" * 32, "2" * 32
HINT = int(time.time()) * 1_000_000  # microseconds, as the agents' clocks give them: 51 bits


class Scripted:
    """One master, asked as an agent asks it, with arguments that a test need not repeat."""

    def __init__(self, master: LocalMaster) -> None:
        self.redis = redis.Redis("127.0.0.1", master.port, decode_responses=True, retry=None)
        for script in scripts.ALL:
            self.redis.script_load(script.text.decode())

    def as_user(self, name: str, password: str) -> Scripted:
        """The same master, asked by another user of it."""
        other = copy(self)
        port = self.redis.connection_pool.connection_kwargs["port"]
        other.redis = redis.Redis(
            "127.0.0.1", port, decode_responses=True, retry=None, username=name, password=password
        )
        return other

    def reset(self) -> None:
        self.redis.flushall()
        self.redis.config_set("maxmemory", "256mb")

    def run(self, script: scripts.Script, keys: list[Any], *arguments: Any) -> Any:
        return self.redis.evalsha(script.digest.decode(), len(keys), *keys, *arguments)

    def acquire(
        self,
        token: str = MINE,
        ttl_ms: int = TTL_MS,
        hint: int = HINT,
        electorate: str = ELECTORATE,
        resource: str = RESOURCE,
        max_hold_ms: int = 3_600_000,
        place: str = "",
        waited_us: int = 0,
        grace_ms: int = 0,
    ) -> list[int]:
        keys = [lease_key(resource), scripts.FENCES_KEY]
        words = (token, f"{max_hold_ms} {OWNER}", ttl_ms, SLOT, hint, BLOCK)
        return self.run(scripts.ACQUIRE, keys, *words, place, waited_us, grace_ms, electorate)

    def extend(self, token: str = MINE, ttl_ms: int = TTL_MS, mark: str = "") -> list[int]:
        return self.run(scripts.EXTEND, [lease_key()], token, ttl_ms, mark, ELECTORATE)

    def put_back(
        self, text: str = f"60000 {OWNER} p1", ttl_ms: int = TTL_MS, age_ms: int = 0, token: str = MINE
    ) -> list[int]:
        return self.run(scripts.PUT_BACK, [lease_key()], token, ttl_ms, text, age_ms, ELECTORATE)

    def release(self, token: str = MINE, *by_app: str) -> int:
        return self.run(scripts.RELEASE, [lease_key()], token, *by_app)

    def propose(self, fence: int) -> list[int]:
        return self.run(scripts.PROPOSE, [scripts.FENCES_KEY], SLOT, fence, BLOCK, ELECTORATE)

    def identify(
        self,
        counters: dict[int, int] | None = None,
        expected: str = "",
        fields: dict[str, str] = IDENTITY.fields,
    ) -> int:
        return self.redis.execute_command(*scripts.identify(expected, fields, counters or {}))

    def page(self, cursor: str, pattern: str = "*", count: int = 100) -> tuple[str, list[Any]]:
        next_cursor, flat = self.run(scripts.PAGE, [], cursor, scripts.LEASE_PREFIX.decode() + pattern, count)
        return next_cursor, flat

    def counter(self) -> str | None:
        return self.redis.hget(scripts.FENCES_KEY, SLOT)

    def lease(self) -> str | None:
        return self.redis.get(lease_key())

    def remaining_ms(self) -> int:
        return self.redis.pttl(lease_key())

    def now_us(self) -> int:
        seconds, micros = self.redis.time()
        return seconds * 1_000_000 + micros


def lease_key(resource: str = RESOURCE) -> str:
    return scripts.LEASE_PREFIX.decode() + resource
