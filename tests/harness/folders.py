"""Folders for what is started."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_folder() -> Iterator[Path]:
    """A fresh folder with a path short enough for Unix sockets, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="lockd-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
