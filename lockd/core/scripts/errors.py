"""Why a script is not recognised."""

from __future__ import annotations


class NotRecognisedError(Exception):
    """It does, or may do, something that is not part of any operation on a lock; the text says what."""


class NotLuaError(NotRecognisedError):
    """It is not Lua, or not the part of Lua that is read here."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
