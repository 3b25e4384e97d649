"""The page for people: what it says, what it never says, and how large it may get."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from lockd.core.leases import Standing
from lockd.core.queues import Queue
from lockd.health import LOSS_IS_NEWS_MS
from lockd.http.pages import SAFETY
from lockd.http.status_page import (
    CLASS_ORDERS,
    CLASS_PATHS,
    CLASSES_SHOWN,
    HostStatus,
    render,
    render_classes,
)
from lockd.metrics.occupancy import Occupancy
from tests.harness.clocks import MS
from tests.harness.leases import a_lease

NOW_NS = 1_000_000 * MS


def a_master(name: str, vote: int = 1, **more: Any) -> dict[str, Any]:
    known = {
        "name": name, "address": f"{name}:6379", "state": "up" if vote else "down", "vote": vote,
        "reason": "", "rtt_us": 1234, "clock_offset_us": -56, "version": "Redis 7.0.15", "max_ttl_ms": 60_000,
    }  # fmt: skip
    return known | more


def held(resource: bytes, **more: Any) -> Any:
    granted_ns, deadline_ns = NOW_NS - 61_000 * MS, NOW_NS + 9_000 * MS
    return a_lease(resource=resource, granted_ns=granted_ns, deadline_ns=deadline_ns, **more)


def a_status(*leases: Any, masters: tuple[dict[str, Any], ...] = (), **more: Any) -> HostStatus:
    occupancy = Occupancy(("jobs", "other"), masters=3, timeout_ms=250)
    queues = {}
    for lease in leases:
        queues[lease.resource] = Queue(lease.resource)
        queues[lease.resource].lease = lease
    for _ in occupancy.steps(queues, {}, NOW_NS):
        pass
    counts = {"grants": 12, "refusals": 3, "losses": 0, "losses_meant": 0}
    known: dict[str, Any] = {
        "host": "web1", "cluster": "shop", "uptime_ms": 3_723_000, "fingerprint": "abc", "connections": 7,
        "quorum": 2, "responsive": True, "draining": False,
        "masters": masters or tuple(a_master(f"m{i}") for i in (1, 2, 3)),
        "occupancy": occupancy, "totals": {"jobs": counts, "other": counts},
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
    page = render(a_status())
    top = page[: page.index("<h2>")]
    assert "Locks are available: all 3 masters have a vote." in top
    assert "Locks are safe" in top
    assert "<title>GOOD: lockd on web1</title>" in page


def test_a_lost_quorum_or_lease_is_red_and_the_quorum_in_the_title_too_so_that_a_tab_shows_it() -> None:
    masters = (a_master("m1"), a_master("m2", 0, reason="connection refused"), a_master("m3", 0))
    page = render(a_status(masters=masters))
    assert '<div class="assessment bad">Locks are NOT available on this host: 1 of 3' in page
    assert "<title>BAD: " in page
    assert "connection refused" in page
    page = render(a_status(held(b"nightly", standing=Standing.LOST)))
    assert '<div class="assessment bad">1 lease of this host was LOST' in page


def test_a_master_that_is_down_shows_no_round_trip_of_better_days() -> None:
    page = render(a_status(masters=(a_master("m1", 0, rtt_us=77_770), a_master("m2"))))
    assert "77.77 ms" not in page
    assert "1.23 ms" in page


def test_what_is_held_is_shown_by_class_and_where_to_see_the_rest() -> None:
    page = render(a_status(held(b"nightly"), held(b"other", proven=0b011)))
    assert "2 held, 0 waiting." in page
    assert '<td>jobs</td><td class="n">2</td><td class="n">0</td><td class="n"></td>' in page
    assert '<td class="n warning">1</td>' in page
    assert "<code>lockctl top</code>" in page


def losses_shown(**totals: int) -> str:
    """The cells of a class: what was lost, and what was meant to be."""
    counts = {"grants": 12, "refusals": 3, "losses": 0, "losses_meant": 0} | totals
    page = render(a_status(totals={"jobs": counts, "other": counts}))
    return re.search(r"<td>jobs</td>.*?<td class=\"n\">3</td>(.*)</tr>", page)[1]  # type: ignore[index]


def test_a_class_whose_lease_was_lost_is_red_for_an_hour_and_says_when_it_was() -> None:
    just = losses_shown(losses=3, losses_meant=1, last_loss_ms=61_000)
    assert just == '<td class="n bad">2, 1 min 01 s ago</td><td class="n">1</td>'
    assert losses_shown(losses=2, last_loss_ms=LOSS_IS_NEWS_MS - 1).startswith('<td class="n bad">2, 59 min')
    old = losses_shown(losses=2, last_loss_ms=LOSS_IS_NEWS_MS)
    assert old == '<td class="n">2, 1 h 00 min ago</td><td class="n">0</td>'
    meant = losses_shown(losses=5, losses_meant=5)
    assert meant == '<td class="n">0</td><td class="n">5</td>', "by force, or at max hold"


def test_a_failing_canary_is_the_first_thing_one_reads_escaped_like_all_else() -> None:
    page = render(a_status(canary_failures=4, canary_trouble="NOQUORUM m1=<OOM>"))
    assert "<title>BAD: " in page
    assert "own lock failed (NOQUORUM m1=&lt;OOM&gt;), 4 times in a row." in page


def test_what_masters_say_cannot_become_markup_and_is_cut() -> None:
    reason = "<script>alert(1)</script>\x1b[2J" + "x" * 100_000
    page = render(a_status(masters=(a_master("m1", 0, reason=reason), a_master("m2"), a_master("m3"))))
    assert not {"script", "img"} & set(Reader(page).tags)
    assert r"&lt;script&gt;alert(1)&lt;/script&gt;\x1b[2J" in page
    assert len(page) < 20_000


def test_it_has_no_scripts_and_nothing_from_elsewhere() -> None:
    reader = Reader(render(a_status(held(b"x"))))
    assert set(reader.references) == {"/metrics", "/healthz", "/readyz", *CLASS_PATHS} - {"/classes"}
    assert not {"script", "img", "link", "iframe", "form", "object"} & set(reader.tags)


def test_neither_a_resource_nor_who_holds_it_is_on_the_page() -> None:
    lease = held(b"secret-project", token=b"6cc21606d415c2ee69b6abb1e454fb1f")
    page = render(a_status(lease, held(b"lost-project", standing=Standing.LOST)))
    assert not any(word in page for word in ("-project", "4711", "6cc21606"))


def test_however_many_leases_there_are_the_page_stays_small() -> None:
    page = render(a_status(*(held(b"<" * 500 + b"%d" % n) for n in range(5_000))))
    assert "5000 held" in page
    assert len(page) < 10_000


COUNTS = {"grants": 12, "refusals": 3, "losses": 0, "losses_meant": 0}


def with_classes(**numbers: tuple[dict[str, int], dict[str, int]]) -> HostStatus:
    """Of each class its numbers now, and its totals."""
    occupancy = Occupancy(numbers, masters=3, timeout_ms=250)
    totals = {}
    for label, (now, counts) in numbers.items():
        for name, value in now.items():
            setattr(occupancy.by_class[label], name, value)
        totals[label] = COUNTS | counts
    return a_status(occupancy=occupancy, totals=totals)


MANY = with_classes(**{f"class-{n:03}": ({"leases": n % 5}, {}) for n in range(200)})


def names(page: str) -> list[str]:
    return [name for name in re.findall(r"<tr><td>([^<]*)</td>", page) if not name.startswith("m")]


def test_hundreds_of_classes_are_cut_on_the_first_page_which_leads_to_all() -> None:
    page = render(MANY)
    assert len(names(page)) == CLASSES_SHOWN
    assert f'… and {200 - CLASSES_SHOWN} more: <a href="/classes">all 200 classes</a>' in page
    assert "… and" not in render(a_status())
    assert names(render_classes(MANY, "name")) == [f"class-{n:03}" for n in range(200)]


def test_sums_of_all_classes_stand_first_on_either_page() -> None:
    for page in (render(MANY), render_classes(MANY, "name")):
        [sums] = re.findall(r'<tbody>\n<tr class="sum">(.*?)</tr>', page)
        cells = re.findall(r"<td[^>]*>([^<]*)</td>", sums)
        assert cells == ["all classes", "400", "0", "", "", "2400", "600", "0", "0"]
    assert "160 of 200 classes are in use" in render(MANY)


ALL_KINDS = with_classes(
    busy=({"leases": 1}, {"grants": 9_000}),
    idle=({}, {}),
    full=({"leases": 9}, {"refusals": 70}),
    waiting=({"waiters": 9, "oldest_wait_ns": 10 * MS}, {}),
    waiting_longer=({"waiters": 1, "oldest_wait_ns": 99_000 * MS}, {"losses": 7, "losses_meant": 7}),
    on_fewer=({"leases": 2, "on_fewer": 2}, {}),
    lost=({}, {"losses": 1, "last_loss_ms": 5_000}),
    lost_long_ago=({}, {"losses": 3, "last_loss_ms": LOSS_IS_NEWS_MS}),
)


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("", ["lost", "on_fewer", "waiting", "waiting_longer", "full", "busy", "idle", "lost_long_ago"]),
        ("name", ["busy", "full", "idle"]),
        ("held", ["full", "on_fewer", "busy"]),
        ("waiting", ["waiting", "waiting_longer", "busy"]),
        ("longest-wait", ["waiting_longer", "waiting", "busy"]),
        ("not-on-all-masters", ["on_fewer", "busy"]),
        ("granted", ["busy", "full"]),
        ("refused", ["full", "busy"]),
        ("lost", ["lost_long_ago", "lost", "busy"]),
        ("ended-on-purpose", ["waiting_longer", "busy"]),
    ],
)
def test_each_order_has_a_page_and_says_by_which_column_it_is_sorted(order: str, first: list[str]) -> None:
    page = render_classes(ALL_KINDS, order)
    assert names(page)[: len(first)] == first
    marked = re.findall(r'<th class="[^"]* by"><a href="/classes/([^"]*)">', page)
    assert marked == ([order] if order else [])


def test_every_column_of_classes_leads_to_an_order() -> None:
    linked = re.findall(r'<th[^>]*><a href="(/classes/[^"]*)">', render(a_status()))
    assert set(linked) == CLASS_PATHS.keys() - {"/classes"}
    assert [CLASS_PATHS[path] for path in linked] == list(CLASS_ORDERS)[1:]


def test_the_page_of_all_classes_does_not_refresh_so_that_it_can_be_searched() -> None:
    assert "refresh" in render(MANY).partition("</head>")[0]
    page = render_classes(MANY, "held")
    assert "refresh" not in page.partition("</head>")[0]
    assert set(Reader(page).references) == {"/", *CLASS_PATHS}


def test_the_headers_allow_one_style_sheet_and_nothing_else() -> None:
    headers = dict(SAFETY)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"unsafe|\*|http", policy)
    style = re.search(r"<style>(.*?)</style>", render(a_status()), re.DOTALL)
    assert style is not None
    assert base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode() in policy
