"""The agent's systemd unit: its memory is derived from the limits of the configuration."""

import re
from pathlib import Path

import yaml

from lockd.config.model import Limits

ROLE = Path(__file__).parents[2] / "ansible" / "roles" / "lockd"


def test_the_memory_of_the_unit_is_derived_from_the_limits_that_hold_where_none_are_set():
    of_role = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())["lockd_limits"]
    defaults = dict(re.findall(r"'(\w+)': (\d+)", of_role))
    limits = Limits()
    assert {"connections", "leases", "waiters", "resource_bytes", "buffered_bytes"} == set(defaults)
    assert defaults == {name: str(getattr(limits, name)) for name in defaults}


def test_nothing_in_the_unit_hides_from_the_agent_where_its_peers_are():
    unit = (ROLE / "templates" / "lockd.service.j2").read_text()
    assert not re.search(r"^(ProtectProc|ProcSubset|PrivatePIDs)=", unit, re.MULTILINE)
