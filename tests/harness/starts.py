"""What a Python process has loaded, by its own list."""

from __future__ import annotations

import re

LISTED = {"PYTHONPROFILEIMPORTTIME": "1"}
"""In a process's environment: it lists on stderr what it loads, when it does."""
_LOADED = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)


def loaded_by(said: str) -> set[str]:
    """The modules in what a process said on stderr."""
    return set(_LOADED.findall(said))
