"""Throws bursts, answers and pauses in any order at the flow of a connection (core/flow.py), without sockets.

    python -m tests.fuzz.fuzz_flow --seconds 30 [--seed N]

The promises, looked at after every step: a connection on which nothing is under way and nothing is pending
is read from; none is ever stuck; what is kept is bounded; replies come in order and once, and in the end each
has come. It is the machine of tests/unit/test_flow.py, with longer runs and new ones each time; what it finds
is shown as the steps that lead there.
"""

import argparse
import sys

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fuzz.command_line import GoesOn, for_seconds, run
from tests.harness.any_connection import AnyConnection

EXAMPLES_AT_A_TIME = 50


def fuzz(goes_on: GoesOn, first_seed: int) -> str:
    """Run so many rounds. What was done, in a line; AssertionError when a promise is broken."""
    rounds = 0
    of_a_round = settings(
        max_examples=EXAMPLES_AT_A_TIME,
        stateful_step_count=200,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    while goes_on(rounds):
        machine = seed(first_seed + rounds)(type("Seeded", (AnyConnection,), {}))
        run_state_machine_as_test(machine, settings=of_a_round)
        rounds += 1
    return f"{rounds * EXAMPLES_AT_A_TIME} connections of 200 steps, seed {first_seed}: no promise broken"


if __name__ == "__main__":
    about = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sys.exit(run(about, lambda options: fuzz(for_seconds(options.seconds), options.seed)))
