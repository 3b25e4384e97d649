import pytest

from tests.harness.fleet_model import App, Host, beside, cluster


@pytest.fixture
def host() -> Host:
    """An agent over five masters, in virtual time."""
    return cluster()


@pytest.fixture
def other(host: Host) -> Host:
    """The agent of another host, over the same masters."""
    return beside(host)


@pytest.fixture
def app(host: Host) -> App:
    """It holds `r` on all masters, for ten seconds."""
    return host.locked()


@pytest.fixture
def detached(host: Host) -> App:
    """It holds `r` for ten seconds without being renewed, and whichever agent is asked may go on with it."""
    return host.locked(detached=True)


@pytest.fixture
def theirs(other: Host) -> App:
    """The same, granted by the agent of the other host."""
    return other.locked(detached=True)
