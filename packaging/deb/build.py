"""The agent as a Debian package, for hosts without Ansible: python packaging/deb/build.py FOLDER

Its wheels are those that `site.yml` installs, from the same locked list, and its unit is the role's. It is
for the Debian and the machine that it is built on: the environment in /opt/lockd is that Python's.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from email.utils import formatdate
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
ANSIBLE = REPOSITORY / "ansible"
ROLE = ANSIBLE / "roles/lockd"
BIN = Path(sys.executable).parent
REVISION = 1
# Where it is on hosts; `site.yml` has a link of that name.
INSTALLED = Path("/opt/lockd/current")
COMMANDS = ("lockd", "lockctl")
CONFFILES = ("/etc/lockd/lockd.yml",)
USERS = 'u lockd - "lockd agent" /nonexistent\ng lockd-apps -\nm lockd lockd-apps\n'
COPYRIGHT = """\
Files: *
Copyright: the founders of lockd
License: Apache-2.0
 The text of the licence is in /usr/share/common-licenses/Apache-2.0.
"""


def main() -> int:
    target = Path(sys.argv[1]).resolve()
    target.mkdir(parents=True, exist_ok=True)
    version = project_version()
    # To pip, what lies there would count as installed in the package's environment.
    os.environ.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        install_wheels(root, Path(folder))
        write_unit(root)
        write_files(root, version)
        write_manual(root, version)
        write_control(root, version)
        package = target / f"lockd_{version}-{REVISION}_{architecture()}.deb"
        run("dpkg-deb", "--root-owner-group", "--build", "-Zxz", root, package)
    print(package)
    return 0


def project_version() -> str:
    found = re.search(r'^version = "(.+)"$', (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def run(*command: object, **options: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, **options).stdout  # type: ignore[call-overload,no-any-return]


def architecture() -> str:
    return run("dpkg", "--print-architecture").strip()


def python() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def install_wheels(root: Path, work: Path) -> None:
    """A virtual environment as `site.yml` makes it, with the names that it will have on its host."""
    keep = work / "kept"
    said = run(
        sys.executable, ROLE / "files/wheelhouse.py", "--source", REPOSITORY, "--keep", keep,
        "--python", python(), "--machine", platform.machine(), "--glibc", platform.libc_ver()[1],
    )  # fmt: skip
    wheels = work / "wheels"
    made = json.loads(said)
    with tarfile.open(made["archive"]) as archive:
        archive.extractall(wheels)  # made here, just now: `filter` is younger than Debian 12
    home = root / INSTALLED.relative_to("/")
    # The distribution's own: it is what the host has.
    run(f"/usr/bin/python{python()}", "-m", "venv", "--without-pip", home / "venv")
    run(
        sys.executable, "-m", "pip", "--python", home / "venv/bin/python", "install", "--quiet",
        "--no-compile", "--disable-pip-version-check", "--no-index", "--find-links", wheels,
        "--require-hashes", "--requirement", wheels / "requirements.txt",
    )  # fmt: skip
    for path in (home / "venv/bin").iterdir():
        if path.is_symlink():
            continue
        if path.name in COMMANDS:
            path.write_text(path.read_text().replace(str(root), ""))
        else:  # activate scripts, and commands of libraries
            path.unlink()
    config = home / "venv/pyvenv.cfg"
    config.write_text(config.read_text().replace(str(root), ""))
    (home / ".complete").write_text(f"{made['version']}\n")


def write_unit(root: Path) -> None:
    """The role's, for the package's paths."""
    folder = root / "usr/lib/systemd/system"
    folder.mkdir(parents=True)
    words = ("-i", "localhost,", HERE / "unit.yml", "-e", f"role_of_agent={ROLE}", "-e", f"to={folder}")
    environment = {
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "HOME": str(root.parent),
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
    }
    run(BIN / "ansible-playbook", *words, env=environment)


def write_files(root: Path, version: str) -> None:
    for name, content in {
        "usr/lib/sysusers.d/lockd.conf": USERS,
        "usr/lib/tmpfiles.d/lockd.conf": "d /run/lockd 0755 lockd lockd -\n",
        "usr/lib/sysctl.d/60-lockd.conf": "net.core.somaxconn = 65535\n",
        "usr/share/doc/lockd/copyright": COPYRIGHT,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for source, name in {
        REPOSITORY / "lockd.example.yml": "etc/lockd/lockd.yml",
        REPOSITORY / "README.md": "usr/share/doc/lockd/README.md",
        HERE / "README.Debian": "usr/share/doc/lockd/README.Debian",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, root / name)
    (root / "etc/lockd/lockd.yml").chmod(0o640)
    (root / "usr/bin").mkdir(parents=True)
    for command in COMMANDS:
        (root / "usr/bin" / command).symlink_to(INSTALLED / "venv/bin" / command)
    changes = (
        f"lockd ({version}-{REVISION}) unstable; urgency=medium\n\n  * See the README.\n\n"
        f" -- The founders of lockd <root@localhost>  {formatdate()}\n"
    )
    pack(root / "usr/share/doc/lockd/changelog.Debian.gz", changes)


def pack(path: Path, text: str) -> None:
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(text.encode())


def write_manual(root: Path, version: str) -> None:
    """From what `--help` says."""
    with tempfile.TemporaryDirectory() as folder:
        run(root / INSTALLED.relative_to("/") / "venv/bin/python", HERE / "manual.py", folder, version)
        pages = root / "usr/share/man/man1"
        pages.mkdir(parents=True)
        for page in sorted(Path(folder).iterdir()):
            pack(pages / f"{page.name}.gz", page.read_text())


def write_control(root: Path, version: str) -> None:
    control = root / "DEBIAN"
    control.mkdir()
    major, minor = sys.version_info[:2]
    needs = [f"python3 (>= {major}.{minor})", f"python3 (<< {major}.{minor + 1})"]
    needs += [f"libc6 (>= {platform.libc_ver()[1]})", "systemd", "util-linux"]
    size_kib = int(run("du", "--summarize", "--block-size=1K", root).split()[0])
    (control / "control").write_text(
        f"""Package: lockd
Version: {version}-{REVISION}
Architecture: {architecture()}
Maintainer: The founders of lockd <root@localhost>
Installed-Size: {size_kib}
Depends: {", ".join(needs)}
Suggests: redis-tools
Section: net
Priority: optional
Description: distributed locks for the apps on this host
 An agent that runs Redlock against five independent Redis masters, and gives
 apps locks with fencing tokens over a local Unix socket, in Redis's protocol.
 The masters, their guards and the monitoring are set up by Ansible.
"""
    )
    (control / "conffiles").write_text("".join(f"{path}\n" for path in CONFFILES))
    for name in ("preinst", "postinst", "prerm", "postrm"):
        shutil.copyfile(HERE / name, control / name)
        (control / name).chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
