"""The roles and plays of `ansible/` as a collection, lockd.lockd, with all that they bring to hosts: the
agent's sources, scripts, rules, runbooks and dashboards.

    python packaging/collection.py FOLDER

writes FOLDER/lockd-lockd-VERSION.tar.gz. A collection has its plays in `playbooks/`, plugins in `plugins/`,
and roles one folder nearer to its root than they are here: so that is rewritten, and nothing else.
`ansible-galaxy` packs it, that of the environment that this runs in.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
ANSIBLE = REPOSITORY / "ansible"
NAME = "lockd.lockd"
# What roles bring to hosts, from beside `ansible/`.
BROUGHT = ("LICENSE", "alerts", "dashboards", "lockd", "lockd.example.yml", "pyproject.toml", "setup.py")
DEPENDENCIES = {
    "ansible.posix": ">=2.0.0",
    "community.crypto": ">=3.0.0",
    "community.general": ">=11.0.0",
    "grafana.grafana": ">=6.0.0",
}
PLAYS = sorted(path.name for path in ANSIBLE.glob("*.yml"))
NOT_OURS = shutil.ignore_patterns("__pycache__", "*.egg-info", "tests", "pictures", "*.py[co]", "*.so", ".*")


def main() -> int:
    target = Path(sys.argv[1]).resolve()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        galaxy = Path(sys.executable).with_name("ansible-galaxy")
        command = [galaxy, "collection", "build", folder, "--output-path", target, "--force"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    print(target / f"{NAME.replace('.', '-')}-{version()}.tar.gz")
    return 0


def metadata() -> Mapping[str, Any]:
    return cast(Mapping[str, Any], tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"])


def version() -> str:
    return str(metadata()["version"])


def stage(folder: Path) -> None:
    """The collection as it is packed."""
    (folder / "galaxy.yml").write_text(yaml.safe_dump(galaxy(), sort_keys=False))
    (folder / "meta").mkdir()
    (folder / "meta/runtime.yml").write_text("---\nrequires_ansible: '>=2.19.0'\n")
    for name in BROUGHT:
        bring(REPOSITORY / name, folder / name)
    # The agent's wheel is built from here, and has the repository's.
    bring(REPOSITORY / "README.md", folder / "README.md")
    bring(ANSIBLE / "CHANGELOG.md", folder / "CHANGELOG.md")
    bring(ANSIBLE / "README.md", folder / "docs/README.md")
    bring(ANSIBLE / "inventories/example", folder / "docs/example")
    for name in (*PLAYS, "tasks", "files", "group_vars"):
        bring(ANSIBLE / name, folder / "playbooks" / name)
    bring(ANSIBLE / "roles", folder / "roles")
    for path in (folder / "roles").glob("*/lookup_plugins"):
        shutil.copytree(path, folder / "plugins/lookup", dirs_exist_ok=True)
        shutil.rmtree(path)
    bring(ANSIBLE / "library", folder / "plugins/modules")
    for path in texts(folder / "roles", folder / "playbooks"):
        path.write_text(rewritten(path.read_text()))


def galaxy() -> dict[str, object]:
    namespace, _, name = NAME.partition(".")
    return {
        "namespace": namespace,
        "name": name,
        "version": version(),
        "readme": "README.md",
        "authors": [author["name"] for author in metadata()["authors"]],
        "license": ["Apache-2.0"],
        "description": "Five Redis masters behind guards, agents for Redlock over them, and their monitoring",
        "tags": ["redis", "infrastructure", "monitoring"],
        "dependencies": DEPENDENCIES,
    }


def bring(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=NOT_OURS)
    else:
        shutil.copy2(source, target)


def texts(*folders: Path) -> Iterable[Path]:
    for folder in folders:
        yield from (path for path in folder.rglob("*") if path.suffix in (".yml", ".j2", ".md"))


def rewritten(text: str) -> str:
    """Where the root is, and what plugins and plays are called."""
    text = text.replace("{{ role_path }}/../../..", "{{ role_path }}/../..")
    text = text.replace("role_path ~ '/../../../", "role_path ~ '/../../")
    text = text.replace("lookup('vault_secrets',", f"lookup('{NAME}.vault_secrets',")
    text = text.replace("query('lockd_refusals',", f"query('{NAME}.lockd_refusals',")
    text = re.sub(r"(?m)^( +)lockd_files:$", rf"\1{NAME}.lockd_files:", text)
    for play in PLAYS:
        text = re.sub(
            rf"(lockd_play }}}}|lockd_play ~ '|hosts\.yml) {re.escape(play)}",
            rf"\1 {NAME}.{Path(play).stem}",
            text,
        )
    return text


if __name__ == "__main__":
    sys.exit(main())
