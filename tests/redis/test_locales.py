"""A cron job and a terminal have different locales. What `lockctl` is told there in the same bytes is the
same resource, with one holder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.harness.clients import take_all_away
from tests.harness.cluster import Cluster
from tests.harness.locales import make_latin_1
from tests.harness.lockctl import Done, lockctl
from tests.harness.wire import as_map
from tests.redis.module_cluster import module_cluster

LONG_MS = 600_000
TAKEN = 75
NAME = "rücklage:☃"
IN_BYTES = NAME.encode()
ESCAPED = r"r\xc3\xbccklage:\xe2\x98\x83"

cluster = module_cluster(1, max_ttl_ms=LONG_MS)


@pytest.fixture(scope="module")
def latin_1(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of an old service."""
    environment = os.environ | make_latin_1(tmp_path_factory.mktemp("locale"))
    asked = [sys.executable, "-c", "import sys; print(sys.getfilesystemencoding())"]
    assert subprocess.check_output(asked, env=environment) == b"iso8859-1\n"
    return environment


@pytest.fixture
def there(cluster: Cluster, latin_1: Mapping[str, str]) -> Iterator[Callable[..., Done]]:
    """Type a command there."""
    yield lambda *words: lockctl(cluster, *words, env=latin_1)
    take_all_away(cluster)


def test_what_a_terminal_has_locked_is_taken_for_every_command_in_another_locale(
    cluster: Cluster, there: Callable[..., Done]
) -> None:
    lease = as_map(cluster.client().execute_command("LOCK", IN_BYTES, LONG_MS, "DETACHED"))
    for command in (("lock", NAME), ("run", NAME, "--", "true"), ("run", "other", NAME, "--", "true")):
        assert there(*command).returncode == TAKEN, command
    assert there("holder", NAME, "--json").json["resource"] == NAME
    assert [row["resource"] for row in there("locks", "rü*", "--json").json] == [NAME]
    assert there("extend", NAME, lease["token"]).returncode == 0
    assert there("unlock", NAME, lease["token"]).returncode == 0


def test_what_was_locked_in_another_locale_has_the_name_that_was_typed(
    cluster: Cluster, there: Callable[..., Done]
) -> None:
    assert there("lock", NAME, "--ttl", "10m").returncode == 0
    assert there("run", f"{NAME}2", "--", "sh", "-c", "exit 3").returncode == 3
    rows = map(as_map, cluster.client(decode_responses=False).execute_command("LOCKS"))
    assert [row[b"resource"] for row in rows] == [IN_BYTES]
    assert there("force-release", NAME, "--yes", "--json").json["resource"] == NAME
    assert there("holder", NAME).stdout == f"{ESCAPED} is free\n"


def test_what_a_terminal_cannot_show_is_escaped_so_that_no_letter_is_converted(
    cluster: Cluster, there: Callable[..., Done]
) -> None:
    cluster.client().execute_command("LOCK", IN_BYTES, LONG_MS, "DETACHED")
    assert ESCAPED in there("holder", NAME).stdout
    assert ESCAPED in there("locks").stdout
    assert NAME in lockctl(cluster, "locks", env=os.environ | {"LC_ALL": "C.UTF-8"}).stdout
    refused = there("run", NAME, "--", "true")
    assert refused.returncode == TAKEN
    assert refused.stderr.isascii()


def test_a_command_line_that_python_reads_as_other_bytes_is_refused(
    cluster: Cluster, latin_1: Mapping[str, str]
) -> None:
    """In Big5 the bytes A1 FE would come back as A2 41. Here the letter is changed by hand."""
    program = "import sys; sys.argv[-1] += 'x'; from lockd.lockctl.main import main; main()"
    words = [sys.executable, "-c", program, "--socket", str(cluster.socket), "holder", NAME]
    done = subprocess.run(words, env=latin_1, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (64, "")
    assert "set LC_ALL=C.UTF-8" in done.stderr
