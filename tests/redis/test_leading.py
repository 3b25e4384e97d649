"""`client.lead` of both clients and `lockctl lead`, with a real agent that is hurt."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lockd import LockdError, aio
from lockd.client.state import HeldLease
from tests.harness.clients import KINDS, LONG_S, AnyClient, PatientAsyncClient, free, take_all_away, take_away
from tests.harness.cluster import AS_IS, Cluster
from tests.harness.lockctl import LOCKCTL, lockctl
from tests.harness.waiting import PATIENCE_S, eventually
from tests.redis.module_cluster import module_cluster

CLASSES = [
    {"name": "short", "match": "short", **AS_IS, "max_hold_ms": 1_500},
    {"name": "no_waits", "match": "no-waits", **AS_IS, "max_wait_ms": 0},
]
cluster = module_cluster(3, classes=CLASSES, defaults=AS_IS)


@pytest.fixture(autouse=True)
def _agent_is_well_afterwards(cluster: Cluster) -> Iterator[None]:
    yield
    if cluster.agent.running:
        cluster.agent.resume()
    else:
        cluster.agent.start()
        cluster.wait_voting(3)
    take_all_away(cluster)


@pytest.fixture(params=["threads", "asyncio"])
def new_client(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Callable[[], AnyClient]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(KINDS[request.param](cluster.socket))


@pytest.fixture
def client(new_client: Callable[[], AnyClient]) -> AnyClient:
    return new_client()


class Office:
    """What became of one who stood: its terms, and how they ended."""

    def __init__(self) -> None:
        self.terms: list[int] = []
        self.ends: list[str] = []

    def elected(self, lease: HeldLease) -> None:
        self.terms.append(lease.fence)

    def deposed(self, lease: HeldLease, reason: str) -> None:
        self.ends.append(reason)

    def stands(self, client: AnyClient, resource: str, **options: Any) -> Any:
        return client.lead(resource, self.elected, self.deposed, **options)

    def leads(self, terms: int = 1) -> None:
        eventually(lambda: len(self.terms) == terms, f"term {terms} has begun")

    def is_out(self, ends: int = 1) -> str:
        eventually(lambda: len(self.ends) == ends, f"{ends} terms have ended")
        return self.ends[-1]


@pytest.fixture
def one() -> Office:
    return Office()


@pytest.fixture
def other() -> Office:
    return Office()


def close(leadership: Any) -> None:
    leadership.__exit__(None, None, None)


def test_who_stands_leads_until_it_is_closed_and_then_the_next_with_a_larger_term(
    new_client: Callable[[], AnyClient], one: Office, other: Office
) -> None:
    first = one.stands(new_client(), "next")
    one.leads()
    eventually(lambda: first.leading, what="it leads")
    assert first.term == one.terms[0]
    second = other.stands(new_client(), "next")
    assert not second.leading
    assert second.term is None
    close(first)
    assert one.ends == ["it was given up here"]
    other.leads()
    assert other.terms[0] > one.terms[0]
    assert (first.leading, first.term) == (False, None)
    close(second)


def test_a_leader_without_callbacks_for_its_end_is_one_too(client: AnyClient) -> None:
    elected = threading.Event()
    with client.lead("plain", lambda _lease: elected.set()) as leadership:
        assert elected.wait(PATIENCE_S)
        eventually(lambda: leadership.leading, what="it leads")
        assert not free(client, "plain")
    assert free(client, "plain")


def test_a_leader_that_loses_its_lease_is_deposed_before_it_stands_again(
    cluster: Cluster, client: AnyClient, one: Office
) -> None:
    with one.stands(client, "forced"):
        one.leads()
        take_away(cluster, "forced")
        assert "by force" in one.is_out()
        one.leads(2)
        assert one.terms[1] > one.terms[0]
    assert free(client, "forced")


def test_it_leads_on_over_the_end_of_its_agent(cluster: Cluster, client: AnyClient, one: Office) -> None:
    with one.stands(client, "restarted") as leadership:
        one.leads()
        cluster.agent.restart()
        cluster.wait_voting(3)
        eventually(lambda: leadership.leading, "it leads")
        assert (len(one.terms), one.ends) == (1, [])


def test_without_an_agent_it_is_deposed_and_stands_again_when_there_is_one(
    cluster: Cluster, client: AnyClient, one: Office
) -> None:
    with one.stands(client, "killed", ttl=2) as leadership:
        eventually(lambda: leadership.leading, "it leads")
        cluster.agent.kill()
        eventually(lambda: not leadership.leading and len(one.ends) == len(one.terms), "it is deposed")
        terms = len(one.terms)
        cluster.agent.start()
        cluster.wait_voting(3)
        eventually(lambda: len(one.terms) > terms, "it leads again")


def test_a_term_ends_at_max_hold_in_good_order(client: AnyClient, one: Office) -> None:
    with one.stands(client, "short", ttl=1):
        eventually(lambda: any("max_hold" in end for end in one.ends), "a term has ended by that")
        eventually(lambda: len(one.terms) > 1, "it leads again")
        assert one.terms[1] > one.terms[0]


def test_who_only_waits_is_withdrawn_when_it_is_closed(
    new_client: Callable[[], AnyClient], cluster: Cluster, one: Office, other: Office
) -> None:
    first = one.stands(new_client(), "waiting")
    one.leads()
    second = other.stands(new_client(), "waiting", wait=LONG_S)
    operator = cluster.client()
    eventually(lambda: operator.info()["waiters"] == 1, what="it waits")
    close(second)
    assert operator.info()["waiters"] == 0
    close(first)
    assert (other.terms, other.ends) == ([], [])


def test_closed_at_once_it_leaves_nothing(client: AnyClient, one: Office) -> None:
    for _ in range(10):
        close(one.stands(client, "at-once"))
    eventually(lambda: free(client, "at-once"), what="it is free")
    assert len(one.terms) == len(one.ends)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_refusal_for_good_ends_it_and_is_raised(client: AnyClient, one: Office) -> None:
    leadership = one.stands(client, "no-waits", wait=5)
    with pytest.raises(LockdError, match="WAIT must be"):
        leadership.wait()
    assert one.terms == []
    with one.stands(client, "no-waits", wait=0):
        one.leads()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_elected_raises_ends_it_when_it_was_deposed_and_the_resource_is_free(
    client: AnyClient, one: Office
) -> None:
    def fails(lease: HeldLease) -> None:
        one.elected(lease)
        raise ZeroDivisionError("a mistake of the app's")

    leadership = client.lead("fails", fails, one.deposed)
    with pytest.raises(ZeroDivisionError):
        leadership.wait()
    assert (len(one.terms), one.ends) == (1, ["it was given up here"])
    assert free(client, "fails")


def fails_when_deposed(lease: HeldLease, reason: str) -> None:
    raise ZeroDivisionError("a mistake of the app's")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_deposed_raises_when_the_term_is_lost_ends_it(
    cluster: Cluster, client: AnyClient, one: Office
) -> None:
    leadership = client.lead("deposed-fails", one.elected, fails_when_deposed)
    one.leads()
    take_away(cluster, "deposed-fails")
    with pytest.raises(ZeroDivisionError):
        leadership.wait()
    assert len(one.terms) == 1
    assert free(client, "deposed-fails")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_deposed_raises_when_it_is_closed_leaves_nothing_held(client: AnyClient, one: Office) -> None:
    leadership = client.lead("close-fails", one.elected, fails_when_deposed)
    one.leads()
    with pytest.raises(ZeroDivisionError):
        close(leadership)
    assert free(client, "close-fails")


@pytest.mark.parametrize("options", [{"ttl": -1}, {"wait": float("nan")}])
def test_what_makes_no_sense_is_said_at_once(
    client: AnyClient, one: Office, options: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match="seconds"):
        one.stands(client, "x", **options)


def test_elected_may_run_for_the_whole_term_in_a_thread(cluster: Cluster) -> None:
    terms: list[threading.Event] = []
    ran_still: list[bool] = []

    def elected(_lease: HeldLease) -> None:
        over = threading.Event()
        terms.append(over)
        over.wait(PATIENCE_S)

    def deposed(_lease: HeldLease, _reason: str) -> None:
        ran_still.append(not terms[-1].is_set())
        terms[-1].set()

    with KINDS["threads"](cluster.socket) as client, client.lead("whole-term", elected, deposed):
        eventually(lambda: len(terms) == 1, what="it leads")
        take_away(cluster, "whole-term")
        eventually(lambda: len(terms) == 2, "it stands again")
        assert ran_still == [True]
        terms[-1].set()  # closing waits until `elected` returns by itself


async def test_a_coroutine_of_elected_is_cancelled_when_it_is_deposed(cluster: Cluster) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def elected(_lease: aio.Lease) -> None:
        await heard.put("elected")
        try:
            await asyncio.Future()
        finally:
            await heard.put("cancelled")

    async def deposed(_lease: aio.Lease, reason: str) -> None:
        await heard.put("deposed")

    async with PatientAsyncClient(cluster.socket) as client, client.lead("coroutine", elected, deposed):
        assert await asyncio.wait_for(heard.get(), PATIENCE_S) == "elected"
        await asyncio.to_thread(take_away, cluster, "coroutine")
        assert {await asyncio.wait_for(heard.get(), PATIENCE_S) for _ in range(2)} == {"cancelled", "deposed"}
        assert await asyncio.wait_for(heard.get(), PATIENCE_S) == "elected"


@pytest.mark.parametrize("lost_first", [False, True], ids=["closed twice", "lost, then closed"])
async def test_closing_lets_a_coroutine_of_deposed_end_that_has_begun(
    cluster: Cluster, lost_first: bool
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    tidied = asyncio.Event()

    async def deposed(_lease: aio.Lease, _reason: str) -> None:
        await heard.put("deposed")
        await tidied.wait()
        await heard.put("tidied up")

    async with PatientAsyncClient(cluster.socket) as client, PatientAsyncClient(cluster.socket) as other:
        leadership = client.lead("tidies", lambda _lease: heard.put("elected"), deposed)
        assert await asyncio.wait_for(heard.get(), PATIENCE_S) == "elected"
        if lost_first:
            await asyncio.to_thread(take_away, cluster, "tidies")
        else:
            first = asyncio.create_task(leadership.aclose())
        assert await asyncio.wait_for(heard.get(), PATIENCE_S) == "deposed"
        closing = asyncio.create_task(leadership.aclose())
        await other.ping()
        assert not closing.done()
        assert lost_first or await other.holder("tidies") is not None
        tidied.set()
        await asyncio.wait_for(closing, PATIENCE_S)
        assert heard.get_nowait() == "tidied up"
        assert heard.empty()
        if not lost_first:
            await first


# lockctl lead

WRONG = 65


@pytest.fixture
def start(cluster: Cluster) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`lockctl lead` with these words in the background, gone after the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str | Path) -> subprocess.Popen[str]:
        command = [LOCKCTL, "lead", *map(str, words)]
        env = os.environ | {"LOCKD_SOCKET": str(cluster.socket)}
        started.append(
            subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
        )
        return started[-1]

    yield begin
    for one in started:
        if one.poll() is None:
            one.kill()
        one.wait(PATIENCE_S)
        assert one.stderr is not None
        one.stderr.close()


def terms_in(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def leads(file: Path, terms: int) -> list[int]:
    eventually(lambda: len(terms_in(file)) == terms, f"{terms} terms have begun")
    return terms_in(file)


def notes_terms(file: Path) -> tuple[str, ...]:
    return ("--", "sh", "-c", f"echo $LOCKD_FENCE >> {file}; exec sleep 600")


def test_lockctl_runs_the_command_of_one_at_a_time_and_that_of_the_next_when_it_ends(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    file = tmp_path / "terms"
    first = start("job", *notes_terms(file))
    leads(file, 1)
    second = start("job", *notes_terms(file))
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE_S) == 128 + signal.SIGTERM
    before, after = leads(file, 2)
    assert after > before
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_lockctl_that_loses_its_lease_ends_the_command_and_stands_again(
    cluster: Cluster, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    file = tmp_path / "terms"
    running = start("lost-job", *notes_terms(file))
    leads(file, 1)
    take_away(cluster, "lost-job")
    before, after = leads(file, 2)
    assert after > before
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert running.stderr is not None
    assert "waiting to become leader again" in running.stderr.read()


def test_lockctl_leads_on_over_a_restart_and_waits_where_there_is_no_agent(
    cluster: Cluster, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    file, late = tmp_path / "terms", tmp_path / "late"
    start("--ttl", "60s", "agents-job", *notes_terms(file))
    leads(file, 1)
    cluster.agent.terminate()
    eventually(lambda: not cluster.agent.running, "it has ended")
    waiting = start("--wait", "1s", "late-job", *notes_terms(late))
    assert waiting.stderr is not None
    assert "no leader here yet" in waiting.stderr.readline()
    cluster.agent.start()
    cluster.wait_voting(3)
    leads(late, 1)
    assert len(terms_in(file)) == 1


def test_lockctl_lead_ends_as_its_command_does_and_for_what_is_refused_for_good(cluster: Cluster) -> None:
    def status(*words: str) -> int:
        return lockctl(cluster, "lead", *words).returncode

    assert status("ends", "--", "sh", "-c", "exit 7") == 7
    assert status("ends", "--", "/no/such") == 127
    assert status("no-waits", "--", "true") == WRONG
    assert status("--wait", "0", "no-waits", "--", "true") == 0
    assert status("ends") == 64


def test_lockctl_that_waits_ends_by_a_signal(
    cluster: Cluster, start: Callable[..., subprocess.Popen[str]]
) -> None:
    operator = cluster.client()
    operator.execute_command("LOCK", "held", 60_000, "DETACHED")
    waiting = start("held", "--", "true")
    eventually(lambda: operator.info()["waiters"] == 1, what="it waits")
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(PATIENCE_S) == -signal.SIGTERM
    eventually(lambda: operator.info()["waiters"] == 0, what="it waits no more")
