"""The README says what the code knows."""

import re
from pathlib import Path

from docs.readme import commands, errors
from lockd.core.membership import State

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_its_table_of_states_of_a_master_has_all_of_them_and_no_other() -> None:
    [table] = re.findall(r"^\| state \| .*\n\|---\|---\|\n((?:\|.*\n)+)", README, re.M)
    assert sorted(re.findall(r"^\| `([a-z_]+)` \| \S", table, re.M)) == sorted(State)
    assert len(table.splitlines()) == len(State)


def test_its_tables_of_commands_and_errors_are_what_the_code_says() -> None:
    """`make readme` writes them."""
    assert commands() in README
    assert errors() in README
