"""Values that apps chose for their locks as Redis's own commands have it (SET key value NX): drop-in locks.

The masters hold such a value as the token of a lease, behind a byte that no token has which an agent made or
an app has given to LOCK (rule 4). So who reads what is stored is shown values, as in Redis, and never the
token of a LOCK, with which he could release it.

Any agent may be asked to release such a lease by its value, so the masters show it as long as it is held, and
it is begun by a try of its own: what is handed on under another's tenure they don't show.

By the value it may also be found through any agent, and extended where it has a TTL, as soon as a quorum
shows it: also while its own agent still tries for it, and by an app that has given up the connection on which
it asked. So such a try is not broken off when its connection ends: who was told that it is his may rely on
that (rule 2). One with a TTL stands until that is over then, as on one Redis. Its own agent says of what it
still tries for, and of what it gives back, that it is not held.
"""

_MARK = b"\0"


def token_of(value: bytes) -> bytes:
    """What a lease with that value is named by."""
    return _MARK + value


def is_plain(token: bytes) -> bool:
    """A value is behind it."""
    return token[:1] == _MARK


def value_of(token: bytes) -> bytes | None:
    """The value; None where it is the token of a LOCK."""
    return token[1:] if is_plain(token) else None
