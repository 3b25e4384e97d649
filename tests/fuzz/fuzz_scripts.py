"""Throws Lua, near-Lua and noise at what recognises scripts, and stops at the first broken promise.

    python -m tests.fuzz.fuzz_scripts --seconds 30 [--seed N]

The promises: whatever the bytes are, they are recognised or not, and no exception comes out; what is not
recognised has a reason that can be printed; and none takes the processor for longer than MOST_CPU_S, as an
agent does nothing else meanwhile.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable

from docs.made.scripts import library_scripts
from lockd.core.scripts.operations import NotRecognised, Recognised
from lockd.core.scripts.recognition import recognise
from lockd.core.scripts.tokens import MOST_BYTES, tokens_of
from tests.fuzz.command_line import BrokenPromiseError, GoesOn, for_seconds, run
from tests.harness.lock_scripts import NO_OPERATIONS, OTHERS, RELEASES, written

MOST_CPU_S = 2.0
"""Forty times what the longest takes on a quiet machine."""
SEEDS = [
    *library_scripts().values(),
    *(text.encode() for texts in (RELEASES, OTHERS, NO_OPERATIONS) for text in texts.values()),
]
WORDS = sorted({written(token) for script in SEEDS[:70] for token in tokens_of(script)})
PIECES = [
    *(
        b"[[",
        b"]]",
        b"[=[",
        b"--[[",
        b"--",
        b"'",
        b'"',
        b"\\",
        b"(",
        b")",
        b"{",
        b"\0",
        b"\xff",
        b"\r",
        b"..",
    ),
    *(b"9e9", b"not ", b"-", b"if a then ", b"end ", b"for i, key in ipairs(KEYS) do "),
]


def random_script(choose: random.Random) -> bytes:
    makers: list[Callable[[random.Random], bytes]] = [_mutated, _of_words, _noise, _repeated]
    return choose.choice(makers)(choose)


def _mutated(choose: random.Random) -> bytes:
    script = bytearray(choose.choice(SEEDS))
    for _ in range(choose.randint(1, 6)):
        place = choose.randrange(len(script) + 1)
        script[place : place + choose.randint(0, 12)] = choose.choice([*WORDS, *PIECES])
    return bytes(script)


def _of_words(choose: random.Random) -> bytes:
    return b" ".join(choose.choices(WORDS, k=choose.randint(0, 300)))


def _noise(choose: random.Random) -> bytes:
    return choose.randbytes(choose.choice((1, 10, 100, MOST_BYTES, MOST_BYTES + 1)))


def _repeated(choose: random.Random) -> bytes:
    """What is nested or long."""
    piece = choose.choice([*PIECES, *WORDS])
    return choose.choice(SEEDS) + piece * choose.choice((30, 600, MOST_BYTES // len(piece or b" ")))


def check(script: bytes) -> float:
    """What it took of the processor. Raises BrokenPromiseError."""
    began_s = time.process_time()
    try:
        taken = recognise(script)
    except Exception as error:
        raise BrokenPromiseError(f"{error!r} of {script!r}") from error
    took_s = time.process_time() - began_s
    if took_s > MOST_CPU_S:
        raise BrokenPromiseError(f"{took_s:.1f} s for {script!r}")
    if isinstance(taken, NotRecognised) and not taken.why.isprintable():
        raise BrokenPromiseError(f"{taken.why!r} is said of {script!r}")
    return took_s


def fuzz(goes_on: GoesOn, seed: int) -> str:
    """Look at so many scripts. What was done, in a line."""
    choose = random.Random(seed)
    count, recognised, worst_s = 0, 0, 0.0
    while goes_on(count):
        script = random_script(choose)
        worst_s = max(worst_s, check(script))
        count += 1
        recognised += isinstance(recognise(script), Recognised)
    return f"{count} scripts, {recognised} recognised; {worst_s * 1e3:.0f} ms at most"


if __name__ == "__main__":
    about = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sys.exit(run(about, lambda options: fuzz(for_seconds(options.seconds), options.seed)))
