"""The failures of the commands of `lockctl`."""

from __future__ import annotations

import errno
import os

from lockd.core.errors import ErrorWord


class Unreachable(Exception):
    """The agent can't be reached, or doesn't answer; the text says which."""


class Refused(Exception):
    """The agent refused `command`. `code` is the first word of its error, such as TAKEN; `text` is the
    rest."""

    def __init__(self, code: str, text: str, command: str) -> None:
        super().__init__(f"{code} {text}".strip())
        self.code = code
        self.text = text
        self.command = command

    @classmethod
    def by(cls, error: str, command: str) -> Refused:
        """From the text of the agent's error. redis-py takes a leading ERR away."""
        code, _, text = error.partition(" ")
        is_code = code.isascii() and code.isalpha() and code.isupper()
        return cls(code, text, command) if is_code else cls(ErrorWord.ERR, error, command)


class Lost(Exception):
    """The lease was lost; the text says why. Everything that was started under it has been ended.
    told_to_end: a signal had also told it to end."""

    told_to_end = False


class NotStarted(Lost):
    """The lease was over, or nearly, when it was granted: nothing was started under it."""


class CannotExecute(Exception):
    """The command can't be started. `missing`: there is no such program. `id` is the group that it would have
    had."""

    def __init__(self, program: str, number: int, group: int) -> None:
        super().__init__(f"can't execute {program}: {os.strerror(number)}")
        self.missing = number == errno.ENOENT
        self.id = group
