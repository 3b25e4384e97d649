"""The table of commands: consistent in itself, and what COMMAND says about it is what real clients read."""

import pytest

from lockd.server.commands import catalog
from lockd.server.commands.command import Argument, Command
from lockd.server.resp import replies
from lockd.server.resp.replies import ReplySet, SimpleString

ALL = [catalog.find(name) for name in catalog.command_list()]
SUBCOMMANDS = [command for command in ALL if "|" in command.name]


def least_and_most_words(arguments: tuple[Argument, ...]) -> tuple[int, int]:
    least = most = 0
    for argument in arguments:
        few, many = words_of(argument)
        least += 0 if argument.optional else few
        most += many + (99 if argument.multiple else 0)
    return least, most


def words_of(argument: Argument) -> tuple[int, int]:
    token = 1 if argument.token else 0
    if argument.type == "pure-token":
        return token, token
    if argument.type == "block":
        least, most = least_and_most_words(argument.arguments)
        return token + least, token + most
    if argument.type == "oneof":
        each = [words_of(choice) for choice in argument.arguments]
        return token + min(least for least, _ in each), token + max(most for _, most in each)
    return token + 1, token + 1


class TestTable:
    def test_the_commands_are_those_that_are_promised(self):
        of_lockd = "lock unlock extend holder locks masters forcerelease form admit reload"
        of_redis = "info ping echo quit select hello auth client command"
        drop_in = (
            "set setnx get exists pttl ttl pexpire expire persist del unlink delex delifeq cad cas "
            "eval evalsha eval_ro script multi exec discard watch unwatch wait blpop"
        )
        names = [command.name for command in catalog.COMMANDS]
        assert names == [*of_lockd.split(), *of_redis.split(), *drop_in.split()]

    def test_names_are_unique_and_subcommands_carry_the_name_of_their_container(self):
        names = catalog.command_list()
        assert len(names) == len(set(names)) == len(catalog.COMMANDS) + len(SUBCOMMANDS)
        for container in catalog.COMMANDS:
            assert all(sub.name.startswith(f"{container.name}|") for sub in container.subcommands)

    # As in Redis, QUIT ignores its arguments, and the arity of a container leaves room for a subcommand.
    @pytest.mark.parametrize(
        "command",
        [c for c in ALL if c.name not in ("quit", "client", "command")],
        ids=lambda command: command.name,
    )
    def test_the_arity_of_a_command_is_that_of_its_arguments(self, command: Command):
        least, most = least_and_most_words(command.arguments)
        own = command.name.count("|") + 1
        assert command.arity == (own + least if least == most else -(own + least))

    @pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
    def test_every_command_is_documented_in_short_sentences_and_its_keys_are_where_it_says(
        self, command: Command
    ):
        assert command.summary.endswith(".")
        assert command.summary[0].isupper()
        assert len(command.summary) <= 100
        assert command.reply
        of_redis = ("redis", "scripting", "transactions")
        assert command.group in ("lock", "masters", "server", "connection", *of_redis)
        assert command.since == "0.1.0"
        keys = [at for at, argument in enumerate(command.arguments, 1) if argument.type == "key"]
        assert bool(command.key_access) == bool(keys)
        [info] = catalog.command_info([command.name])
        assert info[3] == (1 if 1 in keys else 0), "a number may say how many keys follow"

    def test_the_length_of_a_request_is_checked_as_redis_does(self):
        lock, unlock = catalog.find("LOCK"), catalog.find("unlock")
        assert [lock.accepts(count) for count in (1, 2, 3, 9)] == [False, False, True, True]
        assert [unlock.accepts(count) for count in (2, 3, 4)] == [False, True, False]

    def test_subcommands_have_a_usage_of_their_own(self):
        assert catalog.find("client|setname").usage() == "CLIENT SETNAME connection-name"
        assert catalog.find("client|setinfo").usage() == "CLIENT SETINFO <LIB-NAME libname | LIB-VER libver>"
        assert catalog.find("command|docs").usage() == "COMMAND DOCS [command-name ...]"


class TestAnswers:
    def test_info_has_the_ten_elements_of_redis_7(self):
        [lock] = catalog.command_info(["LOCK"])
        name, arity, flags, first, last, step, acl, tips, keys, subcommands = lock
        assert (name, arity, first, last, step) == ("lock", -3, 1, 1, 1)
        assert flags == ReplySet(["write", "noscript", "blocking", "movablekeys"])
        assert acl == ReplySet(["@write", "@blocking", "@slow"])
        assert tips == ReplySet()
        assert keys[0]["begin_search"] == {"type": "index", "spec": {"index": 1}}
        assert keys[1]["begin_search"] == {"type": "keyword", "spec": {"keyword": "AND", "startfrom": 3}}
        assert keys[1]["find_keys"] == {"type": "range", "spec": {"lastkey": -1, "keystep": 1, "limit": 0}}
        assert subcommands == []

    def test_info_says_where_the_keys_are_as_redis_does(self):
        delete, script, wait = catalog.command_info(["del", "eval", "wait"])
        assert delete[3:6] == [1, -1, 1]
        assert delete[8][0]["find_keys"] == {
            "type": "range",
            "spec": {"lastkey": -1, "keystep": 1, "limit": 0},
        }
        assert script[3:6] == [0, 0, 0]
        assert script[8][0]["begin_search"] == {"type": "index", "spec": {"index": 2}}
        assert script[8][0]["find_keys"] == {
            "type": "keynum", "spec": {"keynumidx": 0, "firstkey": 1, "keystep": 1},
        }  # fmt: skip
        assert (wait[3:6], wait[8]) == ([0, 0, 0], ReplySet())

    def test_info_lists_the_subcommands_of_a_container(self):
        [client] = catalog.command_info(["client"])
        assert [sub[0] for sub in client[9]] == [c.name for c in SUBCOMMANDS if c.name.startswith("client|")]

    def test_info_answers_in_the_order_asked_with_nil_for_what_it_does_not_know(self):
        masters, nothing, lock = catalog.command_info(["masters", "nosuch", "lock"])
        assert (masters[0], nothing, lock[0]) == ("masters", None, "lock")
        assert (masters[3:6], masters[8]) == ([0, 0, 0], ReplySet()), "it has no keys"

    @pytest.mark.parametrize("protocol", [2, 3])
    def test_no_reply_grows_with_the_number_of_times_that_a_command_is_named(self, protocol: int):
        whole = max(len(catalog.answer([*words], protocol)) for words in ([], [b"DOCS"], [b"INFO"]))
        for subcommand in (b"INFO", b"DOCS"):
            for name in (b"client", b"command", b"Lock", b"nosuch"):
                asked = [subcommand, *[name] * 1_000]
                assert len(catalog.answer(asked, protocol)) <= max(whole, sum(map(len, asked)))

    def test_docs_leave_out_what_they_do_not_know_and_tell_a_command_once(self):
        assert list(catalog.command_docs(["PING", "nosuch", "ping", "client|id"])) == ["ping", "client|id"]

    def test_docs_give_arguments_with_name_type_token_and_flags(self):
        resource, ttl, wait, _, bound, *_ = catalog.command_docs(["lock"])["lock"]["arguments"]
        names = {"name": "resource", "display_text": "resource"}
        assert resource == {**names, "type": "key", "key_spec_index": 0}
        assert ttl["type"] == "integer"
        assert (wait["name"], wait["token"], wait["flags"]) == ("ms", "WAIT", ReplySet(["optional"]))
        assert type(wait["flags"][0]) is SimpleString, "redis-cli aborts on others"
        tied = [(one["type"], one["token"]) for one in bound["arguments"]]
        assert tied == [("pure-token", "DETACHED"), ("pure-token", "CONNECTION")]

    def test_the_list_can_be_filtered(self):
        some = ["client|getname", "client|id", "client|info"]
        assert catalog.command_list("pattern", "client|[gi]*") == some
        assert catalog.command_list("ACLCAT", "admin") == ["forcerelease", "form", "admit", "reload"]
        assert catalog.command_list("module", "any") == []
        with pytest.raises(ValueError, match="syntax error"):
            catalog.command_list("nosuch", "x")


class TestCommand:
    """COMMAND as it is answered on the wire."""

    @pytest.mark.parametrize("protocol", [2, 3])
    def test_what_is_sent_is_what_the_functions_say(self, protocol):
        def answer(*words: bytes) -> bytes:
            return catalog.answer(words, protocol)

        assert answer() == answer(b"INFO") == replies.value(catalog.command_info(), protocol)
        assert answer(b"info", b"Lock", b"x") == replies.value(catalog.command_info(["lock", "x"]), protocol)
        assert answer(b"docs") == replies.value(catalog.command_docs(), protocol)
        assert answer(b"DOCS", b"LOCK", b"x") == replies.value(catalog.command_docs(["lock"]), protocol)
        assert answer(b"count") == b":%d\r\n" % len(catalog.COMMANDS)
        assert answer(b"list") == replies.value(catalog.command_list(), protocol)
        assert answer(b"list", b"filterby", b"pattern", b"LOC*") == b"*2\r\n$4\r\nlock\r\n$5\r\nlocks\r\n"

    @pytest.mark.parametrize(
        ("words", "error"),
        [
            (
                [b"getkeys"],
                "ERR COMMAND GETKEYS is not supported: COMMAND INFO shows where the keys of a command are",
            ),
            ([b"nosuch"], "ERR unknown subcommand 'nosuch'. Try COMMAND [COUNT | DOCS | INFO | LIST]"),
            ([b"a\r\n-X"], "ERR unknown subcommand 'a  -X'. Try COMMAND [COUNT | DOCS | INFO | LIST]"),
            ([b"count", b"x"], "ERR wrong number of arguments for 'command|count' command"),
            ([b"list", b"pattern"], "ERR syntax error"),
            ([b"list", b"filterby", b"nosuch", b"x"], "ERR syntax error"),
            ([b"list", b"filterby", b"pattern", b"*" * 129], "ERR pattern longer than 128"),
        ],
    )
    def test_mistakes_are_answered_with_an_error(self, words, error):
        assert catalog.answer(words, 2) == b"-%b\r\n" % error.encode()

    def test_names_that_are_no_text_are_merely_unknown(self):
        assert catalog.answer([b"info", b"\xff\x00"], 3) == b"*1\r\n_\r\n"
        assert catalog.answer([b"docs", b"\xff\x00"], 3) == b"%0\r\n"
        assert catalog.answer([b"\xff"], 3).startswith(b"-ERR unknown subcommand")
