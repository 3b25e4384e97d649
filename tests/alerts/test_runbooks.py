"""Runbooks name only what there is (commands, units, plays, words of the code), and show what it prints.

Who reads them is tired, and types what they say.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from alerts.metrics_page import agent_families, full_name, guard_families
from dashboards.queries import ANSWERED, CONTENDED, LOST, UNAVAILABLE
from lockd.core.identities import Identity
from lockd.core.membership import State
from lockd.guard.cli import _parser
from lockd.guard.reasons import Reason
from lockd.lockctl import doctor
from lockd.lockctl import view as lockctl_views
from lockd.lockctl.main import main
from tests.harness.for_root import FOR_ROOT
from tests.harness.prometheus import ALERTS, ALL_ALERTS, ROOT, rules

ABOUT = ALERTS / "runbooks/README.md"
RUNBOOKS = sorted(set((ALERTS / "runbooks").glob("*.md")) - {ABOUT})
ANSIBLE = ROOT / "ansible"
ADMIN_DENIED = re.compile(r"REPLICAOF NO|SLAVEOF|FAILOVER|DEBUG|CONFIG REWRITE")
# Root's way in on the master's own host, with TLS and without.
SOCKET = "sudo redis-cli -s /run/lockd-master/redis.sock "
IDENTITY_IS_READ_BY = SOCKET.removeprefix("sudo ") + "--user lockd_admin --askpass HGETALL lockd:identity"
# On hosts that site.yml made, or on the controller: what its roles install, and what every Debian has.
OURS = {"lockctl", "lockd", "lockd-guard", "redis-cli", "promtool", "amtool", "chronyc", "ansible-playbook"}
EVERYWHERE = {"systemctl", "journalctl", "grep", "ls", "cat", "df", "du", "ps", "top", "timeout", "python3"}
# Only in steps, where they stand between words.
IN_STEPS = {"sysctl", "openssl", "systemd-tmpfiles"}
DISTRIBUTION = {"prometheus", "prometheus-alertmanager", "prometheus-node-exporter", "chrony"}
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation", "When it is over", "Whom to call"]
# As README.md has them.
WHERE = re.compile(
    r"\b(?:on|from) (?:the controller"
    r"|(?:the|one|any|another|both|such an|(?:one|two) of the)"
    r" (?:[a-z]+'s? |app |agents' |master's |monitoring )?hosts?"
    r"|a master's host|that host|its host|(?:the )?app hosts|an app host)\b",
    re.IGNORECASE,
)
TEAMS = (
    r"[Tt]he (?:(?:lock|platform|network|monitoring|security) team|owners of the (?:app|apps|resources))"
    r"|^Nobody\."
)


def code_in(text: str) -> Iterator[str]:
    """What stands there to be typed: lines after a `$` in a console, and `code` between the words."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                yield line[2:]
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def samples(text: str, command: str) -> list[list[str]]:
    """The lines under that command, up to the next one or the end of its block."""
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)
    said = [one.partition("\n") for block in blocks for one in re.split(r"^\$ ", block, flags=re.M)[1:]]
    return [printed.splitlines() for typed, _, printed in said if typed.removeprefix("sudo ") == command]


@pytest.fixture(params=RUNBOOKS, ids=lambda path: path.stem)
def text(request: pytest.FixtureRequest) -> str:
    return request.param.read_text()


def parts_of(text: str) -> dict[str, str]:
    """Its sections, by their headings."""
    _, *parts = re.split(r"^## (.+)$", text, flags=re.M)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def steps_of(text: str) -> list[str]:
    return re.findall(r"^\d+\. (.+)$", parts_of(text)["Mitigation"], re.M)


def types(code: str) -> bool:
    """Whether that is a command with its arguments, as one types it."""
    words = code.removeprefix("sudo ").split()
    return len(words) > 1 and words[0] in OURS | EVERYWHERE | IN_STEPS


def test_every_alert_has_its_runbook_of_the_same_parts_with_commands_to_type() -> None:
    assert {path.stem for path in RUNBOOKS} == {alert["alert"] for alert in ALL_ALERTS}
    for path in RUNBOOKS:
        text = path.read_text()
        assert text.startswith(f"# {path.stem}\n")
        assert list(parts_of(text)) == SECTIONS, path
        assert all(len(part.split()) >= 3 for part in parts_of(text).values()), path
        assert "```" in parts_of(text)["Diagnosis"], path


def test_what_to_do_is_in_numbered_steps(text: str) -> None:
    numbers = re.findall(r"^(\d+)\. ", parts_of(text)["Mitigation"], re.M)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert len(numbers) >= 2


def test_each_command_stands_with_the_host_that_it_is_typed_on(text: str) -> None:
    """That of a console, between the one before it and itself; that of a step, in the step."""
    whole = re.split(r"^```console\n.*?^```", text, flags=re.M | re.S)
    for before in whole[:-1]:
        near = before.rpartition("\n## ")[2]
        here = WHERE.search(near)
        assert here or not near.strip(), near
    for whole_step in steps_of(text):
        step = re.sub(r"\b(Do not|Never)\b[^.]*\.", "", whole_step)
        if any(types(code) for code in re.findall(r"`([^`]+)`", step)):
            assert WHERE.search(step), step


def test_what_only_root_may_do_is_typed_with_sudo(text: str) -> None:
    to_do = text.partition("\n## Impact")[2]
    not_to_do = re.findall(r"\b(?:Do not|Never)\b[^.]*\.", to_do)
    typed = [code for code in code_in(to_do) if not any(f"`{code}`" in one for one in not_to_do)]
    assert [code for code in typed if FOR_ROOT.match(code)] == []


def test_what_only_root_may_do_is_found() -> None:
    """Else the test above would pass for nothing."""
    for code in (
        "journalctl -u lockd -n 50",
        "systemctl restart lockd",
        "lockctl masters",
        "lockd-guard status",
    ):
        assert FOR_ROOT.match(code)
        assert not FOR_ROOT.match(f"sudo {code}")
    assert not FOR_ROOT.match("systemctl status lockd")
    assert not FOR_ROOT.match("systemctl stop")


def test_a_host_is_found_where_one_is_named() -> None:
    """Else the test above would pass for nothing."""
    assert WHERE.search("On the master's host:")
    assert WHERE.search("Then on any app host, `lockctl masters`")
    assert not WHERE.search("Start it with `systemctl start lockd-master`, and look at the host")


def test_it_says_when_it_is_over_and_whom_to_call(text: str) -> None:
    assert re.search(TEAMS, parts_of(text)["Whom to call"].strip())
    assert parts_of(text)["When it is over"].strip().endswith(".")


def test_whom_to_call_is_explained_on_the_first_page() -> None:
    teams = {found.lower() for path in RUNBOOKS for found in re.findall(r"[Tt]he \w+ team", path.read_text())}
    assert len(teams) == 5
    assert all(team in ABOUT.read_text().lower() for team in teams)


def test_passwords_are_on_the_first_page_alone(text: str) -> None:
    assert "secrets/" not in text
    if "--user lockd_admin" in text or "--operator-user" in text:
        assert "](README.md#passwords)" in text
    assert "secrets/admin.password" in ABOUT.read_text()


def test_identities_are_written_as_the_user_who_may(text: str) -> None:
    """The plays give masters users: an agent's own may not."""
    for line in code_in(text):
        if re.match(r"(?:sudo )?lockctl (?:cluster|master) ", line) and "--help" not in line:
            assert "--operator-user lockd_operator" in line


def test_the_query_that_is_empty_when_votes_are_no_longer_refused_asks_for_no_others() -> None:
    """Late votes, of which there are always some, are no refusals."""
    [expr] = [alert["expr"] for alert in ALL_ALERTS if alert["alert"] == "LockdVotesRefused"]
    [reasons] = re.findall(r'reason=~"[^"]+"', expr)
    assert f"{{{reasons}}}[5m]" in (ALERTS / "runbooks/LockdVotesRefused.md").read_text()


def test_what_a_console_shows_as_typed_is_on_the_hosts(text: str) -> None:
    for line in re.findall(r"^\$ (.+)$", text, re.M):
        for part in line.split(" | "):
            assert part.removeprefix("sudo ").split()[0] in OURS | EVERYWHERE, line


def test_commands_of_lockctl_and_their_options_are_there(text: str) -> None:
    for line in code_in(text):
        for words in re.findall(r"\blockctl ([a-z].*)", line):
            command: click.Command = main
            for word in words.split():
                if isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", word):
                    assert word in command.commands, line
                    command = command.commands[word]
                elif word.startswith("--") and word != "--help":
                    assert word in {name for option in command.params for name in option.opts}, line


def test_verbs_of_the_guard_units_and_plays_with_their_variables_are_there(text: str) -> None:
    [action] = [one for one in _parser()._actions if isinstance(one, argparse._SubParsersAction)]
    ours = {path.name.removesuffix(".service.j2") for path in ANSIBLE.glob("roles/*/templates/*.service.j2")}
    for line in code_in(text):
        assert set(re.findall(r"\blockd-guard ([a-z]+)", line)) <= action.choices.keys(), line
        if re.search(r"\b(systemctl|journalctl)\b", line):
            verbs = r"systemctl (?:start|stop|restart|reload|status|kill -s KILL)((?: [a-z][a-z-]+)+)"
            named = re.findall(r"-u (\S+)", line) + " ".join(re.findall(verbs, line)).split()
            assert set(named) <= ours | DISTRIBUTION, line
        for play in re.findall(r"ansible-playbook .*?(?<!/)\b(\w+\.yml)", line):
            play_text = (ANSIBLE / play).read_text()
            assert all(variable in play_text for variable in re.findall(r"-e (\w+)=", line)), line


def test_redis_is_asked_as_an_operator_may_on_its_own_host(text: str) -> None:
    typed = list(code_in(text))
    assert [line for line in typed if ADMIN_DENIED.search(line)] == []
    for line in (line for line in typed if "redis-cli" in line):
        assert line.startswith(f"{SOCKET}--user lockd_admin --askpass"), line


def test_files_are_where_the_roles_put_them(text: str) -> None:
    roles = "".join(path.read_text() for path in ANSIBLE.rglob("*") if path.suffix in (".yml", ".j2"))
    for path in re.findall(r"/(?:etc|run|var/lib)/lockd[\w./-]*\w", text):
        # A role may name a file by its folder and a variable, and Redis makes files of its own.
        assert any(str(folder) in roles for folder in (Path(path), *Path(path).parents[:2])), path


def test_the_metrics_of_an_agent_are_asked_for_where_they_are(text: str) -> None:
    """The role has them listen on the host's address: nobody answers on 127.0.0.1."""
    assert "127.0.0.1:9480" not in text


def test_other_alerts_that_it_names_are_there(text: str) -> None:
    alerts = {alert["alert"] for alert in ALL_ALERTS}
    named = re.findall(r"`(Lockd?[A-Z]\w+)`", text) + re.findall(r"\]\((\w+)\.md\)", text)
    assert set(named) <= alerts
    led = re.findall(r"\]\(([^)]+)\)", text)
    assert [to for to in led if to != "README.md#passwords" and to.removesuffix(".md") not in alerts] == []


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
    ("alert", "command", "shown"),
    [
        ("LockdQuorumLost", "lockctl masters", r"\n2 of 5 .*\Z"),
        ("LockdQuorumLostEverywhere", "lockctl masters", r"\n2 of 5 .*\Z"),
        ("LockdQuorumNoMargin", "lockctl masters", r"\n3 of 5 .*\Z"),
        ("LockdMasterBlank", "lockctl masters", r"\tblank\t(.|\n)*\n4 of 5 .*\Z"),
        ("LockdMasterMisconfigured", "lockctl masters", r"\tmisconfigured\t"),
        ("LockdUnderReplicated", "lockctl locks --local", r"\t4 of 5\t"),
        ("LockdClockStep", "lockd-guard status", "clock steps: 1 forward"),
        ("LockdGuardOverridden", "lockd-guard status", "overrides:   1"),
        ("LockdMasterQuarantineOverdue", "lockd-guard status", "quarantined, 0 s left"),
        ("LockdMasterQuarantineLoop", "lockd-guard status", "unclean_stop 4"),
        ("LockdMasterDown", "lockd-guard status", "state:       stopped"),
        (
            "LockdMasterDataMovedAside",
            "lockd-guard status",
            r"moved aside: 1, latest /var/lib/\S+/\*\.aside-",
        ),
    ],
)
def test_what_a_command_prints_is_shown_in_the_state_of_its_alert(
    alert: str, command: str, shown: str
) -> None:
    [lines] = samples((ALERTS / "runbooks" / f"{alert}.md").read_text(), command)
    assert len(re.findall(shown, "\n".join(lines))) == 1


def test_an_identity_is_shown_as_a_master_has_it_now() -> None:
    printed = samples((ALERTS / "runbooks/LockdMasterWrongIdentity.md").read_text(), IDENTITY_IS_READ_BY)
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


def test_what_the_doctor_says_it_can_say(text: str) -> None:
    # Long texts are written in parts, and commands for operators around their words.
    said_by = re.sub(r'"\s*\n\s*f?"', "", Path(doctor.__file__).read_text())
    for options in ("", " --config /etc/lockd/lockd.yml"):
        for line in chain.from_iterable(samples(text, f"lockctl doctor{options}")):
            found = re.fullmatch(r"(?:ok|warning|failure) +([a-z ]+?)  +\S.*| {24}-> (.+?)(?: m\d)?", line)
            assert found is not None, line
            then = found[2] and re.sub(r"\bmaster admit m\d", "{words}", found[2])
            assert (then or f'"{found[1]}"') in said_by, line


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


def test_lines_of_logs_are_as_the_journal_shows_them_with_events_that_are_logged(text: str) -> None:
    code = "".join(path.read_text() for path in (ROOT / "lockd").rglob("*.py"))
    for line in text.splitlines():
        for event in re.findall(r"level=\w+ event=(\w+)", line):
            assert f'"{event}"' in code, line
            assert re.match(r"\w{3} \d\d \d\d:\d\d:\d\d \w+ [\w-]+\[\d+\]: level=", line), line


# The words of rules and of queries in runbooks

WORDS = ("reason", "state", "outcome", "question", "direction", "command")


def values_of(metric: str, label: str) -> set[str]:
    """The values that a label has, by the code; empty when the metric has no such label."""
    name = re.sub(r"_(bucket|count|sum)$", "", metric)
    if (name, label) == ("lockd_master_state", "state"):
        return set(State)  # only that of now is exposed
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


def test_reasons_states_and_outcomes_are_words_of_the_code() -> None:
    rules_ask = [word for rule in (*rules("record"), *ALL_ALERTS) for word in asked_words(rule["expr"])]
    runbooks_ask = [word for path in RUNBOOKS for word in asked_words(path.read_text())]
    for metric, label, word in {*rules_ask, *runbooks_ask}:
        plain = "lockd_master_state" if metric.startswith("cluster_master_state:") else metric
        assert word in values_of(plain, label), f'{metric}{{{label}="{word}"}}'
    # They do ask for some.
    some = {("reason", "noquorum"), ("state", "blank"), ("outcome", "granted"), ("direction", "forward")}
    assert some <= {(label, word) for _, label, word in rules_ask}


def test_refusals_and_losses_are_asked_for_by_all_the_words_of_a_kind() -> None:
    """A new word fails it: it belongs into each query for its kind."""
    texts = (
        *(rule["expr"] for rule in (*rules("record"), *ALL_ALERTS)),
        *(path.read_text() for path in RUNBOOKS),
    )
    asked = {
        of for text in texts for of in re.findall(r'(refusals|losses)_total{[^}]*(reason=~"[^"]*")', text)
    }
    assert asked == {("losses", LOST), *(("refusals", one) for one in (CONTENDED, UNAVAILABLE, ANSWERED))}


def test_the_routes_name_only_alerts_that_there_are() -> None:
    alerts = {alert["alert"] for alert in ALL_ALERTS}
    config: dict[str, Any] = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())
    for names in re.findall(r'alertname=~?"([^"]+)"', str(config)):
        assert set(names.split("|")) <= alerts
