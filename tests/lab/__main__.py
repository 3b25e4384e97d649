"""The lab for developers: `sudo .venv-lab/bin/python -m tests.lab up`, look around, `down`.

What it does:

    image           make what hosts begin with, unless it is there
    up              eight fresh hosts, and the inventory for them; what was there before is removed
    down            remove them
    status          which hosts run
    shell HOST      a root shell on one of them
    play PLAYBOOK…  ansible-playbook on them, with the lab's inventory
    scale N…        how long plays take with so many app hosts, in a lab of its own
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.lab import ground, image, inventory, scale
from tests.lab.host import enter
from tests.lab.lab import ADDRESSES, Busy, Lab

DEFAULT_NAME = "lockdlab-dev"
PROGRAM = "sudo .venv-lab/bin/python -m tests.lab"
"""As `make lab` has it, in the repository's folder."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", default=DEFAULT_NAME, help="which lab (%(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("image", "up", "down", "status"):
        commands.add_parser(name)
    commands.add_parser("shell").add_argument("host", choices=sorted(ADDRESSES))
    commands.add_parser("play").add_argument("words", nargs=argparse.REMAINDER)
    scaling = commands.add_parser("scale")
    scaling.add_argument("sizes", nargs="+", type=int, metavar="N")
    scaling.add_argument("--mitogen", action="store_true", help="plays with Mitogen")
    chosen = parser.parse_args()
    lab = Lab(chosen.name)
    try:
        return int(globals()[f"_{chosen.command}"](lab, chosen) or 0)
    except (ground.Unfit, Busy) as why:
        print(f"lab: {why}", file=sys.stderr)
        return 1


def _image(lab: Lab, chosen: argparse.Namespace) -> None:
    ground.require()
    image.root()


def _up(lab: Lab, chosen: argparse.Namespace) -> None:
    with lab.locked():
        lab.up()
        inventory.write(lab)
    name = "" if lab.name == DEFAULT_NAME else f"--name {lab.name} "
    print(f"eight hosts are up: {PROGRAM} {name}play site.yml")


def _down(lab: Lab, chosen: argparse.Namespace) -> None:
    ground.require()
    with lab.locked():
        lab.down()


def _status(lab: Lab, chosen: argparse.Namespace) -> int:
    for name, host in lab.hosts.items():
        print(f"{name:6} {host.address:12} {'running' if host.running else '-'}")
    return 0 if all(host.running for host in lab.hosts.values()) else 1


def _shell(lab: Lab, chosen: argparse.Namespace) -> int:
    leader = lab.host(chosen.host).leader()
    if leader is None:
        print(f"{chosen.host} is not running", file=sys.stderr)
        return 1
    command = [*enter(leader), "bash", "-l"]
    os.execvp(command[0], command)


def _play(lab: Lab, chosen: argparse.Namespace) -> None:
    command = inventory.playbook_command(lab, chosen.words)
    os.chdir(inventory.ANSIBLE)
    os.execvpe(command[0], command, dict(inventory.environment(lab)))


def _scale(lab: Lab, chosen: argparse.Namespace) -> None:
    large = Lab(f"{lab.name}-scale", more=max(chosen.sizes) + 1)
    with large.locked(), ground.many_hosts(len(large.addresses)):
        try:
            large.up()
            scale.measure(large, chosen.sizes, mitogen=chosen.mitogen)
        finally:
            large.down()


if __name__ == "__main__":
    sys.exit(main())
