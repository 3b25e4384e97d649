"""An agent without a garbage collector, for the tests of what is left of what is over. Run as an agent,
behind the name of a file: SIGUSR2 has it collect once, and write there what was found, by type.

What a collection finds was kept alive by a cycle and nothing else. In ordinary use none may come about: the
agent collects old objects rarely, since its loop stands still meanwhile.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from lockd.cli import main


def _tells(found: Path) -> None:
    def collect(*_: object) -> None:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
        gc.garbage.clear()
        gc.set_debug(0)
        gc.collect()
        part = found.with_suffix(".part")
        part.write_text(json.dumps(kinds))
        os.rename(part, found)

    signal.signal(signal.SIGUSR2, collect)


if __name__ == "__main__":
    _tells(Path(sys.argv.pop(1)))
    gc.disable()
    gc.set_threshold(0)
    vars(gc)["set_threshold"] = vars(gc)["freeze"] = lambda *_: None
    main()
