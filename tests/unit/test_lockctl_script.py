"""`lockctl script`: what it says of a script, to people and to programs, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from docs.made.scripts import LIBRARIES
from lockd.core.scripts.operations import Kind
from lockd.lockctl.failures import ExitStatus
from lockd.lockctl.main import main

EXTEND = LIBRARIES / "redis-py 8.1.0" / "extend.lua"


def lockctl_script(*words: str, script: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["script", *words], input=script)


def test_each_case_of_a_recognised_script_is_shown_by_itself() -> None:
    result = lockctl_script(str(EXTEND))
    assert result.exit_code == ExitStatus.DONE
    adds, sets = result.output.split("\n\n")
    assert adds.splitlines() == [
        'when      ARGV[3] is "0"',
        "operation extend",
        "key       KEYS[1]",
        "value     ARGV[1]",
        "ttl       what is left and ARGV[2] ms",
        "replies   free: 0 · own: 1 · own without TTL: 0 · another's: 0",
    ]
    assert 'when      not: ARGV[3] is "0"' in sets
    assert "ttl       ARGV[2] ms" in sets


def test_a_script_may_come_from_the_input() -> None:
    result = lockctl_script("-", script=b"return redis.call('get', KEYS[1])")
    assert result.exit_code == ExitStatus.DONE
    assert "operation read" in result.output


def test_of_one_that_is_not_recognised_it_says_why_and_what_there_is(tmp_path: Path) -> None:
    counter = tmp_path / "counter.lua"
    counter.write_bytes(b"local n = redis.call('incr', KEYS[1])\nreturn n -- how many")
    result = lockctl_script(str(counter))
    assert result.exit_code == ExitStatus.NO
    why, form, _, *operations = result.output.splitlines()
    assert why.startswith(
        "not recognised: INCR is not a command of any known operation; there are no counters"
    )
    assert form == 'normal form: local v1 = redis.call("INCR", KEYS[1]) return v1'
    assert [line.strip().startswith(kind.value) for line, kind in zip(operations, Kind, strict=True)]


def test_programs_get_json() -> None:
    [adds, _] = json.loads(lockctl_script("--json", str(EXTEND)).output)["cases"]
    assert (adds["operation"], adds["when"]) == ("extend", 'ARGV[3] is "0"')
    refused = lockctl_script("--json", "-", script=b"return 'x")
    assert refused.exit_code == ExitStatus.NO
    document = json.loads(refused.output)
    assert (document["recognised"], document["normal_form"]) == (False, "")
    assert document["why"] == "line 1: a string is not closed"
    assert list(document["operations"]) == [kind.value for kind in Kind]


def test_what_it_shows_can_do_a_terminal_no_harm() -> None:
    result = lockctl_script("-", script=b"redis.call('get', KEYS[1]) return '\x1b[31m\xff'")
    assert result.output.isascii() or "\x1b" not in result.output
    assert "\x1b" not in lockctl_script("-", script=b"return x == '\x1b'").output


def test_a_file_that_is_not_there_is_a_wrong_command_line() -> None:
    assert lockctl_script("/nowhere/release.lua").exit_code == ExitStatus.USAGE


def test_one_that_is_too_long_is_not_read_whole() -> None:
    result = lockctl_script("-", script=b"-" * 1_000_000)
    assert result.exit_code == ExitStatus.NO
    assert "at most 4096 are allowed" in result.output
