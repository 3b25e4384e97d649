"""A stranger who tries a door without a pause: run on a host of the lab by its own Python, with nothing else.

    knocker.py ADDRESS PORT FILE

Connects in a tight loop until it is killed, and writes into FILE how often it has tried and got in. Each try
is given up after a few thousandths of a second, so that none outlives the moment it is to catch.
"""

import os
import socket
import sys
import time

AT_ONCE = 10
GIVEN_UP_AFTER_S = 0.003


def knock(address: str, port: int) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex((address, port))
    return one


def got_in(one: socket.socket) -> bool:
    """Whether it is connected, for however short a time; it is closed then."""
    with one:
        try:
            one.getpeername()
        except OSError:
            return False
        return True


def main(address: str, port: int, file: str) -> None:
    tried = inside = 0
    while True:
        trying = [knock(address, port) for _ in range(AT_ONCE)]
        time.sleep(GIVEN_UP_AFTER_S)
        inside += sum(map(got_in, trying))
        tried += AT_ONCE
        with open(f"{file}.new", "w") as said:
            said.write(f"{tried} {inside}")
        os.rename(f"{file}.new", file)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
