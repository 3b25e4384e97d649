"""`lockctl runbook` shows what is in alerts/runbooks, without an agent, from wherever lockd was installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lockd.lockctl.main import main
from lockd.lockctl.runbook import folder
from tests.harness.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
WRITTEN = {path.stem: path.read_text() for path in (ROOT / "alerts/runbooks").glob("*.md")}


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, ["--socket", "/nowhere", "runbook", *words])


def test_without_a_name_it_lists_each_alert_with_what_it_means() -> None:
    heading, *lines = typed().stdout.splitlines()
    rows = dict(line.split("\t") for line in lines)
    assert heading == "NAME\tMEANING"
    assert rows.keys() == WRITTEN.keys() - {"README"}
    assert rows["LockdQuorumLost"].startswith("Fewer masters than a quorum have a vote")
    assert [meaning for meaning in rows.values() if not 10 < len(meaning) < 300 or "](" in meaning] == []


def test_it_shows_one_as_it_is_written_but_for_links() -> None:
    shown = typed("LockdMasterDown")
    assert shown.exit_code == 0
    for part in ("# LockdMasterDown\n", "## Whom to call\n", "$ systemctl status lockd-master\n"):
        assert part in WRITTEN["LockdMasterDown"]
        assert part in shown.stdout
    assert "(LockdQuorumNoMargin.md)" in WRITTEN["LockdMasterDown"]
    assert "(LockdQuorumNoMargin)" in shown.stdout
    assert "passwords (lockctl runbook README)" in typed("LockdMasterSlow").stdout
    assert [name for name in WRITTEN if ".md)" in typed(name).stdout] == []


@pytest.mark.parametrize(
    "name", ["LockdQuorumLost", "lockdquorumlost", "QuorumLost", "quorumlost", "LockdQuorumLost.md"]
)
def test_a_name_is_found_in_other_spellings(name: str) -> None:
    assert typed(name).stdout.startswith("# LockdQuorumLost\n")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("LockdQuorumLos", "LockdQuorumLost"), ("aof", "LockdMasterAofRewriteFailed"), ("x7", "")],
)
def test_one_that_is_not_there_is_refused_with_what_may_be_meant(name: str, meant: str) -> None:
    done = typed(name)
    assert done.exit_code == 64
    assert f"no runbook '{name}'" in done.stderr
    assert (f"Did you mean {meant}" in done.stderr) == bool(meant)


def test_programs_get_json() -> None:
    listed = json.loads(typed("--json").stdout)
    assert {one["name"] for one in listed} == WRITTEN.keys() - {"README"}
    assert json.loads(typed("--json", "LockdDown").stdout) == {
        "name": "LockdDown",
        "text": WRITTEN["LockdDown"],
    }


def test_in_the_repository_they_are_read_where_they_are_written() -> None:
    if folder().parent.name == "alerts":
        assert folder() == ROOT / "alerts/runbooks"
    else:  # the compiled build is a wheel
        assert {path.name for path in folder().glob("*.md")} == {f"{name}.md" for name in WRITTEN}


def test_a_wheel_has_them_and_shows_them(tmp_path: Path) -> None:
    """Built as hosts get it, from a copy of what the wheelhouse takes."""
    sys.path.insert(0, str(ROOT / "ansible/roles/lockd/files"))
    try:
        import wheelhouse
    finally:
        sys.path.pop(0)
    source, installed = tmp_path / "source", tmp_path / "installed"
    for path in wheelhouse.code_files(ROOT):
        to = source / path.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    # `make test-compiled` has it set: what is compiled makes no difference here, and takes minutes.
    plain = os.environ | {"LOCKD_COMPILED": "0"}
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(source)], check=True, cwd=tmp_path, env=plain)
    [wheel] = tmp_path.glob("lockd-*.whl")
    zipfile.ZipFile(wheel).extractall(installed)
    command = [sys.executable, "-m", "lockd.lockctl", "runbook", "README"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(installed), "LANG": "C.UTF-8"}
    shown = subprocess.run(
        command, check=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert shown.stdout.startswith("# How to use these runbooks\n")
    files = (installed / "lockd/lockctl/runbooks").glob("*.md")
    assert {path.stem: path.read_text() for path in files} == WRITTEN
