"""Grafana dashboards of lockd, for your labels and addresses.

Without options it writes what lies beside this file, and what `site.yml` brings to Grafana. Give it the same
options as `python -m alerts.build`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alerts.build import Site, add_site_options, site_of
from dashboards import agents, classes, masters, overview
from dashboards.board import RUNBOOKS
from dashboards.queries import ONLY_AGENTS, ONLY_EXPORTERS

FOLDER = Path(__file__).parent
BOARDS: tuple[dict[str, Any], ...] = (overview.BOARD, classes.BOARD, masters.BOARD, agents.BOARD)
OURS = Site()
ASKS = {"expr", "query", "definition", "legendFormat", "titleFormat", "textFormat"}
"""Where in a dashboard labels of series are named."""
_CLUSTER = re.compile(r"(?<![$\w])(?<!\$\{)cluster\b(?!:)")
"""The label: neither the variable nor the beginning of the name of a recorded series."""


def rendered(site: Site = OURS, folder: Path = FOLDER) -> dict[Path, str]:
    """The files as they should be."""
    return {
        folder / f"{board['uid']}.json": json.dumps(at(site, board), indent=1, ensure_ascii=False) + "\n"
        for board in BOARDS
    }


def at(site: Site, board: Any) -> Any:
    """A dashboard, or a part of it, for the labels and addresses of a site."""
    if isinstance(board, list):
        return [at(site, one) for one in board]
    if isinstance(board, dict):
        return {
            key: _asked_at(site, part) if key in ASKS and isinstance(part, str) else at(site, part)
            for key, part in board.items()
        }
    return site.runbook_url if board == RUNBOOKS else board


def _asked_at(site: Site, text: str) -> str:
    if text == RUNBOOKS:
        return site.runbook_url
    for ours, theirs in ((ONLY_EXPORTERS, site.masters_selector), (ONLY_AGENTS, site.selector)):
        text = text.replace(ours, theirs)
    return _CLUSTER.sub(site.cluster_label, text)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    files = rendered(site_of(chosen), chosen.out)
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if chosen.check:
        for path in stale:
            print(f"{path.name} is not what `python -m dashboards` writes")
        return 1 if stale else 0
    chosen.out.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(files[path])
        print(f"wrote {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dashboards",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_site_options(parser, ("selector", "masters_selector", "cluster_label", "runbook_url"))
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER", help="(%(default)s)")
    parser.add_argument("--check", action="store_true", help="write nothing; say which files are not current")
    return parser


if __name__ == "__main__":
    sys.exit(main())
