"""A look at what the masters show: what one of them answers costs that look that one, and no pattern reaches
any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from lockd.masters import scripts, survey
from lockd.masters.link import MasterError
from lockd.masters.survey import (
    LEASES_MOST,
    Asking,
    Copy,
    Found,
    Listing,
    all_copies,
    copies_of,
    enough_copies_of,
)
from tests.harness.virtual_time import run

TOKEN = b"1" * 32
LEASE = TOKEN + b" 1790000000000000 0 host-1 4711 1000"
CLUSTER_ID = b"c" * 32
NIL = object()
HONEST = [b"a", b"b", b"c"]
RESOURCE_BYTES = 64

Answer = Callable[[tuple[Any, ...]], Any]


def key_of(resource: bytes) -> bytes:
    return scripts.LEASE_PREFIX + resource


def page_of(resources: Iterable[bytes], cursor: bytes = b"0") -> list[Any]:
    return [cursor, [word for resource in resources for word in (key_of(resource), LEASE, 5_000)]]


def honest(words: tuple[Any, ...]) -> Any:
    """Two pages."""
    cursor = words[3] if words[0] == b"EVALSHA" else b""
    if words[0] == "HGET":
        return CLUSTER_ID
    if words[0] in ("GET", "PTTL"):
        return LEASE if words[0] == "GET" else 5_000
    return page_of(HONEST[:2], b"17") if cursor == b"0" else page_of(HONEST[2:])


class FakeLink:
    """A master that gives these answers at once; an exception is an error, None no answer."""

    introduced = True
    identity = SimpleNamespace(cluster_id="c" * 32)

    def __init__(self, index: int, answer: Answer) -> None:
        self.index, self._answer, self.asked = index, answer, list[tuple[Any, ...]]()

    def call(self, *words: Any) -> asyncio.Future[Any]:
        self.asked.append(words)
        future = asyncio.get_running_loop().create_future()
        answer = self._answer(words)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        elif answer is not None:
            future.set_result(None if answer is NIL else answer)
        return future


def fleet_of(*answers: Answer) -> Any:
    links = [FakeLink(index, answer) for index, answer in enumerate(answers)]
    watches = [SimpleNamespace(offset_ns=0) for _ in links]
    config = SimpleNamespace(
        quorum=len(links) // 2 + 1,
        timeouts=SimpleNamespace(master_ms=200, dead_ms=400),
        limits=SimpleNamespace(resource_bytes=RESOURCE_BYTES),
    )
    everyone = (1 << len(links)) - 1
    clocks = SimpleNamespace(watches=watches)
    return SimpleNamespace(links=links, clocks=clocks, config=config, voting=lambda: everyone)


async def through(steps: Iterable[object]) -> None:
    for _ in steps:
        await asyncio.sleep(0)


def everything(resource: bytes, copy: Copy) -> bool:
    return True


def listed(fleet: Any, wanted: survey.Wanted = everything) -> Listing:
    asking = Asking(wanted)
    run(all_copies(fleet, [asking], through))
    return asking.listing


def resources_in(listing: Listing) -> set[bytes]:
    return {resource for resource in listing.by_resource if listing.copies(resource)}


@pytest.fixture(autouse=True)
def stragglers_are_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_STRAGGLERS_LEAST_S", 0.1)
    monkeypatch.setattr(survey, "_LONGEST_S", 1.0)
    virtual = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(survey, "time", virtual)


def test_all_pages_of_all_masters_are_read_and_a_key_named_twice_is_one_copy() -> None:
    listing = listed(fleet_of(*[honest] * 4, lambda words: page_of([*HONEST, *HONEST])))
    assert resources_in(listing) == set(HONEST)
    assert (listing.answered, listing.full) == (0b11111, 0)
    assert sorted(copy.master for copy in listing.copies(b"c")) == list(range(5))


def test_masters_are_asked_for_small_pages_and_never_learn_what_is_wanted() -> None:
    fleet = fleet_of(*[honest] * 3)
    listing = listed(fleet, lambda resource, copy: resource == b"b")
    assert resources_in(listing) == {b"b"}
    pages = [scripts.page(b"0"), scripts.page(b"17")]
    assert all(link.asked == pages for link in fleet.links)
    assert pages[0][-2:] == (b"lockd:lease:*", scripts.PAGE_COUNT)


def endless(words: tuple[Any, ...]) -> Any:
    return page_of([b"fake:" + words[3]], b"%d" % (int(words[3]) + 1))


NONSENSE: dict[str, Any] = {
    "no list": b"OK",
    "a number": 7,
    "one field": [b"0"],
    "three fields": [b"0", [], []],
    "no cursor": [None, []],
    "a cursor that is no number": [b"next", []],
    "a number as cursor": [0, []],
    "a cursor without end": [b"1" * 1_000, []],
    "no entries": [b"0", None],
    "a key without its lease": [b"0", [key_of(b"fake")]],
    "a key that is a number": [b"0", [7, LEASE, 5_000]],
    "a key of something else": [b"0", [b"fake", LEASE, 5_000]],
    "a lease that is a list": [b"0", [key_of(b"fake"), [LEASE], 5_000]],
    "a TTL that is text": [b"0", [key_of(b"fake"), LEASE, b"5000"]],
    "no TTL": [b"0", [key_of(b"fake"), LEASE, None]],
    "more keys than a page can have": page_of(b"fake:%d" % n for n in range(survey._KEYS_MOST + 1)),
    "an error": MasterError("ERR no"),
    "nothing": None,
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
def test_what_is_no_page_costs_this_look_that_master(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_STRAGGLERS_LEAST_S", 60.0)
    listing = listed(fleet_of(honest, lambda words: answer, honest))
    assert resources_in(listing) == set(HONEST)
    assert listing.answered == 0b101


def test_pages_without_end_are_not_waited_for() -> None:
    listing = listed(fleet_of(honest, endless, honest))
    assert resources_in(listing) == set(HONEST)
    assert listing.answered == 0b101
    assert listed(fleet_of(honest, endless, lambda words: None)).answered == 0b001, "nor is a quorum"


ODD = {
    "no lease": None,
    "empty": b"",
    "a text": b"hello",
    "too few words": TOKEN + b" 1 2",
    "a pid that is a text": TOKEN + b" 1 0 host-1 x 1000",
    "a pid beyond all": TOKEN + b" 1 0 host-1 %d 1000" % 10**30,
    "a time beyond all": TOKEN + b" %d 0 host-1 1 1000" % 10**30,
    "no token": b"x" * 32 + b" 1 0 host-1 1 1000",
    "a host without end": TOKEN + b" 1 0 " + b"h" * 10_000 + b" 1 1000",
}


@pytest.mark.parametrize("lease", ODD.values(), ids=ODD)
def test_what_reads_as_no_lease_is_none(lease: Any) -> None:
    odd = [b"0", [key_of(b"odd"), lease, 5_000, key_of(b"a"), LEASE, 5_000]]
    fleet = fleet_of(*[lambda words: odd] * 3)
    assert resources_in(listed(fleet, lambda _resource, copy: copy.is_lease)) == {b"a"}
    no_leases = {b"odd"} if lease is not None else set()
    assert resources_in(listed(fleet, lambda _resource, copy: not copy.is_lease)) == no_leases


def test_a_name_that_no_agent_can_have_locked_is_not_even_matched() -> None:
    long = b"x" * (RESOURCE_BYTES + 1)
    matched = list[bytes]()

    def wanted(resource: bytes, copy: Copy) -> bool:
        matched.append(resource)
        return True

    listing = listed(fleet_of(*[lambda words: page_of([long, b"a"])] * 3), wanted)
    assert resources_in(listing) == {b"a"}
    assert long not in matched


def crowded(words: tuple[Any, ...]) -> Any:
    first = int(words[3])
    return page_of((b"%d" % n for n in range(first, first + 1_000)), b"%d" % (first + 1_000))


def test_so_many_are_listed_and_a_quorum_has_to_say_that_there_are_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(survey, "_STRAGGLERS_LEAST_S", 60.0)
    monkeypatch.setattr(survey, "_LONGEST_S", 60.0)
    listing = listed(fleet_of(crowded, honest, honest))
    assert (listing.full, listing.answered) == (0b001, 0b111)
    assert len(listing.by_resource) <= LEASES_MOST + 1_000
    assert listed(fleet_of(crowded, crowded, honest)).full == 0b011


@pytest.mark.parametrize("answer", [7, [], [LEASE], b"x", MasterError("WRONGTYPE"), None], ids=repr)
def test_a_holder_is_found_whatever_one_master_says(answer: Any) -> None:
    found: Found = run(copies_of(fleet_of(honest, lambda words: answer, honest), b"a"))
    assert {copy.master for copy in found.copies} == {0, 2}


def shows(lease: bytes | None, ttl_ms: int = 5_000) -> Answer:
    of = {"GET": lease or NIL, "PTTL": ttl_ms if lease else -2, "HGET": CLUSTER_ID}
    return lambda words: of[words[0]]


HELD, FREE = shows(LEASE), shows(None)
OTHER = shows(LEASE.replace(b"1", b"2", 32))
IN_THE_PAST = shows(LEASE, 700)


def silent(_words: tuple[Any, ...]) -> None:
    """Paused, or slow."""


def enough_of(*answers: Answer, voting: int = 0b11111, master_ms: float = 1e9, limit_s: float = 30) -> int:
    """Who had answered when it was enough. It never is where a master that is silent is waited for."""
    fleet = fleet_of(*answers)
    fleet.config.timeouts.master_ms = master_ms
    fleet.voting = lambda: voting

    async def look() -> Found:
        async with asyncio.timeout(limit_s):
            return await enough_copies_of(fleet, b"a")

    return run(look()).answered


@pytest.mark.parametrize(
    "answers",
    [
        (HELD, HELD, HELD, silent, silent),
        (silent, HELD, FREE, HELD, HELD),
        (silent, FREE, FREE, HELD, FREE),
        (silent, FREE, OTHER, HELD, FREE),
    ],
)
def test_a_slow_master_is_not_waited_for_where_the_others_decide(answers: tuple[Answer, ...]) -> None:
    answered = enough_of(*answers)
    assert answered == sum(1 << at for at, answer in enumerate(answers) if answer is not silent)


@pytest.mark.parametrize(
    ("answers", "voting"),
    [
        ((HELD, HELD, FREE, FREE, silent), 0b11111),
        ((FREE, FREE, FREE, HELD, silent), 0b11110),
        ((HELD, OTHER, FREE, silent, FREE), 0b01111),
        ((HELD, IN_THE_PAST, HELD, silent, silent), 0b11111),
    ],
    ids=["it may be held", "one that is free has no vote", "of two tries", "one has missed an extension"],
)
def test_where_they_do_not_decide_all_are_waited_for_in_time(
    answers: tuple[Answer, ...], voting: int
) -> None:
    with pytest.raises(TimeoutError):
        enough_of(*answers, voting=voting, limit_s=0.05)
    assert enough_of(*answers, voting=voting, master_ms=300) == 0b11111 & ~sum(
        1 << at for at, answer in enumerate(answers) if answer is silent
    )


def test_who_asks_for_all_copies_gets_those_of_all_that_answer_in_time() -> None:
    fleet = fleet_of(HELD, HELD, HELD, HELD, silent)
    fleet.config.timeouts.master_ms = 300
    assert len(run(copies_of(fleet, b"a")).copies) == 4


@pytest.mark.parametrize("cluster_id", [NIL, b"d" * 32, 7], ids=["wiped", "of another cluster", "nonsense"])
def test_a_master_that_is_not_the_member_that_it_was_says_nothing(cluster_id: Any) -> None:
    def wiped(words: tuple[Any, ...]) -> Any:
        return cluster_id if words[0] == "HGET" else FREE(words)

    fleet = fleet_of(wiped, wiped, wiped, HELD, HELD)
    found = run(enough_copies_of(fleet, b"a"))
    assert (found.answered, len(found.copies)) == (0b11000, 2)
    assert [words[0] for words in fleet.links[0].asked] == ["GET", "PTTL", "HGET"], "so it is last"


def test_one_that_was_known_to_be_no_member_shows_what_it_has() -> None:
    fleet = fleet_of(HELD, HELD, HELD)
    fleet.links[0].identity = None
    assert run(copies_of(fleet, b"a")).answered == 0b111


def several(fleet: Any, *wanted: survey.Wanted, gone: tuple[int, ...] = ()) -> list[Asking]:
    askings = [Asking(one, gone=at in gone) for at, one in enumerate(wanted)]
    run(all_copies(fleet, askings, through))
    return askings


def test_one_reading_answers_several_questions_and_each_with_what_it_may_see() -> None:
    fleet = fleet_of(*[honest] * 3)
    every, some, none = several(
        fleet, everything, lambda resource, _: resource == b"b", lambda _resource, _copy: False
    )
    assert resources_in(every.listing) == set(HONEST)
    assert (resources_in(some.listing), resources_in(none.listing)) == ({b"b"}, set())
    assert [asking.listing.answered for asking in (every, some, none)] == [0b111] * 3
    assert all(len(link.asked) == 2 for link in fleet.links)


def test_when_nobody_waits_for_an_answer_nothing_more_is_read() -> None:
    fleet = fleet_of(*[honest] * 3)
    [asking] = several(fleet, everything, gone=(0,))
    assert [link.asked for link in fleet.links] == [[], [], []]
    assert asking.listing.by_resource == {}


def test_who_has_seen_as_much_as_is_listed_does_not_end_the_reading_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(survey, "LEASES_MOST", 2)
    long, short = several(fleet_of(*[honest] * 3), everything, lambda resource, _: resource == b"c")
    assert (long.listing.full, short.listing.full) == (0b111, 0)
    assert resources_in(short.listing) == {b"c"}


def test_when_all_answers_together_are_too_long_the_last_ones_are_put_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(survey, "LEASES_MOST", 3)
    pages = [
        page_of([b"%s:%d" % (name, n) for n in range(3)], cursor)
        for name, cursor in ((b"first", b"1"), (b"second", b"2"), (b"third", b"3"))
    ]
    pages.append(page_of([]))
    fleet = fleet_of(*[lambda words: pages[int(words[3])]] * 3)
    names = (b"first", b"second", b"third", b"nothing")
    askings = several(fleet, *(lambda resource, _, name=name: resource.startswith(name) for name in names))
    assert [asking.put_off for asking in askings] == [False, False, True, False]
    assert askings[2].listing.by_resource == {}
    assert len(resources_in(askings[1].listing)) == 3


def test_what_several_want_is_kept_once_and_puts_off_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "LEASES_MOST", 3)
    askings = several(fleet_of(*[honest] * 3), *[everything] * survey.ASKINGS_MOST)
    assert not any(asking.put_off for asking in askings)
    assert all(resources_in(asking.listing) == set(HONEST) for asking in askings)
    copies = [asking.listing.by_resource[b"a"][0, TOKEN] for asking in askings]
    assert len({id(copy) for copy in copies}) == 1
