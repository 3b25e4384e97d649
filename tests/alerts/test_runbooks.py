"""Runbooks name only what there is (commands, units, plays, words of the code), and show what it prints.

Who reads them is tired, and types what they say.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from alerts.metrics_page import agent_families, full_name, guard_families
from lockd.core.identities import Identity
from lockd.guard.cli import _parser
from lockd.guard.reasons import Reason
from lockd.lockctl import doctor
from lockd.lockctl import view as lockctl_views
from lockd.lockctl.main import main
from tests.harness.prometheus import ALERTS, ALL_ALERTS, ROOT, rules

RUNBOOKS = sorted((ALERTS / "runbooks").glob("*.md"))
ANSIBLE = ROOT / "ansible"
ADMIN_DENIED = re.compile(r"REPLICAOF NO|SLAVEOF|FAILOVER|DEBUG|CONFIG REWRITE")
# Root's way in on the master's own host, with TLS and without.
SOCKET = "sudo redis-cli -s /run/lockd-master/redis.sock "
IDENTITY_IS_READ_BY = SOCKET.removeprefix("sudo ") + "--user lockd_admin --askpass HGETALL lockd:identity"
# On hosts that site.yml made, or on the controller: what its roles install, and what every Debian has.
OURS = {"lockctl", "lockd", "lockd-guard", "redis-cli", "promtool", "amtool", "chronyc", "ansible-playbook"}
EVERYWHERE = {"systemctl", "journalctl", "grep", "ls", "cat", "df", "du", "ps", "top", "timeout", "python3"}
DISTRIBUTION = {"prometheus", "prometheus-alertmanager", "prometheus-node-exporter", "chrony"}


def text_of(path: Path) -> str:
    return path.read_text()


def code_in(text: str) -> Iterator[str]:
    """What stands there to be typed: lines after a `$` in a console, and `code` between the words."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                yield line[2:]
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def samples(text: str, command: str) -> list[list[str]]:
    """The lines under that command, up to the next one or the end of its block."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for said in re.split(r"^\$ ", block, flags=re.M)[1:]:
            typed, _, printed = said.partition("\n")
            if typed.removeprefix("sudo ") == command:
                found.append(printed.splitlines())
    return found


@pytest.fixture(params=RUNBOOKS, ids=lambda path: path.stem)
def text(request: pytest.FixtureRequest) -> str:
    return text_of(request.param)


def test_what_a_console_shows_as_typed_is_on_the_hosts(text: str) -> None:
    for line in re.findall(r"^\$ (.+)$", text, re.M):
        for part in re.split(r" \| ", line):
            word = part.removeprefix("sudo ").split()[0]
            assert word in OURS | EVERYWHERE, line


def test_commands_of_lockctl_and_their_options_are_there(text: str) -> None:
    for line in code_in(text):
        for words in re.findall(r"\blockctl ([a-z].*)", line):
            command: click.Command = main
            for word in words.split():
                if isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", word):
                    assert word in command.commands, line
                    command = command.commands[word]
                elif word.startswith("--") and word != "--help":
                    known = {name for option in command.params for name in option.opts}
                    assert word in known, line


def test_verbs_of_the_guard_are_there(text: str) -> None:
    [action] = [one for one in _parser()._actions if isinstance(one, argparse._SubParsersAction)]
    for line in code_in(text):
        for verb in re.findall(r"\blockd-guard ([a-z]+)", line):
            assert verb in action.choices, line


def test_units_are_those_of_the_roles_or_of_the_distribution(text: str) -> None:
    ours = {path.name.removesuffix(".service.j2") for path in ANSIBLE.glob("roles/*/templates/*.service.j2")}
    for line in code_in(text):
        if not re.search(r"\b(systemctl|journalctl)\b", line):
            continue
        named = re.findall(r"-u (\S+)", line)
        for verb in re.findall(
            r"systemctl (?:start|stop|restart|status|kill -s KILL)((?: [a-z][a-z-]+)+)", line
        ):
            named += verb.split()
        for unit in named:
            assert unit in ours | DISTRIBUTION, line


def test_plays_and_their_variables_are_there(text: str) -> None:
    for line in code_in(text):
        for play in re.findall(r"ansible-playbook (\w+\.yml)", line):
            assert (ANSIBLE / play).is_file(), line
            for variable in re.findall(r"-e (\w+)=", line):
                assert variable in text_of(ANSIBLE / play), line


def test_redis_is_asked_as_an_operator_may_on_its_own_host(text: str) -> None:
    typed = list(code_in(text))
    assert [line for line in typed if ADMIN_DENIED.search(line)] == []
    for line in (line for line in typed if "redis-cli" in line):
        assert line.startswith(f"{SOCKET}--user lockd_admin --askpass"), line


def test_files_are_where_the_roles_put_them(text: str) -> None:
    roles = "".join(text_of(path) for path in ANSIBLE.rglob("*") if path.suffix in (".yml", ".j2"))
    for path in re.findall(r"/(?:etc|run|var/lib)/lockd[\w./-]*\w", text):
        folder, _, name = path.rpartition("/")
        # A role may name a file by its folder and a variable, and Redis makes files of its own.
        assert path in roles or folder in roles or folder.rpartition("/")[0] in roles, path
        assert name


def test_the_metrics_of_an_agent_are_asked_for_where_they_are(text: str) -> None:
    """The role has them listen on the host's address: nobody answers on 127.0.0.1."""
    assert "127.0.0.1:9480" not in text


def test_other_alerts_that_it_names_are_there(text: str) -> None:
    alerts = {alert["alert"] for alert in ALL_ALERTS}
    named = re.findall(r"`(Lockd?[A-Z]\w+)`", text) + re.findall(r"\]\((\w+)\.md\)", text)
    assert set(named) <= alerts


def test_a_table_of_masters_is_one_that_lockctl_prints(text: str) -> None:
    headings = [heading for heading, _ in lockctl_views._MASTER_COLUMNS]
    for lines in samples(text, "lockctl masters"):
        rows = [line.split("\t") for line in lines[:-1]]
        assert rows[0] == headings
        assert {len(row) for row in rows} == {len(headings)}
        votes = sum(row[headings.index("VOTE")] == "yes" for row in rows[1:])
        assert lines[-1] == f"{votes} of {len(rows) - 1} have a vote, {len(rows[1:]) // 2 + 1} are needed"
        for row in rows[1:]:
            assert row[headings.index("STATE")] in values_of("lockd_master_state", "state")
            assert (row[headings.index("VOTE")] == "yes") == (row[-1] == "")


@pytest.mark.parametrize(
    ("alert", "votes"),
    [
        ("LockQuorumLost", 2),
        ("LockQuorumLostEverywhere", 2),
        ("LockQuorumNoMargin", 3),
        ("LockMasterBlank", 4),
    ],
)
def test_a_table_of_masters_shows_the_state_of_its_alert(alert: str, votes: int) -> None:
    [lines] = samples(text_of(ALERTS / "runbooks" / f"{alert}.md"), "lockctl masters")
    assert lines[-1].startswith(f"{votes} of 5 ")


@pytest.mark.parametrize("state", ["blank", "misconfigured"])
def test_the_master_in_question_is_in_the_state_of_its_alert(state: str) -> None:
    [lines] = samples(text_of(ALERTS / "runbooks" / f"LockMaster{state.title()}.md"), "lockctl masters")
    assert [line.split("\t")[2] for line in lines[1:-1]].count(state) == 1


def test_an_identity_is_shown_as_a_master_has_it_now() -> None:
    printed = samples(text_of(ALERTS / "runbooks/LockMasterWrongIdentity.md"), IDENTITY_IS_READ_BY)
    [words] = [[line.split(") ")[1].strip('"') for line in lines if line.strip("` ")] for lines in printed]
    fields = dict(zip(words[::2], words[1::2], strict=True))
    identity = Identity.parse(fields)
    assert identity is not None
    assert list(identity.fields.items()) == list(fields.items())


def test_a_table_of_locks_is_one_that_lockctl_prints(text: str) -> None:
    headings = [heading for heading, _ in lockctl_views._LOCAL_COLUMNS]
    for lines in samples(text, "lockctl locks --local"):
        assert lines[0].split("\t") == headings
        assert {len(line.split("\t")) for line in lines} == {len(headings)}


def test_leases_on_too_few_masters_are_shown_so() -> None:
    [lines] = samples(text_of(ALERTS / "runbooks/LockUnderReplicated.md"), "lockctl locks --local")
    assert any("\t4 of 5\t" in line for line in lines)


def test_what_the_doctor_says_it_can_say(text: str) -> None:
    said_by = text_of(Path(doctor.__file__))
    for command in ("lockctl doctor", "lockctl doctor --config /etc/lockd/lockd.yml"):
        for lines in samples(text, command):
            for line in lines:
                found = re.fullmatch(r"(?:(ok|warning|failure) +([a-z ]+?)  +\S.*| {24}-> (.+))", line)
                assert found is not None, line
                if found[3] is None:
                    assert f'"{found[2]}"' in said_by, line
                else:
                    words = re.sub(r" m\d$", "", found[3])
                    assert words in said_by, line


def test_a_status_of_the_guard_is_one_that_it_prints(text: str) -> None:
    for lines in samples(text, "lockd-guard status"):
        fields = dict(re.fullmatch(r"([a-z ]+):\s+(.+)", line).groups() for line in lines)  # type: ignore[union-attr]
        assert fields.keys() - {"next start", "moved aside"} == {
            "state", "since", "delay", "quarantines", "overrides", "clock steps",
        }  # fmt: skip
        now = re.match(
            r"(in service|quarantined|stopped)(, \d+ s left)?( \(([a-z ]+): .+\))?$", fields["state"]
        )
        assert now is not None, fields["state"]
        assert (now[1] == "quarantined") == (now[2] is not None)
        assert (now[1] == "stopped") == ("next start" in fields)
        reasons = {reason.value: reason.words for reason in Reason}
        assert now[4] is None or now[4] in reasons.values()
        for reason in re.findall(r"([a-z_]+) \d+", fields["quarantines"]):
            assert reason in reasons


@pytest.mark.parametrize(
    ("alert", "printed"),
    [
        ("LockClockStep", "clock steps: 1 forward"),
        ("LockGuardOverridden", "overrides:   1"),
        ("LockMasterQuarantineOverdue", "quarantined, 0 s left"),
        ("LockMasterQuarantineLoop", "unclean_stop 4"),
        ("LockMasterDown", "state:       stopped"),
        ("LockMasterDataMovedAside", "moved aside: 1, latest /var/lib/lockd-master/*.aside-"),
    ],
)
def test_a_status_of_the_guard_shows_the_state_of_its_alert(alert: str, printed: str) -> None:
    [lines] = samples(text_of(ALERTS / "runbooks" / f"{alert}.md"), "lockd-guard status")
    assert printed in "\n".join(lines)


def test_lines_of_logs_are_as_the_journal_shows_them_with_events_that_are_logged(text: str) -> None:
    code = "".join(text_of(path) for path in (ROOT / "lockd").rglob("*.py"))
    for line in text.splitlines():
        for event in re.findall(r"level=\w+ event=(\w+)", line):
            assert f'"{event}"' in code, line
            assert re.match(r"\w{3} \d\d \d\d:\d\d:\d\d \w+ [\w-]+\[\d+\]: level=", line), line


# The words of rules and of queries in runbooks

WORDS = ("reason", "state", "outcome", "question", "why", "direction", "command")


def values_of(metric: str, label: str) -> set[str]:
    """The values that a label has, by the code; empty when the metric has no such label."""
    name = re.sub(r"_(bucket|count|sum)$", "", metric)
    return {
        sample.labels[label]
        for family in (*agent_families(), *guard_families())
        if full_name(family) == name
        for sample in family.samples
        if label in sample.labels
    }


def asked_words(query: str) -> Iterator[tuple[str, str, str]]:
    """Metric, label, and each word that the label is compared with."""
    for metric, matchers in re.findall(r"([a-z_]\w*(?::\w+:\w+)?)\{([^{}]*)\}", query):
        for label, words in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', matchers):
            if label in WORDS:
                yield from ((metric, label, word) for word in words.split("|"))


def expressions() -> list[str]:
    return [rule["expr"] for kind in ("record", "alert") for rule in rules(kind)]


@pytest.mark.parametrize("query", [*expressions(), *map(text_of, RUNBOOKS)], ids=lambda _: "")
def test_reasons_states_and_outcomes_are_words_of_the_code(query: str) -> None:
    for metric, label, word in asked_words(query):
        plain = "lockd_master_state" if metric.startswith("cluster_master_state:") else metric
        assert word in values_of(plain, label), f'{metric}{{{label}="{word}"}}'


def test_rules_do_ask_for_words() -> None:
    """So that the test above can't pass for want of any."""
    asked = {(label, word) for query in expressions() for _, label, word in asked_words(query)}
    some = {("reason", "noquorum"), ("state", "blank"), ("outcome", "granted"), ("direction", "forward")}
    assert some <= asked


def test_the_routes_name_only_alerts_that_there_are() -> None:
    alerts = {alert["alert"] for alert in ALL_ALERTS}
    config: dict[str, Any] = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())
    for names in re.findall(r'alertname=~?"([^"]+)"', str(config)):
        assert set(names.split("|")) <= alerts
