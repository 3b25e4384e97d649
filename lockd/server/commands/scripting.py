"""EVAL and its relatives. Scripts are recognised, never run (core/scripts)."""

from functools import partial

from lockd.core.scripts.operations import NotRecognised
from lockd.core.values import Refusal
from lockd.server.commands.arguments import Misused
from lockd.server.commands.command import Argument, Command, Group
from lockd.server.commands.plain import READS, TAKES, answer_at, run_in_turn
from lockd.server.dropin.plain_locks import Answer
from lockd.server.dropin.preparing import NOSCRIPT, Preparing, keys_in
from lockd.server.dropin.script_cache import ScriptCache, Taken, digest_of, refusal
from lockd.server.resp import replies
from lockd.server.session import Session

COMMANDS = Group()

_KEYS_AND_ARGUMENTS = (
    Argument("numkeys", "integer"),
    Argument("key", "key", optional=True, multiple=True),
    Argument("arg", optional=True, multiple=True),
)
_FLAGS = ("noscript", "movablekeys")


def _command(name: str, by: str, access: tuple[str, ...], summary: str, promise: str) -> Command:
    return Command(
        name,
        -3,
        "scripting",
        _FLAGS,
        summary,
        "what the script returns",
        (Argument(by), *_KEYS_AND_ARGUMENTS),
        key_access=access,
        resources=keys_in,
        queues=True,
        gives_back=access is TAKES,
        promise=promise,
    )


_EVAL = _command(
    "eval", "script", TAKES, "Performs the lock operation of a script, if the script is recognised.",
    "what the script returns. Scripts are recognised, never run: [scripts](scripts.md)",
)  # fmt: skip
_EVAL_RO = _command(
    "eval_ro", "script", READS, "EVAL for scripts that only read.", "as `EVAL`, for a script that only reads"
)
_EVALSHA = _command(
    "evalsha", "sha1", TAKES, "EVAL for a loaded script.",
    "as `EVAL`; `NOSCRIPT` if it is not loaded",
)  # fmt: skip


class Scripting:
    def __init__(self, preparing: Preparing, scripts: ScriptCache) -> None:
        self._preparing = preparing
        self._scripts = scripts

    @COMMANDS(_EVAL_RO)
    @COMMANDS(_EVALSHA)
    @COMMANDS(_EVAL)
    def _run(self, session: Session, words: list[bytes]) -> None:
        run_in_turn(self._preparing, session, words)

    @COMMANDS(
        Command(
            "script",
            -2,
            "scripting",
            (),
            "Loads scripts, or tells which are loaded.",
            "depends on the subcommand",
            (
                Argument(
                    "what",
                    "oneof",
                    arguments=(
                        Argument("script", token="LOAD"),
                        Argument("sha1", token="EXISTS", multiple=True),
                        Argument("flush", "pure-token", token="FLUSH"),
                    ),
                ),
            ),
            promise=(
                "`LOAD`: its SHA-1, if it is recognised. `EXISTS`. `FLUSH` does nothing, because other "
                "apps use the scripts"
            ),
        )
    )
    def _script(self, session: Session, words: list[bytes]) -> bytes | None:
        """In turn, as EVAL: an earlier command on its connection may still be under way."""
        how = words[1].upper()
        if how == b"LOAD" and len(words) == 3:
            session.in_turn(lambda place: self._load(session, words[2], partial(answer_at, session, place)))
        elif how == b"EXISTS" and len(words) > 2:
            session.in_turn(lambda place: session.answer(place, self._are_there(words[2:])))
        elif how == b"FLUSH":
            return b"+OK\r\n"
        else:
            raise Misused
        return None

    def _load(self, session: Session, text: bytes, answer: Answer) -> None:
        def told(taken: Taken | Refusal) -> None:
            if isinstance(taken, Refusal):
                answer(replies.error(str(taken)))
            elif isinstance(taken, NotRecognised):
                answer(replies.error(refusal(taken)))
            else:
                answer(replies.bulk(digest_of(text), session.protocol))

        self._scripts.read(text, session.account, session.peer, session.library, told)

    def _are_there(self, digests: list[bytes]) -> bytes:
        there = [self._scripts.loaded(digest) is not None for digest in digests]
        return replies.array([replies.integer(int(one)) for one in there])

    @COMMANDS(
        Command("evalsha_ro", -3, "scripting", (), "Says that it is not loaded.", "an error", listed=False)
    )
    def _is_not_loaded(self, session: Session, words: list[bytes]) -> bytes:
        return replies.error(NOSCRIPT)
