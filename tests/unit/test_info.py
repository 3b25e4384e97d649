"""INFO: its section on who locks with Redis's own commands, as `lockctl doctor` reads it."""

from types import SimpleNamespace
from typing import Any

import pytest
from redis._parsers.helpers import parse_info

from lockd.config.current import Current
from lockd.lockctl.doctor import AgentAnswer, check_dropin
from lockd.server.commands.arguments import BadRequest
from lockd.server.commands.info import Info
from lockd.server.dropin.script_cache import ScriptCache
from lockd.server.dropin.usage import Usage
from tests.harness.configs import a_config
from tests.harness.real_fleet import a_fleet

PEER: Any = SimpleNamespace(pid=7, uid=1000)
ANOTHER: Any = SimpleNamespace(pid=8, uid=1001)
COUNTS = b"return redis.call('incr', KEYS[1])"


class Agent:
    def __init__(self) -> None:
        self.logged: list[tuple[str, dict[str, Any]]] = []
        log: Any = SimpleNamespace(warning=lambda event, **fields: self.logged.append((event, fields)))
        self.usage, self.scripts = Usage(), ScriptCache(log)
        current, fleet = Current(a_config()), a_fleet()
        nothing = SimpleNamespace(held=0, waiting=0, draining=False)
        shared: Any = SimpleNamespace(
            locks=nothing,
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

    def section(self, peer: Any = PEER) -> dict[str, Any]:
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
    digest, _ = agent.scripts.load(COUNTS, PEER, b"jedis")
    agent.scripts.load(COUNTS, PEER, b"jedis")
    assert agent.section() == {
        f"refused_script_{digest.decode()}": {
            "library": "jedis", "why": "INCR_is_no_command_of_any_operation",
        }
    }  # fmt: skip
    [(event, fields)] = agent.logged
    assert event == "script_not_recognised"
    assert fields["normal_form"] == 'return redis.call("INCR", KEYS[1])'


def test_only_the_last_that_were_refused_are_told(agent: Agent) -> None:
    for number in range(40):
        agent.scripts.load(b"%b -- %d" % (COUNTS, number), PEER, b"")
    assert len(agent.section()) == 16


def test_the_doctor_reads_it(agent: Agent) -> None:
    agent.usage.asked(b"redis-py")
    agent.scripts.load(COUNTS, PEER, b"")
    refused, used = check_dropin(AgentAnswer(1, agent.section()), [])
    assert refused.what.endswith(" of unnamed is not recognised: INCR is no command of any operation")
    assert "used by redis-py: 0 leases" in used.what


def test_a_script_that_was_refused_is_shown_to_its_user_and_to_operators_alone(agent: Agent) -> None:
    agent.scripts.load(COUNTS, PEER, b"jedis")
    assert agent.section() == agent.section(SimpleNamespace(pid=1, uid=0))
    assert agent.section(ANOTHER) == {}


def test_of_each_user_so_many_new_scripts_are_read(agent: Agent) -> None:
    """Those that are known cost nothing, and go on."""
    read: list[bytes] = []

    def load_new_ones() -> None:
        for number in range(1_000):
            digest, _ = agent.scripts.load(b"%b -- %d" % (COUNTS, number), PEER, b"")
            read.append(digest)

    with pytest.raises(BadRequest, match="LIMIT scripts"):
        load_new_ones()
    assert 50 <= len(read) < 60
    agent.scripts.load(b"%b -- 0" % COUNTS, PEER, b"")
    agent.scripts.load(COUNTS, ANOTHER, b"")
