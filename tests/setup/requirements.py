"""requirements.py [EXTRA]: what lockd needs by pyproject.toml, with that extra, and what it is built with."""

import re
import sys
import tomllib
from pathlib import Path

said = tomllib.loads(Path("pyproject.toml").read_text())


def of_extra(extra: str) -> list[str]:
    """An extra may name another one: lockd[compiled]."""
    found = []
    for line in said["project"]["optional-dependencies"][extra]:
        other = re.fullmatch(r"lockd\[(\w+)\]", line)
        found += of_extra(other[1]) if other else [line]
    return found


lines = said["build-system"]["requires"] + said["project"]["dependencies"]
print(*lines, *(of_extra(sys.argv[1]) if sys.argv[1] else []), sep="\n")
