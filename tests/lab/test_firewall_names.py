"""The names in a firewall's rules are looked up by one command, and a host that was left out may have lost
its own: played on this machine, with hosts that nobody knows."""

from __future__ import annotations

import pwd
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import local_ansible
from tests.lab.inventory import ANSIBLE

# RFC 6761: there is never such a name.
GONE = "web3.invalid"

pytestmark = local_ansible.needs_ansible

HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
INVENTORY: dict[str, Any] = {
    "lock_masters": {"hosts": {"m1": HERE}},
    "lock_apps": {
        "hosts": {
            "web1": {**HERE, "ansible_host": "192.0.2.1"},
            "web2": {**HERE, "ansible_host": "localhost"},
            "web3": {"ansible_host": GONE},
        }
    },
}


def write(folder: Path, present: bool, rules: str) -> Path:
    """A play that looks who is there, as all do that change something, and writes the rules of m1."""
    first = {"name": "See who is there", "ansible.builtin.import_tasks": str(ANSIBLE / "tasks/present.yml")}
    role = {"name": "firewall", "tasks_from": "look_up", "rolespec_validate": False}
    second = {"name": "Look the names up", "ansible.builtin.import_role": role}
    template = {"src": str(ANSIBLE / "roles/firewall/templates/firewall.nft.j2"), "dest": rules}
    third = {"name": "Write the rules", "ansible.builtin.template": template}
    hosts = {
        "gather_facts": False,
        "any_errors_fatal": True,
        "vars_files": [str(ANSIBLE / "group_vars/all.yml")],
    }
    looks = {"name": "Look", "hosts": "lock_masters:lock_apps", "tasks": [first], **hosts}
    writes = {"name": "Write", "hosts": "lock_masters", "tasks": [second, third], **hosts}
    path = folder / "play.yml"
    path.write_text(yaml.safe_dump([looks, writes] if present else [writes], sort_keys=False))
    return path


def played(folder: Path, *words: str, present: bool = True, **changes: Any) -> tuple[int, str, str]:
    """The status of that play, what it said in one line, and the rules that it wrote."""
    hosts, rules = folder / "hosts.yml", folder / "rules"
    everybody = {"all": {"children": INVENTORY, "vars": changes}}
    hosts.write_text(yaml.safe_dump(everybody))
    done = local_ansible.run("ansible-playbook", "-i", hosts, *words, write(folder, present, str(rules)))
    return (
        done.returncode,
        local_ansible.said_by(done),
        rules.read_text() if rules.exists() else "",
    )


def agents_let_in(rules: str) -> str:
    return next(line.strip() for line in rules.splitlines() if "ip saddr" in line and "6379" in line)


def looked_up(said: str) -> int:
    return said.count("Look up the addresses of names")


def test_a_silent_host_of_the_share_that_may_be_has_lost_its_name_and_the_others_are_let_in(
    tmp_path: Path,
) -> None:
    status, said, rules = played(tmp_path, "-e", "absent=34%")
    assert status == 0, said
    assert agents_let_in(rules) == "ip saddr { 127.0.0.1, 192.0.2.1 } tcp dport { 6379 } accept"
    assert looked_up(said) == 1


@pytest.mark.parametrize("left_out", ["web3", GONE])
def test_one_that_is_left_out_by_name_may_have_lost_it(tmp_path: Path, left_out: str) -> None:
    status, said, rules = played(tmp_path, "-e", f"absent={left_out}", present=False)
    assert (status, "127.0.0.1" in agents_let_in(rules)) == (0, True), said


def test_a_name_that_nobody_knows_is_refused_and_said(tmp_path: Path) -> None:
    status, said, rules = played(tmp_path, present=False)
    assert (status, rules) == (2, "")
    assert f"m1 finds no address for {GONE}." in said
    assert "-e absent=NAME" in said


def test_a_wrong_name_of_something_else_is_refused_although_a_silent_host_may_have_lost_its_own(
    tmp_path: Path,
) -> None:
    monitoring = ["monitor.invalid", "192.0.2.9"]
    status, said, _ = played(tmp_path, "-e", "absent=34%", lockd_firewall_monitoring=monitoring)
    assert status == 2
    assert "m1 finds no address for monitor.invalid." in said


def test_where_all_have_numbers_nothing_is_looked_up(tmp_path: Path) -> None:
    numbers = {"lockd_firewall_agents": ["192.0.2.1", "192.0.2.0/24", "2001:db8::1"]}
    status, said, rules = played(tmp_path, "-v", present=False, **numbers)
    assert status == 0, said
    assert agents_let_in(rules) == "ip saddr { 192.0.2.0/24, 192.0.2.1 } tcp dport { 6379 } accept"
    assert "ip6 saddr { 2001:db8::1 } tcp dport { 6379 } accept" in rules


def test_users_of_the_host_are_numbers_in_the_rules_and_one_that_it_does_not_know_is_left_out(
    tmp_path: Path,
) -> None:
    users = ["daemon", "no-such-user", "1234"]
    metrics = {"ports": [9480], "from": ["192.0.2.1"], "users": users}
    others = {"ports": [9100], "from": ["192.0.2.1"]}
    status, said, rules = played(tmp_path, present=False, lockd_firewall_rules=[metrics, others])
    assert status == 0, said
    of_users = [line.strip() for line in rules.splitlines() if "skuid" in line]
    daemon = pwd.getpwnam("daemon").pw_uid
    assert of_users == [
        f'oifname "lo" tcp dport {{ 9480 }} meta skuid != {{ 0, {daemon}, 1234 }} reject with tcp reset'
    ]
    assert checksum(rules) != checksum(played(tmp_path, present=False, lockd_firewall_rules=[others])[2])
    metrics["users"] = ["daemon"]
    changed = played(tmp_path, present=False, lockd_firewall_rules=[metrics, others])[2]
    assert checksum(rules) != checksum(changed)


def checksum(rules: str) -> str:
    [found] = re.findall('comment "(.*)"', rules)
    return str(found)


def test_many_names_are_one_command_however_many_there_are(tmp_path: Path) -> None:
    agents = [f"web{number}.invalid" for number in range(40)]
    status, said, _ = played(tmp_path, present=False, lockd_firewall_agents=agents)
    assert status == 2
    assert "web0.invalid, web1.invalid, web10.invalid" in said
    assert "web39.invalid" in said
    assert "(item=" not in said
