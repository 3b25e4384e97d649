"""An operator who raises a limit of the agent raises what its unit lets it use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.inventory import ANSIBLE
from tests.lab.local_ansible import needs_ansible
from tests.lab.waiting import PATIENCE_S

pytestmark = needs_ansible

ROLE = ANSIBLE / "roles/lockd"
TEMPLATES = [ROLE / "templates" / name for name in ("lockd.service.j2", "memory.conf.j2")]


def unit_with(limits: dict[str, int], tmp_path: Path) -> dict[str, int]:
    """The numbers that the unit has, with those limits in the inventory."""
    unit = tmp_path / "unit"
    variables = {
        "lockd_settings": {"limits": limits}, "lockd_socket_group": "apps", "ansible_managed": "",
        "role_path": str(ROLE),
    }  # fmt: skip
    (tmp_path / "variables.json").write_text(json.dumps(variables))
    written = ""
    for template in TEMPLATES:
        subprocess.run(
            [Path(sys.executable).with_name("ansible"), "localhost", "--connection=local",
             "-e", f"ansible_python_interpreter={sys.executable}", "-e", f"@{ROLE}/vars/main.yml",
             "-e", f"@{tmp_path}/variables.json", "-m", "ansible.builtin.template",
             "-a", f"src={template} dest={unit}"],
            cwd=ANSIBLE, env={**os.environ, "ANSIBLE_CONFIG": f"{ANSIBLE}/ansible.cfg"},
            check=True, timeout=PATIENCE_S,
        )  # fmt: skip
        written += unit.read_text()
    settings = dict(line.split("=", 1) for line in written.splitlines() if "=" in line)
    return {
        name: int(settings[name].removesuffix("M")) for name in ("MemoryHigh", "MemoryMax", "LimitNOFILE")
    }


@pytest.mark.parametrize(
    ("limit", "most", "what", "least"),
    [
        ("leases", 1_000_000, "MemoryHigh", 4000),
        ("waiters", 1_000_000, "MemoryHigh", 4000),
        ("resource_bytes", 16_384, "MemoryHigh", 5000),
        ("connections", 200_000, "MemoryHigh", 8000),
        ("connections", 200_000, "LimitNOFILE", 200_064),
        ("buffered_bytes", 2**32, "MemoryHigh", 8192),
    ],
)
def test_a_limit_that_is_raised_raises_what_the_unit_allows(
    tmp_path: Path, limit: str, most: int, what: str, least: int
) -> None:
    unit = unit_with({limit: most}, tmp_path)
    assert unit[what] >= least
    assert unit["MemoryMax"] > unit["MemoryHigh"]


@pytest.mark.parametrize("limits", [{}, {"leases": 10, "buffered_bytes": 4_194_304}])
def test_with_limits_that_are_not_raised_it_is_bounded_and_keeps_room_for_what_is_there(
    tmp_path: Path, limits: dict[str, int]
) -> None:
    unit = unit_with(limits, tmp_path)
    assert 1000 < unit["MemoryHigh"] < 1500
    assert unit["LimitNOFILE"] == 65536
