"""What an operator may write, what they are told when it is wrong, what the agent gets when it is good."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockd.config.model import CLASSES_REMEMBERED, Config, load, refusals
from lockd.config.problems import ConfigError, Problem
from lockd.config.warnings import warnings_of
from tests.harness.any_text import any_text

EXAMPLE = Path(__file__).resolve().parents[2] / "lockd.example.yml"


def masters(count: int = 3, **changes: dict[str, object]) -> list[dict[str, Any]]:
    """Changes by the names that the masters have here: `m1={"name": "b"}`."""
    names = [f"m{n}" for n in range(1, count + 1)]
    return [{"name": name, "address": f"10.0.0.{name[1:]}:6379", **changes.get(name, {})} for name in names]


def document(**changes: Any) -> dict[str, Any]:
    return {"cluster": "test", "masters": masters(), **changes}


def with_value(path: str, value: object) -> dict[str, Any]:
    """A good document, but for that value at that path."""
    changed = document(classes=[{"name": "a", "match": "a"}], metrics_hosts=["web1"])
    *sections, last = (int(part) if part.isdigit() else part for part in re.findall(r"\w+", path))
    place: Any = changed
    for part in sections:
        place = place[part] if isinstance(place, list) else place.setdefault(part, {})
    place[last] = value
    return changed


def config(**changes: Any) -> Config:
    return Config.read(document(**changes))


def problems(**changes: Any) -> dict[str, Problem]:
    with pytest.raises(ConfigError) as caught:
        config(**changes)
    return {problem.path: problem for problem in caught.value.problems}


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Writes a file and loads it."""

    def write_and_load(text: str | bytes) -> Config:
        path = tmp_path / "lockd.yml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(path)

    return write_and_load


@pytest.fixture
def refused(written: Any) -> Any:
    """Writes a file that is expected to be refused, and gives its problems."""

    def problems_of(text: str | bytes) -> list[Problem]:
        with pytest.raises(ConfigError) as caught:
            written(text)
        found: list[Problem] = caught.value.problems
        return found

    return problems_of


MINIMAL = """\
cluster: test
masters: [{name: m1, address: 'a:1'}, {name: m2, address: 'b:1'}, {name: m3, address: 'c:1'}]
"""


# ---- what is good


def test_the_example_loads_without_problems_or_warnings() -> None:
    example = load(EXAMPLE)
    assert (example.quorum, len(example.masters), warnings_of(example)) == (3, 5, [])


def test_the_example_shows_every_key_with_its_default() -> None:
    written = yaml.safe_load(EXAMPLE.read_text())
    assert set(written) == set(Config.keys)
    example, plain = load(EXAMPLE), Config.read({**document(), "masters": written["masters"]})
    for name in set(Config.keys) - {"cluster", "classes"}:
        assert getattr(example, name) == getattr(plain, name), name
    for section in ("socket", "timeouts", "limits"):
        assert set(written[section]) == set(type(getattr(example, section)).keys), section


@pytest.mark.parametrize(("count", "quorum"), [(1, 1), (3, 2), (5, 3), (7, 4), (9, 5)])
def test_a_quorum_is_more_than_half_of_the_masters(count: int, quorum: int) -> None:
    assert config(masters=masters(count)).quorum == quorum


def test_an_address_is_split_into_host_and_port() -> None:
    listed = masters(m1={"address": "[2001:db8::1]:7000"}, m2={"address": "redis-1.example.com:6379"})
    first, second, _ = config(masters=listed).masters
    assert (first.host, first.port) == ("2001:db8::1", 7000)
    assert (second.host, second.port) == ("redis-1.example.com", 6379)


def test_a_socket_mode_is_octal_with_or_without_quotes(written: Any) -> None:
    assert written(MINIMAL + "socket: {mode: 0600}").socket.mode == 0o600
    assert written(MINIMAL + "socket: {mode: '0666'}").socket.mode == 0o666


def test_words_that_yaml_1_1_takes_for_booleans_and_times_are_text(written: Any) -> None:
    assert written(MINIMAL.replace("test", "no")).cluster == "no"
    users = written(MINIMAL + "defaults: {users: [on, 12:30, 2026-01-01]}").defaults.users
    assert users == ("on", "12:30", "2026-01-01")


# Beside those that are refused below.
METRICS = ("127.0.0.1:0", "[::]:9480", "localhost:9480", "localhost:65535", None)
TAKEN = [
    *(("metrics", value) for value in METRICS),
    ("metrics_hosts", ("web1", "web1.example.com")),
    ("socket.path", Path("/" + "x" * 96)),
    *(("limits.memory_mib", value) for value in (64, 1 << 20, None)),
    ("limits.files", 128),
    ("limits.share_percent", 10_000),
    # Below limits.request_bytes and others, which nobody wrote.
    ("limits.unread_bytes", 10),
]


@pytest.mark.parametrize(("path", "value"), TAKEN)
def test_what_is_just_right_is_taken_as_it_was_written(path: str, value: object) -> None:
    written = str(value) if isinstance(value, Path) else value
    made: object = Config.read(with_value(path, written))
    assert functools.reduce(getattr, path.split("."), made) == value


# ---- classes


def test_what_a_class_leaves_out_comes_from_the_defaults_and_null_is_not_left_out() -> None:
    made, for_all = config(
        defaults={"max_wait_ms": 7, "users": ["root"]},
        classes=[{"name": "a", "match": "a*", "max_hold_ms": 9}, {"name": "b", "match": "b*", "users": None}],
    ).classes
    assert (made.max_wait_ms, made.max_hold_ms, made.users) == (7, 9, ("root",))
    assert for_all.users is None


def test_the_ttl_ceiling_of_a_class_is_its_own_else_the_default_else_the_global_one() -> None:
    classes = [{"name": "own", "match": "own", "max_ttl_ms": 2_000}, {"name": "none", "match": "none"}]
    with_default = config(max_ttl_ms=5_000, defaults={"max_ttl_ms": 3_000}, classes=classes)
    without = config(max_ttl_ms=5_000, classes=classes)
    assert [one.max_ttl_ms for one in (*with_default.classes, with_default.other)] == [2_000, 3_000, 3_000]
    assert [one.max_ttl_ms for one in (*without.classes, without.other)] == [2_000, 5_000, 5_000]


def test_the_first_class_that_matches_wins_and_other_takes_the_rest() -> None:
    made = config(classes=[{"name": "eu", "match": "db:eu:*"}, {"name": "db", "match": "db:*"}])
    names = [made.class_of(name).name for name in (b"db:eu:1", b"db:us:1", b"x", b"DB:eu:1")]
    assert names == ["eu", "db", "other", "other"]


def test_globs_match_whole_names_of_any_bytes() -> None:
    made = config(classes=[{"name": "one", "match": "é?"}, {"name": "any", "match": "b*"}])
    assert made.class_of("éx".encode()).name == "one"
    assert made.class_of(b"b\xff\n\x00").name == "any"
    assert made.class_of(b"\xff").name == "other"


def test_class_of_remembers_a_bounded_number_of_resources() -> None:
    made = config(classes=[{"name": "a", "match": "a*"}])
    for n in range(CLASSES_REMEMBERED + 10):
        made.class_of(b"a%d" % n)
    assert isinstance(made.class_of, functools._lru_cache_wrapper)
    assert made.class_of.cache_info().currsize == CLASSES_REMEMBERED


# ---- what is wrong

# fmt: off
REFUSED: list[tuple[str, list[Any], str]] = [
    ("max_ttl_ms", ["60", 60.0, True, None, [60], {"ms": 60}, 999, 86_400_001, 10**30],
     "; write a whole number from 1000 to 86400000, in plain digits"),
    ("cluster", [1, True, None, "", "a b", "a" * 65, "käse", "a\n"], "; write 1 to 64 letters, digits"),
    ("cluster", [12], "in quotes"),
    ("masters[1].address",
     ["", "a", "a:", ":1", "a:0", "a:65536", "a:1x", "::1:6379", "[::1]", "[nonsense]:1", "10.0.0.256:1",
      "10.0.1:1", "a b:1", "a..b:1", "redis://a:1", "a:1:2", "[::1:6379", "a:٣", "x" * 64 + ":1", "a:1\n"],
     "host:port"),
    ("masters[1].address", ["[2001:db8::1]:0"], 'text "[2001:db8::1]:0", whose port is not from 1 to 65535;'),
    ("masters[1].address", ["0.0.0.0:6379", "[::]:6379", "[0::0]:6379", "[::ffff:0.0.0.0]:6379"],
     ", which would be another master on each host; write host:port"),
    ("masters[1].address", ["a:65536", "a:637900", "a:999999999"], ", whose port is not from 1 to 65535;"),
    ("metrics", ["9480", ":9480", 9480, "localhost:99999"], "host:port"),
    ("metrics", ["localhost:65536"], ", whose port is not from 0 to 65535;"),
    ("metrics_hosts[0]",
     ["web1:9480", "http://web1", "*", "*.example.com", "", ".", "[::1]", "a b", 1],
     "; write a list of host names"),
    ("socket.mode", [660, 0o660, "rw-rw----", "0o660", "0888", "06600", None], '"0660"'),
    ("socket.path", ["lockd.sock", "./run/lockd.sock", "../lockd.sock", "", "~/lockd.sock"],
     ", which is relative to the folder where lockd is started; "
     'write an absolute path, such as "/run/lockd/lockd.sock"'),
    ("socket.path", ["/" + "x" * 97], "at most 97 bytes"),
    ("classes[0].name", ["", "Billing", "1st", "a-b", "a" * 64, 5], "a-z"),
    ("classes[0].name", ["other", "canary"], "; write another name"),
    ("classes[0].match", [""], (
        'is empty; write a glob for resource names, such as "billing:*", or "*" for all'
    )),
    ("log_level", ["INFO"], "; write debug, info, warning or error"),
    ("timeouts", [None],
     'is empty; write "key: value" lines of master_ms, connect_ms, dead_ms, or leave it out'),
    ("masters", [masters(count) for count in (0, 2, 4, 6, 8, 10, 11)], "; write 3, 5, 7 or 9"),
    ("masters", [masters(4)], "has 4 masters, which survive no more failures than 3;"),
    ("auth.password_file", ["", ".", "/nope/nope", "a\0b", 5], ""),
    # Keys
    ("max_tll_ms", [1], "; did you mean max_ttl_ms?"),
    ("timeouts.conect_ms", [1], "; did you mean connect_ms?"),
    ("master_ms", [1], "; write it under timeouts"),
    ("limits.max_ttl_ms", [1], "; write it at the top level"),
    ("socket.zzz", [1], "; remove it; known here: path, mode, group"),
]
# fmt: on


@pytest.mark.parametrize(
    ("path", "value", "told"), [(path, value, told) for path, values, told in REFUSED for value in values]
)
def test_what_is_wrong_by_itself_is_refused_with_what_to_write(path: str, value: object, told: str) -> None:
    assert told in str(problems(**with_value(path, value))[path])


A_CLASS = {"name": "a", "match": "a"}

# fmt: off
CONTRADICTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"masters": masters(m3={"name": "m1"})},
     "masters[2].name", 'is the text "m1", the same as masters[0].name;'),
    ({"classes": [A_CLASS, A_CLASS]}, "classes[1].name", "the same as classes[0].name;"),
    ({"max_ttl_ms": 10_000, "classes": [A_CLASS | {"max_ttl_ms": 10_001}]},
     "classes[0].max_ttl_ms", "is 10001, above max_ttl_ms (10000); write at most 10000, or raise max_ttl_ms"),
    ({"min_ttl_ms": 500, "classes": [A_CLASS | {"max_ttl_ms": 499}]},
     "classes[0].max_ttl_ms", "; write at least 500, or lower min_ttl_ms"),
    ({"defaults": {"max_ttl_ms": 60_001}}, "defaults.max_ttl_ms", "above max_ttl_ms (60000);"),
    ({"max_ttl_ms": 1_000, "min_ttl_ms": 1_001}, "min_ttl_ms", "; write at most 1000, or raise max_ttl_ms"),
    ({"limits": {"request_bytes": 100}},
     "limits.request_bytes", "; write at least 512, or lower limits.resource_bytes"),
    ({"limits": {"pipeline_bytes": 1_000}}, "limits.pipeline_bytes", "lower limits.request_bytes"),
    ({"auth": {"username": "lockd"}}, "auth", "; add password_file"),
    ({"auth": {"password": "x", "password_file": str(EXAMPLE)}}, "auth", "; keep one"),
    ({"tls": {"ca_file": "/nope", "cert_file": str(EXAMPLE)}}, "tls", "only one of cert_file and key_file"),
    ({"tls": {"ca_file": "/nope"}}, "tls.ca_file", "No such file"),
    ({"tls": {"ca_file": str(EXAMPLE), "cert_file": "/nope"}}, "tls.cert_file", "No such file"),
    # Two spellings of one address
    *(({"masters": masters(m1={"address": one}, m3={"address": same})},
       "masters[2].address", "the same as masters[0].address;")
      for one, same in [("a:6379", "a:6379"), ("a:6379", "A.:6379"), ("a:6379", "a:06379"),
                        ("[::1]:1", "[0:0::1]:1"), ("localhost:1", "127.0.0.1:1"),
                        ("[::ffff:10.0.0.2]:1", "10.0.0.2:1"), ("[::FFFF:a00:2]:1", "10.0.0.2:1")]),
]
# fmt: on


@pytest.mark.parametrize(("changes", "path", "told"), CONTRADICTIONS)
def test_what_contradicts_something_else_is_refused_with_what_to_write(
    changes: dict[str, Any], path: str, told: str
) -> None:
    assert told in str(problems(**changes)[path])


def test_missing_keys_are_told_with_what_to_write() -> None:
    with pytest.raises(ConfigError) as caught:
        Config.read({})
    assert str(caught.value).splitlines() == [
        "cluster: is missing; write 1 to 64 letters, digits, '.', '_' or '-'",
        'masters: is missing; write a list of 3, 5, 7 or 9 {name: m1, address: "m1:6379"}',
    ]


def test_every_mistake_is_told_at_once() -> None:
    listed = [
        {"name": "m1", "address": "a:1"},
        {"name": "m1", "adress": "b:1"},
        5,
        {"name": "m4", "address": "A:1"},
    ]
    found = problems(
        cluster="a b",
        masters=listed,
        min_ttl_ms="1",
        log_level="loud",
        auth={"password": "x", "password_file": "/nope"},
        classes=[{"name": "a", "match": "", "max_ttl_ms": 70_000}, A_CLASS | {"users": "root"}],
        limits={"files": 1.5},
        verbose=True,
    )
    assert sorted(found) == [
        *("auth", "auth.password_file", "classes[0].match", "classes[0].max_ttl_ms", "classes[1].name"),
        *("classes[1].users", "cluster", "limits.files", "log_level", "masters", "masters[1].address"),
        *("masters[1].adress", "masters[1].name", "masters[2]", "masters[3].address", "min_ttl_ms"),
        "verbose",
    ]


def test_a_configuration_made_in_python_is_checked_as_well() -> None:
    made = config()
    with pytest.raises(ConfigError, match=r"masters\[3\].name"):
        Config(cluster="x", masters=(*made.masters, made.masters[0]))


# ---- secrets and files


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("hunter 2\n")
    return path


def test_the_password_comes_from_the_configuration_or_from_its_file_which_is_read_anew(secret: Path) -> None:
    assert config(auth={"password": "hunter 2"}).password() == "hunter 2"
    made = config(auth={"password_file": str(secret)})
    assert made.password() == "hunter 2"
    secret.write_text("new")
    assert made.password() == "new"
    secret.unlink()
    with pytest.raises(ConfigError, match=r"auth.password_file: .*No such file"):
        made.password()


def test_a_byte_order_mark_is_no_part_of_a_password(secret: Path) -> None:
    """Editors of Windows put it there."""
    secret.write_bytes(b"\xef\xbb\xbfs3cret\r\n")
    assert config(auth={"password_file": str(secret)}).password() == "s3cret"


def test_a_configuration_for_another_host_is_read_without_its_files() -> None:
    written = document(auth={"username": "agent-a 1", "password_file": "/nope"}, tls={"ca_file": "/nope"})
    assert [one.path for one in refusals(yaml.safe_dump(written).encode())] == ["auth.username"]
    written["auth"]["username"] = "agent-a1"
    assert refusals(yaml.safe_dump(written).encode()) == []
    assert [one.path for one in refusals(b"- not\n- a mapping")] == ["configuration"]


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\n"])
def test_a_password_file_without_a_password_is_refused(secret: Path, content: bytes) -> None:
    secret.write_bytes(content)
    assert "auth.password_file" in problems(auth={"password_file": str(secret)})


def test_tls_with_its_files_is_good(secret: Path) -> None:
    made = config(tls={f"{name}_file": str(secret) for name in ("ca", "cert", "key")})
    assert made.tls is not None
    assert made.tls.key_file == secret


@pytest.mark.parametrize(
    "wrong",
    [
        {"auth": "hunter2"},
        {"auth": {"password": ["hunter2"]}},
        {"auth": {"username": {"password": "hunter2"}}},
        {"masters": [{"name": "a", "address": "redis://:hunter2@a:1"}]},
        {"auth": {"password": "hunter2"}, "cluster": ""},
    ],
)
def test_a_secret_is_never_printed(wrong: dict[str, Any]) -> None:
    assert "hunter2" not in "".join(map(str, problems(**wrong).values()))


def test_agents_of_two_hosts_share_a_fingerprint_wherever_they_listen_and_whatever_their_secret_is() -> None:
    one, two = (
        config(metrics=f"{host}:9480", metrics_hosts=[host], socket={"path": f"/run/{host}.sock"}, auth=auth)
        for host, auth in (("web1", {"password": "hunter2"}), ("web2", {"password": "other"}))
    )
    assert one.fingerprint() == two.fingerprint()
    assert "hunter2" not in repr(one)


def test_a_fingerprint_is_12_hex_digits_that_change_with_any_setting() -> None:
    assert re.fullmatch("[0-9a-f]{12}", config().fingerprint())
    made = [config(), config(max_ttl_ms=50_000), config(limits={"files": 60_000}), config(cluster="b")]
    assert len({one.fingerprint() for one in made}) == 4
    assert config().fingerprint() == config(max_ttl_ms=60_000).fingerprint()


# ---- warnings


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"masters": masters(1)}, "failure stops all locking"),
        ({"classes": [A_CLASS | {"users": []}]}, "nobody may lock a"),
        ({"min_ttl_ms": 10}, "min_ttl_ms: a lease of 10 ms is never granted"),
    ],
)
def test_what_can_not_be_meant_is_a_warning(changes: dict[str, Any], warning: str) -> None:
    assert warning in warnings_of(config(**changes))[0]


NEVER_REACHED = ["* a", "** a*", "a* ab*", "a[b] a[b]", "*:x *:y:x"]
REACHED = ["a\\* a*", "ab* a*", "a? a*", "*a* x[ab]y", "a* b*"]


@pytest.mark.parametrize("globs", NEVER_REACHED + REACHED)
def test_a_class_behind_one_that_matches_all_of_it_is_a_warning(globs: str) -> None:
    first, second = globs.split()
    made = config(classes=[{"name": "one", "match": first}, {"name": "two", "match": second}])
    warned = any("two is never used: one" in text for text in warnings_of(made))
    assert warned is (globs in NEVER_REACHED)


def test_a_set_that_is_negated_as_a_shell_does_it_is_a_warning() -> None:
    made = config(classes=[{"name": "a", "match": "[!x]*"}, {"name": "b", "match": "[^x]*"}])
    assert made.class_of(b"y").name == "b"
    [warning] = warnings_of(made)
    assert warning.startswith(
        "classes[0]: [! in '[!x]*' is a set that contains '!'; to negate a set, write [^"
    )


def test_users_and_groups_that_this_host_does_not_know_are_warnings() -> None:
    made = config(
        admin_group="no-such-1",
        socket={"group": "no-such-2"},
        defaults={"users": ["root", "no-such-3"]},
        classes=[{"name": "a", "match": "a", "groups": ["root", "no-such-4"], "users": ["x\0"]}],
    )
    warned = " ".join(text.split(":")[0] for text in warnings_of(made))
    assert warned == "admin_group socket.group defaults.users classes[0].users classes[0].groups"


def test_a_password_that_everybody_can_read_is_a_warning(written: Any, secret: Path, tmp_path: Path) -> None:
    made = written(MINIMAL + "auth: {password: secret}")
    (tmp_path / "lockd.yml").chmod(0o644)
    assert warnings_of(made) == [
        f"auth.password: everybody on this host can read it; chmod o-r {tmp_path}/lockd.yml"
    ]
    (tmp_path / "lockd.yml").chmod(0o640)
    assert warnings_of(made) == []
    secret.chmod(0o604)
    [warning] = warnings_of(config(auth={"password_file": str(secret)}))
    assert warning.startswith("auth.password_file: everybody")


# ---- YAML


def test_a_syntax_error_is_told_with_line_and_column(refused: Any) -> None:
    (problem,) = refused("cluster: a\nmasters: [\n  {name: m1\n")
    assert problem.path.startswith("line 4, column 1")
    assert problem.wrong.startswith("is not valid YAML")


def test_repeated_keys_are_refused_beside_all_other_mistakes(refused: Any) -> None:
    found = refused(
        "cluster: a\ncluster: b\nmasters: [{name: m1, address: 'a:1', name: m2}]\nlog_level: loud\n"
    )
    assert [(problem.path, problem.wrong) for problem in found] == [
        ("cluster", "is repeated on line 2"),
        ("masters[0].name", "is repeated on line 3"),
        ("log_level", 'is the text "loud"'),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("--- a\n--- b\n", "is not valid YAML"),
        ("a\n", 'is the text "a"'),
        ("a: &x b\nc: *x\n", "an alias"),
        ("cluster: !foo x\n", "a tag (!)"),
        ("cluster: !!int x\n", "a tag (!)"),
        ("? [a]\n: b\n", "has no key on line 1"),
        ('cluster: "\\UFFFFFFFF"\n', "is not valid YAML"),
        (b"a: \xff\n", "is not UTF-8"),
        ("a: \x00\n", "control character"),
        ('cluster: "\\ud800"\n', "unprintable"),
        ("[" * 5_000, "nested too deeply"),
        ("cluster: |\n  a\n  b\n", "line break"),
        ("min_ttl_ms: " + "9" * 5_000 + "\n", "a number that is not understood"),
        ("a: &a [*a]\n", "an alias"),
        ("<<: {cluster: a}\n", "is not a known key"),
    ],
)
def test_a_file_that_is_hardly_yaml_is_told_what_is_wrong(refused: Any, text: str | bytes, told: str) -> None:
    assert any(told in problem.wrong for problem in refused(text)), refused(text)


def test_numbers_are_decimal_and_may_have_underscores(written: Any, refused: Any) -> None:
    assert written(MINIMAL + "max_ttl_ms: 30_000").max_ttl_ms == 30_000
    for wrong in ("0030000", "0x7530", "30_000.0", "3e4", "8:20:00", "'30000'", "yes"):
        [problem] = refused(MINIMAL + f"max_ttl_ms: {wrong}")
        assert problem.path == "max_ttl_ms", wrong


def test_a_file_that_is_not_there_is_a_problem_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"configuration: .*No such file"):
        load(tmp_path / "nope.yml")
    with pytest.raises(ConfigError, match="configuration: "):
        load("a\0b")


# ---- no document does anything but load or raise ConfigError

KEYS = st.sampled_from(
    [*Config.keys, "name", "address", "match", "users", "groups", "password", "mode", "path"]
)
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats()),
    *(any_text(20), st.dates(), st.binary(max_size=9)),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | any_text(9), inner, max_size=6),
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=8)
YAML_LIKE = st.text(alphabet="ab:-?[]{}&*!|>'\"%@#\\U\n 09.~<=", max_size=60)


def as_yaml(document: object) -> bytes:
    return yaml.safe_dump(document, allow_unicode=True).encode()


@st.composite
def damaged_examples(draw: st.DrawFn) -> bytes:
    good = EXAMPLE.read_bytes()
    at, cut = draw(st.integers(0, len(good))), draw(st.integers(0, 40))
    return good[:at] + draw(any_text(8)).encode() + good[at + cut :]


@pytest.mark.parametrize(
    "texts",
    [
        (DOCUMENTS | VALUES).map(as_yaml),
        DOCUMENTS.map(lambda changes: as_yaml(document(**changes))),
        st.binary(max_size=200) | YAML_LIKE.map(str.encode),
        damaged_examples(),
    ],
    ids=["any document", "a good one with changes", "any bytes", "a damaged example"],
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_file_loads_or_raises_config_error(
    tmp_path: Path, texts: st.SearchStrategy[bytes], data: st.DataObject
) -> None:
    path = tmp_path / "lockd.yml"
    path.write_bytes(data.draw(texts))
    found: list[Problem] | None = None
    try:
        warnings_of(load(path))
    except ConfigError as error:
        found = error.problems
    assert found is None or all(str(problem).isprintable() for problem in found), found
    assert found != []
