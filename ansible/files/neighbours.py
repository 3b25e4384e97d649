"""What on this host is somebody else's and would be in the way of lockd: one line for each, none where all is
well. Changes nothing. It is given JSON as its argument:

    {"ports": [["10.0.0.11", 6379, "lockd-master.service", "lockd_redis_master_port"]],
     "units": [["prometheus.service", "lockd_prometheus_enabled"]],
     "masked": ["redis-server.service"]}

ports: where one of our units will listen, and the variable that says so. units: those of packages that lockd
installs and configures, and the variable that has it leave them alone. masked: units that it switches off.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LISTENS = "0A"
UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)


def main() -> None:
    wanted = json.loads(sys.argv[1])
    listeners = list(listening())
    for address, port, unit, variable in wanted["ports"]:
        for strange in strangers(listeners, address, int(port), unit):
            print(f"port {port}, which {unit} needs, is in use by {strange} (another port: {variable})")
    for unit, variable in wanted["units"]:
        if is_there(unit) and is_used(unit) and not is_ours(unit):
            print(
                f"{unit} was not installed by lockd, which would change its configuration (to keep it as it "
                f"is, set {variable}: false; to let lockd run it, stop and disable it first)"
            )
    for unit in wanted["masked"]:
        if is_active(unit):
            print(
                f"{unit} runs, and lockd would mask it (if nobody needs it: "
                f"`sudo systemctl disable --now {unit}`)"
            )


def strangers(listeners: list[tuple[str, int, str]], address: str, port: int, unit: str) -> list[str]:
    """Who listens where this unit will."""
    return sorted(
        {
            whose
            for at, on, whose in listeners
            if on == port and whose != unit and (at == address or is_any(at) or is_any(address))
        }
    )


def is_any(address: str) -> bool:
    return address in ("0.0.0.0", "::", "")


def listening() -> Iterator[tuple[str, int, str]]:
    """Address, port and unit (or program) of each that listens."""
    owners = by_inode()
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            if words[3] == LISTENS:
                address, _, port = words[1].partition(":")
                yield readable(address), int(port, 16), owners.get(words[9], "somebody")


def readable(packed: str) -> str:
    """The kernel's: words of 32 bits in this machine's order."""
    raw = b"".join(struct.pack("=I", int(packed[at : at + 8], 16)) for at in range(0, len(packed), 8))
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def by_inode() -> dict[str, str]:
    found = {}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(link)
        except OSError:  # it has ended, or closed it
            continue
        if target.startswith("socket:["):
            found[target[8:-1]] = unit_of(link.parts[2])
    return found


def unit_of(pid: str) -> str:
    """The service that it belongs to, else its program."""
    try:
        group = Path("/proc", pid, "cgroup").read_text()
        name = Path("/proc", pid, "comm").read_text().strip()
    except OSError:
        return "somebody"
    services = [part for part in re.split(r"[/\n]", group) if part.endswith((".service", ".socket"))]
    return services[-1] if services else f"{name} (pid {pid})"


def is_there(unit: str) -> bool:
    return any(Path(folder, unit).exists() for folder in UNIT_FOLDERS)


def is_ours(unit: str) -> bool:
    """The roles write this before they install the package."""
    return Path("/etc/systemd/system", f"{unit}.d", "lockd.conf").exists()


def is_used(unit: str) -> bool:
    """What an earlier cluster has left installed is switched off."""
    enabled = subprocess.run(["systemctl", "is-enabled", "--quiet", unit], check=False).returncode == 0
    return enabled or is_active(unit)


def is_active(unit: str) -> bool:
    return subprocess.run(["systemctl", "is-active", "--quiet", unit], check=False).returncode == 0


if __name__ == "__main__":
    main()
