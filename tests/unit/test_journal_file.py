"""The journal's file: one agent's at a time, and never an old one where the new one can't be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockd.core.journal import replay
from lockd.core.validity import NEVER_NS
from lockd.server import journal
from lockd.server.journal import JournalFile, NotOurs, origin_of
from tests.harness.fleet_model import cluster
from tests.harness.leases import a_lease

MASTERS = ("m1", "m2", "m3", "m4", "m5")
LEASE = cluster().locked().held
LOWS_NS = (0,) * 5


def begun(folder: Path, said: list[str] | None = None) -> JournalFile:
    told = said if said is not None else []
    file = JournalFile(folder / "journal", origin_of("test", MASTERS), told.append)
    file.take()
    file.begin()
    return file


def looked_after(file: JournalFile) -> None:
    """To its end."""
    if file.look_after():
        file.step(NEVER_NS)


def held_in(file: JournalFile) -> set[bytes]:
    return set(replay(file.path.read_bytes(), file.ledger.origin).held)


def test_two_agents_never_use_one_at_a_time(tmp_path: Path):
    first = begun(tmp_path)
    second = JournalFile(first.path, first.ledger.origin, print)
    with pytest.raises(NotOurs, match="another agent"):
        second.take()
    second.begin()
    first.ledger.held(LEASE, LOWS_NS)
    assert held_in(first) == {LEASE.nonce}
    first.close()
    assert replay(second.take(), first.ledger.origin).held


def test_one_in_which_an_error_of_the_agent_kept_a_note_from_being_made_is_taken_away_and_tried_anew(
    tmp_path: Path,
):
    said: list[str] = []
    file = begun(tmp_path, said)
    file.ledger.held(LEASE, LOWS_NS)
    file.ledger.held(a_lease(fence=1 << 70), LOWS_NS)
    assert not file.path.exists()
    assert ["error" in why and "journal.py:" in why for why in said] == [True]
    looked_after(file)
    assert held_in(file) == {LEASE.nonce}
    file.close()


def test_of_a_lease_of_which_a_note_failed_nothing_is_in_a_later_journal(tmp_path: Path):
    """What was noted before that is not so any more."""
    file = begun(tmp_path, [])
    lease = a_lease(granted_ns=1)
    file.ledger.held(LEASE, LOWS_NS)
    file.ledger.held(lease, LOWS_NS)
    lease.hold_until_ns = 1 << 70
    file.ledger.moved(lease, LOWS_NS)
    looked_after(file)
    assert held_in(file) == {LEASE.nonce}
    file.close()


@pytest.mark.parametrize("what", ["write", "pwrite"], ids=["the record", "its seal"])
def test_one_that_can_not_be_written_is_taken_away_said_once_and_tried_anew(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without its seal, nothing could tell an older copy from it."""
    said: list[str] = []
    file = begun(tmp_path, said)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal.os, what, full)
        file.ledger.held(LEASE, LOWS_NS)
        assert not file.path.exists()
        looked_after(file)
    assert len(said) == 1
    assert "No space" in file.trouble
    looked_after(file)
    assert (file.trouble, held_in(file)) == ("", {LEASE.nonce})


def test_one_whose_folder_may_not_be_written_to_is_left_empty_and_not_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The next agent would believe it: it names leases that were given back since."""
    file = begun(tmp_path)
    file.ledger.held(LEASE, LOWS_NS)

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    for name in ("unlink", "rename"):
        monkeypatch.setattr(journal.os, name, denied)
    file.begin()
    assert file.path.read_bytes() == b""
    assert "Permission denied" in file.trouble
    monkeypatch.undo()
    file.begin()
    assert (file.trouble, held_in(file)) == ("", {LEASE.nonce})


def test_a_record_that_is_taken_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file, write = begun(tmp_path), os.write
    monkeypatch.setattr(journal.os, "write", lambda to, data: write(to, data[:9]))
    file.ledger.held(LEASE, LOWS_NS)
    assert held_in(file) == {LEASE.nonce}


def test_it_is_written_anew_when_it_has_grown_and_when_somebody_has_deleted_it(tmp_path: Path):
    file = begun(tmp_path)
    file.ledger.held(LEASE, LOWS_NS)
    while file.path.stat().st_size <= 1 << 20:
        file.ledger.moved(LEASE, LOWS_NS)
    looked_after(file)
    assert file.path.stat().st_size == file.ledger.live_bytes
    file.path.unlink()
    looked_after(file)
    assert held_in(file) == {LEASE.nonce}
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_it_is_written_anew_when_somebody_has_moved_it_and_put_a_copy_there(tmp_path: Path):
    file = begun(tmp_path)
    copy = file.path.read_bytes()
    file.path.rename(tmp_path / "moved")
    file.path.write_bytes(copy)
    looked_after(file)
    file.ledger.held(LEASE, LOWS_NS)
    assert held_in(file) == {LEASE.nonce}


def test_one_that_another_agent_has_says_so_and_is_had_as_soon_as_that_has_gone(tmp_path: Path):
    first = begun(tmp_path)
    second = JournalFile(first.path, first.ledger.origin, print)
    for _ in range(2):
        with pytest.raises(NotOurs):
            second.take()
        second.begin()
        assert (second.is_ours(), second.trouble) == (False, "another agent is using it")
    first.ledger.held(LEASE, LOWS_NS)
    first.close()
    assert replay(second.take(), first.ledger.origin).held
    second.begin()
    assert (second.is_ours(), second.trouble) == (True, "")


def test_what_can_not_be_read_is_left_as_it_is_beside_the_new_one(tmp_path: Path):
    newer = b"what a newer agent has written"
    (tmp_path / "journal").write_bytes(newer)
    (tmp_path / "journal").chmod(0o600)
    file = JournalFile(tmp_path / "journal", origin_of("test", MASTERS), print)
    assert file.take() == newer
    aside = file.set_aside()
    file.begin()
    assert aside.read_bytes() == newer
    assert held_in(file) == set()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.chmod(0o640), "others may open it"),
        (lambda path: os.chown(path, 65534, -1), "it belongs to uid 65534"),
        (lambda path: os.link(path, path.with_name("theirs")), "no plain file"),
        (lambda path: (path.unlink(), os.mkfifo(path, 0o600)), "no plain file"),
    ],
    ids=["open to others", "another user's", "another name", "a pipe"],
)
def test_what_somebody_else_may_have_written_is_not_read(
    spoil: Callable[[Path], object], why: str, tmp_path: Path
):
    path = tmp_path / "journal"
    path.write_bytes(b"")
    path.chmod(0o600)
    try:
        spoil(path)
    except PermissionError:
        pytest.skip("only root can give a file away")
    file = JournalFile(path, origin_of("test", MASTERS), print)
    with pytest.raises(NotOurs, match=why):
        file.take()
    assert file.trouble
