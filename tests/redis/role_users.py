"""The masters' users exactly as the role's template writes them, rendered without Ansible."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import jinja2

from lockd.dev.processes import server_version

TEMPLATE = Path(__file__).parents[2] / "ansible/roles/redis_master/templates/users.acl.j2"
AGENT = "agent-a1"
ANOTHER_AGENT = "agent-a2"


def password_of(user: str) -> str:
    return f"let-{user}-in"


def version_of(binary: Path) -> str:
    return ".".join(map(str, server_version(binary)[1:]))


def users_acl(version: str, agents: tuple[str, ...] = (AGENT, ANOTHER_AGENT)) -> str:
    """users.acl for a server of that version; everybody's password is `password_of` them."""
    # As Ansible sets it up.
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False)
    environment.filters["hash"] = lambda text, kind: hashlib.new(kind, text.encode()).hexdigest()
    environment.tests["version"] = _at_least
    others = ("admin", "operator", "loader", "exporter")
    return environment.from_string(TEMPLATE.read_text()).render(
        lockd_redis_master_version=version,
        lockd_redis_master_agent_passwords={user: [password_of(user)] for user in agents},
        **{f"lockd_redis_master_{name}_passwords": [password_of(f"lockd_{name}")] for name in others},
    )


def rights_of_agents(version: str) -> str:
    """What an agent may do, as the rules of ACL SETUSER, its password left out."""
    [line] = [line for line in users_acl(version).splitlines() if line.startswith(f"user {AGENT} ")]
    return line.partition(" resetkeys ")[2].join(("resetkeys ", ""))


def _at_least(version: str, wanted: str, operator: str) -> bool:
    assert operator == ">=", operator
    numbers = ([int(part) for part in text.split(".")] for text in (version, wanted))
    return next(numbers) >= next(numbers)


def as_user(user: str) -> dict[str, Any]:
    """What redis-py takes to be this user."""
    return {"username": user, "password": password_of(user)}
