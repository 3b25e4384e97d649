"""Throws inputs at the parser of requests until the time is up, and stops at the first that breaks a promise.

    python -m tests.fuzz.fuzz_resp --seconds 30 [--seed N] [--replay HEX]

The promises: nothing but ProtocolError is ever raised; what is held stays within the limit; the fast way and
the exact way agree, step by step and in every word of an error; and what an input says in one piece, it says
in any pieces. With atheris (`pip install atheris`) the inputs are guided by coverage, else they are random
mutations of valid streams. A finding is printed as hex for --replay; it belongs into tests/unit/test_resp.py.
"""

import argparse
import importlib.util
import random
import sys
import tempfile
import time
from contextlib import nullcontext

from tests.harness.wire import request

HAS_ATHERIS = importlib.util.find_spec("atheris") is not None
if HAS_ATHERIS:
    import atheris

with atheris.instrument_imports(include=["lockd.server.resp.requests"]) if HAS_ATHERIS else nullcontext():
    from lockd.server.resp import requests

LIMITS = (32, 100, 1000, 4096, 65_536)
WINDOWS = (1, 7, 64, 4096)

Step = list[bytes] | str | None
"""What one call of `next` gives: a request, the message of an error, or None for more bytes."""


class BrokenPromiseError(AssertionError):
    pass


def check(data: bytes) -> None:
    """Run one input: four bytes choose how, the rest is what a client sends."""
    head, stream = data[:4].ljust(4, b"\0"), data[4:]
    limit, window_bytes = LIMITS[head[0] % len(LIMITS)], WINDOWS[head[1] % len(WINDOWS)]
    pieces = cut(stream, head[2])
    taken_a_piece = (sys.maxsize, 0, 1, 2)[
        head[3] % 4
    ]  # a request that waits for its lock keeps the others waiting
    in_pieces = compare(pieces, limit, window_bytes, taken_a_piece)
    at_once = compare([stream], limit, window_bytes, sys.maxsize)
    if without_message(in_pieces) != without_message(at_once):
        raise BrokenPromiseError(f"in pieces {in_pieces!r}, at once {at_once!r}")


def cut(stream: bytes, choice: int) -> list[bytes]:
    if choice & 128:  # byte by byte, for as long as it is worth its time
        return [*(stream[at : at + 1] for at in range(min(len(stream), 300))), stream[300:]]
    if choice & 64:
        return stream.splitlines(keepends=True)  # a word by itself may read like a request
    random_cuts = random.Random(choice)
    cuts = sorted(random_cuts.randrange(len(stream) + 1) for _ in range(choice % 64))
    return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def compare(pieces: list[bytes], limit: int, window_bytes: int, taken_a_piece: int) -> list[Step]:
    """Feed both parsers alike. What they gave, which was the same."""
    fast, exact = requests.RequestParser(limit), requests.ExactParser(limit)
    fast._window_bytes = min(window_bytes, fast._window_bytes)
    steps: list[Step] = []
    for piece in pieces:
        fast.feed(piece)
        exact.feed(piece)
        steps += drain(fast, exact, limit, taken_a_piece)
    return steps + drain(fast, exact, limit, sys.maxsize)


def drain(fast: requests.RequestParser, exact: requests.ExactParser, limit: int, calls: int) -> list[Step]:
    steps: list[Step] = []
    for _ in range(calls):
        step, expected = take(fast), take(exact)
        if step != expected:
            raise BrokenPromiseError(f"the fast way gave {step!r}, the exact way {expected!r}")
        if fast.pending_bytes != exact.pending_bytes:
            raise BrokenPromiseError(f"pending: {fast.pending_bytes} and {exact.pending_bytes}")
        if isinstance(step, list) and (not step or len(step) > requests.MAX_WORDS or size(step) > limit):
            raise BrokenPromiseError(f"a request that should not be: {step!r}")
        if not isinstance(step, list):
            check_held(fast, limit)
            check_held(exact, limit)
            return [*steps, step] if step else steps
        steps.append(step)
    return steps


def check_held(parser: requests.ExactParser, limit: int) -> None:
    """Nothing is left to take, so what is held is a request that is not complete."""
    if parser.pending_bytes > limit + requests.MAX_HEADER_BYTES:
        raise BrokenPromiseError(f"{parser.pending_bytes} bytes pending, {limit} are allowed")
    held_bytes = len(parser._buffer) + len(parser._tail) + sum(map(len, parser._words))
    if held_bytes > parser.pending_bytes:
        raise BrokenPromiseError(f"{held_bytes} bytes held for {parser.pending_bytes} pending")


def take(parser: requests.ExactParser) -> Step:
    try:
        return parser.next()
    except requests.ProtocolError as error:
        return error.message


def size(words: list[bytes]) -> int:
    return len(request(*words))


def without_message(steps: list[Step]) -> list[Step]:
    """How often an error is repeated, and its guess at what the client speaks, do depend on the pieces."""
    requests = [step for step in steps if isinstance(step, list)]
    errors = [step for step in steps if isinstance(step, str)]
    return [*requests, errors[0].partition(" (")[0] if errors else None]


TOKENS = (
    *(
        b"*",
        b"$",
        b"\r\n",
        b"\r",
        b"\n",
        b"-",
        b"+",
        b" ",
        b"0",
        b"1",
        b"9",
        b"\0",
        b"\xff",
        b"GET / HTTP/1.1",
    ),
    *(b"*0\r\n", b"*-1\r\n", b"*1\r\n", b"*128\r\n", b"*129\r\n", b"*99999999999999999999\r\n"),
    *(
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$1\r\n",
        b"$01\r\n",
        b"$536870912\r\n",
        b"$1\r\n\r\n\r\n",
        b"*1\r\n$1\r\na\r\n",
    ),
)

DISGUISED = (b"*1", b"$1", b"*1\r\n$1\r\na", b"*1\r\n$1\r\na\r\n", b"x\r\n*1\r\n$1\r\na\r\n")
"""Words that become requests if ever the parser looks at them from the wrong place."""


def random_input(source: random.Random) -> bytes:
    several = (random_words(source) for _ in range(source.choice((0, 1, 2, 3, 20))))
    stream = bytearray(b"".join(request(*words) for words in several))
    for _ in range(source.choice((0, 0, 1, 2, 5))):
        mutate(stream, source)
    return source.randbytes(4) + bytes(stream)


def random_words(source: random.Random) -> list[bytes]:
    return [random_word(source) for _ in range(source.choice((1, 2, 3, 5) * 10 + (70,)))]


def random_word(source: random.Random) -> bytes:
    kind = source.randrange(5)
    if kind == 0:
        return b"".join(source.choices(TOKENS, k=source.randrange(4)))
    if kind == 1:
        return source.choice(DISGUISED)
    if kind == 2:
        return source.randbytes(source.choice((0, 1, 5, 20) * 10 + (1023, 1024, 5000)))
    return source.choice((b"LOCK", b"orders", b"30000", b"WAIT", b""))


def mutate(stream: bytearray, source: random.Random) -> None:
    at = source.randrange(len(stream) + 1)
    end = min(len(stream), at + source.randrange(1, 20))
    kind = source.randrange(5)
    if kind == 0:
        stream[at:at] = source.choice(TOKENS)
    elif kind == 1:
        del stream[at:end]
    elif kind == 2:
        stream[at:end] = source.choice(TOKENS)
    elif kind == 3:
        stream[at:at] = stream[at:end] * source.choice((1, 2) * 10 + (300,))
    elif at < len(stream):
        stream[at] = source.randrange(256)


def run_random(seconds: float, seed: int) -> None:
    source = random.Random(seed)
    started = time.monotonic()
    count = 0
    while time.monotonic() < started + seconds:
        run_one(random_input(source))
        count += 1
    print(f"{count} random inputs in {seconds:g} s, seed {seed}: no promise broken")


def run_one(data: bytes) -> None:
    try:
        check(data)
    except BaseException:
        print(f"broken by: python -m tests.fuzz.fuzz_resp --replay {data.hex()}", file=sys.stderr)
        raise


def run_guided(seconds: float, seed: int) -> None:
    """Hands over to libFuzzer, which ends the process: with status 0 if nothing was found."""
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(200):
            with open(f"{folder}/{number}", "wb") as file:
                file.write(random_input(source))
        options = [
            f"-max_total_time={seconds:.0f}",
            f"-seed={seed % 2**32 or 1}",
            f"-artifact_prefix={folder}/",
        ]
        atheris.Setup([sys.argv[0], folder, *options, "-print_final_stats=1", "-max_len=2000"], run_one)
        atheris.Fuzz()


def main() -> None:
    arguments = argparse.ArgumentParser(
        prog="python -m tests.fuzz.fuzz_resp", description=__doc__.splitlines()[0]
    )
    arguments.add_argument("--seconds", type=float, default=30)
    arguments.add_argument("--seed", type=int, default=None, help="repeats a run (default: a new one)")
    arguments.add_argument("--replay", type=bytes.fromhex, metavar="HEX", help="run this input alone")
    arguments.add_argument(
        "--unguided", action="store_true", help="random mutations even with atheris installed"
    )
    options = arguments.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    if options.replay is not None:
        check(options.replay)
    elif HAS_ATHERIS and not options.unguided:
        run_guided(options.seconds, seed)
    else:
        run_random(options.seconds, seed)


if __name__ == "__main__":
    main()
