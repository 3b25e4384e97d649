"""All that a site without package indexes needs, in one archive:

    python packaging/air_gap.py FOLDER [PYTHON ...]

This repository, the agent's wheels for the hosts' Pythons (default: 3.11 and 3.13, Debian 12's and 13's),
those of Ansible for the controller, and the names of the distribution's packages, by group of hosts. Prints
the archive's SHA-256, to be compared where it is unpacked, and its path.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
ANSIBLE = REPOSITORY / "ansible"
WHEELHOUSE = Path("ansible/roles/lockd/files/wheelhouse.py")
PYTHONS = ("3.11", "3.13")


def main() -> int:
    target, pythons = Path(sys.argv[1]).resolve(), sys.argv[2:] or PYTHONS
    target.mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    name = f"lockd-air-gap-{project['version']}"
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder, name)
        bring_repository(stage / "lockd")
        for python in pythons:
            print(f"the agent's wheels for Python {python}", file=sys.stderr)
            build_wheels(stage / "lockd", stage / "wheels", python)
        print("Ansible's wheels for the controller", file=sys.stderr)
        know_wheels_by_name(stage / "lockd", stage / "wheels")
        fetch_ansible(stage / "controller")
        (stage / "packages.json").write_text(json.dumps(packages(), indent=2) + "\n")
        shutil.copyfile(Path(__file__).with_name("AIR-GAP.md"), stage / "README.md")
        archive = target / f"{name}.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(stage, arcname=name)
    print(f"SHA-256: {hashlib.sha256(archive.read_bytes()).hexdigest()}")
    print(archive)
    return 0


def run(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def bring_repository(to: Path) -> None:
    """What is under version control, as it is in this working tree."""
    listed = run("git", "-C", REPOSITORY, "ls-files", "-z").split("\0")
    for name in filter(None, listed):
        if (REPOSITORY / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, to / name)


def build_wheels(copy: Path, keep: Path, python: str) -> None:
    """By the repository that is packed, which has to take them for its own. Compiled where that can be done
    here, and as they are: it is the controller there that takes the one or the other, by whether it has a
    compiler."""
    for glibc in (platform.libc_ver()[1], ""):
        run(
            sys.executable, copy / WHEELHOUSE, "--source", copy, "--keep", keep,
            "--python", python, "--machine", platform.machine(), "--glibc", glibc,
        )  # fmt: skip


def know_wheels_by_name(copy: Path, keep: Path) -> None:
    """The copy has noted their hashes with the folder in which it built them."""
    own = (copy / WHEELHOUSE).with_name("own.lock")
    own.write_text(own.read_text().replace(f"{keep.resolve()}{os.sep}", ""))


def fetch_ansible(to: Path) -> None:
    """Each file by its hash, here and where it is installed."""
    lock = (REPOSITORY / WHEELHOUSE).with_name("controller.lock")
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    run(*pip, "--only-binary=:all:", "--require-hashes", "--dest", to, "--requirement", lock)
    shutil.copyfile(lock, to / "requirements.txt")


def packages() -> dict[str, list[str]]:
    """What the roles of site.yml install from the distribution, by the group of hosts."""
    found: dict[str, set[str]] = {}
    for play in yaml.safe_load((ANSIBLE / "site.yml").read_text()):
        groups = [group for group in re.split(r"[:&\[]+", play["hosts"]) if group.startswith("lock_")]
        names = {name for role in play.get("roles", []) for name in packages_of(role["role"])}
        for group in groups:
            if group != "lock_present" and names:
                found.setdefault(group, set()).update(names)
    return {group: sorted(names) for group, names in found.items()}


def packages_of(role: str) -> set[str]:
    defaults = {"lockd_python": "python3", "lockd_redis_master_package": "redis-server"}
    names: set[str] = set()
    for path in (ANSIBLE / "roles" / role / "tasks").glob("*.yml"):
        for task in every_task(yaml.safe_load(path.read_text()) or []):
            for name in task.get("vars", {}).get("lockd_packages_names", []):
                names.add(re.sub(r"\{\{ (\w+) \}\}", lambda found: defaults[found[1]], name))
    return names


def every_task(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for task in tasks for one in (task, *every_task(task.get("block", [])))]


if __name__ == "__main__":
    sys.exit(main())
