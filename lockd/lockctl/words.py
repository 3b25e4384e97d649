"""What is typed is bytes, and what is printed is text that every terminal shows as it is.

Python reads the command line in the locale's encoding. A cron job runs in another locale than a terminal
does: the same argument would name two resources, and have two holders.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from pathlib import Path
from typing import Any

import click

from lockd.text import ESCAPED

_ONLY_ASCII = "only_ascii"


class Name(click.ParamType):  # type: ignore[type-arg]  # click before 8.2 has no arguments there
    """A name, a pattern or a token: the bytes that the command line or the environment holds."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        return os.fsencode(value)


def command_line() -> list[str]:
    """Its words. UsageError where `os.fsencode` does not give back their bytes: Python and the C library
    read some Chinese and Korean encodings differently."""
    words = sys.argv[1:]
    if not _is_utf8(sys.getfilesystemencoding()) and not _are_words_of_ours(words):
        raise click.UsageError("the command line can't be read in this locale: set LC_ALL=C.UTF-8")
    return words


def _are_words_of_ours(words: list[str]) -> bool:
    given = Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]
    try:
        return list(map(os.fsencode, words)) == given[len(given) - len(words) :]
    except UnicodeEncodeError:
        return False


def escape_what_cannot_be_shown() -> None:
    """On stdout and stderr from here on. Elsewhere than in UTF-8 that is all but ASCII: a letter that was
    converted would be another name when it is typed again."""
    codecs.register(_only_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if _is_utf8(stream.encoding) else _ONLY_ASCII
            stream.reconfigure(encoding=encoding, errors=ESCAPED)


def _only_ascii(name: str) -> codecs.CodecInfo | None:
    """ASCII by a name of our own: click takes the other one for a mistake, and writes UTF-8."""
    if name != _ONLY_ASCII:
        return None
    of = codecs.lookup("ascii")
    return codecs.CodecInfo(
        of.encode, of.decode, of.streamreader, of.streamwriter, of.incrementalencoder, of.incrementaldecoder,
        name=name,
    )  # fmt: skip


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"
