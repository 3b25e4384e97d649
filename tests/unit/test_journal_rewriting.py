"""A journal that is written anew while its agent goes on: whenever that one dies, the next one finds what is
held, and nothing that was.

An agent is 'killed' before and after each of its calls of the operating system, by keeping what the next one
would find. What should be found is known from all records that were ever written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lockd.core.journal import GROWN, Replayed, Rewriting, replay
from lockd.core.validity import NEVER_NS
from lockd.server import journal
from lockd.server.journal import JournalFile
from tests.harness.fleet_model import App, cluster

PART_BYTES = 400
CALLS = ("open", "write", "rename", "unlink", "ftruncate")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every journal has several parts, of a lease or two, and is soon too long."""
    part = Rewriting.part
    monkeypatch.setattr(Rewriting, "part", lambda self: part(self, PART_BYTES))
    monkeypatch.setattr(journal, "_LEAST_BYTES", 0)


class Kept:
    """A host whose agent keeps its journal in a file."""

    def __init__(self, folder: Path) -> None:
        self.host = cluster()
        self.file = JournalFile(folder / "journal", self.host.origin, lambda why: None)
        self.file.ledger = self.host.ledger
        note, self.host.ledger._write = self.host.ledger._write, self._write
        self._note = note
        self.apps = list[App]()
        self.file.take()
        self.file.begin()

    def _write(self, record: bytes) -> None:
        self.file._append(record)
        self._note(record)

    def lock(self, resource: bytes) -> None:
        self.apps.append(self.host.locked(resource, ttl_ms=3_000))

    def found(self) -> Replayed:
        """By an agent that starts now."""
        return found_in(self.file.path.read_bytes(), lock_of(self.file), self)

    def held(self) -> dict[bytes, Any]:
        return replay(self.host.journal, self.host.origin).held

    def rewriting(self, parts: int = 2) -> None:
        """It is long, and so much of the new one is written."""
        for n in range(8):
            self.lock(b"r%d" % n)
        while not self.file.look_after():
            self.host.pass_ms(1_000)
        for _ in range(parts):
            assert self.file.step(0)


def lock_of(file: JournalFile) -> bytes:
    return Path(f"{file.path}.lock").read_bytes()


def found_in(data: bytes, lock: bytes, kept: Kept) -> Replayed:
    """With that journal, and that lock file."""
    folder = kept.file.path.with_name("found")
    folder.mkdir(exist_ok=True)
    for name, content in (("journal", data), ("journal.lock", lock)):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    file = JournalFile(folder / "journal", kept.host.origin, print)
    try:
        return replay(file.take(), kept.host.origin, is_last=file.is_last)
    finally:
        file.close()


def by_nonce(replayed: Replayed) -> dict[bytes, object]:
    return {**replayed.held, **replayed.endings}


class Deaths:
    """What would be found, and how many records had been written by then."""

    def __init__(self, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
        self._kept = kept
        self.found = dict[tuple[bytes, bytes], tuple[int, str]]()
        for name in CALLS:
            monkeypatch.setattr(journal.os, name, self._around(name, getattr(os, name)))
        monkeypatch.setattr(kept.file, "_sealed", self._around("seal", kept.file._sealed))

    def _around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def around(*words: Any, **named: Any) -> Any:
            self._dies(f"before {name}")
            if name == "write":
                file, data = words
                half = call(file, data[: len(data) // 2])
                self._dies("within write")
                return half + call(file, data[half:])
            result = call(*words, **named)
            self._dies(f"after {name}")
            return result

        return around

    def _dies(self, where: str) -> None:
        file = self._kept.file
        with open(file.path, "rb") as now:
            found = (now.read(), lock_of(file))
        self.found.setdefault(found, (len(self._kept.host.written), where))


def goes_on(kept: Kept, dice: Random) -> None:
    """An agent at work: whatever it may note."""
    host, what = kept.host, dice.random()
    held = [app for app in kept.apps if app.lease is not None and not app.ends]
    if what < 0.35 or not held:
        resource = b"r%d" % dice.randrange(12)
        if all(app.resource != resource for app in held):
            kept.lock(resource)
    elif what < 0.6:
        host.pass_ms(dice.choice((1, 400, 1_100)))
    elif what < 0.75:
        host.unlocked(dice.choice(held))
    elif what < 0.85:
        host.app_dies(dice.choice(held))
    else:
        # The next one gets it under the same tenure.
        one = dice.choice(held)
        kept.apps.append(host.lock(one.resource, wait_ms=60_000, ttl_ms=3_000))
        host.unlocked(one)
        host.pass_ms(5)


@pytest.mark.parametrize("seed", range(6))
def test_whenever_an_agent_dies_the_next_one_finds_what_is_held(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kept, dice, rewritings = Kept(tmp_path), Random(seed), 0
    with monkeypatch.context() as patch:
        deaths = Deaths(kept, patch)
        while rewritings < 12 or kept.host.ledger.rewriting is not None:
            goes_on(kept, dice)
            rewritings += kept.file.look_after()
            for _ in range(dice.randrange(3)):
                kept.file.step(0)
    kept.lock(b"last")
    written = kept.host.written
    states = [by_nonce(replay(b"".join(written[:n]), kept.host.origin)) for n in range(1, len(written) + 1)]
    assert len(deaths.found) > 100
    for (data, lock), (count, where) in deaths.found.items():
        found = found_in(data, lock, kept)
        assert found.is_whole, (where, found.trouble)
        # What is being written may be found or not, and what goes out with it (E and D) may be copied before.
        now, next_ = states[count - 1], states[min(count, len(states) - 1)]
        found_now = by_nonce(found)
        for nonce in {*now, *next_, *found_now}:
            assert found_now.get(nonce) in (now.get(nonce), next_.get(nonce)), where
    assert by_nonce(kept.found()) == states[-1]


def test_what_changes_meanwhile_is_in_the_new_one(tmp_path: Path):
    """Of what is copied, of what is not copied yet, and of what is new."""
    kept = Kept(tmp_path)
    kept.rewriting(parts=3)
    for app in (kept.apps[0], kept.apps[-1]):
        kept.host.unlocked(app)
    kept.host.app_dies(kept.apps[1])
    kept.lock(b"new")
    kept.host.pass_ms(1_500)
    before = kept.file.path.stat().st_size
    while kept.file.step(0):
        pass
    assert kept.file.path.stat().st_size < before
    assert len(kept.held()) == 6
    assert kept.found().held == kept.held()


def failing(patch: pytest.MonkeyPatch, at: int) -> list[str]:
    """The disk is full from the call with that number on, until nothing is there. The list names it."""
    calls, failed = 0, list[str]()

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def around(*words: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                failed.append(name)
                raise OSError(errno.ENOSPC, "No space left on device")
            return call(*words, **named)

        return around

    for name in ("open", "write", "rename"):
        patch.setattr(journal.os, name, around(name, getattr(os, name)))
    return failed


def until_it_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Kept, str, bytes]]:
    """At each call in turn; with a copy of the journal from before."""
    at, fails = 0, True
    while fails:
        at += 1
        kept = Kept(folder / str(at)) if (folder / str(at)).mkdir() is None else None
        assert kept is not None
        kept.rewriting(parts=0)
        copy = kept.file.path.read_bytes()
        with monkeypatch.context() as patch:
            failed = failing(patch, at)
            while not failed and kept.file.step(0):
                kept.host.pass_ms(300)
        fails = bool(failed)
        if failed:
            yield kept, failed[0], copy
        kept.file.close()


def test_one_that_can_not_be_written_leaves_none_and_no_copy_of_it_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    failed = list[str]()
    for kept, call, copy in until_it_fails(tmp_path, monkeypatch):
        failed.append(call)
        assert not kept.file.path.exists()
        assert not kept.file.path.with_name("journal.new").exists()
        assert "No space" in kept.file.trouble
        assert not found_in(copy, lock_of(kept.file), kept).is_whole
        assert kept.file.look_after()
        kept.lock(b"meanwhile")
        assert kept.file.trouble, "nothing is kept until it is whole"
        kept.file.step(NEVER_NS)
        assert (kept.file.trouble, kept.found().held) == ("", kept.held())
    assert {*failed} == {"write", "rename"}
    assert failed.count("write") > 4


def test_while_one_is_being_written_no_other_is_begun(tmp_path: Path):
    kept = Kept(tmp_path)
    kept.rewriting()
    new = kept.file.path.with_name("journal.new")
    before = new.stat()
    kept.host.pass_ms(2_000)
    assert not kept.file.look_after()
    assert os.path.samestat(new.stat(), before)
    assert new.stat().st_size >= before.st_size > 0


def test_one_that_is_begun_again_begins_from_the_front(tmp_path: Path):
    """As at a start: in one step."""
    kept = Kept(tmp_path)
    kept.rewriting()
    kept.file.begin()
    assert kept.found().held == kept.held()
    assert not kept.file.path.with_name("journal.new").exists()
    kept.host.unlocked(kept.apps[0])
    kept.lock(b"another")
    assert kept.found().held == kept.held()


@pytest.mark.parametrize("what", ["journal", "journal.new"])
def test_what_somebody_deletes_meanwhile_is_there_again_soon(what: str, tmp_path: Path):
    kept = Kept(tmp_path)
    kept.rewriting()
    kept.file.path.with_name(what).unlink()
    kept.host.unlocked(kept.apps[0])
    for _ in range(2):
        kept.file.step(NEVER_NS)
        kept.file.look_after()
    assert (kept.file.trouble, kept.found().held) == ("", kept.held())


def test_what_a_killed_agent_had_begun_is_removed_by_the_next(tmp_path: Path):
    kept = Kept(tmp_path)
    kept.file.close()
    new = kept.file.path.with_name("journal.new")
    new.write_bytes(b"a part")
    kept.file.take()
    assert not new.exists()


def test_an_agent_that_stops_meanwhile_leaves_the_one_that_is_whole(tmp_path: Path):
    kept = Kept(tmp_path)
    kept.rewriting()
    kept.file.close()
    assert kept.found().held == kept.held()
    assert not kept.file.path.with_name("journal.new").exists()


def test_no_copy_from_before_the_last_record_is_believed(tmp_path: Path):
    """Also none that begins with all of a journal as it was when that was new."""
    kept = Kept(tmp_path)
    kept.rewriting()
    copies = [kept.file.path.read_bytes()]
    kept.file.step(NEVER_NS)
    for n in range(3):
        copies.append(kept.file.path.read_bytes())
        kept.host.unlocked(kept.apps[n])
        kept.lock(b"another %d" % n)
    assert [found_in(copy, lock_of(kept.file), kept).is_whole for copy in copies] == [False] * 4
    assert kept.found().is_whole


def test_however_little_of_the_loop_it_gets_both_files_stay_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Whoever writes a record then writes a part of the new one."""
    monkeypatch.setattr("lockd.core.journal._NOTED_MOST", PART_BYTES // 4)
    kept = Kept(tmp_path)
    kept.rewriting(parts=0)
    live, new, most = kept.host.ledger.live_bytes, kept.file.path.with_name("journal.new"), 0
    slack = 2 * max(map(len, kept.host.written))
    while kept.host.ledger.rewriting is not None:
        kept.host.pass_ms(100)
        sizes = [path.stat().st_size for path in (kept.file.path, new) if path.exists()]
        most = max(most, sum(sizes))
    assert most <= (GROWN + 1.5) * live + slack
    assert kept.found().held == kept.held()


def test_who_takes_over_late_is_not_held_up_and_believes_the_journal_of_the_one_before_no_more(
    tmp_path: Path,
):
    """It serves already, and what it grants and gives back meanwhile is in no journal yet."""
    before = Kept(tmp_path)
    before.lock(b"r")
    left = before.file.path.read_bytes()
    late = JournalFile(before.file.path, before.host.origin, print)
    assert not late.look_after(), "another agent has it"
    before.file.close()
    assert late.take() == left
    assert late.is_last
    assert found_in(left, lock_of(late), before).is_whole, "until it goes on without it"
    assert late.look_after()
    assert late.trouble
    assert late.path.read_bytes() == left
    assert not found_in(left, lock_of(late), before).is_whole
    late.step(NEVER_NS)
    assert (late.trouble, late.path.stat().st_size) == ("", len(before.host.written[0]))
