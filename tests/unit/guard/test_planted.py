"""The restart guard runs as root beside users who are not: whatever they put in the place of a file that it
writes or reads, it touches nothing of anybody's, does not hang, and calls no stop clean for it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from lockd.guard.aof import data_fingerprint
from lockd.guard.cli import main
from lockd.guard.errors import GuardError
from lockd.guard.reasons import Reason
from lockd.guard.state_folder import ENTER_LOCK, MARKER, OVERRIDE, PERMIT, STATE, STATE_LOCK
from lockd.guard.status import status
from tests.unit.guard.world import CLEAN, DELAY_NS, World

SECRET = "root:*:19000:0:99999:7:::\n"


class Victim:
    """A file of root's that nobody else may read or write."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shadow"
        self.path.write_text(SECRET)
        self.path.chmod(0o600)

    def is_untouched(self) -> bool:
        """And nothing is beside it."""
        same = self.path.read_text() == SECRET and self.path.stat().st_mode & 0o777 == 0o600
        return same and os.listdir(self.path.parent) == [self.path.name]


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    return Victim(folder)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host on which Redis has just stopped cleanly; metrics have a folder of their own."""
    (tmp_path / "metrics").mkdir(mode=0o755)
    textfile = tmp_path / "metrics" / "guard.prom"
    world = World(tmp_path, textfile=textfile)
    world.textfile = textfile
    world.run_and_stop()
    return world


PLANTS: dict[str, Callable[[Path, Victim], object]] = {
    "link": lambda path, victim: path.symlink_to(victim.path),
    "hard link": lambda path, victim: path.hardlink_to(victim.path),
    "link to nothing": lambda path, victim: path.symlink_to(victim.path.with_name("new")),
    "link to a device": lambda path, victim: path.symlink_to("/dev/zero"),
    "FIFO": lambda path, victim: os.mkfifo(path),
    "folder": lambda path, victim: path.mkdir(),
    "socket": lambda path, victim: os.mknod(path, stat.S_IFSOCK | 0o600),
}
planted = pytest.mark.parametrize("kind", PLANTS)


def plant(kind: str, path: Path, victim: Victim) -> None:
    """Put it there, and away whatever was."""
    if path.is_dir():
        path.rename(path.with_name("away"))
    path.unlink(missing_ok=True)
    PLANTS[kind](path, victim)


def outcome(act: Callable[[], object]) -> object:
    try:
        return act()
    except GuardError:
        return "refused"


# What it writes


def metrics_in_the_making(world: World) -> Path:
    return world.textfile.with_name(f".{world.textfile.name}.{os.getpid()}")


@planted
@pytest.mark.parametrize("place", [metrics_in_the_making, lambda world: world.textfile])
def test_what_is_planted_for_the_metrics_is_not_written_through_and_stops_nothing(
    world: World, victim: Victim, kind: str, place: Callable[[World], Path]
) -> None:
    plant(kind, place(world), victim)
    assert world.enter() == 0
    world.leave(CLEAN)
    assert world.enter() == 0
    assert victim.is_untouched()
    if kind == "folder":
        assert "no_metrics" in world.host.events()
    else:
        # Its name was freed.
        assert "no_metrics" not in world.host.events()
        assert world.metrics()["lockd_guard_quarantined"] == 0


@planted
def test_in_a_folder_that_others_may_write_to_no_metrics_are_written_and_the_guard_does_its_work(
    world: World, victim: Victim, kind: str
) -> None:
    for place in (metrics_in_the_making(world), world.textfile):
        plant(kind, place, victim)
    world.textfile.parent.chmod(0o777)
    before = sorted(world.textfile.parent.iterdir())
    assert world.enter() == 0
    world.leave(CLEAN)
    assert victim.is_untouched()
    assert sorted(world.textfile.parent.iterdir()) == before
    [said] = {(line["why"].filename, line["then"]) for line in world.host.logged if "then" in line}  # type: ignore[attr-defined]
    assert said == (str(world.textfile.parent), "use a folder for `textfile` that only root can write to")


def test_a_folder_of_metrics_below_one_that_others_may_write_to_is_not_written_to(world: World) -> None:
    """They could put another in its place."""
    world.textfile.unlink()
    world.textfile.parent.parent.chmod(0o777)
    # The state folder is elsewhere for this.
    guard = world.guard()
    guard.write_metrics()
    assert not world.textfile.exists()
    assert "no_metrics" in world.host.events()


def test_a_link_in_place_of_the_folder_of_metrics_is_not_followed(world: World, victim: Victim) -> None:
    world.textfile.parent.rename(world.textfile.parent.with_name("away"))
    world.textfile.parent.symlink_to(victim.path.parent)
    assert world.enter() == 0
    assert victim.is_untouched()


def test_a_folder_that_is_swapped_after_it_was_checked_is_not_written_to(
    world: World, victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_unlink = os.unlink
    folder = world.textfile.parent

    def unlink_late(name: str, *, dir_fd: int | None = None) -> None:
        if "guard.prom" in str(name) and not folder.is_symlink():
            folder.rename(folder.with_name("away"))
            folder.symlink_to(victim.path.parent)
        real_unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink_late)
    assert world.enter() == 0
    assert folder.is_symlink()
    assert victim.is_untouched()


@planted
def test_what_is_planted_between_two_steps_is_not_written_through(
    world: World, victim: Victim, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def open_late(name: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if "guard.prom" in str(name) and not os.path.lexists(metrics_in_the_making(world)):
            plant(kind, metrics_in_the_making(world), victim)
        return real_open(name, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_late)
    assert world.enter() == 0
    assert victim.is_untouched()
    assert "no_metrics" in world.host.events()


@planted
@pytest.mark.parametrize("name", [f".{name}.new" for name in (MARKER, PERMIT, STATE)])
def test_what_is_planted_for_its_own_files_in_the_making_is_not_written_through(
    world: World, victim: Victim, kind: str, name: str
) -> None:
    plant(kind, world.state / name, victim)
    started, left = outcome(world.enter), outcome(lambda: world.leave(CLEAN))
    # Its name is freed, but for a folder's.
    assert "refused" in (started, left) if kind == "folder" else (started, left) == (0, None)
    assert victim.is_untouched()


@planted
@pytest.mark.parametrize("name", [ENTER_LOCK, STATE_LOCK])
def test_what_is_planted_for_its_locks_is_neither_waited_for_nor_changed(
    world: World, victim: Victim, kind: str, name: str
) -> None:
    plant(kind, world.state / name, victim)
    # A plain file of root's serves, whatever else it is: it is not written to.
    assert outcome(world.enter) == (0 if kind == "hard link" else "refused")
    outcome(lambda: world.leave(CLEAN))
    assert victim.is_untouched()


# What it reads


@planted
@pytest.mark.parametrize("name", [MARKER, STATE, OVERRIDE])
def test_a_start_by_what_is_planted_for_its_records_is_never_at_once(
    world: World, victim: Victim, kind: str, name: str
) -> None:
    if name == OVERRIDE:
        (world.state / MARKER).unlink()
    plant(kind, world.state / name, victim)
    assert outcome(world.enter) in (DELAY_NS, "refused")
    assert victim.is_untouched()


@planted
def test_a_stop_by_what_is_planted_for_the_permit_is_not_clean(
    world: World, victim: Victim, kind: str
) -> None:
    world.enter()
    plant(kind, world.state / PERMIT, victim)
    outcome(lambda: world.leave(CLEAN))
    assert not (world.state / MARKER).exists()
    assert outcome(world.enter) != 0


@pytest.mark.parametrize("name", [MARKER, STATE])
def test_a_record_that_does_not_end_is_none(world: World, name: str) -> None:
    os.truncate(world.state / name, 1 << 40)
    assert world.enter() == DELAY_NS


def test_a_record_that_others_may_write_to_is_none(world: World) -> None:
    (world.state / MARKER).chmod(0o666)
    world.start_for(Reason.MARKER_INVALID)


@pytest.mark.parametrize("above", [0, 1])
def test_a_folder_that_others_may_write_to_is_named_with_what_to_do(
    tmp_path: Path, world: World, above: int
) -> None:
    folder = (world.state, tmp_path)[above]
    folder.chmod(0o777)
    with pytest.raises(GuardError, match=f"forge .*chown root: {folder} && chmod go-w {folder}"):
        world.enter()
    with pytest.raises(GuardError, match="forge"):
        world.leave(CLEAN)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user: as root only")
def test_a_folder_that_belongs_to_others_is_refused(world: World) -> None:
    os.chown(world.state, 65_534, 0)
    assert outcome(world.enter) == "refused"
    os.chown(world.state, 0, 0)
    os.chown(world.textfile.parent, 65_534, 0)
    world.textfile.unlink()
    assert world.enter() == 0
    assert not world.textfile.exists()


# Redis's own files


AOF_PLACES: dict[str, Callable[[World], Path]] = {
    "manifest": lambda world: world.aof.with_name("appendonly.aof.manifest"),
    "base": lambda world: world.aof.with_name("appendonly.aof.1.base.rdb"),
    "increment": lambda world: world.aof,
    "another": lambda world: world.aof.with_name("another"),
    "folder": lambda world: world.aof.parent,
}
aof_place = pytest.mark.parametrize("place", AOF_PLACES)


@planted
@aof_place
def test_a_start_by_what_redis_has_planted_among_its_files_is_dirty(
    world: World, victim: Victim, kind: str, place: str
) -> None:
    plant(kind, AOF_PLACES[place](world), victim)
    world.start_for(Reason.DATA_CHANGED)
    assert victim.is_untouched()


@planted
@aof_place
def test_a_stop_by_what_redis_has_planted_among_its_files_is_dirty(
    world: World, victim: Victim, kind: str, place: str
) -> None:
    world.enter()
    plant(kind, AOF_PLACES[place](world), victim)
    world.leave(CLEAN)
    # A hard link is a plain file: backups are made so. Taken away, or changed, it differs at the start. The
    # last file was noted at the start: another in its place is none of Redis's.
    assert (world.state / MARKER).exists() == (kind == "hard link" and place not in ("folder", "increment"))
    assert victim.is_untouched()


@planted
def test_an_aof_in_one_file_may_be_planted_as_well(world: World, victim: Victim, kind: str) -> None:
    plant(kind, world.data / "appendonly.aof", victim)
    world.aof.parent.rename(world.data.with_name("away"))
    world.start_for(Reason.DATA_CHANGED)


def test_a_file_of_a_terabyte_is_not_read_whole(world: World) -> None:
    world.enter()
    os.truncate(world.aof, 1 << 40)
    world.leave(CLEAN)
    assert world.enter() == 0


def test_files_without_end_are_not_counted_to_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockd.guard.aof.MAX_AOF_FILES", 3)
    world.enter()
    world.leave(CLEAN)
    assert world.enter() == 0
    (world.aof.parent / "another").touch()
    world.leave(CLEAN)
    world.start_for(Reason.DATA_CHANGED)


def test_a_file_that_changes_while_it_is_read_proves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_pread = os.pread

    def pread_and_write(file: int, length: int, offset: int) -> bytes:
        data = real_pread(file, length, offset)
        os.truncate(world.aof, world.aof.stat().st_size + 1)
        return data

    monkeypatch.setattr(os, "pread", pread_and_write)
    with pytest.raises(OSError, match="changes while"):
        data_fingerprint(world.guard().config)


def test_names_of_redis_files_are_no_commands_for_an_operators_terminal(world: World) -> None:
    (world.aof.parent / "\x1b[2J\n\udcff").touch()
    world.start_for(Reason.DATA_CHANGED)
    world.enter()
    (world.aof.parent / "\x1b[3J\udcff").symlink_to("/")
    world.leave(CLEAN)
    found = status(world.guard())
    logged = [line.get("detail", "") for line in world.host.logged]
    for said in [*world.host.statuses, found["detail"], *logged]:
        assert str(said).isprintable()
        assert str(said).isascii()
    assert "3J" in found["detail"]


# The configuration


@planted
def test_what_is_planted_for_the_configuration_is_refused(config: Path, victim: Victim, kind: str) -> None:
    plant(kind, config, victim)
    assert main(["status", "--config", str(config)]) == 78
    assert main(["check", "--config", str(config)]) == 78


def test_a_configuration_that_does_not_end_is_refused(config: Path) -> None:
    os.truncate(config, 1 << 40)
    assert main(["check", "--config", str(config)]) == 78


def test_a_configuration_that_others_may_write_to_is_only_checked(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ansible has its new file checked where its own user has put it."""
    config.chmod(0o666)
    assert main(["check", "--config", str(config)]) == 0
    for command in ("enter", "leave", "watch", "status"):
        assert main([command, "--config", str(config)]) == 78
    assert "Users other than root may write to it" in capfd.readouterr().err
