"""Tokens: 128 bits from the operating system's generator, each given once (rule 4)."""

import os

_BYTES = 16
_DRAWN = 256


class TokenSource:
    """Draws a few hundred tokens at a time: asking the kernel for each costs more than all else that a grant
    needs."""

    def __init__(self) -> None:
        self._drawn: list[bytes] = []

    def draw(self) -> bytes:
        """A token that was never given before, as 32 lower-case hex digits."""
        if not self._drawn:
            bits = os.urandom(_BYTES * _DRAWN).hex().encode()
            self._drawn = [bits[at : at + 2 * _BYTES] for at in range(0, len(bits), 2 * _BYTES)]
        return self._drawn.pop()
