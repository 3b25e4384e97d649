"""Secrets that the controller has lost, from what its hosts have of them (recover_secrets.yml).

Takes what the hosts have as JSON on its standard input. Existing files stay as they are. Prints the names of
the files that it wrote, never the secrets.

    {"folder": "...", "vault": [], "places": {"/etc/lockd-master/tls/master.pem": "tls/HOST.*"},
     "masters": ["m1"], "hosts": {"m1": {"/etc/lockd-master/tls/master.pem": "BASE64"}}}

`vault`: what secrets are encrypted with, as `secret_files.py` has it; `places`: files on hosts, and the files
here. What ends with `*` has a certificate, a key, or both.

An app host may be lost to somebody without anybody knowing. So nothing of a master is taken from it. What all
masters share, as the authority that everybody will believe, is what most of them have.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from secret_files import SecretFiles, write_whole

OF_MASTERS = "/etc/lockd-master/"
BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


def files_of(host: str, has: Mapping[str, str], places: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Names in the folder, and what is to be in them."""
    for place, encoded in has.items():
        content, name = b64decode(encoded), places[place].replace("HOST", host)
        if not name.endswith(".*"):
            yield name, content
            continue
        for block in BLOCK.finditer(content):
            end = "key" if block[1].endswith(b"PRIVATE KEY") else "pem"
            yield f"{name[:-1]}{end}", block[0].rstrip() + b"\n"


def without_masters_files(has: Mapping[str, str]) -> dict[str, str]:
    return {place: encoded for place, encoded in has.items() if not place.startswith(OF_MASTERS)}


def chosen(given: Mapping[str, Any]) -> dict[str, bytes]:
    """All that the hosts have, by its name in the folder. What several have is what most of them have. Raises
    Differ."""
    found: dict[str, list[bytes]] = {}
    for host, has in given["hosts"].items():
        trusted = has if host in given["masters"] else without_masters_files(has)
        of_host: dict[str, bytes] = {}
        for name, content in files_of(host, trusted, given["places"]):
            of_host.setdefault(name, content)
        for name, content in of_host.items():
            found.setdefault(name, []).append(content)
    return {name: most_have(name, contents) for name, contents in found.items()}


def most_have(name: str, contents: list[bytes]) -> bytes:
    content, count = Counter(contents).most_common(1)[0]
    if 2 * count <= len(contents):
        raise Differ(f"the masters differ in {name}: put the right one there by hand. Nothing was changed")
    return content


class Differ(Exception):
    """Nobody can tell which of them is right."""


def main() -> int:
    given = json.load(sys.stdin)
    folder, secrets = Path(given["folder"]), SecretFiles(given["vault"])
    try:
        files = chosen(given)
    except Differ as why:
        print(why, file=sys.stderr)
        return 1
    for name, content in files.items():
        path = folder / name
        if path.exists():
            continue
        (write_whole if path.suffix == ".pem" else secrets.write)(path, content)
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
