"""Wheels of lockd and all that it needs, for a host's Python, as one archive with a list of hashes. On the
controller.

    wheelhouse.py --source REPOSITORY --keep FOLDER --python 3.11 --machine x86_64 [--glibc 2.36]

prints {"version": ..., "archive": ...}. The version is lockd's own and a hash of its code, the Python and
the machine: the same code gives the same archive, which is kept, so that all hosts get the same bytes and a
second run builds nothing.

With --glibc, the host's, lockd's own wheel is the compiled one (setup.py), if this controller can make one
that runs there: with a C compiler, the same Python and its headers, the same machine and no newer glibc.

What it takes from a package index is named in requirements.lock, and what lockd's own wheel is built with in
build.lock or compiled.lock, each file by its hash (`make lock` renews them): another file of that name and
version is refused, from whatever index it came. The hash of each archive that was built here is in own.lock,
by its path, and a kept one that differs from it is refused: nobody else's wheel of lockd is installed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

HERE = Path(__file__).parent
LOCK, BUILD_LOCK, COMPILED_LOCK = (HERE / f"{name}.lock" for name in ("requirements", "build", "compiled"))
OWN_LOCK = HERE / "own.lock"
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "lockd", "alerts/runbooks")
# The same code is the same wheel, byte by byte: files in it have no times of their own.
NO_TIME = {"SOURCE_DATE_EPOCH": "315532800"}
# glibc from here on: Debian 12 has 2.36, Ubuntu 22.04 has 2.35.
GLIBC = ("2_17", "2_28", "2_34")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--glibc", default="")
    chosen = parser.parse_args()
    source = chosen.source.resolve()
    compiled = can_compile(chosen.python, chosen.machine, chosen.glibc)
    version = f"{own_version(source)}-{fingerprint(source, chosen.python, chosen.machine, compiled)}"
    chosen.keep.mkdir(mode=0o755, parents=True, exist_ok=True)
    check_owner(chosen.keep)
    with (chosen.keep / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archive = archive_of(version, chosen.keep.resolve())
        if not (archive.exists() and hash_of(archive)):
            build(source, archive, chosen.python, chosen.machine, compiled)
            note(archive)
    check_archive(archive)
    print(json.dumps({"version": version, "archive": str(archive)}))
    return 0


def archive_of(version: str, keep: Path) -> Path:
    """Other copies of the repository may keep theirs in that folder, too, and know them by their hashes. So
    what one has built is neither used by another nor written over."""
    archive = keep / f"lockd-{version}.tar.gz"
    if not archive.exists() or hash_of(archive):
        return archive
    copy = hashlib.sha256(os.fsencode(HERE)).hexdigest()[:10]
    return keep / f"lockd-{version}-of-{copy}.tar.gz"


def check_owner(folder: Path) -> None:
    """What is kept there is installed by root on every app host."""
    seen = folder.stat()
    if seen.st_uid not in (0, os.geteuid()) or seen.st_mode & 0o022:
        sys.exit(
            f"{folder}: others than you may write there, and so to every app host. Nothing was built. Empty"
            " it and chmod go-w it, or set lockd_wheelhouse to a folder of your own"
        )


def can_compile(python: str, machine: str, glibc: str) -> bool:
    """Whether what is compiled here runs there. What was made with an older glibc runs with a newer one."""
    there, here = (python, machine), (this_python(), os.uname().machine)
    compiler = shutil.which(os.environ.get("CC", "cc"))
    headers = Path(sysconfig.get_path("include"), "Python.h")
    own = platform.libc_ver()[1]
    if there != here or not compiler or not headers.exists() or not glibc or not own:
        return False
    return Version(own) <= Version(glibc)


def this_python() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def own_version(source: Path) -> str:
    return str(tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"])


def code_files(source: Path) -> list[Path]:
    """What the wheel is made of, in one order."""
    roots = [source / name for name in SOURCES]
    found = [path for root in roots for path in (root.rglob("*") if root.is_dir() else [root])]
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def fingerprint(source: Path, python: str, machine: str, compiled: bool) -> str:
    """Ten hexadecimal digits that change with anything that the installed agent depends on."""
    whole = hashlib.sha256(f"{python} {machine}{' compiled' if compiled else ''}\0".encode())
    for path in (Path(__file__), LOCK, COMPILED_LOCK if compiled else BUILD_LOCK):
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    for path in code_files(source):
        whole.update(f"{path.relative_to(source)}\0".encode())
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:10]


def build(source: Path, archive: Path, python: str, machine: str, compiled: bool) -> None:
    """Under another name first: an interrupted build is never taken for a finished one."""
    with tempfile.TemporaryDirectory(prefix="wheels-", dir=archive.parent) as name:
        folder = Path(name)
        wheels = folder / "wheels"
        wheels.mkdir()
        build_own(source, folder, wheels, compiled)
        download(locked(LOCK, python, machine), wheels, for_host(python, machine))
        if missing := still_missing(wheels, python, machine):
            sys.exit(f"{LOCK.name} lacks {', '.join(missing)}, for Python {python} on {machine}: make lock")
        write_requirements(wheels)
        half = folder / archive.name
        with tarfile.open(half, "w:gz") as tar:
            for path in sorted(wheels.iterdir()):
                tar.add(path, arcname=path.name)
        half.rename(archive)


@dataclass(frozen=True)
class Locked:
    """A requirement of a lock file: one version, and the hashes that its files may have."""

    requirement: Requirement
    hashes: frozenset[str]

    def __str__(self) -> str:
        hashes = "".join(f" --hash={digest}" for digest in sorted(self.hashes))
        return f"{self.requirement.name}{self.requirement.specifier}{hashes}"


def locked(lock: Path, python: str, machine: str) -> list[Locked]:
    """What that lock file says for a host. Each entry has hashes, or it is refused."""
    found = []
    for line in lock.read_text().replace("\\\n", " ").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        named, *hashes = line.split(" --hash=")
        one = Locked(Requirement(named), frozenset(digest.strip() for digest in hashes))
        if not one.hashes or not all(digest.startswith("sha256:") for digest in one.hashes):
            sys.exit(f"{lock}: {named.strip()} has no hash: make lock")
        if is_for(one.requirement, python, machine):
            found.append(one)
    return found


def is_for(requirement: Requirement, python: str, machine: str) -> bool:
    """Is it needed there? pip judges conditions by the controller's Python."""
    # The oldest of that Python's releases: what only some of them need is there for all.
    host = {
        "python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine,
        "implementation_name": "cpython", "platform_python_implementation": "CPython", "os_name": "posix",
        "sys_platform": "linux", "platform_system": "Linux", "extra": "",
    }  # fmt: skip
    return requirement.marker is None or requirement.marker.evaluate(host)


def download(wanted: Iterable[Locked], wheels: Path, options: Iterable[str]) -> None:
    """Exactly those, none of what they ask for, and refuse what has another hash."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("".join(f"{one}\n" for one in wanted))
        listed.flush()
        pip(
            "download", "--quiet", "--no-deps", "--require-hashes", "--dest", str(wheels), *options,
            "--requirement", listed.name,
        )  # fmt: skip


def build_own(source: Path, folder: Path, wheels: Path, compiled: bool) -> Path:
    """lockd's own wheel, with the tools of a lock file and no others. From a copy: setuptools leaves folders
    where it builds."""
    copy, fetched, tools = (folder / name for name in ("source", "fetched", "tools"))
    for path in code_files(source):
        to = copy / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)
        to.chmod(0o644)
    lock = COMPILED_LOCK if compiled else BUILD_LOCK
    download(locked(lock, this_python(), os.uname().machine), fetched, ["--only-binary=:all:"])
    offline = ("--quiet", "--no-index", "--no-deps")
    pip("install", *offline, "--target", str(tools), *map(str, sorted(fetched.glob("*.whl"))))
    words = ("wheel", *offline, "--no-build-isolation", "--wheel-dir", str(wheels), str(copy))
    pip(*words, environment=NO_TIME | {"PYTHONPATH": str(tools), "LOCKD_COMPILED": str(int(compiled))})
    return next(wheels.glob("lockd-*.whl"))


def for_host(python: str, machine: str) -> list[str]:
    """What makes pip choose wheels for that Python and machine, whatever the controller's are."""
    tag = python.replace(".", "")
    options = ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
    options += [f"--abi={abi}" for abi in (f"cp{tag}", "abi3", "none")]
    names = ["manylinux1", "manylinux2010", "manylinux2014", *(f"manylinux_{glibc}" for glibc in GLIBC)]
    return options + [f"--platform={name}_{machine}" for name in names]


def still_missing(wheels: Path, python: str, machine: str) -> list[str]:
    """What the wheels ask for on the host and isn't there, or in another version."""
    there = {
        canonicalize_name(name): version for name, version in map(name_and_version, wheels.glob("*.whl"))
    }
    asked = [requirement for wheel in wheels.glob("*.whl") for requirement in requirements_of(wheel)]

    def has(one: Requirement) -> bool:
        version = there.get(canonicalize_name(one.name))
        return version is not None and one.specifier.contains(version, prereleases=True)

    return [f"{one.name}{one.specifier}" for one in asked if is_for(one, python, machine) and not has(one)]


def requirements_of(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    return [Requirement(line) for line in lines]


def name_and_version(wheel: Path) -> tuple[str, str]:
    name, version = wheel.name.split("-")[:2]
    return name.replace("_", "-"), version


def write_requirements(wheels: Path) -> None:
    lines = []
    for wheel in sorted(wheels.glob("*.whl")):
        name, version = name_and_version(wheel)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines.append(f"{name}=={version} --hash=sha256:{digest}")
    (wheels / "requirements.txt").write_text("\n".join(lines) + "\n")


def hash_of(archive: Path) -> str | None:
    """As it was built by this copy of the repository, in that folder: the same code built in another one is
    other bytes. The repository of an archive for controllers without indexes has names alone. None: it was
    not built here."""
    lines = OWN_LOCK.read_text().splitlines() if OWN_LOCK.exists() else []
    known = dict(line.rsplit(" --hash=", 1) for line in lines)
    return known.get(str(archive)) or known.get(archive.name)


def note(archive: Path) -> None:
    """Behind what is there: a build in another folder may do so at the same time."""
    with OWN_LOCK.open("a") as lock:
        lock.write(f"{archive} --hash={digest_of(archive)}\n")


def digest_of(archive: Path) -> str:
    return f"sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}"


def check_archive(archive: Path) -> None:
    """What was kept is what was built, to the last byte."""
    if digest_of(archive) != hash_of(archive):
        sys.exit(
            f"{archive} is not what was built here ({OWN_LOCK}). Find out who changed it. Nothing was done"
        )


def pip(*words: str, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
        stdout=sys.stderr, check=False, env=os.environ | (environment or {}),
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(
            f"pip {' '.join(words)}: status {done.returncode}. When it speaks of hashes, a file is not the"
            " one that was locked: find out why before anything else. Otherwise the controller must reach a"
            " package index once"
        )


if __name__ == "__main__":
    sys.exit(main())
