"""What one needs to see to help with a master or an agent, as text. Run by support_bundle.yml on each host;
standard library only.

Nothing secret: no password file, key or ACL is read, and what looks like a secret in what is shown is
blotted out.
"""

import re
import subprocess
import sys

COMMON = (
    "date --utc --rfc-3339=seconds",
    "uname -a",
    "cat /etc/os-release",
    "uptime",
    "free -m",
    "df -h",
    "chronyc -h 127.0.0.1,::1 tracking",
    "chronyc -h 127.0.0.1,::1 sources",
    "ss --summary",
    "systemctl --failed --no-pager",
)
MASTER = (
    "systemctl status --no-pager --full lockd-master lockd-guard-watch lockd-master-firewall",
    "lockd-guard status",
    "cat /etc/lockd/guard.conf",
    "cat /etc/lockd-master/master.conf",
    "cat /etc/lockd-master/firewall.nft",
    "ls -la --full-time /var/lib/lockd-master /var/lib/lockd-master/appendonlydir /var/lib/lockd-guard",
    "redis-server --version",
    "journalctl --no-pager --lines=500 --output=short-iso-precise -u lockd-master -u lockd-guard-watch",
)
AGENT = (
    "systemctl status --no-pager --full lockd",
    "ls -la /opt/lockd /run/lockd",
    "cat /etc/lockd/lockd.yml",
    "lockctl masters",
    "lockctl doctor",
    "journalctl --no-pager --lines=500 --output=short-iso-precise -u lockd -u chrony",
)
SECRET = re.compile(
    r"(?im)^(\s*[\w.-]*(?:password|secret|requirepass|masterauth|token)[\w.-]*\s*[:= ]\s*)(?!_?file)\S.*$"
)


def shown(command):
    try:
        done = subprocess.run(
            command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False
        )
        said = done.stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        said = f"{error}\n"
    return f"=== {command}\n{without_secrets(said)}\n"


def without_secrets(text):
    """A path to a password is none; a value is."""
    return SECRET.sub(
        lambda found: found.group(0) if "_file" in found.group(1) else found.group(1) + "(not shown)", text
    )


if __name__ == "__main__":
    for line in (*COMMON, *(MASTER if sys.argv[1] == "master" else AGENT)):
        print(shown(line))
