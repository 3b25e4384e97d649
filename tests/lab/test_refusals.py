"""What plays refuse before they ask any host, and what they say to do instead."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from tests.lab.inventory import ANSIBLE
from tests.lab.local_ansible import needs_ansible
from tests.lab.nowhere import APPS, MASTERS, Hosts, inventory, judged, refused, told

pytestmark = needs_ansible
MOVE = ("-e", "move_master=m3", "-e", "address=127.0.9.9")


def test_a_master_is_not_moved_where_no_quorum_of_the_others_is_left(tmp_path: Path) -> None:
    """Retired, with two more absent, it would have left nobody that could admit the new one."""
    said = refused(inventory(tmp_path), "move_master.yml", *MOVE, "-e", "absent=m4,m5")
    assert "Without m3, m4, m5 no quorum of the masters is left" in said
    assert "replace_master.yml -e replace_master=m4,m5), before m3 moves. Nothing was changed." in said
    assert "No answer over ssh" not in said


def test_a_master_is_moved_while_one_other_is_absent(tmp_path: Path) -> None:
    said = refused(inventory(tmp_path), "move_master.yml", *MOVE, "-e", "absent=m4")
    assert "no quorum" not in said
    assert "No answer over ssh" in said


def test_a_master_that_moves_counts_as_destroyed_only_if_that_is_said(tmp_path: Path) -> None:
    hosts = inventory(tmp_path)
    said = refused(hosts, "move_master.yml", *MOVE, "-e", "absent=m3")
    assert "m3 can't be left out by -e absent=" in said
    assert "say -e move_master_old=destroyed instead. Nothing was changed." in said
    said = refused(hosts, "move_master.yml", *MOVE, "-e", "move_master_old=destroyed")
    assert "can't be left out" not in said
    assert "No answer over ssh" in said


@pytest.mark.smoke
@pytest.mark.parametrize("without", [("m1,m2", "m3"), ("m1,m2,m3", "")])
def test_no_master_is_replaced_without_a_quorum_of_the_others(
    tmp_path: Path, without: tuple[str, str]
) -> None:
    new, absent = without
    said = refused(
        inventory(tmp_path), "replace_master.yml", "-e", f"replace_master={new}", "-e", f"absent={absent}"
    )
    assert "Without m1, m2, m3 no quorum of the masters is left" in said
    assert "recover_cluster.yml -e recover_cluster=shop. Nothing was changed." in said


@pytest.mark.parametrize("words", [("revoke_agent", "a2"), ("recover_cluster", "shop")])
@pytest.mark.parametrize("limit", ["a2", "m1", "mon1"])
def test_a_play_for_the_masters_does_not_end_well_where_a_limit_leaves_them_out(
    tmp_path: Path, words: tuple[str, str], limit: str
) -> None:
    """It would shut nobody out, and say nothing of it."""
    play, name = words
    said = refused(inventory(tmp_path), f"{play}.yml", "-e", f"{play}={name}", "--limit", limit)
    assert f"Run the play without --limit ({limit})" in said
    assert "Nothing was changed." in said


@pytest.mark.parametrize(("address", "whose"), [("127.0.2.2", "a2"), ("127.0.3.1", "mon1"), ("a3", "a3")])
def test_a_master_moves_to_no_host_that_is_something_else(tmp_path: Path, address: str, whose: str) -> None:
    words = ("-e", "move_master=m3", "-e", f"address={address}")
    said = refused(inventory(tmp_path), "move_master.yml", *words)
    assert f"In the inventory {address} is {whose}." in said
    assert "Nothing was changed." in said


def test_a_master_moves_to_no_such_host_under_another_address(tmp_path: Path) -> None:
    said = refused(inventory(tmp_path), "move_master.yml", *MOVE, "-e", "move_master_host=127.0.2.2")
    assert "In the inventory 127.0.9.9 or 127.0.2.2 is a2." in said


@pytest.mark.parametrize("words", [("remove_app.yml", "-e", "app=a2"), ("add_apps.yml", "-e", "apps=a2")])
def test_two_names_of_one_host_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A line that was copied: what is meant for a2 would be done to a1."""
    said = refused(inventory(tmp_path, apps={**APPS, "a2": APPS["a1"]}), *words)
    assert "More than one name for one host: a1, a2 (127.0.2.1 port 1)." in said
    assert "Nothing was changed." in said


@pytest.mark.smoke
def test_a_master_and_an_app_host_at_one_address_are_refused(tmp_path: Path) -> None:
    said = refused(inventory(tmp_path, apps={"a1": {"ansible_host": "127.0.1.2"}}), "site.yml")
    assert "More than one name for one host: m2, a1 (127.0.1.2 port 1)." in said


def test_hosts_behind_one_address_differ_by_their_port(tmp_path: Path) -> None:
    apps: Hosts = {
        "a1": {"ansible_host": "127.0.2.1", "ansible_port": 2},
        "a2": {"ansible_host": "127.0.2.1"},
    }
    said = refused(inventory(tmp_path, apps=apps), "site.yml")
    assert "More than one name" not in said
    assert "No answer over ssh" in said


def whose(folder: Path, there: str, **more: bool) -> str:
    has = {"cluster": base64.b64encode(f"{there}\n".encode()).decode()} if there else {}
    names = {"cluster": "shop", "name": "m3", "has": has, **more}
    found = {f"lockd_redis_master_{name}": value for name, value in names.items()}
    return judged(folder, "roles/redis_master/tasks/same_master.yml", {"m3": found})


@pytest.mark.parametrize("there", ["shop m4", "other m3"])
def test_a_host_that_has_another_master_is_not_taken_for_this_one(tmp_path: Path, there: str) -> None:
    """Nor where one is replaced, and may be blank: its data would be destroyed."""
    said = whose(tmp_path, there, may_be_blank=True)
    assert f"answers as m3 (127.0.1.3) has the master '{there}', and the inventory says 'shop m3'" in said
    assert "Nothing was changed" in said


def test_a_host_without_a_master_is_one_only_where_it_is_replaced(tmp_path: Path) -> None:
    assert "m3 (127.0.1.3) has no master of lockd" in whose(tmp_path, "")
    assert whose(tmp_path, "", may_be_blank=True).startswith("status 0")
    assert whose(tmp_path, "shop m3").startswith("status 0")


MASTERS_FILE, AGENTS_FILE = "shop m1\n", '# Ansible managed\ncluster: "shop"\nmasters:\n'


@pytest.mark.parametrize(
    ("host", "text", "found"),
    [
        ("m3", MASTERS_FILE, ""),
        ("m3", MASTERS_FILE.replace("shop", "other"), "m3 (other)"),
        ("a2", AGENTS_FILE, ""),
        ("a2", AGENTS_FILE.replace("shop", "other"), "a2 (other)"),
        ("a2", AGENTS_FILE.replace('"shop"', "other"), "a2 (other)"),
        ("a2", None, ""),
    ],
)
def test_no_cluster_is_destroyed_by_the_inventory_of_another(
    tmp_path: Path, host: str, text: str | None, found: str
) -> None:
    there = {} if text is None else {"content": base64.b64encode(text.encode()).decode()}
    said = judged(tmp_path, "tasks/of_no_other_cluster.yml", {host: {"remove_cluster_there": there}})
    if not found:
        assert said.startswith("status 0"), said
    else:
        assert f"these hosts belong to another cluster: {found}. Its locks" in said
        assert "Nothing was changed" in said


HERE = {"ansible_connection": "local"}


def missing(folder: Path, *names: str, **said: object) -> str:
    """What plays say when these hosts don't answer; the others are this machine."""
    hosts = {name: {} if name in names else HERE for name in (*MASTERS, *APPS)}
    return judged(folder, "tasks/present.yml", hosts, present_masters=True, **said)


@pytest.mark.parametrize(
    ("names", "said", "hint"),
    [
        (["m4", "a2"], {}, "; or leave them out for now: -e absent=m4,a2. Nothing was changed."),
        (["m4", "a2"], {"absent": "m5"}, "; or leave them out for now: -e absent=m5,m4,a2. Nothing"),
        # Three masters may not be left out, nor one that is to be replaced or moved, nor all app hosts.
        (["m3", "m4", "a2"], {"absent": "m5"}, "again; or leave them out for now: -e absent=m5,a2. Nothing"),
        (["m3", "m4"], {"absent": "m5"}, "and run the same play again. Nothing was changed."),
        (["m3", "m4"], {"replace_master": "m3"}, "; or leave them out for now: -e absent=m4. Nothing"),
        (["m3"], {"replace_master": "m3"}, "and run the same play again. Nothing was changed."),
        (["m4", "m5"], {"replace_master": "m3"}, "and run the same play again. Nothing was changed."),
        (["a1", "a2", "a3"], {}, "and run the same play again. Nothing was changed."),
        (
            ["m3"], {"move_master": "m3"},
            "again; or, if the host of m3 is gone for good: -e move_master_old=destroyed. Nothing",
        ),
    ],
)  # fmt: skip
def test_a_hint_names_no_host_that_the_play_would_not_do_without(
    tmp_path: Path, names: list[str], said: dict[str, object], hint: str
) -> None:
    heard = missing(tmp_path, *names, **said)
    assert f"No answer over ssh from {', '.join(names)}" in heard
    assert hint in heard


def sees(*without: str) -> str:
    """What an agent says of the masters, of which these have no vote."""
    rows = [
        {"name": name, "vote": int(name not in without), "state": "down", "reason": "no answer"}
        for name in MASTERS
    ]
    return json.dumps(rows)


@pytest.mark.parametrize(
    ("answers", "hint"),
    [
        # One of three: its host or its agent is what is wrong.
        ({"a1": sees(), "a2": sees("m2"), "a3": sees()}, "; or leave them out for now: -e absent=a2."),
        ({"a1": sees(), "a2": None, "a3": sees()}, "; or leave them out for now: -e absent=a2."),
        # Most of them: the master.
        ({"a1": sees("m2"), "a2": sees("m2"), "a3": sees()}, "health.yml shows every host."),
        ({"a1": sees("m2")}, "health.yml shows every host."),
    ],
)
def test_a_sick_app_host_may_be_left_out_and_a_sick_master_not(
    tmp_path: Path, answers: dict[str, str | None], hint: str
) -> None:
    asked = [
        {"item": name, "rc": 0, "stdout": text} if text else {"item": name, "rc": 1, "stderr": "no agent"}
        for name, text in answers.items()
    ]
    said = told(
        tmp_path, "{{ lockd_unwell_says }}", unwell_answers=asked, without_hosts="{{ lockd_unwell_apps }}"
    )
    assert "Not all is well" in said
    assert f"{hint} Then run the same play again" in said


def test_all_sick_agents_are_named_at_once(tmp_path: Path) -> None:
    """No agent answers on this machine, which is the host of all three."""
    found = {"a1": HERE, "m1": HERE, "a2": HERE}
    said = judged(tmp_path, "tasks/every_agent_well.yml", found, all_well_patience_s=1)
    assert re.search("the agent of a1 does not answer[^;]*; the agent of a2 does not answer", said)


def test_three_agents_are_asked_for_all_and_each_is_named(tmp_path: Path) -> None:
    (tmp_path / "ask.yml").write_text(
        "- ansible.builtin.group_by: {key: lock_witnesses}\n"
        f"- ansible.builtin.include_tasks: {ANSIBLE}/tasks/witnesses_well.yml\n"
    )
    found = dict.fromkeys(APPS, HERE)
    said = judged(tmp_path, str(tmp_path / "ask.yml"), found, all_well_patience_s=1)
    for name in APPS:
        assert f"the agent of {name} does not answer" in said


def test_hosts_whose_clock_is_off_may_be_left_out_where_they_are_app_hosts(tmp_path: Path) -> None:
    (tmp_path / "chronyc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "chronyc").chmod(0o755)
    (tmp_path / "check.yml").write_text(
        "- ansible.builtin.include_role: {name: time_sync, tasks_from: check}\n"
    )
    check, waits = str(tmp_path / "check.yml"), {"lockd_time_sync_patience_s": 1}
    said = judged(tmp_path, check, {"a1": HERE, "a3": HERE}, **waits)
    assert "The clock of a1 is not in sync" in said
    assert "Correct that; or leave them out for now: -e absent=a1,a3." in said
    said = judged(tmp_path, check, {"a1": HERE, "m2": HERE}, **waits)
    assert "The clock of a1 is not in sync" in said
    assert "absent=" not in said


def test_a_host_that_was_lost_on_the_way_may_be_left_out_then(tmp_path: Path) -> None:
    lost = {"none_lost_missing": ["a2"], "without_hosts": ["a2"], "absent": "a1"}
    assert "; or leave them out for now: -e absent=a1,a2" in told(tmp_path, "{{ lockd_without }}", **lost)


def test_an_app_host_that_is_the_monitoring_host_can_be_added(tmp_path: Path) -> None:
    said = refused(inventory(tmp_path, monitoring={"a2": APPS["a2"]}), "add_apps.yml", "-e", "apps=a2")
    assert "Say which" not in said
    assert "No answer over ssh from" in said


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_master_that_is_stopped_is_left_out_before_anything_is_changed(tmp_path: Path) -> None:
    silent = {"lockd_redis_master_has": {"said": coded("Could not connect to Redis\n")}, "absent": "m5"}
    said = judged(tmp_path, "roles/redis_master/tasks/answers.yml", {"m4": silent})
    assert "The master of m4 does not answer (Could not connect to Redis)" in said
    assert "-e absent=m5,m4. Nothing was changed." in said
    speaks = {"lockd_redis_master_has": {"said": coded("PONG\n")}}
    assert judged(tmp_path, "roles/redis_master/tasks/answers.yml", {"m4": speaks}).startswith("status 0")


@pytest.mark.parametrize(
    ("text", "refuses"),
    [("auth: {username: agent-a1}", True), ("auth: {username: agent-a2}", False), ("", False)],
)
def test_an_agent_of_another_host_is_not_removed(tmp_path: Path, text: str, refuses: bool) -> None:
    there = {"this_agent_read": {"content": coded(text)} if text else {}}
    said = judged(tmp_path, "tasks/this_agent.yml", {"a2": there})
    assert (
        "answers as a2 (127.0.2.2) has the agent of another: agent-a1. Correct ansible_host" in said
    ) == refuses
    assert said.startswith("status 0") != refuses, said


@pytest.mark.parametrize(
    ("candidate", "refuses"),
    [
        ("5:6.0.16-1ubuntu1", "6.0.16"),
        ("5:7.0.15-1~deb12u5", ""),
        ("6:6.2.7-1rl1", ""),
        ("(none)", ""),
        (None, ""),
    ],
)
def test_a_host_with_an_old_redis_is_refused_before_it_is_installed(
    tmp_path: Path, candidate: str | None, refuses: str
) -> None:
    said_by_apt = f"redis-server:\n  Installed: (none)\n  Candidate: {candidate}\n" if candidate else ""
    found = {"lockd_redis_master_policy": {"stdout": said_by_apt}}
    said = judged(tmp_path, "roles/redis_master/tasks/new_enough.yml", {"m4": found})
    if refuses:
        assert f"m4 would get Redis {refuses}, and lockd needs 6.2 or newer" in said
        assert "Nothing was changed." in said
    else:
        assert said.startswith("status 0"), said


OTHERS, CUT_OFF = sees("m3"), sees(*MASTERS)
MISCONFIGURED = CUT_OFF.replace('"down"', '"misconfigured"')
AGENTS = {"rc": 0, "stdout": "id=3 user=lockd_admin\nid=4 user=agent-web7\n"}
NOBODY = {"rc": 0, "stdout": "id=3 user=lockd_admin\n"}
STOPPED = {"rc": 1, "stdout": "", "stderr": "Could not connect to Redis"}


@pytest.mark.parametrize(
    ("seen", "connections", "voteless"),
    [
        ([OTHERS, OTHERS, OTHERS], AGENTS, True),
        ([OTHERS, None, OTHERS], AGENTS, True),
        ([OTHERS, sees(), OTHERS], AGENTS, False),
        # These three may be the ones that are cut off.
        ([CUT_OFF, CUT_OFF, CUT_OFF], AGENTS, False),
        ([CUT_OFF, CUT_OFF, CUT_OFF], NOBODY, True),
        ([CUT_OFF, CUT_OFF, CUT_OFF], STOPPED, True),
        ([CUT_OFF, CUT_OFF, CUT_OFF], {"rc": 1, "stdout": "WRONGPASS"}, False),
        ([MISCONFIGURED, CUT_OFF, CUT_OFF], AGENTS, True),
        ([None, None, None], NOBODY, False),
    ],
)
def test_a_master_is_restarted_at_once_only_if_nobody_has_its_vote(
    tmp_path: Path, seen: list[str | None], connections: dict[str, object], voteless: bool
) -> None:
    answers = [
        {"rc": 0, "stdout": text} if text else {"unreachable": True, "msg": "no route"} for text in seen
    ]
    heard = {"restart_voteless_answers": {"results": answers}, "lockd_redis_master_connections": connections}
    (tmp_path / "tell.yml").write_text(
        f"- ansible.builtin.include_tasks: {ANSIBLE}/tasks/takes_no_vote.yml\n"
        "- ansible.builtin.debug: {msg: 'voteless is {{ voteless | bool }}'}\n"
    )
    assert f"voteless is {voteless}" in judged(tmp_path, str(tmp_path / "tell.yml"), {"m3": heard})
