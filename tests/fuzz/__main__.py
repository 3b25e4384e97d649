"""Every fuzzer for some time each, one after the other.

It ends with the first that finds something:

    python -m tests.fuzz --seconds 60
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    for path in sorted(Path(__file__).parent.glob("fuzz_*.py")):
        print(path.relative_to(Path.cwd()), flush=True)
        done = subprocess.run([sys.executable, "-m", f"tests.fuzz.{path.stem}", *sys.argv[1:]], check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
