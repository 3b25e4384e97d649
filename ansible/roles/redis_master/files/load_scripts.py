#!/usr/bin/env python3
"""Load the agents' scripts into the master on this host: at each start and reload of its unit, and by plays.

Agents call scripts by their SHA-1 and must not load any, so that a stolen app host can't run its code on
masters. Prints the SHA-1 of each script that was not loaded yet. Standard library only.
"""

import base64
import hashlib
import os
import socket
import sys

SOCKET = "/run/lockd-master/redis.sock"
PASSWORD_FILE = "/etc/lockd-master/loader.password"
FOLDER = "/usr/local/lib/lockd/scripts"
USER = "lockd_loader"
PATIENCE_S = 30


class Refused(Exception):
    """The master answered with an error."""


def main():
    scripts = scripts_in(FOLDER)
    if not scripts:
        return f"there is no script in {FOLDER}: run site.yml"
    try:
        with socket.socket(socket.AF_UNIX) as master:
            master.settimeout(PATIENCE_S)
            master.connect(SOCKET)
            with master.makefile("rwb") as link:
                load(link, scripts)
    except (OSError, Refused) as error:
        return f"the scripts could not be loaded: {error}"
    return 0


def scripts_in(folder):
    """Of every version that is there: SHA-1 to text."""
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            for word in file.read().split():
                text = base64.b64decode(word, validate=True)
                found[hashlib.sha1(text, usedforsecurity=False).hexdigest()] = text
    return found


def load(link, scripts):
    with open(PASSWORD_FILE, "rb") as file:
        ask(link, "AUTH", USER, file.read().strip())
    there = ask(link, "SCRIPT", "EXISTS", *scripts)
    for digest, known in zip(scripts, there, strict=True):
        if not known:
            ask(link, "SCRIPT", "LOAD", scripts[digest])
            print(digest)


def ask(link, *words):
    encoded = [word if isinstance(word, bytes) else word.encode() for word in words]
    link.write(b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded))
    link.flush()
    return answer(link)


def answer(link):
    line = link.readline().rstrip(b"\r\n")
    kind, rest = line[:1], line[1:]
    if kind == b"*":
        return [answer(link) for _ in range(int(rest))]
    if kind == b"$":
        return link.read(int(rest) + 2)[:-2]
    if kind == b":":
        return int(rest)
    if kind == b"+":
        return rest
    raise Refused(rest.decode(errors="replace") or "it hung up")


if __name__ == "__main__":
    sys.exit(main())
