"""The folder of `lockd dev`: nobody else's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockd.dev import folder as dev_folder
from lockd.dev.folder import DevError, DevFolder


def claim(folder: Path) -> None:
    with DevFolder(folder).claimed():
        pass


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder in which somebody has put a link where `lockd dev` writes."""
    claim(tmp_path / "dev")
    lock = next(path for path in (tmp_path / "dev").iterdir() if "lock" in path.name)
    lock.unlink()
    (tmp_path / "victim").write_text("mine")
    lock.symlink_to(tmp_path / "victim")
    return tmp_path / "dev"


def test_a_folder_that_anybody_may_write_to_is_not_used(planted: Path) -> None:
    planted.chmod(0o777)
    with pytest.raises(DevError, match="can be used by other users"):
        claim(planted)
    assert (planted.parent / "victim").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user: as root only")
def test_a_folder_of_another_user_is_not_used(planted: Path) -> None:
    os.chown(planted, 65_534, 65_534)
    with pytest.raises(DevError, match="uid 65534"):
        claim(planted)
    assert (planted.parent / "victim").read_text() == "mine"


REDIS, NEWER, VALKEY = Path("/usr/bin/redis-server"), Path("/opt/redis-server"), Path("/wheel/valkey-server")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes these the servers of this machine, by flavour; the first is the one that a new folder gets."""

    def install(servers: dict[str, Path]) -> None:
        kinds = {binary: kind for kind, binary in servers.items()}
        monkeypatch.setattr(dev_folder, "default_server", lambda: next(iter(kinds)))
        monkeypatch.setattr(dev_folder, "find_servers", lambda: servers)
        monkeypatch.setattr(dev_folder, "flavour", kinds.get)

    return install


def test_a_folder_keeps_the_server_that_wrote_its_data(install: Callable[..., None], tmp_path: Path) -> None:
    """`make dev` brings a server along where there is none; then somebody installs another, which can't read
    what the first has written."""
    install({"valkey-9": VALKEY})
    assert DevFolder(tmp_path).server() == VALKEY
    install({"redis-7.0": REDIS, "valkey-9": VALKEY})
    assert DevFolder(tmp_path).server() == VALKEY
    other = tmp_path / "other"
    other.mkdir()
    assert DevFolder(other).server() == REDIS


def test_where_its_server_is_gone_a_newer_one_of_its_kind_will_do(
    install: Callable[..., None], tmp_path: Path
) -> None:
    install({"redis-7.0": REDIS})
    DevFolder(tmp_path).server()
    install({"valkey-9": VALKEY, "redis-10.2": NEWER})
    assert DevFolder(tmp_path).server() == NEWER
    install({"redis-7.0": REDIS, "valkey-9": VALKEY})
    only = r"was written by redis-10\.2, and this machine has only redis-7\.0 and valkey-9"
    with pytest.raises(DevError, match=only):
        DevFolder(tmp_path).server()
