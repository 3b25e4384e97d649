"""Why a script is not recognised."""

from __future__ import annotations


class NotRecognisedError(Exception):
    """It does, or may do, what no operation on a lock does; the text says what."""


class NotLuaError(NotRecognisedError):
    """It is not Lua, or none that is read here."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
