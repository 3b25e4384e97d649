"""On hosts that have nothing yet: wrong inventories stop before anything is changed, and `--check` shows
what would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.lab import inventory
from tests.lab.lab import ADDRESSES, Lab
from tests.lab.plays import Played, play

Document = dict[str, Any]


def masters_of(document: Document) -> Document:
    hosts: Document = document["all"]["children"]["lock_masters"]["hosts"]
    return hosts


@pytest.fixture
def site_with(lab: Lab) -> Callable[[Callable[[Document], Any]], Played]:
    """site.yml on the lab's inventory, after the test has spoilt it."""

    def run(spoil: Callable[[Document], Any]) -> Played:
        document = inventory.document(lab, {})
        spoil(document)
        inventory.write_document(lab.folder / "spoilt", document)
        return play(lab, "site.yml", inventory_name="spoilt")

    return run


def test_four_masters_are_refused(site_with: Any) -> None:
    played = site_with(lambda document: masters_of(document).pop("m5"))
    played.must_stop_with("has 4 hosts", "make it 3, 5, 7 or 9", "Nothing was changed")


def test_an_address_that_two_masters_have_is_refused(site_with: Any) -> None:
    def spoil(document: Document) -> None:
        masters_of(document)["m2"]["ansible_host"] = ADDRESSES["m1"]

    site_with(spoil).must_stop_with("10.77.0.11:6379", "would count one vote twice", "Nothing was changed")


def test_a_guard_delay_that_does_not_outlast_the_leases_is_refused(site_with: Any) -> None:
    def spoil(document: Document) -> None:
        document["all"]["vars"]["restart_guard_delay_ms"] = inventory.MAX_TTL_MS

    site_with(spoil).must_stop_with("must be at least 6050", "Raise it, or leave it out")


def test_a_host_that_does_not_answer_is_named(site_with: Any) -> None:
    def spoil(document: Document) -> None:
        masters_of(document)["m4"]["ansible_host"] = "10.77.0.99"

    site_with(spoil).must_stop_with("No answer over ssh from m4", "run the same again", "Nothing was changed")


@contextmanager
def a_redis_of_somebody(lab: Lab, host: str) -> Iterator[None]:
    """A listener on the master's port: to the play it is all the same whose Redis it is."""
    code = "import socket,time;s=socket.create_server(('', 6379));time.sleep(10**6)"
    lab.host(host).run("systemd-run", "--quiet", "--unit=somebody", "--collect", "python3", "-c", code)
    try:
        yield
    finally:
        lab.host(host).run("systemctl", "stop", "somebody")


def test_a_redis_that_is_not_ours_is_left_alone(lab: Lab, site_with: Any) -> None:
    with a_redis_of_somebody(lab, "m3"):
        played = site_with(lambda document: None)
    played.must_stop_with("Port 6379 of m3 is in use", "so nothing was changed")


def test_data_that_is_not_ours_is_left_alone(lab: Lab, site_with: Any) -> None:
    lab.host("m2").run("mkdir", "-p", "/var/lib/lockd-master/appendonlydir")
    try:
        played = site_with(lambda document: None)
    finally:
        lab.host("m2").run("rm", "-r", "/var/lib/lockd-master")
    played.must_stop_with("m2 is not blank and not ours", "Nothing was changed")


def test_check_mode_shows_what_would_be_done_and_does_nothing(lab: Lab) -> None:
    played = play(lab, "site.yml", "--check", "--diff").must_work()
    assert played.changed["m1"] > 5
    for path in (
        "/etc/lockd-master",
        "/var/lib/lockd-guard",
        "/usr/bin/redis-server",
        "/etc/chrony/chrony.conf",
    ):
        assert not (lab.host("m1").merged / path.lstrip("/")).exists(), path
