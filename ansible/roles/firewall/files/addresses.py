"""The addresses of names, as this host finds them, in one line of JSON: {"name": ["address", ...]}. A name
that it can't find has none. Python on the host reads this from its standard input; standard library only.

    addresses.py NAME...
"""

import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

# A name that no longer exists may take seconds, so names are looked up in parallel.
AT_ONCE = 32


def addresses_of(name):
    """As `getent ahosts` does it: from /etc/hosts and from DNS, of the kinds that this host has itself."""
    try:
        found = socket.getaddrinfo(name.encode(), None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except OSError:
        return []
    return sorted({address[0] for *_, address in found})


def main():
    names = sys.argv[1:]
    with ThreadPoolExecutor(AT_ONCE) as side_by_side:
        print(json.dumps(dict(zip(names, side_by_side.map(addresses_of, names), strict=True))))


if __name__ == "__main__":
    main()
