"""A locale in which every byte is a letter, as ISO-8859-1 is on old hosts. It is made here: few machines
have one."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

_LETTERS = "".join(f"<U{byte:04X}> /x{byte:02x} byte\n" for byte in range(256))
_CHARMAP = f"""\
<code_set_name> ISO-8859-1
<comment_char> %
<escape_char> /
<mb_cur_min> 1
<mb_cur_max> 1
CHARMAP
{_LETTERS}END CHARMAP
"""
_SOURCE = """\
comment_char %
escape_char /
LC_CTYPE
END LC_CTYPE
"""


def make_latin_1(folder: Path) -> Mapping[str, str]:
    """The environment of a process that runs in it."""
    charmap, source, name = folder / "charmap", folder / "source", "xx_XX.ISO-8859-1"
    charmap.write_text(_CHARMAP)
    source.write_text(_SOURCE)
    # Its status is 1: the categories besides LC_CTYPE are missing.
    subprocess.run(
        ["localedef", "-c", "-i", source, "-f", charmap, folder / name], check=False, capture_output=True
    )
    return {"LOCPATH": str(folder), "LC_ALL": "", "LANG": "C", "LC_CTYPE": name}
