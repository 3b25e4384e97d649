"""The scripts that apps have loaded: by their SHA-1, and what each was taken for. They are recognised once,
and never run."""

from collections import OrderedDict, deque
from dataclasses import dataclass
from hashlib import sha1

from lockd.clock import boottime_ns
from lockd.core.scripts.operations import Kind, NotRecognised, Recognised
from lockd.core.scripts.recognition import recognise
from lockd.core.validity import NS_PER_S
from lockd.server.buckets import Buckets
from lockd.server.commands.arguments import BadRequest
from lockd.server.log import EventLog
from lockd.server.peer import Peer

_MOST = 1_000
_NEW_AT_ONCE, _NEW_A_SECOND, _USERS_MOST = 50, 2, 1_000
_TOO_MANY = (
    f"LIMIT scripts: {_NEW_A_SECOND} new ones a second are read for each user: send them again in a moment"
)
_REFUSED_MOST = 16
_LOGGED_MOST = 2_000
_OPERATIONS = ", ".join(kind.value for kind in Kind)


@dataclass(frozen=True, slots=True)
class RefusedScript:
    """One that was not recognised: why, what is left of it without spelling and names, and who sent it, with
    which library."""

    digest: str
    why: str
    normal_form: str
    library: str
    uid: int


class ScriptCache:
    """Of one agent. One that was forgotten is answered NOSCRIPT, as after a restart of Redis: libraries load
    it again. refused: the latest that were not recognised."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._new = Buckets[int](_NEW_AT_ONCE, NS_PER_S // _NEW_A_SECOND, _USERS_MOST)
        self._scripts: OrderedDict[bytes, Recognised | NotRecognised] = OrderedDict()
        self.refused: deque[RefusedScript] = deque(maxlen=_REFUSED_MOST)

    def load(self, text: bytes, peer: Peer, library: bytes) -> tuple[bytes, Recognised | NotRecognised]:
        """Its digest, and what it is taken for. Raises BadRequest: to read one takes milliseconds, and others
        want theirs."""
        digest = sha1(text, usedforsecurity=False).hexdigest().encode()
        taken = self._scripts.get(digest)
        if taken is None:
            if not self._new.admits(peer.uid, boottime_ns()):
                raise BadRequest(_TOO_MANY)
            taken = self._scripts[digest] = recognise(text)
            if len(self._scripts) > _MOST:
                self._scripts.popitem(last=False)
            if isinstance(taken, NotRecognised):
                self._was_refused(digest.decode(), taken, peer, library)
        self._scripts.move_to_end(digest)
        return digest, taken

    def _was_refused(self, digest: str, taken: NotRecognised, peer: Peer, library: bytes) -> None:
        name = library.decode(errors="backslashreplace")
        self.refused.append(RefusedScript(digest, taken.why, taken.normal_form, name, peer.uid))
        self._log.warning(
            "script_not_recognised", sha=digest, why=taken.why,
            normal_form=taken.normal_form[:_LOGGED_MOST], library=name, pid=peer.pid, uid=peer.uid,
        )  # fmt: skip

    def loaded(self, digest: bytes) -> Recognised | None:
        """The script of that digest, if it is known and was recognised."""
        taken = self._scripts.get(digest.lower())
        if not isinstance(taken, Recognised):
            return None
        self._scripts.move_to_end(digest.lower())
        return taken

    def forget(self) -> None:
        self._scripts.clear()


def refusal(taken: NotRecognised) -> str:
    """The error that it gets."""
    return (
        f"ERR this script is no lock operation that lockd knows ({taken.why}). Scripts are recognised, never "
        f"run. Those that it knows: {_OPERATIONS}. `lockctl script FILE` says what a script is taken for"
    )
