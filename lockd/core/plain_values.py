"""Values that apps chose for their locks with Redis's own commands (SET key value NX): drop-in locks.

The masters hold such a value as the token of a lease, after a byte with which no other token begins, neither
one that an agent made nor one that an app gave to LOCK (rule 4). So readers of a key are shown values, as in
Redis, and never the token of a LOCK, with which they could release it.

Any agent may be asked to release such a lease by its value. So the masters show it as long as it is held, and
each one begins with a try: a lease that was handed on under another's tenure is not shown by the masters.

Any agent can also find the lease by its value, and extend it if it has a TTL, as soon as a quorum shows it.
That may be while its own agent is still trying for it, and the app may have given up the connection on which
it asked. So such a try is not broken off when its connection ends: an app that was told that it has the lock
may rely on that (rule 2). If it has a TTL, it then stays until the TTL is over, as on one Redis. While its
own agent is still trying for it or giving it back, that agent says that it is not held.
"""

_MARK = b"\0"


def token_of(value: bytes) -> bytes:
    """The token of a lease with that value."""
    return _MARK + value


def is_plain(token: bytes) -> bool:
    """It is the token of a value."""
    return token[:1] == _MARK


def value_of(token: bytes) -> bytes | None:
    """The value; None if it is the token of a LOCK."""
    return token[1:] if is_plain(token) else None
