"""The page for people: what it says, what it never says, and how large it may get."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest

from lockd.census import Census
from lockd.config import Config
from lockd.core.leases import Standing
from lockd.core.queues import Queue
from lockd.status_page import FRESH_S, HEADERS, NAME_CHARS, PLACES_SHOWN, HostStatus, StatusPage, render
from lockd.verdict import LOSS_IS_NEWS_MS

MS = 1_000_000
NOW_NS = 1_000_000 * MS
CLASSES = Config.model_validate(
    {
        "cluster": "shop",
        "masters": [{"name": f"m{i}", "address": f"10.0.0.{i}:6379"} for i in (1, 2, 3)],
        "classes": [{"name": "jobs", "match": "<jobs>:*"}],
    }
).classes


def a_master(name: str, vote: int = 1, **more: Any) -> dict[str, Any]:
    known = {
        "name": name, "address": f"{name}:6379", "state": "up" if vote else "down", "vote": vote,
        "reason": "", "rtt_us": 1234, "clock_offset_us": -56, "version": "Redis 7.0.15", "max_ttl_ms": 60_000,
    }  # fmt: skip
    return known | more


def a_lease(resource: bytes, **more: Any) -> Any:
    known = {
        "resource": resource,
        "holder": SimpleNamespace(label="jobs", owner=b"web1 4711 33", detached=False),
        "granted_ns": NOW_NS - 61_000 * MS,
        "deadline_ns": NOW_NS + 9_000 * MS,
        "t1_ns": 0,
        "standing": Standing.HELD,
        "ttl_ms": 10_000,
        "proven": 0b111,
    }
    return SimpleNamespace(**(known | more))


def a_status(*leases: Any, masters: tuple[dict[str, Any], ...] = (), **more: Any) -> HostStatus:
    census = Census(("jobs", "other"), masters=3, timeout_ms=250, keep=PLACES_SHOWN)
    queues = {}
    for lease in leases:
        queues[lease.resource] = Queue(lease.resource)
        queues[lease.resource].lease = lease
    for _ in census.steps(queues, {}, NOW_NS):
        pass
    counts = {"grants": 12, "refusals": 3, "losses": 0, "losses_meant": 0}
    known: dict[str, Any] = {
        "host": "web1", "cluster": "shop", "uptime_ms": 3_723_000, "fingerprint": "abc", "connections": 7,
        "quorum": 2, "responsive": True, "draining": False,
        "masters": masters or tuple(a_master(f"m{i}") for i in (1, 2, 3)),
        "classes": CLASSES, "census": census, "totals": {"jobs": counts, "other": counts}, "now_ns": NOW_NS,
    }  # fmt: skip
    return HostStatus(**(known | more))


class Reader(HTMLParser):
    """Finds what a page would fetch or run, and whether every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [
            value or "" for name, value in attrs if name in ("src", "href", "action", "style")
        ]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in ("meta", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_top_says_in_words_whether_locks_are_available_and_safe() -> None:
    page = render(a_status(), with_names=True)
    top = page[: page.index("<h2>")]
    assert "Locks are available: all 3 masters have a vote." in top
    assert "Locks are safe" in top
    assert "<title>GOOD: lockd on web1</title>" in page


def test_a_lost_quorum_is_red_in_the_title_too_so_that_a_tab_shows_it() -> None:
    masters = (a_master("m1"), a_master("m2", 0, reason="connection refused"), a_master("m3", 0))
    page = render(a_status(masters=masters), with_names=True)
    assert '<div class="verdict bad">Locks are NOT available on this host: 1 of 3' in page
    assert "<title>BAD: " in page
    assert "connection refused" in page


def test_a_master_that_is_down_shows_no_round_trip_of_better_days() -> None:
    page = render(a_status(masters=(a_master("m1", 0, rtt_us=77_770), a_master("m2"))), with_names=True)
    assert "77.77 ms" not in page
    assert "1.23 ms" in page


def test_leases_show_who_holds_them_for_how_long_and_on_how_many_masters() -> None:
    texts = Reader(render(a_status(a_lease(b"nightly")), with_names=True)).texts
    assert {"nightly", "jobs", "session", "1 min 01 s", "9.0 s", "3 of 3", "4711", "33"} <= set(texts)


def test_a_lost_lease_is_red_and_says_so() -> None:
    page = render(a_status(a_lease(b"nightly", standing=Standing.LOST)), with_names=True)
    assert '<td class="bad">LOST</td>' in page
    assert "1 lease of this host was LOST" in page


def losses_shown(**totals: int) -> str:
    """The cells of a class: what was lost, and what was meant to be."""
    counts = {"grants": 12, "refusals": 3, "losses": 0, "losses_meant": 0} | totals
    page = render(a_status(totals={"jobs": counts, "other": counts}), with_names=True)
    return re.search(r"<td>jobs</td>.*?<td class=\"n\">3</td>(.*)</tr>", page)[1]  # type: ignore[index]


def test_a_class_whose_lease_was_lost_is_red_for_an_hour_and_says_when_it_was() -> None:
    just = losses_shown(losses=3, losses_meant=1, last_loss_ms=61_000)
    assert just == '<td class="n bad">2, 1 min 01 s ago</td><td class="n">1</td>'
    assert losses_shown(losses=2, last_loss_ms=LOSS_IS_NEWS_MS - 1).startswith('<td class="n bad">2, 59 min')
    old = losses_shown(losses=2, last_loss_ms=LOSS_IS_NEWS_MS)
    assert old == '<td class="n">2, 1 h 00 min ago</td><td class="n">0</td>'


def test_what_was_ended_by_force_or_at_max_hold_is_no_alarm() -> None:
    assert losses_shown(losses=5, losses_meant=5) == '<td class="n">0</td><td class="n">5</td>'


def test_a_failing_canary_is_the_first_thing_one_reads_escaped_like_all_else() -> None:
    page = render(a_status(canary_failures=4, canary_trouble="NOQUORUM m1=<OOM>"), with_names=True)
    assert "<title>BAD: " in page
    assert "own lock failed (NOQUORUM m1=&lt;OOM&gt;), 4 times in a row." in page


@pytest.mark.parametrize("name", [b"<script>alert(1)</script>", b'"><img src=x onerror=y>', b"&amp;", b"'"])
def test_names_of_resources_cannot_become_markup(name: bytes) -> None:
    reader = Reader(render(a_status(a_lease(name)), with_names=True))
    assert not {"script", "img"} & set(reader.tags)
    assert name.decode() in reader.texts


def test_what_is_no_text_is_shown_as_bytes() -> None:
    page = render(a_status(a_lease(b"a\xff\x00\n\x1b[2J\xe2\x80\xaeb")), with_names=True)
    assert r"a\xff\x00\x0a\x1b[2J\xe2\x80\xaeb" in page


def test_it_has_no_scripts_and_nothing_from_elsewhere() -> None:
    reader = Reader(render(a_status(a_lease(b"x")), with_names=True))
    assert set(reader.references) == {"/metrics", "/healthz", "/readyz"}
    assert not {"script", "img", "link", "iframe", "form", "object"} & set(reader.tags)


def test_tokens_are_never_shown() -> None:
    page = render(a_status(a_lease(b"x", token=b"6cc21606d415c2ee69b6abb1e454fb1f")), with_names=True)
    assert "6cc21606" not in page


def test_readers_from_elsewhere_see_everything_but_the_names() -> None:
    page = render(a_status(a_lease(b"secret-project")), with_names=False)
    assert "secret-project" not in page
    assert "names of resources are shown to readers on this host only" in page
    assert "4711" in page


def test_however_many_leases_with_however_long_names_the_page_stays_small() -> None:
    leases = [a_lease(b"<" * 500 + b"%d" % n) for n in range(5_000)]
    page = render(a_status(*leases), with_names=True)
    assert "5000 held" in page
    assert page.count('class="name"') == PLACES_SHOWN
    assert "&lt;" * (NAME_CHARS + 1) not in page
    assert len(page) < 150_000


def test_the_headers_allow_one_style_sheet_and_nothing_else() -> None:
    headers = dict(HEADERS)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"unsafe|\*|http", policy)
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


def test_many_readers_cost_no_more_than_one() -> None:
    looks = 0
    now_s = 0.0

    def look() -> HostStatus:
        nonlocal looks
        looks += 1
        return a_status(a_lease(b"shown-to-some"))

    page = StatusPage(look, clock_s=lambda: now_s)
    assert b"shown-to-some" in page.html(True)
    assert b"shown-to-some" not in page.html(False)
    assert page.html(True) == page.html(True)
    assert looks == 1
    now_s += FRESH_S
    page.html(False)
    assert looks == 2


def test_a_look_that_fails_once_is_tried_again_by_the_next_reader() -> None:
    looks: list[HostStatus | Exception] = [RuntimeError("not now"), a_status()]

    def look() -> HostStatus:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    page = StatusPage(look)
    with pytest.raises(RuntimeError, match="not now"):
        page.html(True)
    assert b"Locks are available" in page.html(True)
