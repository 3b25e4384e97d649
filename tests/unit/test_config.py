"""What an operator may write, what they are told when it is wrong, what the agent gets when it is good."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockd.config.model import CLASSES_REMEMBERED, Config, load
from lockd.config.problems import ConfigError, Problem
from lockd.config.warnings import warnings_of

EXAMPLE = Path(__file__).resolve().parents[2] / "lockd.example.yml"


def masters(count: int) -> list[dict[str, Any]]:
    return [{"name": f"m{n}", "address": f"10.0.0.{n}:6379"} for n in range(1, count + 1)]


def document(**changes: Any) -> dict[str, Any]:
    return {"cluster": "test", "masters": masters(3), **changes}


def config(**changes: Any) -> Config:
    return Config.model_validate(document(**changes))


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
    assert set(written) == set(Config.model_fields)
    example, plain = load(EXAMPLE), Config.model_validate({**document(), "masters": written["masters"]})
    for name in set(Config.model_fields) - {"cluster", "classes"}:
        assert getattr(example, name) == getattr(plain, name), name
    for section in ("socket", "timeouts", "limits"):
        assert set(written[section]) == set(type(getattr(example, section)).model_fields), section


def test_a_cluster_and_masters_are_enough() -> None:
    plain = config()
    assert plain.max_ttl_ms == 60_000
    assert plain.socket.mode == 0o660
    assert plain.metrics == "127.0.0.1:9480"
    assert plain.password() is None
    assert warnings_of(plain) == []


@pytest.mark.parametrize(("count", "quorum"), [(1, 1), (3, 2), (5, 3), (7, 4), (9, 5)])
def test_a_quorum_is_more_than_half_of_the_masters(count: int, quorum: int) -> None:
    assert config(masters=masters(count)).quorum == quorum


def test_an_address_is_split_into_host_and_port() -> None:
    listed = masters(3)
    listed[0]["address"], listed[1]["address"] = "[2001:db8::1]:7000", "redis-1.example.com:6379"
    first, second, _ = config(masters=listed).masters
    assert (first.host, first.port) == ("2001:db8::1", 7000)
    assert (second.host, second.port) == ("redis-1.example.com", 6379)


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        config().max_ttl_ms = 1  # type: ignore[misc]


def test_a_socket_mode_is_octal_with_or_without_quotes(written: Any) -> None:
    assert written(MINIMAL + "socket: {mode: 0600}").socket.mode == 0o600
    assert written(MINIMAL + "socket: {mode: '0666'}").socket.mode == 0o666


def test_words_that_yaml_1_1_takes_for_booleans_and_times_are_text(written: Any) -> None:
    assert written(MINIMAL.replace("test", "no")).cluster == "no"
    assert written(MINIMAL + "defaults: {users: [on, 12:30, 2026-01-01]}").defaults.users == (
        "on",
        "12:30",
        "2026-01-01",
    )


# ---- classes


def test_what_a_class_leaves_out_comes_from_the_defaults() -> None:
    made = config(
        defaults={"max_wait_ms": 7, "users": ["root"]},
        classes=[{"name": "a", "match": "a*", "max_hold_ms": 9}],
    )
    assert (made.classes[0].max_wait_ms, made.classes[0].max_hold_ms, made.classes[0].users) == (
        7,
        9,
        ("root",),
    )


def test_a_class_can_be_open_to_everybody_though_the_defaults_are_not() -> None:
    made = config(defaults={"users": ["root"]}, classes=[{"name": "a", "match": "a*", "users": None}])
    assert made.classes[0].users is None


def test_the_ttl_ceiling_of_a_class_is_its_own_else_the_default_else_the_global_one() -> None:
    classes = [{"name": "own", "match": "own", "max_ttl_ms": 2_000}, {"name": "none", "match": "none"}]
    with_default = config(max_ttl_ms=5_000, defaults={"max_ttl_ms": 3_000}, classes=classes)
    without = config(max_ttl_ms=5_000, classes=classes)
    assert [one.max_ttl_ms for one in (*with_default.classes, with_default.other)] == [2_000, 3_000, 3_000]
    assert [one.max_ttl_ms for one in (*without.classes, without.other)] == [2_000, 5_000, 5_000]


def test_the_first_class_that_matches_wins_and_other_takes_the_rest() -> None:
    made = config(classes=[{"name": "eu", "match": "db:eu:*"}, {"name": "db", "match": "db:*"}])
    assert [made.class_of(name).name for name in (b"db:eu:1", b"db:us:1", b"x", b"DB:eu:1")] == [
        "eu",
        "db",
        "other",
        "other",
    ]


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


def test_class_of_a_known_resource_takes_less_than_two_microseconds() -> None:
    made = config(classes=[{"name": f"c{n}", "match": f"c{n}:*"} for n in range(100)])
    made.class_of(b"x")

    def round_ns() -> int:
        started_ns = time.perf_counter_ns()
        for _ in range(1_000):
            made.class_of(b"x")
        return time.perf_counter_ns() - started_ns

    assert min(round_ns() for _ in range(20)) < 2_000_000


@given(st.text(min_size=1, max_size=30), st.binary(max_size=30))
def test_any_glob_compiles_and_any_resource_has_a_class(glob: str, resource: bytes) -> None:
    made = config(classes=[{"name": "a", "match": glob}])
    assert made.class_of(resource).name in {"a", "other"}


# ---- single fields that are wrong


@pytest.mark.parametrize("value", ["60", 60.0, True, None, [60], {"ms": 60}, 999, 86_400_001, 10**30])
def test_only_a_whole_number_in_range_is_a_number(value: object) -> None:
    problem = problems(max_ttl_ms=value)["max_ttl_ms"]
    assert problem.right == "write a whole number from 1000 to 86400000, in plain digits"


@pytest.mark.parametrize("value", [1, True, None, "", "a b", "a" * 65, "käse", "a\n"])
def test_a_cluster_name_is_a_plain_name(value: object) -> None:
    assert "1 to 64 letters, digits" in problems(cluster=value)["cluster"].right


def test_a_number_where_a_text_belongs_is_told_to_be_quoted() -> None:
    assert problems(cluster=12)["cluster"].right.endswith("in quotes")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "a",
        "a:",
        ":1",
        "a:0",
        "a:65536",
        "a:1x",
        "::1:6379",
        "[::1]",
        "[nonsense]:1",
        "10.0.0.256:1",
        "10.0.1:1",
        "a b:1",
        "a..b:1",
        "redis://a:1",
        "a:1:2",
        "[::1:6379",
        "a:٣",
        "x" * 64 + ":1",
        "a:1\n",
    ],
)
def test_an_address_is_host_and_port(address: str) -> None:
    listed = masters(3)
    listed[1]["address"] = address
    assert "host:port" in problems(masters=listed)["masters[1].address"].right


@pytest.mark.parametrize("port", [0, 65_536, 637_900, 999_999_999])
def test_a_port_out_of_range_is_what_is_wrong_with_its_address(port: int) -> None:
    listed = masters(3)
    listed[1]["address"] = f"[2001:db8::1]:{port}"
    assert problems(masters=listed)["masters[1].address"].wrong == (
        f'is the text "[2001:db8::1]:{port}", whose port is not from 1 to 65535'
    )


def test_of_the_metrics_too_but_there_0_is_a_port() -> None:
    assert problems(metrics="localhost:65536")["metrics"].wrong.endswith("whose port is not from 0 to 65535")
    assert config(metrics="localhost:65535").metrics == "localhost:65535"


@pytest.mark.parametrize("metrics", ["127.0.0.1:0", "[::]:9480", "localhost:9480", None])
def test_metrics_take_any_port_or_none_at_all(metrics: str | None) -> None:
    assert config(metrics=metrics).metrics == metrics


@pytest.mark.parametrize("metrics", ["9480", ":9480", 9480, "localhost:99999"])
def test_metrics_that_name_no_address_are_refused(metrics: object) -> None:
    assert "host:port" in problems(metrics=metrics)["metrics"].right


@pytest.mark.parametrize(
    "name", ["web1:9480", "http://web1", "*", "*.example.com", "", ".", "[::1]", "a b", 1]
)
def test_names_for_metrics_are_plain_host_names(name: object) -> None:
    assert problems(metrics_hosts=[name])["metrics_hosts[0]"].right.startswith("write a list of host names")
    assert config(metrics_hosts=["web1", "web1.example.com"]).metrics_hosts == ("web1", "web1.example.com")


@pytest.mark.parametrize("mode", [660, 0o660, "rw-rw----", "0o660", "0888", "06600", None])
def test_a_socket_mode_that_could_be_misread_is_refused(mode: object) -> None:
    assert problems(socket={"mode": mode})["socket.mode"].right.endswith('"0660"')


@pytest.mark.parametrize("path", ["lockd.sock", "./run/lockd.sock", "../lockd.sock", "", "~/lockd.sock"])
def test_a_socket_path_that_depends_on_where_lockd_is_started_is_refused(path: str) -> None:
    problem = problems(socket={"path": path})["socket.path"]
    assert problem.wrong.endswith(", which depends on the folder that lockd is started in")
    assert problem.right == 'write the whole path, as "/run/lockd/lockd.sock"'


def test_a_socket_path_longer_than_the_kernel_takes_is_refused() -> None:
    assert "at most 107 bytes" in problems(socket={"path": "/" + "x" * 107})["socket.path"].right
    assert config(socket={"path": "/" + "x" * 106}).socket.path == Path("/" + "x" * 106)


@pytest.mark.parametrize("name", ["", "Billing", "1st", "a-b", "a" * 64, 5])
def test_a_class_name_is_a_metrics_label(name: object) -> None:
    assert "a-z" in problems(classes=[{"name": name, "match": "*"}])["classes[0].name"].right


def test_a_class_may_not_be_called_other() -> None:
    assert (
        "write another name" in problems(classes=[{"name": "other", "match": "a"}])["classes[0].name"].right
    )


def test_an_empty_glob_is_refused() -> None:
    problem = problems(classes=[{"name": "a", "match": ""}])["classes[0].match"]
    assert problem.wrong == "is empty"
    assert '"*" for all' in problem.right


def test_a_log_level_is_one_of_four() -> None:
    assert problems(log_level="INFO")["log_level"].right == "write debug, info, warning or error"


# ---- keys


def test_a_mistyped_key_is_told_the_near_one() -> None:
    assert problems(max_tll_ms=1)["max_tll_ms"].right == "did you mean max_ttl_ms?"
    assert problems(timeouts={"conect_ms": 1})["timeouts.conect_ms"].right == "did you mean connect_ms?"


def test_a_key_of_another_section_is_told_where_it_belongs() -> None:
    assert problems(master_ms=1)["master_ms"].right == "write it under timeouts"
    assert problems(limits={"max_ttl_ms": 1})["limits.max_ttl_ms"].right == "write it at the top level"


def test_a_key_like_no_other_is_told_which_ones_there_are() -> None:
    assert problems(socket={"zzz": 1})["socket.zzz"].right == "remove it; known here: path, mode, group"


def test_missing_keys_are_told_with_what_to_write() -> None:
    with pytest.raises(ConfigError) as caught:
        Config.model_validate({})
    assert [str(problem) for problem in caught.value.problems] == [
        "cluster: is missing; write 1 to 64 letters, digits, '.', '_' or '-'",
        'masters: is missing; write a list of 3, 5, 7 or 9 {name: m1, address: "m1:6379"}',
    ]


def test_a_section_left_empty_is_told_what_goes_there() -> None:
    assert problems(timeouts=None)["timeouts"] == Problem(
        "timeouts",
        "is empty",
        'write "key: value" lines of master_ms, connect_ms, dead_ms, drain_ms, or leave it out',
    )


# ---- between fields


@pytest.mark.parametrize("count", [0, 2, 4, 6, 8, 10, 11])
def test_any_other_number_of_masters_is_refused(count: int) -> None:
    assert problems(masters=masters(count))["masters"].right.startswith("write 3, 5, 7 or 9")


def test_an_even_number_of_masters_is_told_why_not() -> None:
    wrong = problems(masters=masters(4))["masters"].wrong
    assert wrong == "has 4 masters, which survive no more failures than 3 do"


def test_two_masters_of_one_name_are_refused() -> None:
    listed = masters(3)
    listed[2]["name"] = "m1"
    assert (
        problems(masters=listed)["masters[2].name"].wrong == 'is the text "m1", the same as masters[0].name'
    )


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("a:6379", "a:6379"),
        ("a:6379", "A.:6379"),
        ("a:6379", "a:06379"),
        ("[::1]:1", "[0:0::1]:1"),
        ("localhost:1", "127.0.0.1:1"),
    ],
)
def test_two_spellings_of_one_address_are_refused(one: str, same: str) -> None:
    listed = masters(3)
    listed[0]["address"], listed[2]["address"] = one, same
    assert problems(masters=listed)["masters[2].address"].wrong.endswith("the same as masters[0].address")


def test_two_classes_of_one_name_are_refused() -> None:
    same = [{"name": "a", "match": "a"}, {"name": "a", "match": "b"}]
    assert problems(classes=same)["classes[1].name"].wrong.endswith("the same as classes[0].name")


def test_a_class_ttl_above_the_global_one_is_refused() -> None:
    found = problems(max_ttl_ms=10_000, classes=[{"name": "a", "match": "a", "max_ttl_ms": 10_001}])
    assert found["classes[0].max_ttl_ms"] == Problem(
        "classes[0].max_ttl_ms",
        "is 10001, above max_ttl_ms (10000)",
        "write at most 10000, or raise max_ttl_ms",
    )


def test_a_class_ttl_below_the_shortest_one_is_refused() -> None:
    found = problems(min_ttl_ms=500, classes=[{"name": "a", "match": "a", "max_ttl_ms": 499}])
    assert found["classes[0].max_ttl_ms"].right == "write at least 500, or lower min_ttl_ms"


def test_a_default_ttl_above_the_global_one_is_refused() -> None:
    assert (
        "above max_ttl_ms (60000)" in problems(defaults={"max_ttl_ms": 60_001})["defaults.max_ttl_ms"].wrong
    )


def test_a_smallest_ttl_above_the_greatest_is_refused() -> None:
    assert (
        problems(max_ttl_ms=1_000, min_ttl_ms=1_001)["min_ttl_ms"].right
        == "write at most 1000, or raise max_ttl_ms"
    )


def test_a_limit_per_user_above_the_total_is_refused_but_a_default_one_does_no_harm() -> None:
    assert "limits.leases_per_user" in problems(limits={"leases": 10, "leases_per_user": 11})
    assert config(limits={"leases": 10}).limits.leases == 10


def test_a_request_that_could_not_hold_its_resource_is_refused() -> None:
    assert problems(limits={"request_bytes": 100})["limits.request_bytes"].right == (
        "write at least 512, or lower limits.resource_bytes"
    )
    assert "limits.pipeline_bytes" in problems(limits={"pipeline_bytes": 1_000})


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
        classes=[
            {"name": "a", "match": "", "max_ttl_ms": 70_000},
            {"name": "a", "match": "x", "users": "root"},
        ],
        limits={"leases": 1.5},
        verbose=True,
    )
    assert set(found) == {
        "cluster",
        "masters",
        "masters[1].address",
        "masters[1].adress",
        "masters[1].name",
        "masters[2]",
        "masters[3].address",
        "min_ttl_ms",
        "log_level",
        "auth",
        "auth.password_file",
        "classes[0].match",
        "classes[0].max_ttl_ms",
        "classes[1].name",
        "classes[1].users",
        "limits.leases",
        "verbose",
    }


def test_an_error_prints_one_problem_a_line() -> None:
    with pytest.raises(ConfigError) as caught:
        config(max_ttl_ms="60", log_level="loud")
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    assert len(caught.value.problems) == 2


def test_a_configuration_made_in_python_is_checked_as_well() -> None:
    made = config()
    with pytest.raises(ConfigError, match=r"masters\[3\].name"):
        Config(cluster="x", masters=(*made.masters, made.masters[0]))


# ---- secrets and files


def test_the_password_comes_from_the_configuration_or_from_its_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter 2\n")
    assert config(auth={"password": "hunter 2"}).password() == "hunter 2"
    assert config(auth={"password_file": str(secret)}).password() == "hunter 2"


def test_a_password_file_is_read_anew_and_says_when_it_has_gone(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("old")
    made = config(auth={"password_file": str(secret)})
    secret.write_text("new")
    assert made.password() == "new"
    secret.unlink()
    with pytest.raises(ConfigError, match=r"auth.password_file: .*No such file"):
        made.password()


def test_a_password_and_a_file_for_it_are_refused_together(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    assert "keep one" in problems(auth={"password": "x", "password_file": str(secret)})["auth"].right


def test_a_username_without_a_password_is_refused() -> None:
    assert problems(auth={"username": "lockd"})["auth"].right == "write password_file beside it"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\n"])
def test_a_password_file_without_a_password_is_refused(tmp_path: Path, content: bytes) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    assert "auth.password_file" in problems(auth={"password_file": str(secret)})


@pytest.mark.parametrize("path", ["", ".", "/nope/nope", "a\0b", 5])
def test_a_password_file_that_is_not_to_be_read_is_refused(path: object) -> None:
    assert "auth.password_file" in problems(auth={"password_file": path})


def test_tls_files_that_are_missing_are_refused(tmp_path: Path) -> None:
    found = problems(tls={"ca_file": str(tmp_path / "ca"), "cert_file": str(tmp_path / "cert")})
    assert set(found) == {"tls", "tls.ca_file", "tls.cert_file"}
    assert "No such file" in found["tls.ca_file"].wrong


def test_tls_with_its_files_is_good(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text("x")
    made = config(tls={f"{name}_file": str(tmp_path / name) for name in ("ca", "cert", "key")})
    assert made.tls is not None
    assert made.tls.key_file == tmp_path / "key"


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


def test_a_secret_is_neither_in_the_repr_nor_in_the_fingerprint() -> None:
    one, two = config(auth={"password": "hunter2"}), config(auth={"password": "other"})
    assert "hunter2" not in repr(one)
    assert one.fingerprint() == two.fingerprint()


def test_agents_of_two_hosts_share_a_fingerprint_wherever_they_listen() -> None:
    one, two = (
        config(metrics=f"{host}:9480", metrics_hosts=[host], socket={"path": f"/run/{host}.sock"})
        for host in ("web1", "web2")
    )
    assert one.fingerprint() == two.fingerprint()


def test_a_fingerprint_is_12_hex_digits_that_change_with_any_setting() -> None:
    assert len(config().fingerprint()) == 12
    assert int(config().fingerprint(), 16) >= 0
    made = [config(), config(max_ttl_ms=50_000), config(limits={"leases": 60_000}), config(cluster="b")]
    assert len({one.fingerprint() for one in made}) == 4
    assert config().fingerprint() == config(max_ttl_ms=60_000).fingerprint()


# ---- warnings


def test_a_single_master_is_a_warning() -> None:
    assert "failure stops all locking" in warnings_of(config(masters=masters(1)))[0]


@pytest.mark.parametrize(
    ("first", "second", "reached"),
    [
        ("*", "a", False),
        ("**", "a*", False),
        ("a*", "ab*", False),
        ("a[b]", "a[b]", False),
        ("*:x", "*:y:x", False),
        ("a\\*", "a*", True),
        ("ab*", "a*", True),
        ("a?", "a*", True),
        ("*a*", "x[ab]y", True),
        ("a*", "b*", True),
    ],
)
def test_a_class_behind_one_that_matches_all_of_it_is_a_warning(
    first: str, second: str, reached: bool
) -> None:
    made = config(classes=[{"name": "one", "match": first}, {"name": "two", "match": second}])
    assert any("two is never reached, since one" in text for text in warnings_of(made)) is not reached


def test_a_set_that_is_negated_as_a_shell_does_it_is_a_warning() -> None:
    made = config(classes=[{"name": "a", "match": "[!x]*"}, {"name": "b", "match": "[^x]*"}])
    assert made.class_of(b"y").name == "b"
    [warning] = warnings_of(made)
    assert warning.startswith("classes[0]: [! in '[!x]*' is a set with the character '!' in it; write [^")


def test_users_and_groups_that_this_host_does_not_know_are_warnings() -> None:
    made = config(
        admin_group="no-such-1",
        socket={"group": "no-such-2"},
        defaults={"users": ["root", "no-such-3"]},
        classes=[{"name": "a", "match": "a", "groups": ["root", "no-such-4"], "users": ["x\0"]}],
    )
    assert [text.split(":")[0] for text in warnings_of(made)] == [
        "admin_group",
        "socket.group",
        "defaults.users",
        "classes[0].users",
        "classes[0].groups",
    ]


def test_a_class_that_nobody_may_lock_is_a_warning() -> None:
    assert "nobody may lock a" in warnings_of(config(classes=[{"name": "a", "match": "a", "users": []}]))[0]


def test_a_ttl_that_can_never_be_granted_is_a_warning() -> None:
    assert warnings_of(config(min_ttl_ms=10))[0].startswith("min_ttl_ms: a lease of 10 ms is never granted")


def test_a_password_that_everybody_can_read_is_a_warning(written: Any, tmp_path: Path) -> None:
    made = written(MINIMAL + "auth: {password: secret}")
    (tmp_path / "lockd.yml").chmod(0o644)
    assert warnings_of(made) == [
        f"auth.password: everybody on this host can read it; chmod o-r {tmp_path}/lockd.yml"
    ]
    (tmp_path / "lockd.yml").chmod(0o640)
    assert warnings_of(made) == []


def test_a_password_file_that_everybody_can_read_is_a_warning(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o604)
    assert warnings_of(config(auth={"password_file": str(secret)}))[0].startswith(
        "auth.password_file: everybody"
    )


# ---- YAML


def test_a_syntax_error_is_told_with_line_and_column(refused: Any) -> None:
    (problem,) = refused("cluster: a\nmasters: [\n  {name: m1\n")
    assert problem.path.startswith("line 4, column 1")
    assert problem.wrong.startswith("is not YAML")


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
        ("--- a\n--- b\n", "is not YAML"),
        ("a\n", 'is the text "a"'),
        ("a: &x b\nc: *x\n", "an alias"),
        ("cluster: !foo x\n", "a tag (!)"),
        ("cluster: !!int x\n", "a tag (!)"),
        ("? [a]\n: b\n", "has no key on line 1"),
        ('cluster: "\\UFFFFFFFF"\n', "is not YAML"),
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
        assert [problem.path for problem in refused(MINIMAL + f"max_ttl_ms: {wrong}")] == ["max_ttl_ms"], (
            wrong
        )


def test_a_file_that_is_not_there_is_a_problem_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"configuration: .*No such file"):
        load(tmp_path / "nope.yml")
    with pytest.raises(ConfigError, match="configuration: "):
        load("a\0b")


# ---- no document does anything but load or raise ConfigError

KEYS = st.sampled_from(
    [*Config.model_fields, "name", "address", "match", "users", "groups", "password", "mode", "path"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.dates()
    | st.binary(max_size=9)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=9), inner, max_size=6)
    ),
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=8)
EACH_WRITES_THE_SAME_FILE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def loads_or_raises_config_error(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    found: list[Problem] | None = None
    try:
        warnings_of(load(path))
    except ConfigError as error:
        found = error.problems
    assert found is None or all(str(problem).isprintable() for problem in found), found
    assert found != []


@EACH_WRITES_THE_SAME_FILE
@given(document=DOCUMENTS | VALUES)
def test_any_yaml_document_loads_or_raises_config_error(tmp_path: Path, document: object) -> None:
    loads_or_raises_config_error(
        tmp_path / "lockd.yml", yaml.safe_dump(document, allow_unicode=True).encode()
    )


@EACH_WRITES_THE_SAME_FILE
@given(changes=DOCUMENTS)
def test_any_change_to_a_good_document_loads_or_raises_config_error(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    loads_or_raises_config_error(tmp_path / "lockd.yml", yaml.safe_dump(document(**changes)).encode())


@EACH_WRITES_THE_SAME_FILE
@given(
    data=st.binary(max_size=200)
    | st.text(alphabet="ab:-?[]{}&*!|>'\"%@#\\U\n 09.~<=", max_size=60).map(str.encode)
)
def test_any_bytes_load_or_raise_config_error(tmp_path: Path, data: bytes) -> None:
    loads_or_raises_config_error(tmp_path / "lockd.yml", data)


@EACH_WRITES_THE_SAME_FILE
@given(at=st.integers(0, len(EXAMPLE.read_bytes())), cut=st.integers(0, 40), put=st.text(max_size=8))
def test_any_damage_to_the_example_loads_or_raises_config_error(
    tmp_path: Path, at: int, cut: int, put: str
) -> None:
    good = EXAMPLE.read_bytes()
    loads_or_raises_config_error(tmp_path / "lockd.yml", good[:at] + put.encode() + good[at + cut :])
