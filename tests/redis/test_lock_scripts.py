"""What a recognised script does on a real master is what its operation says: that recognition is right.

Scripts of libraries and articles, with a key in each state; and mutants of them that are still recognised, as
whatever: they must do what they are taken for now. LOCKD_EXAMPLES=5000 looks at that many mutants of mutants.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from docs.made.scripts import library_scripts
from lockd.core.scripts.operations import Recognised
from lockd.core.scripts.recognition import recognise
from tests.harness.lock_scripts import OTHERS, RELEASES, SINCE_REDIS_7, mutants
from tests.harness.masters import running_masters, short_folder
from tests.harness.script_trials import Trial

SCRIPTS = {
    name: script
    for name, script in {
        **library_scripts(),
        **{name: text.encode() for name, text in {**RELEASES, **OTHERS, **SINCE_REDIS_7}.items()},
    }.items()
    if isinstance(recognise(script), Recognised)
}


DISTINCT = {recognise(script): name for name, script in reversed(SCRIPTS.items())}.values()
"""One of each meaning."""


@contextmanager
def trial_on(server: Path) -> Iterator[Trial]:
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        [master] = stack.enter_context(running_masters(folder, 1, server))
        yield stack.enter_context(closing(Trial(redis.Redis("127.0.0.1", master.port))))


@pytest.fixture(scope="module")
def trial(any_server: Path) -> Iterator[Trial]:
    """On each flavour of server in turn."""
    with trial_on(any_server) as trial:
        yield trial


@pytest.fixture(scope="module")
def one_trial(server_binary: Path) -> Iterator[Trial]:
    """On the usual one."""
    with trial_on(server_binary) as trial:
        yield trial


def wrong(trial: Trial, script: bytes) -> list[str]:
    taken = recognise(script)
    return [] if not isinstance(taken, Recognised) else list(trial.differences(script, taken))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_what_its_operation_says(trial: Trial, name: str) -> None:
    if name in SINCE_REDIS_7 and trial.version < (7,):
        pytest.skip("this server has no such option")
    assert wrong(trial, SCRIPTS[name]) == []


@pytest.mark.parametrize("name", DISTINCT)
def test_a_mutant_does_what_it_is_taken_for_if_it_is_recognised(one_trial: Trial, name: str) -> None:
    for mutant in mutants(SCRIPTS[name]):
        assert wrong(one_trial, mutant) == [], mutant.decode()


@settings(
    max_examples=int(os.environ.get("LOCKD_EXAMPLES", "200")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_so_does_a_mutant_of_a_mutant(one_trial: Trial, data: st.DataObject) -> None:
    script = SCRIPTS[data.draw(st.sampled_from(sorted(SCRIPTS)))]
    for _ in range(2):
        script = data.draw(st.sampled_from(list(mutants(script))))
    assert wrong(one_trial, script) == [], script.decode()
