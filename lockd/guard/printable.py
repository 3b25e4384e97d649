"""Names that others have chosen, in a form that no log and no operator's terminal takes for commands."""

from __future__ import annotations

import json
import re


def said(error: OSError) -> str:
    """An error about a file, whose name may be anything, even commands for a terminal."""
    return str(error) if str(error).isascii() and str(error).isprintable() else one_word(str(error))


def one_word(value: object) -> str:
    text = str(value)
    return text if re.fullmatch(r"[A-Za-z0-9_.:/@+-]+", text) else json.dumps(text)
