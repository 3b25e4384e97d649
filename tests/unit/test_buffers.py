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

LIMITS = {"buffered_bytes": 1_000_000, "buffered_bytes_per_user": 400_000, "unread_ms": 1_000}
CURRENT = Current(a_config(limits=LIMITS | {"unread_bytes": 400_000}))


class Connection:
    """As much of a session as is counted."""

    def __init__(self, quotas: Quotas, uid: int) -> None:
        self.usage = quotas.connected(uid)
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


def test_a_user_over_his_budget_loses_what_has_kept_something_longest(quotas: Quotas, buffers: Any) -> None:
    links = [Connection(quotas, 1) for _ in range(5)]
    other = Connection(quotas, 2)
    buffers.keeps(other, 399_000)
    for link in links:
        buffers.keeps(link, 60_000)
    buffers.keeps(links[0], 100_000)
    assert not any(link.cut for link in [*links, other])
    buffers.keeps(links[4], 200_000)
    assert [len(link.cut) for link in links] == [1, 0, 0, 0, 0]
    assert links[0].cut == ["buffered_bytes_per_user"]
    assert not other.cut
    assert quotas.all.buffered_bytes == 399_000 + 60_000 * 3 + 200_000


def test_when_all_are_over_their_budget_together_it_is_the_largest_that_pays(
    quotas: Quotas, buffers: Any
) -> None:
    modest, *greedy = (Connection(quotas, uid) for uid in (1, 2, 3, 4))
    buffers.keeps(modest, 90_000)
    for link in greedy:
        buffers.keeps(link, 380_000)
    assert sum(link.cut == ["buffered_bytes"] for link in greedy) == 1
    assert not modest.cut
    assert quotas.all.buffered_bytes <= LIMITS["buffered_bytes"]


def test_what_is_kept_no_more_counts_no_more_and_little_counts_nothing(quotas: Quotas, buffers: Any) -> None:
    link = Connection(quotas, 1)
    for size in (UNCOUNTED_BYTES, 10_000, 20_000, 5_000, 100):
        buffers.keeps(link, size)
        counted = size if size > UNCOUNTED_BYTES else 0
        assert quotas.all.buffered_bytes == link.usage.buffered_bytes == counted
    assert not link.usage.keeping
    buffers.keeps(link, 10_000)
    buffers.forget(link)
    assert quotas.all.buffered_bytes == 0


def test_a_reply_that_nobody_read_would_be_over_the_budget_is_refused(quotas: Quotas, buffers: Any) -> None:
    link = Connection(quotas, 1)
    buffers.keeps(link, 100_000)
    assert buffers.refuse_reply(link.usage, 300_000) is None
    assert buffers.refuse_reply(link.usage, 300_001).startswith("buffered_bytes_per_user: ")


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
