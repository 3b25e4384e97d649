"""ansible-variables.md: the variables of every role, from its argument specification."""

from __future__ import annotations

from typing import Any

import yaml

from docs.made.markdown import NOTE, REFERENCE, REPOSITORY, table

PAGE = REFERENCE / "ansible-variables.md"
ROLES = REPOSITORY / "ansible/roles"
HEAD = f"""# Variables of the Ansible roles

{NOTE}
Every variable that a role takes, with its type and its default. "computed": from other variables. The README
of each role says how they work together. Start with the few in
`ansible/inventories/example/group_vars/all/main.yml`.
"""


def page() -> str:
    return HEAD + "".join(map(section, sorted(path.name for path in ROLES.iterdir() if path.is_dir())))


def section(role: str) -> str:
    specification = ROLES / role / "meta/argument_specs.yml"
    ways = yaml.safe_load(specification.read_text())["argument_specs"]  # main, and each `tasks_from`
    options = {name: option for way in ways.values() for name, option in way.get("options", {}).items()}
    defaults = _defaults(role)
    rows = [_row(name, option, defaults) for name, option in options.items()]
    what = ways["main"]["short_description"]
    head = ["variable", "type", "default", "meaning"]
    link = f"[its README](../../ansible/roles/{role}/README.md)"
    return f"\n## {role}\n\n{what}: {link}.\n\n{table(head, rows)}"


def _defaults(role: str) -> dict[str, Any]:
    path = ROLES / role / "defaults/main.yml"
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


def _row(name: str, option: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    default = defaults.get(name, option.get("default"))
    return [f"`{name}`", str(option.get("type", "str")), _shown(default, option), _meaning(option)]


def _shown(default: Any, option: dict[str, Any]) -> str:
    if option.get("required"):
        return "required"
    if default is None or default == "":
        return ""
    if isinstance(default, str) and "{{" in default:
        return "computed"
    if isinstance(default, list | dict) and len(str(default)) > 60:
        return "see the role"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _meaning(option: dict[str, Any]) -> str:
    """The specification may have it in several paragraphs."""
    said = option.get("description", "")
    return (" ".join(said) if isinstance(said, list) else str(said)).strip().replace("\n", " ")
