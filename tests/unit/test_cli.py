"""The command `lockd`, but for `lockd dev`: what it prints, and its exit statuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from lockd.cli import main
from lockd.core.journal import MAGIC, Format, Origin

GOOD = """\
cluster: shop
masters:
  - {name: m1, address: "10.0.0.1:6379"}
  - {name: m2, address: "10.0.0.2:6379"}
  - {name: m3, address: "10.0.0.3:6379"}
"""
BAD = GOOD.replace("cluster: shop", "cluster: a shop").replace("10.0.0.2:6379", "10.0.0.2")


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    return tmp_path / "lockd.yml"


def lockd(*arguments: str | Path) -> tuple[int, str]:
    """Exit status and output of `lockd …`."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_a_good_configuration_is_ok_and_warnings_follow_and_do_not_change_that(config_path: Path) -> None:
    config_path.write_text(GOOD)
    status, output = lockd("check-config", config_path)
    assert status == 0
    assert output.startswith("OK: cluster shop, 3 masters, quorum 2, fingerprint ")
    assert json.loads(lockd("check-config", "--json", config_path)[1])["ok"] is True
    config_path.write_text("\n".join(GOOD.splitlines()[:3]))
    status, output = lockd("check-config", config_path)
    assert status == 0
    assert output.startswith("OK")
    assert any(line.startswith("warning: ") for line in output.splitlines()[1:])


def test_a_journal_of_this_format_could_be_taken_over_and_so_could_none(tmp_path: Path) -> None:
    journal = tmp_path / "lockd.sock.journal"
    assert lockd("check-journal", journal)[0] == 0
    head = Format(3).head(Origin("boot", "pid:[1]", "time:[2]", "shop", ("m1", "m2", "m3")))
    journal.write_bytes(head)
    assert lockd("check-journal", journal) == (0, "OK: the journal can be read\n")
    for other in (head.replace(MAGIC + b"\0\1", MAGIC + b"\0\2"), b"", b"something else"):
        journal.write_bytes(other)
        assert lockd("check-journal", journal)[0] == 1


def test_every_problem_is_on_a_line_of_its_own_and_in_json_for_programs(config_path: Path) -> None:
    paths = ["cluster", "masters[1].address"]
    config_path.write_text(BAD)
    status, output = lockd("check-config", config_path)
    assert status == 1
    assert [line.partition(":")[0] for line in output.splitlines()] == paths
    status, output = lockd("check-config", "--json", config_path)
    document = json.loads(output)
    assert (status, document["ok"]) == (1, False)
    assert [problem["path"] for problem in document["problems"]] == paths


@pytest.mark.parametrize("arguments", [("check-config",), ("check-config", "/nowhere/lockd.yml"), ("serve",)])
def test_a_wrong_command_line_has_a_status_of_its_own(arguments: tuple[str, ...]) -> None:
    status, output = lockd(*arguments)
    assert status == 2
    assert "Usage:" in output


def test_the_agent_does_not_start_on_a_bad_configuration(config_path: Path) -> None:
    config_path.write_text(BAD)
    status, output = lockd("serve", "--config", config_path)
    assert status == 1
    assert f"{config_path}: masters[1].address" in output


@pytest.mark.parametrize(
    ("command", "statuses"), [("serve", "012"), ("check-config", "012"), ("dev", "0123")]
)
def test_each_command_lists_its_exit_statuses(command: str, statuses: str) -> None:
    _, text = lockd(command, "--help")
    listed = " ".join(text.partition("Exit status ")[2].partition("Options:")[0].split())
    assert re.findall(r"(?:^|; )(\d): \w", listed) == list(statuses)
