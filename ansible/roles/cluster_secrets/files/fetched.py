"""Secrets that the controller has lost, from what its hosts have of them (recover_secrets.yml).

Takes what the hosts have as JSON on its standard input. Existing files stay as they are. Prints the names of
the files that it wrote, never the secrets.

    {"folder": "...", "vault": [], "places": {"/etc/lockd-master/tls/master.pem": "tls/HOST.*"},
     "hosts": {"m1": {"/etc/lockd-master/tls/master.pem": "BASE64"}}}

`vault`: what secrets are encrypted with, as `secret_files.py` has it; `places`: files on hosts, and the files
here. What ends with `*` has a certificate, a key, or both.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path

from secret_files import SecretFiles, write_whole

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


def main() -> int:
    given = json.load(sys.stdin)
    folder, secrets = Path(given["folder"]), SecretFiles(given["vault"])
    for host, has in given["hosts"].items():
        for name, content in files_of(host, has, given["places"]):
            path = folder / name
            if path.exists():
                continue
            (write_whole if path.suffix == ".pem" else secrets.write)(path, content)
            print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
