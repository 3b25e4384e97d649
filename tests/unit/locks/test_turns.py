"""Hosts take turns: while others wait, a host hands on for a while only, and gives its tenure back."""

from lockd.core.ballots.release import Release
from lockd.core.leases import TURN_GRANTS
from tests.harness.clocks import MS
from tests.harness.fleet_model import App, Host, cluster


def in_line(host: Host, apps: int) -> list[App]:
    """So many that wait for `r`, of which the first has it, and the masters show nobody's token."""
    first = host.locked()
    line = [host.lock(wait_ms=60_000) for _ in range(apps)]
    host.unlocked(first)
    return line


def recall(host: Host, app: App) -> None:
    host.locks.recalled(app.resource, app.held.nonce, host.time.now_ns)


def test_until_its_turn_is_over_a_host_hands_on_and_then_gives_back():
    host = cluster()
    first, second, third = in_line(host, 3)
    recall(host, first)
    host.time.now_ns += 9 * MS
    host.unlock(first)
    assert second.held.nonce == first.held.nonce
    host.time.now_ns += 1 * MS
    host.unlock(second)
    assert (third.code, len(host.asked(Release))) == ("", 1)
    host.pass_ms(1)
    assert third.held.nonce != first.held.nonce, "it has tried like everybody else"


def test_a_turn_begins_with_the_first_recall_however_often_it_is_said():
    host = cluster()
    first, second = in_line(host, 2)
    for _ in range(3):
        recall(host, first)
        host.time.now_ns += 4 * MS
    host.unlock(first)
    host.pass_ms(1)
    assert second.held.nonce != first.held.nonce


def test_in_its_turn_a_host_gives_so_many_leases_at_most():
    host = cluster()
    line = in_line(host, TURN_GRANTS + 2)
    recall(host, line[0])
    for app in line[:-1]:
        host.unlocked(app)
    host.pass_ms(1)
    assert len({app.held.nonce for app in line[:-1]}) == 1
    assert line[-1].held.nonce != line[0].held.nonce


def test_a_recall_of_another_tenure_means_nothing():
    host = cluster()
    first, second = in_line(host, 2)
    host.locks.recalled(b"r", b"f" * 32, host.time.now_ns)
    host.locks.recalled(b"another", first.held.nonce, host.time.now_ns)
    host.time.now_ns += 50 * MS
    host.unlock(first)
    assert second.held.nonce == first.held.nonce
