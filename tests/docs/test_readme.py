"""The README stays short, and shows no figure or version that the rest contradicts."""

from __future__ import annotations

import re
import tomllib

from docs.made.markdown import REFERENCE, REPOSITORY
from lockd.core import identities, journal
from tests.harness.masters import KNOWN_FLAVOURS

README = (REPOSITORY / "README.md").read_text()
VERSIONS = (REFERENCE / "versions.md").read_text()
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def test_the_readme_fits_on_three_screens() -> None:
    assert len(README.splitlines()) <= 150


def test_the_table_of_versions_has_what_the_tests_run_with() -> None:
    for flavour in KNOWN_FLAVOURS:
        assert flavour.partition("-")[2] in VERSIONS
    [releases] = re.findall(r"^RELEASES = \((.+)\)$", (REPOSITORY / "tests/lab/image.py").read_text(), re.M)
    for release in re.findall(r'"(\w+)"', releases):
        assert f"({release})" in VERSIONS
    [ansible] = [one for one in PROJECT["optional-dependencies"]["lab"] if one.startswith("ansible>=")]
    assert f"`ansible` {ansible.removeprefix('ansible>=').partition(',')[0]}" in VERSIONS


def test_formats_are_those_of_the_code() -> None:
    assert f"format {identities.FORMAT}. Another" in VERSIONS
    assert f"format {journal.FORMAT}. A version" in VERSIONS


def test_the_changelog_has_this_version() -> None:
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    assert f"\n## {PROJECT['version']}" in changelog
