"""Plays every scene over agents, prints which library did what, and writes that down where all did.

python -m tests.dropin [OPTIONS OF PYTEST]   (make dropin)
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.dropin.table import Table

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/reference/tried-libraries.md"
HEADING = "## The table\n"


def with_table(page: str, text: str) -> str:
    """The page with that below its heading, up to the next one."""
    section = re.compile(re.escape(HEADING) + r".*?(?=^##|\Z)", re.DOTALL | re.MULTILINE)
    return section.sub(lambda _: f"{HEADING}\n{text}\n", page)


def main(arguments: list[str]) -> int:
    table = Table()
    tests = [HERE / "test_two_agents.py", HERE / "test_a_master_down.py"]
    status = pytest.main(["-q", *map(str, tests), *arguments], plugins=[table])
    print(f"\n{table.text()}")
    if table.complete:
        PAGE.write_text(with_table(PAGE.read_text(), table.text()))
    else:
        print(f"{PAGE.name} is left as it was: not everything was played")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
