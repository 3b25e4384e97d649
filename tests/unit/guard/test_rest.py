"""Before a stop Redis is asked for what a clean stop rests on, and rests from then on (rule 10)."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lockd.guard.delay import NS_PER_S
from lockd.guard.errors import Unproven
from lockd.guard.host import Host
from lockd.guard.reasons import Reason
from lockd.guard.redis_link import RedisLink
from lockd.guard.state_folder import REST
from lockd.guard.status import status
from tests.unit.guard.world import CLEAN, KILLED, FailingDisk, World


def its_end_is_dirty(world: World, why: str) -> None:
    world.ends(CLEAN)
    assert why in str(status(world.guard())["detail"])
    world.start_for(Reason.SETTINGS_UNPROVEN)


def its_stop_is_dirty(world: World, why: str) -> None:
    world.stop()
    its_end_is_dirty(world, why)


def test_a_redis_that_ends_by_itself_has_no_clean_stop(running: World) -> None:
    its_end_is_dirty(running, "it ended without a stop by systemd")


def test_systemd_asks_one_that_has_ended_by_itself_too_and_nobody_answers(running: World) -> None:
    running.host.redis = None
    its_stop_is_dirty(running, "Connection refused")


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        ("settings", "appendonly", "no"),
        ("settings", "appendfsync", "everysec"),
        ("settings", "appendfsync", "no"),
        ("settings", "no-appendfsync-on-rewrite", "yes"),
        ("settings", "dir", "/var/lib/elsewhere"),
        ("persistence", "loading", "1"),
        ("persistence", "aof_enabled", "0"),
        ("persistence", "aof_last_bgrewrite_status", "err"),
        ("persistence", "aof_last_write_status", "err"),
        ("persistence", "aof_rewrite_in_progress", "1"),
        ("persistence", "aof_rewrite_scheduled", "1"),
    ],
)
def test_without_each_setting_that_it_rests_on_or_with_a_file_that_may_lack_something_a_stop_is_dirty(
    running: World, where: str, name: str, value: str
) -> None:
    getattr(running.redis, where)[name] = value
    before_ns = running.host.now_ns
    running.stop()
    # A rewrite is waited for, and not for ever.
    assert running.host.now_ns - before_ns <= 31 * NS_PER_S
    its_end_is_dirty(running, f"{name} is {value}, not ")


def test_what_it_says_nothing_of_is_not_so(running: World) -> None:
    del running.redis.persistence["aof_enabled"]
    its_stop_is_dirty(running, "aof_enabled is None, not 1")


@pytest.mark.parametrize("name", ["aof_rewrite_in_progress", "aof_rewrite_scheduled"])
def test_an_ordinary_rewrite_is_waited_for(running: World, name: str) -> None:
    running.redis.persistence[name] = "1"
    ends_ns = running.host.now_ns + 20 * NS_PER_S

    def over() -> None:
        if running.host.now_ns >= ends_ns:
            running.redis.persistence[name] = "0"

    running.host.while_waiting = over
    running.leave(CLEAN)
    assert running.enter() == 0


def test_what_was_changed_just_before_it_rested_is_seen(running: World) -> None:
    """A rewrite is looked for first, and a setting may be changed in between."""
    running.redis.before_transaction = lambda: running.redis.settings.update(appendonly="no")
    its_stop_is_dirty(running, "appendonly is no, not yes")


def test_it_rests_in_the_transaction_that_looks_and_everybody_waits(running: World) -> None:
    """Else a setting could be changed, and a vote given, between the look and the rest."""
    running.redis.asked.clear()
    running.stop()
    begins, ends = running.redis.asked.index(("MULTI",)), running.redis.asked.index(("EXEC",))
    assert ("CLIENT", "PAUSE", "60000", "ALL") in running.redis.asked[begins:ends]
    assert ends == len(running.redis.asked) - 1


def test_an_end_is_clean_while_it_rests_and_proves_nothing_after(running: World) -> None:
    running.stop()
    running.host.now_ns += 49 * NS_PER_S
    running.ends(CLEAN)
    assert not (running.state / REST).exists()
    assert running.enter() == 0
    running.stop()
    running.host.now_ns += 51 * NS_PER_S
    its_end_is_dirty(running, "it ended too long after it was paused")


def test_a_slow_answer_to_it_takes_from_the_time_that_it_rests(running: World) -> None:
    running.redis.before_transaction = lambda: running.host.sleep(51)
    its_stop_is_dirty(running, "it ended too long after it was paused")


NO_NOTES: dict[str, tuple[Callable[[World], object], str]] = {
    "of an earlier start": (lambda world: world.edit(REST, generation=1), "at an earlier stop"),
    "of another boot": (lambda world: world.edit(REST, boot_id="boot-0"), "at an earlier stop"),
    "gone at the start after a crash": (World.enter, "it ended without a stop by systemd"),
    "empty": (lambda world: world.spoil(REST, b""), "the note of it is"),
    "no object": (lambda world: world.spoil(REST, b"{"), "the note of it is"),
    "no record": (lambda world: world.spoil(REST, b"{}"), "the note of it is"),
    "half a record": (lambda world: world.spoil(REST, b'{"version": 1}'), "the note of it is"),
}


@pytest.mark.parametrize(("change", "why"), NO_NOTES.values(), ids=NO_NOTES)
def test_a_note_of_another_stop_or_a_damaged_one_proves_nothing_for_this_one(
    running: World, change: Callable[[World], object], why: str
) -> None:
    running.stop()
    change(running)
    its_end_is_dirty(running, why)


def test_a_second_question_that_finds_a_fault_takes_the_place_of_the_first(running: World) -> None:
    running.stop()
    running.redis.settings["appendonly"] = "no"
    its_stop_is_dirty(running, "appendonly is no, not yes")


def test_a_redis_without_a_permit_is_not_asked(running: World) -> None:
    running.leave(KILLED)
    running.redis.asked.clear()
    running.stop()
    assert running.redis.asked == []
    assert not (running.state / REST).exists()


def test_one_that_refuses_to_answer_is_dirty(running: World) -> None:
    running.redis.refuses = "it answers WRONGPASS"
    its_stop_is_dirty(running, "it answers WRONGPASS")


def test_it_is_told_who_asks(running: World, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    running.settings["password_file"] = password
    running.redis.asked.clear()
    running.leave(CLEAN)
    assert running.redis.asked[0] == ("AUTH", "lockd_loader", "secret")
    assert running.enter() == 0
    password.unlink()
    its_stop_is_dirty(running, "No such file")


@pytest.mark.parametrize(
    "answers", [[], ["OK"], [1, 2, 3, 4, 5, 6], ["", "", "", "", "", "OK"], None, [[]] * 6]
)
def test_an_answer_of_another_shape_is_no_proof(
    running: World, answers: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = running.redis.ask

    def ask(*commands: tuple[str, ...]) -> list[object]:
        return [*real(*commands)[:-1], answers] if commands[0] == ("MULTI",) else real(*commands)

    monkeypatch.setattr(running.redis, "ask", ask)
    its_stop_is_dirty(running, "its answer is not one of Redis")


def test_a_disk_that_fails_at_any_step_of_the_question_makes_the_stop_no_less_dirty(tmp_path: Path) -> None:
    """The note is lost, or it is there and not known to be durable: nobody needs it after a power cut."""
    for step in range(4):
        disk = FailingDisk()
        world = World(tmp_path / str(step), disk)
        world.enter()
        disk.changes, disk.fails_at = 0, step
        world.stop()
        noted = (world.state / REST).exists()
        disk.fails_at = -1
        world.ends(CLEAN)
        assert (world.enter() == 0) == noted, step
        assert noted == (step >= 2), step


# The connection


@contextmanager
def answering(folder: Path, answer: Callable[[socket.socket], object]) -> Iterator[Path]:
    """A socket on which somebody answers, once."""
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            link, _ = listening.accept()
            with link, suppress(OSError):
                link.recv(65_536)
                answer(link)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        thread.join(10)
        assert not thread.is_alive()


def asked(path: Path, *commands: tuple[str, ...]) -> object:
    with Host({"MAINPID": str(os.getpid())}).asking_redis(path) as ask:
        return ask(*commands)


def drips(link: socket.socket) -> None:
    while True:
        link.sendall(b"1")


def says(text: bytes) -> Callable[[socket.socket], object]:
    return lambda link: link.sendall(text)


NO_ANSWERS: dict[str, tuple[Callable[[socket.socket], object], str]] = {
    "hangs up": (lambda _: None, "it closed the connection"),
    "waits": (lambda link: link.recv(1), "it does not answer"),
    "drips": (drips, "it does not answer"),
    "refuses": (says(b"-NOPERM this user has no permissions\r\n"), "NOPERM"),
    "bytes without end": (says(b"$99999999999\r\n"), "its answer is not one of Redis"),
    "fewer than none": (says(b"$-1\r\n"), "its answer is not one of Redis"),
    "words without end": (says(b"*1000000\r\n"), "its answer is not one of Redis"),
    "depth without end": (says(b"*1\r\n" * 1_000), "its answer is not one of Redis"),
    "no number": (says(b"*x\r\n"), "its answer is not one of Redis"),
    "another protocol": (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "its answer is not one of Redis"),
    "half": (says(b"$10\r\nabc"), "it closed the connection"),
}


@pytest.mark.parametrize(("answer", "why"), NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_a_redis_that_was_taken_over_holds_up_no_stop(
    answer: Callable[[socket.socket], object], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "it does not answer":
        monkeypatch.setattr("lockd.guard.redis_link.ANSWER_WITHIN_S", 0.2)
    with answering(tmp_path, answer) as path, pytest.raises(Unproven, match=why):
        asked(path, ("INFO", "persistence"))


def test_what_redis_answers_is_read_however_it_comes(tmp_path: Path) -> None:
    text = b"+OK\r\n:7\r\n$5\r\na\r\nbc\r\n*2\r\n*2\r\n$1\r\na\r\n$0\r\n\r\n+OK\r\n"

    def answer(link: socket.socket) -> None:
        for byte in text:
            link.sendall(bytes([byte]))

    with answering(tmp_path, answer) as path:
        assert asked(path, *[("PING",)] * 4) == ["OK", "7", "a\r\nbc", [["a", ""], "OK"]]


def test_words_are_sent_as_redis_reads_them() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        its.sendall(b"+OK\r\n")
        assert RedisLink(ours).ask(("AUTH", "ü", "a b")) == ["OK"]
        assert its.recv(100) == b"*3\r\n$4\r\nAUTH\r\n$2\r\n\xc3\xbc\r\n$3\r\na b\r\n"


def test_only_the_main_process_of_the_unit_is_asked(tmp_path: Path) -> None:
    (path := tmp_path / "s").touch()
    with pytest.raises(Unproven, match="had already ended"), Host({}).asking_redis(path):
        pass
    with pytest.raises(ConnectionRefusedError), Host({"MAINPID": "1"}).asking_redis(path):
        pass
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with pytest.raises(Unproven, match="not the main process"), Host({"MAINPID": "1"}).asking_redis(path):
            pass
