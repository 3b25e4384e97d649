"""INFO: its section on who locks with Redis's own commands, as `lockctl doctor` reads it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from redis._parsers.helpers import parse_info

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.core.turns import Turns
from lockd.lockctl.doctor import AgentAnswer, Severity, check_dropin
from lockd.server.commands import info as info_module
from lockd.server.commands.info import Info
from lockd.server.dropin.script_cache import ScriptCache, digest_of
from lockd.server.dropin.usage import Usage
from lockd.server.peer import Peer
from lockd.server.turns import LoopTurns
from tests.harness.clocks import S
from tests.harness.configs import a_config
from tests.harness.real_fleet import a_fleet
from tests.harness.sessions import Incidents

PEER = Peer(7, 1000, frozenset())
ANOTHER = Peer(8, 1001, frozenset())
OPERATOR = Peer(1, 0, frozenset())
COUNTS = b"return redis.call('incr', KEYS[1])"


class Agent:
    def __init__(self) -> None:
        self.logged: list[tuple[str, dict[str, Any]]] = []
        log: Any = SimpleNamespace(warning=lambda event, **fields: self.logged.append((event, fields)))
        incidents = Incidents()
        turns = LoopTurns(Turns(), incidents.failures.append)
        around: Any = SimpleNamespace(log=log, incidents=incidents, turns=turns)
        self.usage, self.scripts = Usage(), ScriptCache(around)
        current, fleet = Current(a_config()), a_fleet()
        nothing = SimpleNamespace(held=0, waiting=0, draining=False)
        shared: Any = SimpleNamespace(
            locks=nothing,
            turns=turns,
            quotas=SimpleNamespace(all=SimpleNamespace(connections=1, buffered_bytes=0)),
            permissions=SimpleNamespace(is_admin=lambda peer: peer.uid == 0),
        )
        metrics: Any = SimpleNamespace(
            canary=SimpleNamespace(trouble=SimpleNamespace(failures=0, code="")),
            reload=SimpleNamespace(status="", restart_needed=()),
            agent=SimpleNamespace(journal_trouble=lambda: ""),
            leases=SimpleNamespace(totals=dict),
        )
        readings: Any = None
        self.info = Info(current, shared, fleet, metrics, readings, self.usage, self.scripts)

    def reads(self, text: bytes, library: bytes = b"", peer: Peer = PEER) -> None:
        """As soon as it may."""

        async def read() -> None:
            loop = asyncio.get_running_loop()
            told: asyncio.Future[Any] = loop.create_future()
            self.scripts.read(text, f"uid {peer.uid}", peer, library, told.set_result)
            await told

        asyncio.run(read())

    def section(self, peer: Peer = PEER) -> dict[str, Any]:
        """As redis-py reads it."""
        return dict(parse_info(self.info._text({"dropin"}, peer)))


@pytest.fixture
def agent() -> Agent:
    return Agent()


def test_libraries_are_counted_by_the_name_that_they_gave(agent: Agent) -> None:
    for library in (b"redis-py", b"redis-py", b"", b"a:b=c,d e"):
        agent.usage.asked(library)
    assert agent.section() == {
        "library_redis-py": {"requests": 2},
        "library_unnamed": {"requests": 1},
        "library_a_b_c_d_e": {"requests": 1},
    }


def test_new_names_without_end_count_as_unnamed(agent: Agent) -> None:
    for number in range(1_000):
        agent.usage.asked(b"library-%d" % number)
    assert len(agent.section()) == 101
    assert agent.section()["library_unnamed"] == {"requests": 900}


def test_a_script_that_was_refused_is_told_by_its_digest_once(agent: Agent) -> None:
    agent.reads(COUNTS, b"jedis")
    agent.scripts.known(COUNTS, PEER, b"jedis")
    agent.reads(COUNTS, b"jedis")
    [(name, refused)] = agent.section().items()
    assert name == f"refused_script_{digest_of(COUNTS).decode()}"
    assert refused.pop("seconds_ago") < 60
    assert refused["why"].startswith("INCR is not a command of any known operation; there are no counters")
    assert (refused["library"], refused["count"]) == ("jedis", 3)
    [(event, fields)] = agent.logged
    assert event == "script_not_recognised"
    assert fields["normal_form"] == 'return redis.call("INCR", KEYS[1])'


def test_only_the_last_that_were_refused_are_told(agent: Agent) -> None:
    for number in range(40):
        agent.reads(b"%b -- %d" % (COUNTS, number), peer=Peer(7, number, frozenset()))
    assert len(agent.section(OPERATOR)) == 16


def test_one_that_comes_again_is_one_of_the_last_again(agent: Agent) -> None:
    texts = [b"%b -- %d" % (COUNTS, number) for number in range(17)]
    for number, text in enumerate(texts):
        agent.reads(text, peer=Peer(7, number, frozenset()))
        agent.scripts.known(texts[0], OPERATOR, b"")
    assert f"refused_script_{digest_of(texts[0]).decode()}" in agent.section(OPERATOR)
    assert f"refused_script_{digest_of(texts[1]).decode()}" not in agent.section(OPERATOR)


def minutes_later(minutes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    later_ns = boottime_ns() + minutes * 60 * S
    monkeypatch.setattr(info_module, "boottime_ns", lambda: later_ns)


@pytest.mark.parametrize(("minutes", "severity"), [(59, Severity.WARNING), (61, Severity.OK)])
def test_the_doctor_warns_of_what_was_refused_within_the_hour(
    agent: Agent, minutes: int, severity: Severity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be mended by now, and then nobody should be warned until the agent restarts."""
    agent.usage.asked(b"redis-py")
    agent.reads(COUNTS)
    agent.reads(COUNTS)
    minutes_later(minutes, monkeypatch)
    refused, used = check_dropin(AgentAnswer(1, agent.section()), [])
    assert (refused.severity, bool(refused.then)) == (severity, severity is Severity.WARNING)
    assert " of unnamed is not recognised: INCR is not a command of any known operation" in refused.what
    assert refused.what.endswith(f"(2 times, last {minutes} minutes ago)")
    assert "used by redis-py: 0 leases" in used.what


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (b"this is none", "line 1: 'is' is not read: expected '='"),
        (b"a, b", "line 1: 'the end' is not read: expected '='"),
        (b"a,b,", "line 1: 'the end' is not read: expected a name"),
        (b"return 100% \xe4", "line 1: "),
        (b"return redis.call('a%2C_b', KEYS[1])", "A%2C_B is not a command of any known operation"),
    ],
)
def test_the_doctor_says_why_as_the_agent_does(agent: Agent, script: bytes, why: str) -> None:
    agent.reads(script)
    [one] = agent.scripts.refused.values()
    assert one.why.startswith(why)
    assert len(agent.section()) == 1
    refused, *_ = check_dropin(AgentAnswer(1, agent.section()), [])
    assert f"is not recognised: {one.why} (1 times" in refused.what


def test_reasons_are_readable_in_info_itself(agent: Agent) -> None:
    agent.reads(b"this is none")
    assert ",why=line 1: 'is' is not read: expected '%3D'," in agent.info._text({"dropin"}, PEER)


def test_a_script_that_was_refused_is_shown_to_its_user_and_to_operators_alone(agent: Agent) -> None:
    agent.reads(COUNTS, b"jedis")
    assert agent.section().keys() == agent.section(OPERATOR).keys() != set()
    assert agent.section(ANOTHER) == {}
    agent.reads(COUNTS, peer=ANOTHER)
    assert agent.section(ANOTHER).keys() == agent.section().keys()
