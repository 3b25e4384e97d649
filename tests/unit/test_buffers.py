"""What is kept for connections that don't read, counted: whose connection goes when it is too much."""

from __future__ import annotations

from typing import Any

import pytest

from lockd.config.current import Current
from lockd.server import buffers as buffers_module
from lockd.server.buffers import UNCOUNTED_BYTES, Buffers
from lockd.server.quotas import Quotas
from tests.harness.clocks import MS, Clock
from tests.harness.configs import a_config

CURRENT = Current(a_config(limits={"memory_mib": 64, "share_percent": 1, "unread_ms": 1_000}))


class Connection:
    """As much of a session as is counted."""

    def __init__(self, quotas: Quotas, uid: int) -> None:
        self.usage = quotas.connected(f"uid {uid}")
        self.kept_bytes = 0
        self.cut: list[str] = []

    def cut_off(self, limit: str) -> None:
        self.cut.append(limit.partition(":")[0])

    cut_off_soon = cut_off


@pytest.fixture
def quotas() -> Quotas:
    return Quotas(CURRENT)


@pytest.fixture
def buffers(quotas: Quotas) -> Any:
    return Buffers(CURRENT, quotas)


def room(quotas: Quotas, uid: int) -> int:
    """How much more this account may have."""
    return quotas.bytes.most_of(f"uid {uid}") - quotas.bytes.held.get(f"uid {uid}", 0)


def test_an_account_over_its_stake_loses_what_has_kept_something_longest(
    quotas: Quotas, buffers: Any
) -> None:
    links = [Connection(quotas, 1) for _ in range(5)]
    other = Connection(quotas, 2)
    buffers.keeps(other, room(quotas, 2))
    each = room(quotas, 1) // 6
    for link in links:
        buffers.keeps(link, each)
    buffers.keeps(links[0], each + each // 2)
    assert not any(link.cut for link in [*links, other])
    buffers.keeps(links[4], each * 2)
    assert [len(link.cut) for link in links] == [1, 0, 0, 0, 0]
    assert links[0].cut == ["bytes"]
    assert not other.cut
    assert quotas.all.buffered_bytes == other.kept_bytes + each * 5


def test_whatever_others_have_kept_one_below_its_floor_loses_nothing(quotas: Quotas, buffers: Any) -> None:
    modest, *greedy = (Connection(quotas, uid) for uid in range(40))
    for _ in range(10):
        for link in greedy:
            if not link.cut:
                buffers.keeps(link, link.kept_bytes + room(quotas, greedy.index(link) + 1))
    assert room(quotas, 1) < quotas.bytes.floor // 4, "they have used it up"
    buffers.keeps(modest, quotas.bytes.floor - 5_120)
    assert not modest.cut
    for link in greedy:
        buffers.keeps(link, link.kept_bytes + quotas.bytes.floor)
    assert all(link.cut == ["bytes"] for link in greedy), "each loses one of its own"
    assert not modest.cut


def test_leases_that_use_up_a_stake_leave_a_floor_for_what_is_kept(quotas: Quotas, buffers: Any) -> None:
    """Else an app that holds too much would lose its connection at the first large request."""
    link = Connection(quotas, 1)
    quotas.bytes.take("uid 1", room(quotas, 1) * 2)
    buffers.keeps(link, quotas.bytes.floor)
    assert not link.cut
    buffers.keeps(link, quotas.bytes.floor + 1)
    assert link.cut == ["bytes"]


def test_what_is_kept_no_more_counts_no_more_and_little_counts_nothing(quotas: Quotas, buffers: Any) -> None:
    link = Connection(quotas, 1)
    before = quotas.bytes.used
    for size in (UNCOUNTED_BYTES, 10_000, 20_000, 5_000, 100):
        buffers.keeps(link, size)
        counted = size if size > UNCOUNTED_BYTES else 0
        assert quotas.all.buffered_bytes == link.usage.buffered_bytes == counted
        assert quotas.bytes.used == before + counted
    assert not link.usage.keeping
    buffers.keeps(link, 10_000)
    buffers.forget(link)
    assert quotas.all.buffered_bytes == 0
    assert quotas.bytes.used == before


def test_a_reply_that_nobody_read_would_be_over_the_stake_is_refused(quotas: Quotas, buffers: Any) -> None:
    link = Connection(quotas, 1)
    buffers.keeps(link, 100_000)
    most = room(quotas, 1)
    assert quotas.refuse_reply(link.usage, most) is None
    assert str(quotas.refuse_reply(link.usage, most + 1)).startswith("bytes: uid 1 has ")


def test_one_that_leaves_its_replies_unread_for_too_long_is_cut_off_and_one_that_reads_is_not(
    quotas: Quotas, buffers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Clock(0)
    monkeypatch.setattr(buffers_module, "boottime_ns", now)
    deaf, slow = Connection(quotas, 1), Connection(quotas, 1)
    buffers.is_deaf(deaf)
    buffers.is_deaf(slow)
    now.now_ns = 900 * MS
    buffers.hears(slow)
    buffers.is_deaf(slow)
    buffers.is_deaf(deaf)
    buffers.cut_off_the_deaf(999 * MS)
    assert not deaf.cut
    buffers.cut_off_the_deaf(1_000 * MS)
    buffers.cut_off_the_deaf(1_000 * MS)
    assert (deaf.cut, slow.cut) == (["unread_ms"], [])
