"""What the kernel knows of the other end of a Unix stream socket: whether it is open, what it has read, and
what it had sent.

Observed on Linux with uvloop, and so relied upon here and in session.py:

* SIOCOUTQ counts what was written and not read yet; a write that was read in part counts whole. But a peer
  that closes takes its queue with it, so an empty queue means only together with the next two points that
  everything was read.
* A peer that closes with something unread leaves an error at our end. POLLERR shows the error without taking
  it away. Our next read gets it (ECONNRESET, after what the peer itself had sent before), and then it is
  gone. If everything was read, there is no error, and our next read gets a clean end.
* POLLHUP shows that nobody has the peer's end open any more, or that it was shut down both ways, as redis-py
  does before it closes: what is unread then stays unread.
* A write to such a peer gives EPIPE, and none of it is read. Then uvloop stops reading, though what the peer
  had sent before it closed is there.
* A peer that has only shut down its writing looks to readers like one that has closed (a clean end), but
  shows no POLLHUP, and may still read.
"""

import fcntl
import os
import select
import struct
import termios

from lockd.core.owners import Delivery

_NUMBER = struct.Struct("=i")
_NOTHING_ELSE = 0
_SENT_MOST_BYTES = 1 << 18
"""More than the kernel keeps of one connection (net.core.wmem_max, as Linux has it)."""


def is_open(file: int) -> bool:
    """Some process has the other end open."""
    return not _state(file) & select.POLLHUP


def left_at_once(file: int) -> bool:
    """Its app has closed, and had not sent anything."""
    return not is_open(file) and not _number_of(file, termios.FIONREAD)


def delivery_to(file: int) -> Delivery:
    """What happened to everything that was written to it and taken by the kernel."""
    before = _state(file)
    if before & select.POLLERR:
        return Delivery.CUT
    if _number_of(file, termios.TIOCOUTQ):
        return Delivery.CUT if before & select.POLLHUP else Delivery.UNREAD
    # The queue was empty: it was read, or dropped since the first look.
    return Delivery.CUT if _state(file) & select.POLLERR else Delivery.READ


def unread_from(file: int) -> bytes:
    """What the other end had sent, and was not read here. After a write that fails, the connection ends
    before that is read."""
    try:
        return os.read(file, _SENT_MOST_BYTES)
    except OSError:
        return b""


def _state(file: int) -> int:
    poll = select.poll()
    poll.register(file, _NOTHING_ELSE)
    return dict(poll.poll(0)).get(file, 0)


def _number_of(file: int, asked: int) -> int:
    number: int = _NUMBER.unpack(fcntl.ioctl(file, asked, bytes(_NUMBER.size)))[0]
    return number
