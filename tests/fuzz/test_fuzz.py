"""The fuzzers that need an agent, each for so many inputs from a seed: as many on any machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import fuzz_commands, fuzz_master
from tests.fuzz.command_line import up_to
from tests.harness.cluster import running_cluster

REQUESTS, LEASES = 5_000, 300
FURTHER = 20
"""So many times as much, in `make test-all`."""
LONG = [pytest.param(FURTHER, marks=pytest.mark.thorough, id="long")]


@pytest.mark.parametrize("times", [pytest.param(1, id="short"), *LONG])
def test_random_commands_break_no_promise(times: int, server_binary: Path) -> None:
    with running_cluster(3) as small:
        print(fuzz_commands.fuzz(small.socket, up_to(times * REQUESTS), seed=times))


@pytest.mark.parametrize("times", [pytest.param(1, id="short"), *LONG])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_fuzzer_finds_nothing_in_a_short_time(seed: int, times: int) -> None:
    print(fuzz_master.fuzz(up_to(times * LEASES), seed))
