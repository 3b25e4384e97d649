"""What the notes below the table of tried libraries say that a library can't do here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dropin.libraries import LIBRARIES
from tests.dropin.program import Program, Trouble
from tests.dropin.scenes import LONG_MS, SHORT_MS
from tests.dropin.stage import Hosts, agents

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with agents() as running:
        yield running


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Iterator[Program]:
    """Of the library that has this in its title."""
    [library] = [one for one in LIBRARIES if request.param in one.title]
    library.command()  # skips where the library is not there, and nothing is started
    made = library.program(request.getfixturevalue("hosts").sockets[0])
    yield made
    made.kill()


@pytest.mark.parametrize("program", ["redlock-universal"], indirect=True)
def test_using_of_redlock_universal_is_told_that_its_lock_ends(program: Program) -> None:
    assert program.ask("use", "short", ttl_ms=LONG_MS, for_ms=1)
    assert not program.ask("use", "long", ttl_ms=SHORT_MS, for_ms=3 * SHORT_MS)


@pytest.mark.parametrize("program", ["ShedLock"], indirect=True)
def test_shedlock_is_told_that_a_lock_keeps_its_value(program: Program) -> None:
    assert program.acquire("job", LONG_MS, at_least_ms=LONG_MS)
    for verb in ("release", "extend"):
        with pytest.raises(Trouble, match="TAKEN it is held with another value"):
            program.ask(verb, "job", ttl_ms=LONG_MS)
    assert not program.acquire("job", LONG_MS)
