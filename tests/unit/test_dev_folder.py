"""The folder of `lockd dev`: nobody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockd.dev_folder import DevError, DevFolder


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
    with pytest.raises(DevError, match="is not yours alone"):
        claim(planted)
    assert (planted.parent / "victim").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user: as root only")
def test_a_folder_of_another_user_is_not_used(planted: Path) -> None:
    os.chown(planted, 65_534, 65_534)
    with pytest.raises(DevError, match="uid 65534"):
        claim(planted)
    assert (planted.parent / "victim").read_text() == "mine"
