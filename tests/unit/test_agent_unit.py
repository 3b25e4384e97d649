"""The agent's systemd unit."""

import re
from pathlib import Path

import yaml

from lockd.config.current import Current
from lockd.server.quotas import Quotas, Room
from tests.harness.configs import a_config

MIB = 1 << 20
ITSELF_MIB = 64
ROLE = Path(__file__).parents[2] / "ansible" / "roles" / "lockd"


def test_what_apps_may_share_and_the_agent_itself_fit_into_the_memory_of_the_unit():
    """Above MemoryHigh the agent is slowed down, and above MemoryMax it is killed."""
    variables = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    high, most = variables["lockd_memory_mib"], variables["lockd_memory_mib"] * 5 // 4
    shared, _ = divmod(Quotas(Current(a_config()), Room(most * MIB, 65_536)).bytes.total, MIB)
    assert shared == 1_248, "as the documentation has it"
    assert shared + ITSELF_MIB <= high


def test_nothing_in_the_unit_hides_from_the_agent_where_its_peers_are():
    unit = (ROLE / "templates" / "lockd.service.j2").read_text()
    assert not re.search(r"^(ProtectProc|ProcSubset|PrivatePIDs)=", unit, re.MULTILINE)
