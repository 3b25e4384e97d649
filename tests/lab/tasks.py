"""Files of roles and plays, as YAML, and the tasks in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


def read(path: Path) -> Any:
    """Empty if there is no such file."""
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


def tasks_of(document: Any) -> Iterator[dict[str, Any]]:
    """All tasks of a play or a file of tasks, those in blocks, too."""
    for item in document if isinstance(document, list) else []:
        yield item
        for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            yield from tasks_of(item.get(part))
