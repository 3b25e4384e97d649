"""The fuzzers that need an agent, for a short time each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import fuzz_commands, fuzz_master
from tests.harness.cluster import running_cluster


def test_five_seconds_of_random_commands_break_no_promise(server_binary: Path) -> None:
    with running_cluster(3, max_ttl_ms=2_000) as small:
        fuzz_commands.fuzz(small.socket, 5.0, seed=1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_fuzzer_finds_nothing_in_a_short_time(seed: int) -> None:
    fuzz_master.fuzz(5.0, seed)
