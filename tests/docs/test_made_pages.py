"""What documentation says of commands, errors, settings, alerts, plays and states is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from docs.made import alerts, configuration, variables, wire
from docs.made.markdown import REFERENCE, REPOSITORY
from docs.made.pages import PAGES
from lockd.core.errors import ErrorWord
from lockd.core.membership import State
from lockd.server.commands import catalog


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_that_is_made_is_current(page: Path) -> None:
    assert page.read_text() == PAGES[page](), "run `make docs-pages`"


def test_every_command_and_every_error_has_a_row() -> None:
    for command in catalog.COMMANDS:
        assert f"`{command.usage()}`".replace("|", "\\|") in wire.WIRE.read_text()
    rows = re.findall(r"^\| `([A-Z]+) ", wire.ERRORS.read_text(), re.M)
    assert sorted(rows) == sorted(ErrorWord)


def test_the_table_of_states_of_a_master_has_all_of_them_and_no_other() -> None:
    [table] = re.findall(
        r"^\| state \| .*\n\|---\|---\|\n((?:\|.*\n)+)", (REFERENCE / "masters.md").read_text(), re.M
    )
    assert sorted(re.findall(r"^\| `([a-z_]+)` \| \S", table, re.M)) == sorted(State)
    assert len(table.splitlines()) == len(State)


def test_every_key_of_the_example_has_a_row_with_the_default_that_the_example_shows() -> None:
    """Where the example shows a default: masters, classes and the cluster's name have none."""
    rows = dict(re.findall(r"^\| `([\w.]+)` \| `?([^|`]*)`? \|", configuration.PAGE.read_text(), re.M))
    example = yaml.safe_load(configuration.EXAMPLE.read_text())
    shown = {
        key if section is None else f"{section}.{key}": value
        for section, values in [(None, example), *((k, v) for k, v in example.items() if isinstance(v, dict))]
        for key, value in values.items()
        if not isinstance(value, dict) and key not in {"cluster", "masters", "classes", "tls", "metrics_tls"}
    }
    assert len(shown) > 30
    for key, value in shown.items():
        assert rows[key].strip('"') == configuration._plain(value)


def test_every_alert_has_a_row_that_leads_to_its_runbook() -> None:
    text = alerts.PAGE.read_text()
    names = re.findall(
        r"- alert: (\w+)", "".join(path.read_text() for path in alerts.ALERTS.glob("*.alerts.yml"))
    )
    assert names
    for name in names:
        assert f"[{name}](../../alerts/runbooks/{name}.md)" in text


def test_every_variable_of_a_role_has_a_row_that_says_what_it_means() -> None:
    rows = re.findall(r"^\| `(lockd_\w+)` \|.*\| (\S.*) \|$", variables.PAGE.read_text(), re.M)
    named = re.findall(
        r"^ {6}(lockd_\w+):$",
        "".join(p.read_text() for p in REPOSITORY.glob("ansible/roles/*/meta/argument_specs.yml")),
        re.M,
    )
    assert sorted(name for name, _ in rows) == sorted(set(named))


def test_every_playbook_has_a_row_that_says_what_it_touches_and_what_apps_notice() -> None:
    text, _ = (REFERENCE / "plays.md").read_text().split("\n## ", 1)
    rows = re.findall(r"^\| `(\w+\.yml)[^|]*\| [^|]*\S \| [^|]*\S \| [^|]*\S \|$", text, re.M)
    assert sorted(rows) == sorted(path.name for path in (REPOSITORY / "ansible").glob("*.yml"))
