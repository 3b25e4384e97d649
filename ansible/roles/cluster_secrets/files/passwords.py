#!/usr/bin/env python3
"""Passwords as files NAME.password in a folder, on the controller: for hundreds of hosts in one go.

make FOLDER NAME…      create missing passwords; --next: NAME.password.next; --dry-run: only say which
keep FOLDER NAME…      replace NAME.password with NAME.password.next

Prints the names of those that it changed, never the passwords. Existing files are left alone, encrypted or
not. On its standard input it takes vault ids and passwords as JSON, as `secret_files.py` has them.
"""

import argparse
import json
import secrets
import string
import sys
from pathlib import Path

from secret_files import SecretFiles

LENGTH = 40
LETTERS = string.ascii_letters + string.digits


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("--next", action="store_true")
    making.add_argument("--dry-run", action="store_true")
    for command in (making, commands.add_parser("keep")):
        command.add_argument("folder", type=Path)
        command.add_argument("names", nargs="*")
    chosen = parser.parse_args()
    files = SecretFiles(json.load(sys.stdin))
    for name in chosen.names:
        path = chosen.folder / f"{name}.password"
        if keep(path) if chosen.command == "keep" else make(path, chosen, files):
            print(name)


def make(path, chosen, files):
    target = following(path) if chosen.next else path
    if target.exists():
        return False
    if not chosen.dry_run:
        files.write(target, made_up().encode() + b"\n")
    return True


def made_up():
    return "".join(secrets.choice(LETTERS) for _ in range(LENGTH))


def keep(path):
    if not following(path).exists():
        return False
    following(path).rename(path)
    return True


def following(path):
    return path.with_name(f"{path.name}.next")


if __name__ == "__main__":
    main()
