"""What its unit lets the agent use: as its variables say, and enough files for its limit of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab.inventory import ANSIBLE
from tests.lab.local_ansible import needs_ansible
from tests.lab.waiting import PATIENCE_S

pytestmark = needs_ansible

ROLE = ANSIBLE / "roles/lockd"
TEMPLATES = [ROLE / "templates" / name for name in ("lockd.service.j2", "memory.conf.j2")]


def unit_with(tmp_path: Path, limits: dict[str, int] | None = None, **more: int) -> dict[str, int]:
    """The numbers that the unit has, with those limits and variables in the inventory."""
    unit = tmp_path / "unit"
    variables = {
        "lockd_settings": {"limits": limits} if limits else {}, "lockd_socket_group": "apps",
        "ansible_managed": "", "role_path": str(ROLE), **more,
    }  # fmt: skip
    (tmp_path / "variables.json").write_text(json.dumps(variables))
    written = ""
    for template in TEMPLATES:
        subprocess.run(
            [Path(sys.executable).with_name("ansible"), "localhost", "--connection=local",
             "-e", f"ansible_python_interpreter={sys.executable}", "-e", f"@{ROLE}/defaults/main.yml",
             "-e", f"@{ROLE}/vars/main.yml", "-e", f"@{tmp_path}/variables.json",
             "-m", "ansible.builtin.template", "-a", f"src={template} dest={unit}"],
            cwd=ANSIBLE, env={**os.environ, "ANSIBLE_CONFIG": f"{ANSIBLE}/ansible.cfg"},
            check=True, timeout=PATIENCE_S,
        )  # fmt: skip
        written += unit.read_text()
    settings = dict(line.split("=", 1) for line in written.splitlines() if "=" in line)
    return {
        name: int(settings[name].removesuffix("M")) for name in ("MemoryHigh", "MemoryMax", "LimitNOFILE")
    }


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ({}, (1400, 1750, 65_536)),
        ({"lockd_memory_mib": 4000}, (4000, 5000, 65_536)),
        ({"lockd_memory_mib": 300}, (300, 375, 65_536)),
        ({"limits": {"files": 200_000}}, (1400, 1750, 200_000)),
        ({"limits": {"files": 1_000}}, (1400, 1750, 65_536)),
        ({"limits": {"files": None, "slots": 2}}, (1400, 1750, 65_536)),
    ],
    ids=str,
)
def test_the_unit_has_the_memory_of_its_variable_and_the_files_of_the_limit(
    tmp_path: Path, given: dict[str, Any], unit: tuple[int, int, int]
) -> None:
    assert tuple(unit_with(tmp_path, **given).values()) == unit
