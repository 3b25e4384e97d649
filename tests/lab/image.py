"""The root file system that all hosts of the lab share: a small Debian, and in it a package repository.

The hosts have no way out, and Ansible is to install for real: so everything that the roles install lies in
/srv/repo of the image, and it is the only source that apt knows there. Built once, and kept under a name made
of a hash of this file: whoever changes it gets a new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.lab.ground import cache_folder

RELEASES = ("bookworm", "trixie")
RELEASE = RELEASES[0]

# What a fresh server of a hosting company has.
BASE = (
    "systemd", "systemd-sysv", "dbus", "libpam-systemd", "sudo", "python3", "python3-apt", "openssh-server",
    "iproute2", "ca-certificates", "procps", "kmod", "less",
)  # fmt: skip

# What the roles install, with all that it depends on.
REPOSITORY = (
    "redis-server", "redis-tools", "chrony", "nftables", "python3-venv", "prometheus",
    "prometheus-alertmanager", "prometheus-node-exporter", "python3-markdown-it", "acl",
)  # fmt: skip

# Nobody waits for a time server or a mirror here, and two cores carry eight hosts: what runs by itself is
# off.
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
    "fstrim.timer", "systemd-timesyncd.service", "systemd-networkd-wait-online.service",
)  # fmt: skip

# chronyd may not set the clock of a container: -x. The condition would keep it from being started at all.
CHRONY_DROP_IN = """[Unit]
ConditionCapability=
[Service]
ExecStart=
ExecStart=!/usr/sbin/chronyd -x $DAEMON_OPTS
"""

# A later build of Redis for the plays that upgrade it: the same program under a higher version.
NEXT_VERSION_SUFFIX = "+lab1"
NEXT_SCRIPT = f"""
set -e; cd "$1/srv"; mkdir -p repo-next unpacked
for package in redis-server redis-tools; do
  dpkg-deb -R repo/"$package"_*.deb unpacked/"$package"
  sed -i -E 's/^(Version: .*)$/\\1{NEXT_VERSION_SUFFIX}/' unpacked/"$package"/DEBIAN/control
  sed -i -E 's/(redis-tools \\(= [^)]*)\\)/\\1{NEXT_VERSION_SUFFIX})/' \\
    unpacked/"$package"/DEBIAN/control
  dpkg-deb -b unpacked/"$package" repo-next/ >/dev/null
done
rm -r unpacked; cd repo-next; dpkg-scanpackages --multiversion . >Packages 2>/dev/null
"""


def root_folder(release: str = RELEASE) -> Path:
    return cache_folder() / f"root-{release}-{_key()}"


def root(release: str = RELEASE) -> Path:
    """The folder of the root file system, which is built when it isn't there yet (a minute)."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    wanted = root_folder(release)
    with (cache / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.exists():
            _build(wanted, release)
    return wanted


def _key() -> str:
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


def _build(wanted: Path, release: str) -> None:
    """Under another name first: an interrupted build is never taken for a finished one."""
    half = wanted.with_name(f"half-{wanted.name}")
    shutil.rmtree(half, ignore_errors=True)
    print(f"lab: building the root file system {wanted} (once, about a minute)", flush=True)
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(BASE)}"]
    for hook in _hooks():
        command += ["--customize-hook", hook]
    built = subprocess.run(
        [*command, release, str(half)], capture_output=True, text=True, check=False, timeout=900
    )
    if built.returncode != 0:
        raise RuntimeError(f"mmdebstrap failed:\n{built.stderr[-4000:]}")
    _furnish(half)
    half.rename(wanted)


def _hooks() -> list[str]:
    packages = " ".join(REPOSITORY)
    return [
        f'chroot "$1" apt-get -qq -y --no-install-recommends --download-only install {packages} >/dev/null',
        'mkdir -p "$1/srv/repo" && mv "$1"/var/cache/apt/archives/*.deb "$1/srv/repo/"',
        'cd "$1/srv/repo" && dpkg-scanpackages --multiversion . >Packages 2>/dev/null',
        NEXT_SCRIPT,
        'rm -f "$1"/etc/apt/sources.list.d/*',
        'echo "deb [trusted=yes] file:/srv/repo ./" >"$1/etc/apt/sources.list"',
        'chroot "$1" useradd --create-home --shell /bin/bash ops',
    ]


def _furnish(folder: Path) -> None:
    """Files that make it a host of the lab."""
    etc = folder / "etc"
    (etc / "machine-id").write_text("")
    for name in ("etc/hostname", "var/lib/dbus/machine-id"):
        (folder / name).unlink(missing_ok=True)
    # With a name server that can't be reached, each look at one's own name takes seconds.
    (etc / "resolv.conf").unlink(missing_ok=True)
    (etc / "resolv.conf").write_text("")
    # Nothing here has to outlive a power cut of the machine, and nobody is asked anything.
    _write(etc / "dpkg/dpkg.cfg.d/lab", "force-unsafe-io\n")
    (etc / "apt/apt.conf.d/70debconf").unlink(missing_ok=True)
    _write(etc / "sudoers.d/ops", "ops ALL=(ALL) NOPASSWD: ALL\n")
    _write(
        etc / "ssh/sshd_config.d/lab.conf", "UseDNS no\nPermitRootLogin prohibit-password\nMaxSessions 100\n"
    )
    _write(etc / "systemd/system/chrony.service.d/lab.conf", CHRONY_DROP_IN)
    for unit in MASKED:
        os.symlink("/dev/null", etc / "systemd/system" / unit)
    # A host that has been up for an hour knows what it could install: so does `--check` on a fresh one.
    subprocess.run(["chroot", str(folder), "apt-get", "-qq", "update"], check=True, timeout=120)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
