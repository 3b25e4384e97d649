"""Tokens: 128 bits from the operating system's generator, each given once (rule 4)."""

import os

_BYTES = 16


def fresh_token() -> bytes:
    """A token that was never given before, as 32 lower-case hex digits.

    It is drawn when it is needed, which costs less than a microsecond. If a machine is cloned while it runs,
    tokens that were drawn ahead would be given out by both.
    """
    return os.urandom(_BYTES).hex().encode()
