"""What is deployed on app hosts: each file from a package index is the one that was locked, or none."""

from __future__ import annotations

import hashlib
import importlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.harness.waiting import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[2]
ROLE = REPOSITORY / "ansible" / "roles" / "lockd"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
PYTHONS = ("3.11", "3.12", "3.13")
HOSTS = list(itertools.product(PYTHONS, ("x86_64", "aarch64")))


sys.path.append(str(ROLE / "files"))
wheelhouse: Any = importlib.import_module("wheelhouse")


def make_wheel(folder: Path, name: str, version: str, code: str = "", *asks: str) -> Path:
    """A wheel as setuptools would make it."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {one}\n" for one in asks),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in files)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in (files | {f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}).items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return wheel


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the package index, and nothing else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def download(folder: Path, locked: list[Any], host: tuple[str, str] = ("3.11", "x86_64")) -> list[str]:
    """What pip put into `wheels`."""
    wheelhouse.download(locked, folder / "wheels", wheelhouse.for_host(*host))
    return os.listdir(folder / "wheels")


def lock_of(folder: Path, wheel: Path) -> Path:
    lock = folder / "some.lock"
    name, version = wheel.name.split("-")[:2]
    lock.write_text(f"{name}=={version} \\\n    --hash=sha256:{digest(wheel)}\n")
    return lock


# The lock files


ASKED = {
    wheelhouse.LOCK: PROJECT["project"]["dependencies"],
    wheelhouse.BUILD_LOCK: PROJECT["build-system"]["requires"],
    wheelhouse.COMPILED_LOCK: PROJECT["project"]["optional-dependencies"]["compiled"],
}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("lock", ASKED, ids=lambda lock: lock.name)
def test_a_lock_satisfies_what_lockd_and_its_build_ask_for(lock: Path, host: tuple[str, str]) -> None:
    locked = {
        canonicalize_name(one.requirement.name): one.requirement for one in wheelhouse.locked(lock, *host)
    }
    for wanted in map(Requirement, ASKED[lock]):
        [exactly] = locked[canonicalize_name(wanted.name)].specifier
        assert exactly.operator == "=="
        assert wanted.specifier.contains(exactly.version), wanted
    assert lock != wheelhouse.BUILD_LOCK or len(locked) == len(ASKED[lock])


@pytest.mark.parametrize("lock", ASKED, ids=lambda lock: lock.name)
def test_a_lock_names_versions_and_hashes_and_no_index(lock: Path) -> None:
    good = re.compile(r"[a-z0-9-]+==[^ /]+( ; [^/]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    assert [line for line in lock.read_text().splitlines() if not good.fullmatch(line)] == []


def test_what_only_some_pythons_need_is_there_for_those() -> None:
    """pip would ask the controller's Python."""

    def names(python: str) -> set[str]:
        return {one.requirement.name for one in wheelhouse.locked(wheelhouse.LOCK, python, "x86_64")}

    assert names("3.11") - names("3.12") == {"async-timeout"}


def test_an_entry_without_a_hash_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    for text in ("tiny==1.0\n", "tiny==1.0 --hash=md5:00\n"):
        lock.write_text(text)
        with pytest.raises(SystemExit, match=r"tiny==1\.0 has no hash"):
            wheelhouse.locked(lock, "3.11", "x86_64")


# What an index gives


def test_a_wheel_that_is_the_locked_one_is_taken(index: Path, tmp_path: Path) -> None:
    lock = lock_of(tmp_path, make_wheel(index, "tiny", "1.0"))
    host = ("3.12", "aarch64")
    assert download(tmp_path, wheelhouse.locked(lock, *host), host) == ["tiny-1.0-py3-none-any.whl"]


def test_a_wheel_that_was_changed_in_the_index_is_refused(index: Path, tmp_path: Path) -> None:
    lock = lock_of(tmp_path, make_wheel(index, "tiny", "1.0"))
    make_wheel(index, "tiny", "1.0", code="import os; os.system('id >/tmp/owned')")
    with pytest.raises(SystemExit, match="When it speaks of hashes, a file is not the one that was locked"):
        download(tmp_path, wheelhouse.locked(lock, "3.11", "x86_64"))
    assert not list(tmp_path.glob("wheels/*"))


def test_what_has_no_hash_is_not_fetched_though_no_lock_file_said_so(index: Path, tmp_path: Path) -> None:
    make_wheel(index, "tiny", "1.0")
    unlocked = wheelhouse.Locked(Requirement("tiny==1.0"), frozenset())
    with pytest.raises(SystemExit, match="pip download"):
        download(tmp_path, [unlocked])
    assert not list(tmp_path.glob("wheels/*"))


def test_a_changed_tool_of_the_build_is_refused_before_it_runs(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_of(tmp_path, make_wheel(index, "setuptools", "99.0"))
    ran = tmp_path / "ran"
    make_wheel(index, "setuptools", "99.0", code=f"open({str(ran)!r}, 'w')")
    monkeypatch.setattr(wheelhouse, "BUILD_LOCK", lock)
    with pytest.raises(SystemExit, match="find out why"):
        wheelhouse.build_own(REPOSITORY, tmp_path, tmp_path / "wheels", compiled=False)
    assert not ran.exists()


def test_what_is_not_locked_is_missed_and_not_fetched(tmp_path: Path) -> None:
    make_wheel(tmp_path, "tiny", "1.0", "", "other>=2", "old; python_version<'3'")
    assert wheelhouse.still_missing(tmp_path, "3.11", "x86_64") == ["other>=2"]
    make_wheel(tmp_path, "other", "1.9")
    assert wheelhouse.still_missing(tmp_path, "3.11", "x86_64") == ["other>=2"]
    make_wheel(tmp_path, "other", "2.0")
    (tmp_path / "other-1.9-py3-none-any.whl").unlink()
    assert wheelhouse.still_missing(tmp_path, "3.11", "x86_64") == []


# What is kept on the controller


def pack(archive: Path, files: dict[str, bytes | None]) -> None:
    """None: a link, to what is nobody's business."""
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content or b"")
            if content is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/shadow"
            tar.addfile(member, io.BytesIO(content or b""))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_keeps_no_wheels(tmp_path: Path) -> None:
    os.chown(tmp_path, 65_534, 65_534)
    with pytest.raises(SystemExit, match="others than you may write there"):
        wheelhouse.check_owner(tmp_path)


class Controller:
    """`wheelhouse.py` as the role calls it, over an index with lockd's tiny stand-in for all that it needs.
    Its own wheel is not built by setuptools."""

    def __init__(self, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keep = tmp_path / "keep"
        self.lock = lock_of(tmp_path, make_wheel(index, "tiny", "1.0"))
        self.asks: tuple[str, ...] = ("tiny>=1",)
        words = ["wheelhouse.py", "--source", str(REPOSITORY), "--keep", str(self.keep)]
        monkeypatch.setattr(sys, "argv", [*words, "--python", "3.11", "--machine", "x86_64"])
        monkeypatch.setattr(wheelhouse, "LOCK", self.lock)
        monkeypatch.setattr(wheelhouse, "OWN_LOCK", tmp_path / "own.lock")
        monkeypatch.setattr(
            wheelhouse,
            "build_own",
            lambda _source, _folder, wheels, _compiled: make_wheel(wheels, "lockd", "1", "", *self.asks),
        )

    def kept(self) -> list[Path]:
        return list(self.keep.glob("*.tar.gz"))


@pytest.fixture
def controller(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    return Controller(index, tmp_path, monkeypatch)


def test_the_wheels_of_a_version_are_kept_and_given_again_when_they_are_still_what_they_were(
    controller: Controller, capfd: pytest.CaptureFixture[str]
) -> None:
    assert wheelhouse.main() == 0
    said = json.loads(capfd.readouterr().out)
    assert [Path(said["archive"])] == controller.kept()
    with tarfile.open(said["archive"]) as tar:
        assert tar.getnames() == [
            "lockd-1-py3-none-any.whl", "requirements.txt", "tiny-1.0-py3-none-any.whl",
        ]  # fmt: skip
    before = Path(said["archive"]).stat().st_mtime_ns
    assert wheelhouse.main() == 0
    assert json.loads(capfd.readouterr().out) == said
    assert Path(said["archive"]).stat().st_mtime_ns == before


@pytest.mark.parametrize("swapped", ["lockd-1-py3-none-any.whl", "tiny-1.0-py3-none-any.whl", "more.whl"])
def test_a_kept_archive_that_is_not_the_one_that_was_built_is_refused(
    controller: Controller, swapped: str
) -> None:
    """Whatever in it was changed: root installs it on every app host."""
    assert wheelhouse.main() == 0
    [archive] = controller.kept()
    with tarfile.open(archive) as tar:
        files = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    pack(archive, files | {swapped: b"evil"})
    with pytest.raises(SystemExit, match="is not what was built here"):
        wheelhouse.main()


def test_an_archive_that_this_copy_of_the_repository_did_not_build_is_not_used(
    controller: Controller, capfd: pytest.CaptureFixture[str]
) -> None:
    assert wheelhouse.main() == 0
    [archive] = controller.kept()
    pack(archive, {"lockd-1-py3-none-any.whl": b"evil"})
    wheelhouse.OWN_LOCK.unlink()
    capfd.readouterr()
    for _ in range(2):
        assert wheelhouse.main() == 0
        said = json.loads(capfd.readouterr().out)
        with tarfile.open(said["archive"]) as tar:
            assert tar.extractfile("lockd-1-py3-none-any.whl").read() != b"evil"  # type: ignore[union-attr]
    assert len(controller.kept()) == 2


def test_two_copies_of_the_repository_that_keep_archives_in_one_folder_leave_each_other_s_alone(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection that was installed beside a clone, say. Each knows its own by the hash."""
    assert wheelhouse.main() == 0
    [archive] = controller.kept()
    first, content = wheelhouse.OWN_LOCK, archive.read_bytes()
    monkeypatch.setattr(wheelhouse, "OWN_LOCK", tmp_path / "other.lock")
    assert wheelhouse.main() == 0
    assert archive.read_bytes() == content
    monkeypatch.setattr(wheelhouse, "OWN_LOCK", first)
    assert wheelhouse.main() == 0


def test_what_was_built_in_another_folder_makes_no_kept_archive_a_changed_one(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same code built again is other bytes: for a controller without indexes, say."""
    here, elsewhere = (
        [word.replace(str(controller.keep), str(folder)) for word in sys.argv]
        for folder in (controller.keep, tmp_path / "elsewhere")
    )
    assert wheelhouse.main() == 0
    controller.asks += ("tiny<9",)
    for words in (elsewhere, elsewhere, here):
        monkeypatch.setattr(sys, "argv", words)
        assert wheelhouse.main() == 0
    [first], [second] = controller.kept(), (tmp_path / "elsewhere").glob("*.tar.gz")
    assert first.name == second.name
    assert first.read_bytes() != second.read_bytes()


def test_what_a_controller_without_indexes_is_made_of_is_locked_by_hashes() -> None:
    lock = wheelhouse.HERE / "controller.lock"
    locked = {one.requirement.name: one.requirement for one in wheelhouse.locked(lock, *HERE)}
    [wanted] = [
        Requirement(one)
        for one in PROJECT["project"]["optional-dependencies"]["lab"]
        if Requirement(one).name == "ansible"
    ]
    [exactly] = locked["ansible"].specifier
    assert wanted.specifier.contains(exactly.version)


HERE = (wheelhouse.this_python(), os.uname().machine)


@pytest.mark.parametrize(
    ("host", "glibc", "lacks", "can"),
    [
        (HERE, "2.36", "", True),
        (HERE, "2.40", "", True),
        (HERE, "2.4", "", False),  # older, though it reads larger
        (HERE, "", "", False),  # another C library
        (("3.99", HERE[1]), "2.36", "", False),
        ((HERE[0], "z80"), "2.36", "", False),
        (HERE, "2.36", "compiler", False),
        (HERE, "2.36", "headers", False),
    ],
)
def test_a_controller_compiles_for_hosts_on_which_that_runs(
    host: tuple[str, str], glibc: str, lacks: str, can: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cc", "Python.h"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nowhere" if lacks == "compiler" else str(tmp_path))
    include = "/nowhere" if lacks == "headers" else str(tmp_path)
    monkeypatch.setattr(wheelhouse.sysconfig, "get_path", lambda _name: include)
    monkeypatch.setattr(wheelhouse.platform, "libc_ver", lambda: ("glibc", "2.36"))
    assert wheelhouse.can_compile(*host, glibc) is can


def test_hosts_for_which_it_compiles_get_wheels_of_their_own(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their version is another one: by it a host knows what it has."""
    assert wheelhouse.main() == 0
    monkeypatch.setattr(wheelhouse, "can_compile", lambda *_host: True)
    assert wheelhouse.main() == 0
    assert len(controller.kept()) == 2


def test_nothing_is_built_in_a_folder_that_others_may_write_to(controller: Controller) -> None:
    controller.keep.mkdir()
    controller.keep.chmod(0o777)
    with pytest.raises(SystemExit, match="Nothing was built"):
        wheelhouse.main()
    assert list(controller.keep.iterdir()) == []


def test_a_lock_that_lacks_something_gives_no_archive(controller: Controller) -> None:
    controller.asks = ("tiny>=1", "other>=2")
    with pytest.raises(SystemExit, match="lacks other>=2"):
        wheelhouse.main()
    assert controller.kept() == []


# On the host


class Host:
    """pip on an app host, with the words of the role itself, and an index within reach."""

    def __init__(self, index: Path, tmp_path: Path) -> None:
        self.wheels = tmp_path / "wheels"
        self.wheels.mkdir()
        self.index = index
        self._tmp_path = tmp_path
        tasks = yaml.safe_load((ROLE / "tasks" / "version.yml").read_text())
        block = next(task["block"] for task in tasks if "block" in task)
        install = next(task for task in block if task["name"] == "Install the wheels")
        argv = install["ansible.builtin.command"]["argv"]
        self._words = [re.sub(r"/opt/lockd/[^}]*}}/wheels", str(self.wheels), word) for word in argv[1:]]

    def install(self, target: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pip", *self._words, f"--target={self._tmp_path / target}"]
        # What the words say has to do: nothing in the environment keeps it from an index.
        environment = {name: value for name, value in os.environ.items() if name != "PIP_NO_INDEX"}
        environment["PIP_INDEX_URL"] = environment["PIP_EXTRA_INDEX_URL"] = self.index.as_uri()
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment
        )

    def has(self, target: str, package: str) -> bool:
        return (self._tmp_path / target / package).exists()

    def refuses_tiny(self, why: str) -> None:
        refused = self.install("bad")
        assert refused.returncode != 0
        assert why in refused.stderr
        assert not self.has("bad", "tiny")


@pytest.fixture
def host(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.delenv("PIP_FIND_LINKS")
    return Host(index, tmp_path)


def test_a_host_installs_only_what_the_list_names_and_by_its_hash(host: Host) -> None:
    make_wheel(host.wheels, "tiny", "1.0")
    wheelhouse.write_requirements(host.wheels)
    assert host.install("good").returncode == 0
    assert host.has("good", "tiny")
    make_wheel(host.wheels, "tiny", "1.0", code="evil = True")
    host.refuses_tiny("DO NOT MATCH THE HASHES")
    (host.wheels / "requirements.txt").write_text("tiny==1.0\n")
    host.refuses_tiny("Hashes are required")


def test_a_host_asks_no_index(host: Host) -> None:
    elsewhere = host.index / "tiny"
    elsewhere.mkdir()
    wheel = make_wheel(elsewhere, "tiny", "1.0")
    (elsewhere / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    (host.wheels / "requirements.txt").write_text(f"tiny==1.0 --hash=sha256:{digest(wheel)}\n")
    host.refuses_tiny("No matching distribution")


def test_the_version_changes_with_each_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprints() -> set[str]:
        return {wheelhouse.fingerprint(REPOSITORY, "3.11", "x86_64", compiled) for compiled in (False, True)}

    before = fingerprints()
    for name, changed in {"LOCK": 2, "BUILD_LOCK": 1, "COMPILED_LOCK": 1}.items():
        other = tmp_path / name
        other.write_text(json.dumps(name))
        monkeypatch.setattr(wheelhouse, name, other)
        now = fingerprints()
        assert len(now - before) == changed, name
        before |= now
    assert len(before) == 6
