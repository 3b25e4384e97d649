"""Tokens: 128 bits from the operating system's generator, each given once (rule 4)."""

import os

_BYTES = 16


def fresh_token() -> bytes:
    """A token that was never given before, as 32 lower-case hex digits.

    Asked for when it is needed, which costs less than a microsecond: of a machine that is cloned while it
    runs, both would give out what one had drawn ahead.
    """
    return os.urandom(_BYTES).hex().encode()
