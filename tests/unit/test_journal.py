"""The journal's bytes: what is read is what was written, and what can't be trusted gives nothing."""

from __future__ import annotations

import struct
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockd.core.identities import LONGEST_TTL_MS
from lockd.core.journal import FORMAT, MAGIC, Ledger, Replayed, Seal, Unreadable, replay
from lockd.core.validity import NEVER_NS
from lockd.core.values import Bound
from tests.harness.clocks import MS
from tests.harness.fleet_model import App, Host, cluster, written_anew


def state_of(replayed: Replayed) -> tuple[object, object]:
    return replayed.held, replayed.endings


def busy() -> tuple[Host, list[App]]:
    """An agent that has granted, renewed, lost and released."""
    host = cluster()
    apps = [host.locked(b"r%d" % n, ttl_ms=3_000 + n, lock_delay_ms=500 * n, pid=100 + n) for n in range(4)]
    host.pass_ms(2_500)
    host.unlocked(apps[0])
    host.app_dies(apps[1])
    host.slow(*range(3))
    host.unlock(apps[2])
    host.pass_ms(100)
    return host, apps


def test_all_of_a_lease_is_read_as_it_was_noted():
    host = cluster()
    app = host.locked(
        b"\x00 \xff", ttl_ms=5_000, max_hold_ms=77_000, lock_delay_ms=5, value=b" = p1\n", label="c",
        pid=4711, started=1 << 40, bound=Bound.CONNECTION, notify=True, owner=b"web 4711 33",
    )  # fmt: skip
    host.pass_ms(2_000)
    lease = app.held
    [held] = replay(host.journal, host.origin).held.values()
    assert (held.nonce, held.resource, held.token) == (lease.nonce, b"\x00 \xff", b" = p1\n")
    assert (held.label, held.owner, held.fence) == ("c", b"web 4711 33", lease.fence)
    assert (held.max_hold_ms, held.lock_delay_ms, held.notify) == (77_000, 5, True)
    assert (held.pid, held.started, held.bound) == (4711, 1 << 40, Bound.CONNECTION)
    now = held.now
    assert (now.t1_ns, now.deadline_ns, now.promised_ns) == (
        lease.t1_ns,
        lease.deadline_ns,
        lease.promised_ns,
    )
    assert (now.until_ns, now.hold_until_ns, now.granted_ns) == (
        lease.tenure.until_ns, lease.hold_until_ns, lease.granted_ns,
    )  # fmt: skip
    assert (now.ttl_ms, now.proofs, now.proven, now.gone) == (5_000, 1, 0b00111, 0)
    assert (now.let_go_ns, now.lost, now.unproven, now.told, held.before) == (None, False, False, True, ())
    assert now.clock_lows_ns == pytest.approx(host.fleet.clock_lows_ns(), abs=MS, rel=0)


def test_what_ends_is_ending_until_a_quorum_has_confirmed_it():
    host, (released, dead, unconfirmed, held) = busy()
    found = replay(host.journal, host.origin)
    assert set(found.held) == {dead.held.nonce, held.held.nonce}
    assert found.held[dead.held.nonce].now.let_go_ns == dead.held.let_go_ns
    assert released.held.nonce not in found.endings
    [ending] = found.endings.values()
    assert (ending.resource, ending.nonces) == (b"r2", (unconfirmed.held.nonce,))
    assert ending.until_ns == unconfirmed.held.tenure.until_ns


def test_a_journal_that_is_written_anew_says_the_same_without_what_is_over():
    host, _ = busy()
    anew = written_anew(host.ledger)
    assert state_of(replay(anew, host.origin)) == state_of(replay(host.journal, host.origin))
    assert len(anew) <= host.ledger.live_bytes < len(host.journal)


def test_any_part_of_a_journal_comes_to_a_state_that_its_agent_was_in():
    """Wherever it is torn: what follows the last whole record was never acted upon."""
    host, _ = busy()
    data, ends, states = host.journal, [], []
    for count in range(1, len(host.written) + 1):
        whole = b"".join(host.written[:count])
        ends.append(len(whole))
        states.append(state_of(replay(whole, host.origin)))
        assert replay(whole, host.origin).trouble is None
    for cut in range(ends[0], len(data) + 1):
        found = replay(data[:cut], host.origin)
        last = max(n for n, end in enumerate(ends) if end <= cut)
        assert state_of(found) == states[last]
        assert (found.trouble is None) == (cut in ends)
    for cut in range(ends[0]):
        with pytest.raises(Unreadable):
            replay(data[:cut], host.origin)


HOST, _ = busy()
WHOLE = HOST.journal
STATES = [state_of(replay(b"".join(HOST.written[:n]), HOST.origin)) for n in range(1, len(HOST.written) + 1)]


def test_an_older_copy_gives_nothing_to_anybody_and_one_that_its_agent_had_no_time_to_seal_all():
    host, _ = busy()
    older = Seal.of(host.journal[:-1])
    assert older.fits(host.journal), "it died before it had sealed the last record"
    last = older.behind(host.journal[-1:])
    assert last == Seal.of(host.journal) == Seal.read(last.text)
    assert not last.fits(host.journal[:-1])
    assert not Seal(0, 0).fits(host.journal), "there is no seal"
    found = replay(host.journal, host.origin, is_last=False)
    assert (found.is_whole, "older copy" in str(found.trouble)) == (False, True)
    assert host.next_agent(journal=host.journal).taken


@settings(max_examples=300)
@given(at=st.integers(0, len(WHOLE) - 1), bit=st.integers(0, 7))
def test_a_bit_that_has_flipped_is_noticed(at: int, bit: int):
    spoilt = bytearray(WHOLE)
    spoilt[at] ^= 1 << bit
    try:
        found = replay(bytes(spoilt), HOST.origin)
    except Unreadable:
        return
    assert found.trouble is not None
    assert state_of(found) in STATES


@settings(max_examples=300)
@given(
    entries=st.binary(max_size=300)
    | st.tuples(st.sampled_from([b"H", b"M", b"T", b"E", b"D"]), st.binary(max_size=300)).map(b"".join)
)
def test_a_record_with_the_right_checksum_that_makes_no_sense_gives_nothing_else(entries: bytes):
    forged = WHOLE + struct.pack(">II", len(entries), crc32(entries)) + entries
    found = replay(forged, HOST.origin)
    if found.trouble is not None:
        assert state_of(found) == STATES[-1]


def test_zeros_behind_it_are_no_records():
    """Else an agent that finds many of them is at it for minutes, before it lets anybody in."""
    found = replay(WHOLE + bytes(1 << 20), HOST.origin)
    assert found.trouble is not None
    assert state_of(found) == STATES[-1]


@pytest.mark.parametrize(
    "lie",
    [
        {"promised_ns": NEVER_NS - 1},
        {"t1_ns": -NEVER_NS - 1},
        {"until_ns": NEVER_NS + 1},
        {"ttl_ms": 0},
        {"ttl_ms": LONGEST_TTL_MS + 1},
        {"lock_delay_ms": NEVER_NS},
    ],
    ids=lambda lie: next(iter(lie)),
)
def test_what_no_agent_can_have_noted_is_not_believed(lie: dict[str, int]):
    host = cluster()
    app = host.locked()
    for name, value in lie.items():
        of = {"lock_delay_ms": app, "t1_ns": app.held.tenure, "until_ns": app.held.tenure}.get(name, app.held)
        setattr(of, name, value)
    host.ledger.held(app.held, (0,) * 5)
    assert "is invalid" in (replay(host.journal, host.origin).trouble or "")


def test_masters_that_there_are_not_prove_nothing():
    host = cluster()
    app = host.locked()
    app.held.tenure.gone.mask = 1 << 5
    host.ledger.held(app.held, (0,) * 5)
    assert "is invalid" in (replay(host.journal, host.origin).trouble or "")


@pytest.mark.parametrize(
    "name", ["boot_id", "pid_namespace", "time_namespace", "cluster", "masters"], ids=lambda name: name
)
def test_a_journal_of_somewhere_else_is_not_read(name: str):
    other = replace(HOST.origin, **{name: ("m1", "m2", "m4") if name == "masters" else "another"})
    with pytest.raises(Unreadable, match=name.replace("_", " ")):
        replay(WHOLE, other)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not the journal"),
        (b"#!/bin/sh\n" * 20, "not the journal"),
        (MAGIC + struct.pack(">H", FORMAT + 1) + b"what it reads like", f"format {FORMAT + 1}"),
    ],
)
def test_what_is_no_journal_of_this_format_is_not_read(data: bytes, why: str):
    with pytest.raises(Unreadable, match=why):
        replay(data, HOST.origin)


def test_what_is_done_with_is_written_with_the_next_record():
    host = cluster()
    app = host.locked(reads=False)
    before = len(host.written)
    host.unlocked(app)
    assert len(host.written) == before + 1
    assert replay(host.journal, host.origin).endings
    host.locked(b"another", reads=False)
    assert len(host.written) == before + 2
    assert not replay(host.journal, host.origin).endings


def test_an_app_is_told_only_what_is_noted():
    """Of its grant, its extension and its release: the record comes first, and the reply or release after."""
    host = cluster()
    told: list[tuple[str, bool]] = []

    class Noting(App):
        def granted(self, lease, now_ns):
            told.append(("granted", lease.nonce in replay(host.journal, host.origin).held))
            super().granted(lease, now_ns)

        def renewed(self, lease):
            held = replay(host.journal, host.origin).held[lease.nonce]
            told.append(("renewed", held.now.deadline_ns == lease.deadline_ns))

    app = Noting(host.time, ttl_ms=3_000)
    host.locks.lock(app, host.time.now_ns)
    host.pass_ms(1_500)
    send = host.fleet.flush_soon

    def sends() -> None:
        send()
        told.append(("released", app.held.nonce in replay(host.journal, host.origin).endings))

    host.fleet.flush_soon = sends
    host.unlocked(app)
    assert told == [("granted", True), ("renewed", True), ("released", True)]


def test_whether_an_app_has_read_of_its_lease_is_noted_once_and_stays_noted():
    host = cluster()
    app = host.locked(ttl_ms=3_000, reads=False)
    nonce, [unread] = app.held.nonce, replay(host.journal, host.origin).held.values()
    assert not unread.now.told
    before = len(host.written)
    host.locks.told(app.held, host.time.now_ns)
    assert len(host.written) == before + 1
    assert len(host.written[-1]) < 60
    read = replace(unread, now=replace(unread.now, told=True))
    assert replay(host.journal, host.origin).held == {nonce: read}
    host.pass_ms(2_000)
    for journal in (host.journal, written_anew(host.ledger)):
        assert replay(journal, host.origin).held[nonce].now.told


def test_of_what_is_over_by_then_nothing_is_noted():
    host = cluster()
    apps = [host.locked(b"r%d" % n, reads=False) for n in range(2)]
    host.slow()
    host.unlock(apps[0])
    before = len(host.written)
    for app in apps:
        host.locks.told(app.held, host.time.now_ns)
    found = replay(host.journal, host.origin)
    assert len(host.written) == before + 1
    assert (len(found.endings), [held.now.told for held in found.held.values()]) == (1, [True])


def test_a_detached_lease_is_not_noted():
    host = cluster()
    before = len(host.written)
    app = host.locked(detached=True)
    host.extended(app, 20_000)
    host.unlocked(app)
    assert len(host.written) == before


def test_a_ledger_knows_how_long_a_new_journal_would_be():
    host = cluster()
    ledger = host.ledger
    apps = [host.locked(b"r%d" % n) for n in range(20)]
    host.pass_ms(5_000)
    for app in apps[:15]:
        host.unlocked(app)
    assert isinstance(ledger, Ledger)
    assert len(written_anew(ledger)) <= ledger.live_bytes < sum(map(len, host.written)) / 3
    assert host.time.now_ns % MS == 0
