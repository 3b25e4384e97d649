"""RELOAD: what SIGHUP does, with an answer."""

from lockd.core.errors import ErrorWord
from lockd.core.locks import Locks
from lockd.core.values import Refusal
from lockd.server.commands.arguments import Misused
from lockd.server.commands.command import Argument, Command, Group
from lockd.server.reload import Outcome, Reload
from lockd.server.resp import replies
from lockd.server.session import Session

COMMANDS = Group()

_STOPPING = Refusal(ErrorWord.DRAINING, "the agent is stopping, and the next one will read the file")


class Reloading:
    def __init__(self, reload: Reload, locks: Locks) -> None:
        self._reload = reload
        self._locks = locks

    @COMMANDS(
        Command(
            "reload",
            -1,
            "server",
            ("admin", "noscript", "stale"),
            "Reloads the agent's configuration, as SIGHUP does. With CHECK only says what would change.",
            "map: status (reloaded, unchanged, refused or invalid; with CHECK changed in place of reloaded), "
            "changed, restart_needed, problems",
            (Argument("check", "pure-token", token="CHECK", optional=True),),
            promise=(
                "for operators: map `status` (`reloaded`, or with `CHECK` `changed`; `unchanged`; "
                "`refused`, `restart_needed` lists settings that need a restart; `invalid`: see "
                "`problems`), `changed`, `restart_needed`, `problems`"
            ),
        )
    )
    def _ask_reload(self, session: Session, words: list[bytes]) -> None:
        if len(words) > 2 or (len(words) == 2 and words[1].upper() != b"CHECK"):
            raise Misused
        only_look = len(words) == 2
        session.later(lambda _place: self.reload(session, only_look), finish=True)

    async def reload(self, session: Session, only_look: bool) -> bytes:
        if self._locks.draining:
            return replies.error(str(_STOPPING))
        by = f"pid {session.peer.pid} uid {session.peer.uid}"
        outcome = await (self._reload.look() if only_look else self._reload.run(by))
        return replies.value(_row(outcome), session.protocol)


def _row(outcome: Outcome) -> dict[str, object]:
    return {
        "status": outcome.status,
        "changed": list(outcome.changes.reloaded),
        "restart_needed": list(outcome.changes.restarted),
        "problems": list(outcome.problems),
    }
