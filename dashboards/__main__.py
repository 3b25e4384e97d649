"""Writes the dashboards as JSON, or with --check says which of the files are not current."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dashboards import agents, classes, masters, overview

FOLDER = Path(__file__).parent
BOARDS: tuple[dict[str, Any], ...] = (overview.BOARD, classes.BOARD, masters.BOARD, agents.BOARD)


def rendered() -> dict[Path, str]:
    """The files as they should be."""
    return {
        FOLDER / f"{board['uid']}.json": json.dumps(board, indent=1, ensure_ascii=False) + "\n"
        for board in BOARDS
    }


def main() -> int:
    stale = [path for path, text in rendered().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.name} is not what `python -m dashboards` writes")
        return 1 if stale else 0
    for path in stale:
        path.write_text(rendered()[path])
        print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
