"""The time server of a lab: answers NTP requests with this machine's clock. Run inside the lab's namespace.

The hosts share the kernel's clock, so they are in sync as it is; but chrony only says so to whoever waits
for it when some server has told it the time.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

_SECONDS_1900_TO_1970 = 2_208_988_800
_SERVER_REPLY_V4 = 0x24
_STRATUM = 2
_PRECISION_LOG2_S = -20


def ntp_time(unix_s: float) -> bytes:
    whole = int(unix_s)
    return struct.pack("!II", whole + _SECONDS_1900_TO_1970, int((unix_s - whole) * 2**32))


def reply(request: bytes, received_s: float, now_s: float) -> bytes:
    """The answer to a client's packet: its own transmit time comes back as the origin."""
    head = struct.pack("!BBbb", _SERVER_REPLY_V4, _STRATUM, 4, _PRECISION_LOG2_S)
    return (
        head + struct.pack("!II4s", 0, 1, b"LAB ") + ntp_time(now_s) + request[40:48]
        + ntp_time(received_s) + ntp_time(now_s)
    )  # fmt: skip


def serve(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 123))
        while True:
            request, client = server.recvfrom(512)
            received_s = time.time()
            if len(request) >= 48:
                server.sendto(reply(request, received_s, time.time()), client)


if __name__ == "__main__":
    serve(sys.argv[1])
