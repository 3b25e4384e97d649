"""Runbooks name only what there is (commands, units, plays, words of the code), and show what it prints.

Who reads them is tired, and types what they say. Each check goes through all runbooks; its failure names
every runbook, line and word. What each check is for is planted in a runbook at the end.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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
from tests.harness.prose import Check, Passage, expect_none, mistakes, page

ABOUT = ALERTS / "runbooks/README.md"
RUNBOOKS = [page(path) for path in sorted((ALERTS / "runbooks").glob("*.md")) if path != ABOUT]
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


class Code(NamedTuple):
    """What stands there to be typed, and where."""

    at: int
    text: str


def code_in(text: str) -> Iterator[Code]:
    """Lines after a `$` in a console, and `code` between the words."""
    for block in re.finditer(r"^```console\n(.*?)^```", text, re.M | re.S):
        for line in re.finditer(r"^\$ (.*)$", block[1], re.M):
            yield Code(block.start(1) + line.start(1), line[1])
    between = re.sub(r"^```.*?^```", lambda block: re.sub(r"[^\n]", " ", block[0]), text, flags=re.M | re.S)
    for code in re.finditer(r"`([^`\n]+)`", between):
        yield Code(code.start(1), code[1])


def samples(text: str, command: str) -> list[list[str]]:
    """The lines under that command, up to the next one or the end of its block."""
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)
    said = [one.partition("\n") for block in blocks for one in re.split(r"^\$ ", block, flags=re.M)[1:]]
    return [printed.splitlines() for typed, _, printed in said if typed.removeprefix("sudo ") == command]


def alert_of(runbook: Passage) -> str:
    return Path(runbook.of).stem


def runbook_of(alert: str) -> Passage:
    [found] = [one for one in RUNBOOKS if alert_of(one) == alert]
    return found


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


# Each check: what is wrong with a runbook


def is_of_other_parts(runbook: Passage) -> Iterator[str]:
    if not runbook.text.startswith(f"# {alert_of(runbook)}\n"):
        yield runbook.mistake("its heading is another", 0)
    parts = parts_of(runbook.text)
    if list(parts) != SECTIONS:
        yield runbook.mistake(f"its parts are {list(parts)}", 0)
    yield from (runbook.mistake(f"## {name}") for name, part in parts.items() if len(part.split()) < 3)
    if "```" not in parts.get("Diagnosis", ""):
        yield runbook.mistake("## Diagnosis")


def has_steps_without_numbers(runbook: Passage) -> Iterator[str]:
    numbers = re.findall(r"^(\d+)\. ", parts_of(runbook.text)["Mitigation"], re.M)
    if numbers != [str(number) for number in range(1, len(numbers) + 1)] or len(numbers) < 2:
        yield runbook.mistake("## Mitigation")


def has_a_command_without_its_host(runbook: Passage) -> Iterator[str]:
    """That of a console stands between the one before it and itself; that of a step, in the step."""
    ended = 0
    for block in re.finditer(r"^```console\n.*?^```", runbook.text, re.M | re.S):
        near = runbook.text[ended : block.start()].rpartition("\n## ")[2]
        if near.strip() and not WHERE.search(near):
            yield runbook.mistake(block[0].splitlines()[1], block.start())
        ended = block.end()
    for whole_step in steps_of(runbook.text):
        step = re.sub(r"\b(Do not|Never)\b[^.]*\.", "", whole_step)
        if any(types(code) for code in re.findall(r"`([^`]+)`", step)) and not WHERE.search(step):
            yield runbook.mistake(whole_step)


def lacks_sudo(runbook: Passage) -> Iterator[str]:
    begins = runbook.text.index("\n## Impact")
    not_to_do = re.findall(r"\b(?:Do not|Never)\b[^.]*\.", runbook.text[begins:])
    for code in code_in(runbook.text):
        forbidden = any(f"`{code.text}`" in one for one in not_to_do)
        if code.at > begins and FOR_ROOT.match(code.text) and not forbidden:
            yield runbook.mistake(code.text, code.at)


def says_no_end_or_nobody_to_call(runbook: Passage) -> Iterator[str]:
    parts = parts_of(runbook.text)
    if not re.search(TEAMS, parts["Whom to call"].strip()):
        yield runbook.mistake("## Whom to call")
    if not parts["When it is over"].strip().endswith("."):
        yield runbook.mistake("## When it is over")


def tells_passwords(runbook: Passage) -> Iterator[str]:
    """They are on the first page alone."""
    if "secrets/" in runbook.text:
        yield runbook.mistake("secrets/")
    for asks in ("--user lockd_admin", "--operator-user"):
        if asks in runbook.text and "](README.md#passwords)" not in runbook.text:
            yield runbook.mistake(asks)


def writes_identities_as_another(runbook: Passage) -> Iterator[str]:
    """The plays give masters users: an agent's own may not."""
    for code in code_in(runbook.text):
        writes = re.match(r"(?:sudo )?lockctl (?:cluster|master) ", code.text) and "--help" not in code.text
        if writes and "--operator-user lockd_operator" not in code.text:
            yield runbook.mistake(code.text, code.at)


def types_what_is_not_on_the_hosts(runbook: Passage) -> Iterator[str]:
    for line in re.finditer(r"^\$ (.+)$", runbook.text, re.M):
        for part in line[1].split(" | "):
            if part.removeprefix("sudo ").split()[0] not in OURS | EVERYWHERE:
                yield runbook.mistake(part, line.start())


def has_lockctl_do_what_it_cannot(runbook: Passage) -> Iterator[str]:
    for code in code_in(runbook.text):
        for words in re.findall(r"\blockctl ([a-z].*)", code.text):
            yield from (runbook.mistake(word, code.at) for word in _unknown(words.split()))


def _unknown(words: list[str]) -> Iterator[str]:
    """Commands and options that lockctl does not have."""
    command: click.Command = main
    for word in words:
        if isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", word):
            if word not in command.commands:
                yield word
                return
            command = command.commands[word]
        elif word.startswith("--") and word not in options_of(command):
            yield word


def options_of(command: click.Command) -> set[str]:
    return {"--help", *(name for option in command.params for name in option.opts)}


@cache
def verbs_of_the_guard() -> frozenset[str]:
    [action] = [one for one in _parser()._actions if isinstance(one, argparse._SubParsersAction)]
    return frozenset(action.choices)


@cache
def units() -> frozenset[str]:
    ours = ANSIBLE.glob("roles/*/templates/*.service.j2")
    return DISTRIBUTION | {path.name.removesuffix(".service.j2") for path in ours}


@cache
def text_of_play(name: str) -> str:
    path = ANSIBLE / name
    return path.read_text() if path.exists() else ""


def names_no_verb_unit_or_variable(runbook: Passage) -> Iterator[str]:
    for code in code_in(runbook.text):
        named = set(re.findall(r"\blockd-guard ([a-z]+)", code.text)) - verbs_of_the_guard()
        if re.search(r"\b(systemctl|journalctl)\b", code.text):
            verbs = r"systemctl (?:start|stop|restart|reload|status|kill -s KILL)((?: [a-z][a-z-]+)+)"
            of_units = re.findall(r"-u (\S+)", code.text) + " ".join(re.findall(verbs, code.text)).split()
            named |= set(of_units) - units()
        for play in re.findall(r"ansible-playbook .*?(?<!/)\b(\w+\.yml)", code.text):
            text = text_of_play(play)
            named |= {one for one in re.findall(r"-e (\w+)=", code.text) if one not in text}
            named |= set() if text else {play}
        yield from (runbook.mistake(f"{one}, in {code.text}", code.at) for one in sorted(named))


def asks_redis_as_no_operator_may(runbook: Passage) -> Iterator[str]:
    """Only on its own host, and nothing that its user is denied."""
    for code in code_in(runbook.text):
        as_admin = code.text.startswith(f"{SOCKET}--user lockd_admin --askpass")
        if ADMIN_DENIED.search(code.text) or ("redis-cli" in code.text and not as_admin):
            yield runbook.mistake(code.text, code.at)


@cache
def text_of_roles() -> str:
    return "".join(path.read_text() for path in ANSIBLE.rglob("*") if path.suffix in (".yml", ".j2"))


@cache
def is_put_there(path: str) -> bool:
    """A role may name a file by its folder and a variable, and Redis makes files of its own."""
    return any(str(folder) in text_of_roles() for folder in (Path(path), *Path(path).parents[:2]))


def names_files_that_no_role_puts_there(runbook: Passage) -> Iterator[str]:
    for path in re.finditer(r"/(?:etc|run|var/lib)/lockd[\w./-]*\w", runbook.text):
        if not is_put_there(path[0]):
            yield runbook.mistake(path[0], path.start())


def asks_an_agent_where_it_does_not_listen(runbook: Passage) -> Iterator[str]:
    """The role has them listen on the host's address: nobody answers on 127.0.0.1."""
    if "127.0.0.1:9480" in runbook.text:
        yield runbook.mistake("127.0.0.1:9480")


KNOWN = {alert["alert"] for alert in ALL_ALERTS}


def names_alerts_that_there_are_not(runbook: Passage) -> Iterator[str]:
    for named in re.finditer(r"`(Lockd?[A-Z]\w+)`", runbook.text):
        if named[1] not in KNOWN:
            yield runbook.mistake(named[1], named.start())
    for led in re.finditer(r"\]\(([^)]+)\)", runbook.text):
        if led[1] != "README.md#passwords" and led[1].removesuffix(".md") not in KNOWN:
            yield runbook.mistake(led[1], led.start())


def shows_masters_as_lockctl_does_not(runbook: Passage) -> Iterator[str]:
    for lines in samples(runbook.text, "lockctl masters"):
        heading, *rows, last = lines
        if heading.split("\t") != MASTERS_HEADINGS:
            yield runbook.mistake(heading)
            return
        yield from (runbook.mistake(row) for row in rows if not is_of_a_master(row.split("\t")))
        votes = sum(row.split("\t")[VOTE] == "yes" for row in rows)
        if last != f"{votes} of {len(rows)} have a vote, {len(rows) // 2 + 1} are needed":
            yield runbook.mistake(last)


MASTERS_HEADINGS = [heading for heading, _ in lockctl_views._MASTER_COLUMNS]
VOTE, STATE = MASTERS_HEADINGS.index("VOTE"), MASTERS_HEADINGS.index("STATE")


def is_of_a_master(row: list[str]) -> bool:
    """With a reason where it has no vote, and only there."""
    whole = len(row) == len(MASTERS_HEADINGS)
    return whole and row[STATE] in set(State) and (row[VOTE] == "yes") == (row[-1] == "")


def shows_locks_as_lockctl_does_not(runbook: Passage) -> Iterator[str]:
    headings = [heading for heading, _ in lockctl_views._LOCAL_COLUMNS]
    for first, *rows in samples(runbook.text, "lockctl locks --local"):
        if first.split("\t") != headings:
            yield runbook.mistake(first)
        yield from (runbook.mistake(row) for row in rows if len(row.split("\t")) != len(headings))


@cache
def said_by_the_doctor() -> str:
    """Long texts are written in parts, and commands for operators around their words."""
    return re.sub(r'"\s*\n\s*f?"', "", Path(doctor.__file__).read_text())


def shows_what_the_doctor_cannot_say(runbook: Passage) -> Iterator[str]:
    for options in ("", " --config /etc/lockd/lockd.yml"):
        for line in (line for lines in samples(runbook.text, f"lockctl doctor{options}") for line in lines):
            found = re.fullmatch(r"(?:ok|warning|failure) +([a-z ]+?)  +\S.*| {24}-> (.+?)(?: m\d)?", line)
            then = found and found[2] and re.sub(r"\bmaster admit m\d", "{words}", found[2])
            if not found or (then or f'"{found[1]}"') not in said_by_the_doctor():
                yield runbook.mistake(line)


STATUS = {"state", "since", "delay", "quarantines", "overrides", "clock steps"}
REASONS = {reason.value: reason.words for reason in Reason}


def shows_a_status_that_the_guard_does_not_print(runbook: Passage) -> Iterator[str]:
    for lines in samples(runbook.text, "lockd-guard status"):
        found = {line: re.fullmatch(r"([a-z ]+):\s+(.+)", line) for line in lines}
        yield from (runbook.mistake(line) for line, field in found.items() if field is None)
        fields = {field[1]: field[2] for field in found.values() if field}
        if fields.keys() - {"next start", "moved aside"} != STATUS:
            yield runbook.mistake(f"{lines[0]}: its fields are {sorted(fields)}", runbook.text.find(lines[0]))
        elif not is_a_state(fields["state"], "next start" in fields):
            yield runbook.mistake(fields["state"])
        for reason in re.findall(r"([a-z_]+) \d+", fields.get("quarantines", "")):
            if reason not in REASONS:
                yield runbook.mistake(reason)


def is_a_state(text: str, starts_next: bool) -> bool:
    now = re.match(r"(in service|quarantined|stopped)(, \d+ s left)?( \(([a-z ]+): .+\))?$", text)
    return (
        now is not None
        and (now[1] == "quarantined") == (now[2] is not None)
        and (now[1] == "stopped") == starts_next
        and (now[4] is None or now[4] in REASONS.values())
    )


@cache
def text_of_the_code() -> str:
    return "".join(path.read_text() for path in (ROOT / "lockd").rglob("*.py"))


@cache
def is_logged(event: str) -> bool:
    return f'"{event}"' in text_of_the_code()


def shows_lines_that_are_not_logged(runbook: Passage) -> Iterator[str]:
    """As the journal shows them, with events of the code."""
    for line in re.finditer(r"^.*level=\w+ event=.*$", runbook.text, re.M):
        events = re.findall(r"level=\w+ event=(\w+)", line[0])
        as_shown = re.match(r"\w{3} \d\d \d\d:\d\d:\d\d \w+ [\w-]+\[\d+\]: level=", line[0])
        if not as_shown or not all(is_logged(event) for event in events):
            yield runbook.mistake(line[0], line.start())


def asks_for_words_that_there_are_not(runbook: Passage) -> Iterator[str]:
    for metric, label, word in asked_words(runbook.text):
        if word not in values_of(metric, label):
            yield runbook.mistake(f'{metric}{{{label}="{word}"}}', runbook.text.find(word))


CHECKS: tuple[Check, ...] = (
    is_of_other_parts,
    has_steps_without_numbers,
    has_a_command_without_its_host,
    lacks_sudo,
    says_no_end_or_nobody_to_call,
    tells_passwords,
    writes_identities_as_another,
    types_what_is_not_on_the_hosts,
    has_lockctl_do_what_it_cannot,
    names_no_verb_unit_or_variable,
    asks_redis_as_no_operator_may,
    names_files_that_no_role_puts_there,
    asks_an_agent_where_it_does_not_listen,
    names_alerts_that_there_are_not,
    shows_masters_as_lockctl_does_not,
    shows_locks_as_lockctl_does_not,
    shows_what_the_doctor_cannot_say,
    shows_a_status_that_the_guard_does_not_print,
    shows_lines_that_are_not_logged,
    asks_for_words_that_there_are_not,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_runbook(check: Check) -> None:
    expect_none(mistakes(check, RUNBOOKS))


def test_every_alert_has_its_runbook() -> None:
    assert {alert_of(runbook) for runbook in RUNBOOKS} == KNOWN


def test_what_only_root_may_do_is_found() -> None:
    """Else its check would pass for nothing."""
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
    """Else its check would pass for nothing."""
    assert WHERE.search("On the master's host:")
    assert WHERE.search("Then on any app host, `lockctl masters`")
    assert not WHERE.search("Start it with `systemctl start lockd-master`, and look at the host")


def test_whom_to_call_is_explained_on_the_first_page() -> None:
    about = ABOUT.read_text()
    teams = {found.lower() for one in RUNBOOKS for found in re.findall(r"[Tt]he \w+ team", one.text)}
    assert len(teams) == 5
    assert all(team in about.lower() for team in teams)
    assert "secrets/admin.password" in about


def test_the_query_that_is_empty_when_votes_are_no_longer_refused_asks_for_no_others() -> None:
    """Late votes, of which there are always some, are no refusals."""
    [expr] = [alert["expr"] for alert in ALL_ALERTS if alert["alert"] == "LockdVotesRefused"]
    [reasons] = re.findall(r'reason=~"[^"]+"', expr)
    assert f"{{{reasons}}}[5m]" in runbook_of("LockdVotesRefused").text


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
    [lines] = samples(runbook_of(alert).text, command)
    assert len(re.findall(shown, "\n".join(lines))) == 1


def test_an_identity_is_shown_as_a_master_has_it_now() -> None:
    printed = samples(runbook_of("LockdMasterWrongIdentity").text, IDENTITY_IS_READ_BY)
    [words] = [[line.split(") ")[1].strip('"') for line in lines if line.strip("` ")] for lines in printed]
    fields = dict(zip(words[::2], words[1::2], strict=True))
    identity = Identity.parse(fields)
    assert identity is not None
    assert list(identity.fields.items()) == list(fields.items())


# The words of rules and of queries in runbooks

WORDS = ("reason", "state", "outcome", "question", "direction", "command")


@cache
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
    for name, matchers in re.findall(r"([a-z_]\w*(?::\w+:\w+)?)\{([^{}]*)\}", query):
        metric = "lockd_master_state" if name.startswith("cluster_master_state:") else name
        for label, words in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', matchers):
            if label in WORDS:
                yield from ((metric, label, word) for word in words.split("|"))


def test_reasons_states_and_outcomes_are_words_of_the_code() -> None:
    rules_ask = [word for rule in (*rules("record"), *ALL_ALERTS) for word in asked_words(rule["expr"])]
    for metric, label, word in set(rules_ask):
        assert word in values_of(metric, label), f'{metric}{{{label}="{word}"}}'
    # They do ask for some.
    some = {("reason", "noquorum"), ("state", "blank"), ("outcome", "granted"), ("direction", "forward")}
    assert some <= {(label, word) for _, label, word in rules_ask}


def test_refusals_and_losses_are_asked_for_by_all_the_words_of_a_kind() -> None:
    """A new word fails it: it belongs into each query for its kind."""
    texts = (
        *(rule["expr"] for rule in (*rules("record"), *ALL_ALERTS)),
        *(runbook.text for runbook in RUNBOOKS),
    )
    asked = {
        of for text in texts for of in re.findall(r'(refusals|losses)_total{[^}]*(reason=~"[^"]*")', text)
    }
    assert asked == {("losses", LOST), *(("refusals", one) for one in (CONTENDED, UNAVAILABLE, ANSWERED))}


def test_the_routes_name_only_alerts_that_there_are() -> None:
    config: dict[str, Any] = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())
    for names in re.findall(r'alertname=~?"([^"]+)"', str(config)):
        assert set(names.split("|")) <= KNOWN


# A mistake of each kind


class Planted(NamedTuple):
    """What is written in place of what, and what of it is then named."""

    check: Check
    alert: str
    instead_of: str
    written: str
    named: str


DOWN, FEWER, BURN = "LockdMasterDown", "LockdUnderReplicated", "LockdErrorBudgetBurn"
BLANK = "LockdMasterBlank"
START = "On the master's host: `sudo systemctl start lockd-master`"
PLANTED = [
    Planted(*one)
    for one in (
        (is_of_other_parts, DOWN, "# LockdMasterDown\n", "# Down\n", "its heading is another"),
        (is_of_other_parts, DOWN, "## Impact", "## Harm", "its parts are"),
        (is_of_other_parts, FEWER, "`lockd_leases_on_fewer_masters` is 0.", "Soon.", "## When it is over"),
        (has_steps_without_numbers, DOWN, "\n2. ", "\n3. ", "## Mitigation"),
        (has_a_command_without_its_host, DOWN, START, START[22:], "`sudo systemctl start"),
        (has_a_command_without_its_host, DOWN, "it, on any app host:", "it:", "$ sudo journalctl"),
        (lacks_sudo, DOWN, "`sudo systemctl", "`systemctl", "systemctl start lockd-master"),
        (lacks_sudo, DOWN, "$ sudo lockd-guard status", "$ lockd-guard status", "lockd-guard status"),
        (says_no_end_or_nobody_to_call, DOWN, " team", " crew", "## Whom to call"),
        (says_no_end_or_nobody_to_call, DOWN, "within a minute.", "within a minute", "## When it is over"),
        (tells_passwords, DOWN, "2. On", "2. See secrets/admin. On", "secrets/"),
        (tells_passwords, BLANK, "](README.md#passwords)", "]()", "--operator-user"),
        (writes_identities_as_another, BLANK, " --operator-user lockd_operator", "", "sudo lockctl"),
        (types_what_is_not_on_the_hosts, DOWN, "| grep", "| ripgrep", "ripgrep"),
        (has_lockctl_do_what_it_cannot, DOWN, "lockctl masters", "lockctl mistress", "mistress"),
        (has_lockctl_do_what_it_cannot, DOWN, "lockctl masters", "lockctl masters --all", "--all"),
        (names_no_verb_unit_or_variable, DOWN, "lockd-guard status", "lockd-guard look", "look, in sudo"),
        (names_no_verb_unit_or_variable, DOWN, "start lockd-master", "start lockd-slave", "lockd-slave, in"),
        (names_no_verb_unit_or_variable, DOWN, "-u lockd-master", "-u redis", "redis, in sudo journalctl"),
        (names_no_verb_unit_or_variable, DOWN, "-e replace_master=", "-e whim=", "whim, in ansible"),
        (names_no_verb_unit_or_variable, DOWN, " move_master.yml", " no_such.yml", "address, in ansible"),
        (asks_redis_as_no_operator_may, DOWN, START, f"{START[:22]}`redis-cli PING`", "redis-cli PING"),
        (asks_redis_as_no_operator_may, DOWN, "`up`", "`DEBUG SLEEP`", "DEBUG SLEEP"),
        (names_files_that_no_role_puts_there, DOWN, "/run/lockd-master.held", "/run/lockd/a/b/c", "/run/"),
        (asks_an_agent_where_it_does_not_listen, FEWER, "127.0.0.1:9090", "127.0.0.1:9480", "127.0.0.1:9480"),
        (names_alerts_that_there_are_not, DOWN, "`up`", "`LockdNothing`", "LockdNothing"),
        (names_alerts_that_there_are_not, DOWN, "](LockdMasterDiskFull.md)", "](No.md)", "No.md"),
        (shows_masters_as_lockctl_does_not, BLANK, "\tblank\t", "\tempty\t", "m4\t"),
        (shows_masters_as_lockctl_does_not, BLANK, "4 of 5 have a vote", "3 of 5 have a vote", "3 of 5"),
        (shows_masters_as_lockctl_does_not, BLANK, "STATE\t", "MOOD\t", "NAME\t"),
        (shows_locks_as_lockctl_does_not, FEWER, "RESOURCE\t", "NAME\t", "NAME\t"),
        (shows_locks_as_lockctl_does_not, FEWER, "\tdetached\t", "\t", "reports/weekly"),
        (shows_what_the_doctor_cannot_say, BURN, "-> sudo lockctl master admit", "-> pray to", "    "),
        (shows_a_status_that_the_guard_does_not_print, DOWN, "overrides: ", "excuses: ", "state: "),
        (shows_a_status_that_the_guard_does_not_print, DOWN, "(unclean stop:", "(bad luck:", "stopped (bad"),
        (shows_a_status_that_the_guard_does_not_print, DOWN, "first_start 1", "whim 1", "whim"),
        (shows_a_status_that_the_guard_does_not_print, DOWN, "overrides:   0", "none", "none"),
        (shows_lines_that_are_not_logged, DOWN, "event=master_state master", "event=whim master", "Nov 21"),
        (shows_lines_that_are_not_logged, DOWN, "web1 lockd[1312]: level", "web1 level", "Nov 21"),
        (asks_for_words_that_there_are_not, BURN, '"noquorum|', '"whim|', "lockd_refusals"),
    )
]  # fmt: skip


def test_a_mistake_is_planted_for_each_check() -> None:
    assert {one.check for one in PLANTED} == set(CHECKS)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: f"{one.check.__name__}: {one.written.strip()}")
def test_it_is_found_and_named_with_its_runbook_and_line(planted: Planted) -> None:
    good = runbook_of(planted.alert)
    assert planted.instead_of in good.text
    bad = good._replace(text=good.text.replace(planted.instead_of, planted.written))
    found = [one.split(":", 2) for one in planted.check(bad)]
    assert any(what.strip(" ").startswith(planted.named.strip(" ")) for _, _, what in found), found
    for of, line, _ in found:
        assert of == f"alerts/runbooks/{planted.alert}.md"
        assert 1 <= int(line) <= bad.text.count("\n")
