"""Wheels of lockd and all that it needs, for a host's Python, as one archive with a list of hashes. On the
controller.

    wheelhouse.py --source REPOSITORY --keep FOLDER --python 3.11 --machine x86_64

prints {"version": ..., "archive": ...}. The version is lockd's own and a hash of its code, the Python and
the machine: the same code gives the same archive, which is kept, so that all hosts get the same bytes and a
second run builds nothing.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SOURCES = ("pyproject.toml", "README.md", "lockd")
# glibc from here on: Debian 12 has 2.36, Ubuntu 22.04 has 2.35.
GLIBC = ("2_17", "2_28", "2_34")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--machine", required=True)
    chosen = parser.parse_args()
    source = chosen.source.resolve()
    version = f"{own_version(source)}-{fingerprint(source, chosen.python, chosen.machine)}"
    archive = chosen.keep / f"lockd-{version}.tar.gz"
    chosen.keep.mkdir(parents=True, exist_ok=True)
    with (chosen.keep / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            build(source, archive, chosen.python, chosen.machine)
    print(json.dumps({"version": version, "archive": str(archive)}))
    return 0


def own_version(source: Path) -> str:
    return str(tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"])


def code_files(source: Path) -> list[Path]:
    """What the wheel is made of, in one order."""
    roots = [source / name for name in SOURCES]
    found = [path for root in roots for path in (root.rglob("*") if root.is_dir() else [root])]
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def fingerprint(source: Path, python: str, machine: str) -> str:
    """Ten hexadecimal digits that change with anything that the installed agent depends on."""
    whole = hashlib.sha256(f"{python} {machine}\0".encode())
    whole.update(Path(__file__).read_bytes())
    for path in code_files(source):
        whole.update(f"{path.relative_to(source)}\0".encode())
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:10]


def build(source: Path, archive: Path, python: str, machine: str) -> None:
    """Under another name first: an interrupted build is never taken for a finished one."""
    with tempfile.TemporaryDirectory(prefix="wheels-", dir=archive.parent) as name:
        folder = Path(name)
        wheels = folder / "wheels"
        wheels.mkdir()
        own = build_own(source, folder / "source", wheels)
        wanted = [str(own)]
        while wanted:
            pip("download", "--quiet", "--dest", str(wheels), *for_host(python, machine), *wanted)
            wanted = still_missing(wheels, python, machine)
        write_requirements(wheels)
        half = folder / archive.name
        with tarfile.open(half, "w:gz") as tar:
            for path in sorted(wheels.iterdir()):
                tar.add(path, arcname=path.name)
        half.rename(archive)


def build_own(source: Path, copy: Path, wheels: Path) -> Path:
    """From a copy: setuptools leaves folders in the place that it builds in."""
    for path in code_files(source):
        to = copy / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, to)
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(copy))
    return next(wheels.glob("lockd-*.whl"))


def for_host(python: str, machine: str) -> list[str]:
    """What makes pip choose wheels for that Python and machine, whatever the controller's are."""
    tag = python.replace(".", "")
    options = ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
    options += [f"--abi={abi}" for abi in (f"cp{tag}", "abi3", "none")]
    names = ["manylinux1", "manylinux2010", "manylinux2014", *(f"manylinux_{glibc}" for glibc in GLIBC)]
    return options + [f"--platform={name}_{machine}" for name in names]


def still_missing(wheels: Path, python: str, machine: str) -> list[str]:
    """What the wheels ask for on the host and isn't there: pip judges conditions by the controller's
    Python."""
    # The oldest of that Python's releases: what only some of them need is there for all.
    host = {
        "python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine,
        "implementation_name": "cpython", "platform_python_implementation": "CPython", "os_name": "posix",
        "sys_platform": "linux", "platform_system": "Linux", "extra": "",
    }  # fmt: skip
    there = {canonicalize_name(wheel.name.split("-")[0]) for wheel in wheels.glob("*.whl")}
    asked = [requirement for wheel in wheels.glob("*.whl") for requirement in requirements_of(wheel)]
    return [
        f"{one.name}{one.specifier}"
        for one in asked
        if canonicalize_name(one.name) not in there and (one.marker is None or one.marker.evaluate(host))
    ]


def requirements_of(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    return [Requirement(line) for line in lines]


def write_requirements(wheels: Path) -> None:
    lines = []
    for wheel in sorted(wheels.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines.append(f"{name.replace('_', '-')}=={version} --hash=sha256:{digest}")
    (wheels / "requirements.txt").write_text("\n".join(lines) + "\n")


def pip(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
        stdout=sys.stderr, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(
            f"pip {' '.join(words)}: status {done.returncode}; the controller must reach a package index once"
        )


if __name__ == "__main__":
    sys.exit(main())
