"""The scripts that apps have loaded: by their SHA-1, with the operation that each was recognised as. They are
recognised once, and never run.

Recognising one takes milliseconds, in which the agent does nothing else. So each is read in its account's
turn, and charged: who sends a new text each time waits for itself.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha1

from lockd.clock import boottime_ns
from lockd.core.errors import ErrorWord
from lockd.core.scripts.operations import Kind, NotRecognised, Recognised
from lockd.core.tables import Table
from lockd.core.values import Refusal
from lockd.server.peer import Peer
from lockd.server.shared import Shared

_MOST, _FLOOR = 1_000, 7
_WAITING_MOST = 64
"""How many of one account may wait until they are read: a library loads a dozen when it starts. Each
connection waits for its own."""
_TOO_MANY = (
    f"scripts: {_WAITING_MOST} new ones of this account wait to be read. Pass values in ARGV: each different "
    "text is a new script"
)
_FAILED = Refusal(ErrorWord.ERR, "internal error of the agent: see its log")
_REFUSED_MOST = 16
_LOGGED_MOST = 2_000
_OPERATIONS = ", ".join(kind.value for kind in Kind)


Taken = Recognised | NotRecognised
Told = Callable[[Taken | Refusal], None]


@dataclass(slots=True)
class RefusedScript:
    """A script that was not recognised: why, which library sent it first, which users sent it, how often, and
    when last."""

    digest: str
    why: str
    library: str
    uids: set[int] = field(default_factory=set)
    count: int = 0
    last_ns: int = 0


class ScriptCache:
    """The scripts of one agent. One that was forgotten is answered NOSCRIPT, as after a restart of Redis, and
    libraries load it again. refused: the latest that were not recognised, by their digests, the most recent
    last."""

    def __init__(self, shared: Shared) -> None:
        self._log = shared.log
        self._incidents = shared.incidents
        self._turns = shared.turns
        self._asked: dict[tuple[bytes, str], asyncio.Task[Taken]] = {}
        self._waiting = Counter[str]()
        """Those that are not read yet, by account."""
        self._scripts = Table[bytes, Taken](_MOST, _FLOOR)
        self.refused: OrderedDict[bytes, RefusedScript] = OrderedDict()

    def known(self, text: bytes, peer: Peer, library: bytes) -> Taken | None:
        """What this script was recognised as, if it was read already."""
        return self._asked_for(digest_of(text), peer, library)

    def _asked_for(self, digest: bytes, peer: Peer, library: bytes) -> Taken | None:
        taken = self._known(digest)
        if isinstance(taken, NotRecognised):
            self._is_refused(digest, taken, peer, library)
        return taken

    def _known(self, digest: bytes) -> Taken | None:
        return self._scripts.use(digest)

    def read(self, text: bytes, account: str, peer: Peer, library: bytes, told: Told) -> None:
        """told: called at once if the answer is known, or if the script may not be read now; else after its
        turn."""
        digest = digest_of(text)
        known = self._asked_for(digest, peer, library) or self._why_not(digest, account, peer)
        if known is not None:
            told(known)
            return
        asked = digest, account
        task = self._asked.get(asked)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._read(asked, text, peer, library))
            self._asked[asked] = task
            self._waiting[account] += 1
        task.add_done_callback(lambda done: told(self._outcome(done)))

    def _why_not(self, digest: bytes, account: str, peer: Peer) -> Refusal | None:
        """If a script is about to be read for this account, a second request for it waits for that."""
        if (digest, account) in self._asked or self._waiting[account] < _WAITING_MOST:
            return None
        self._incidents.limit_hit(_TOO_MANY, peer)
        return Refusal(ErrorWord.LIMIT, _TOO_MANY)

    async def _read(self, asked: tuple[bytes, str], text: bytes, peer: Peer, library: bytes) -> Taken:
        digest, account = asked
        try:
            return await self._turns.answer(
                account, lambda: self._recognised(digest, text, account, peer, library)
            )
        finally:
            del self._asked[asked]
            self._waiting[account] -= 1
            if not self._waiting[account]:
                del self._waiting[account]

    def _recognised(self, digest: bytes, text: bytes, account: str, peer: Peer, library: bytes) -> Taken:
        """Another user may have sent the same script."""
        known = self._asked_for(digest, peer, library)
        if known is not None:
            return known
        # The parser is loaded for the first script: most agents never see one, and each would start later.
        from lockd.core.scripts.recognition import recognise

        taken = recognise(text)
        self._scripts.put(account, digest, taken)
        if isinstance(taken, NotRecognised):
            self._is_refused(digest, taken, peer, library)
            self._log_refused(digest, taken, peer, library)
        return taken

    def _outcome(self, done: asyncio.Task[Taken]) -> Taken | Refusal:
        failure = done.exception()
        if failure is None:
            return done.result()
        self._incidents.internal_error("a script could not be read", failure)
        return _FAILED

    def _is_refused(self, digest: bytes, taken: NotRecognised, peer: Peer, library: bytes) -> None:
        one = self.refused.pop(digest, None) or RefusedScript(digest.decode(), taken.why, _shown(library))
        one.uids.add(peer.uid)
        one.count += 1
        one.last_ns = boottime_ns()
        self.refused[digest] = one
        if len(self.refused) > _REFUSED_MOST:
            self.refused.popitem(last=False)

    def _log_refused(self, digest: bytes, taken: NotRecognised, peer: Peer, library: bytes) -> None:
        self._log.warning(
            "script_not_recognised", sha=digest.decode(), why=taken.why,
            normal_form=taken.normal_form[:_LOGGED_MOST], library=_shown(library), pid=peer.pid, uid=peer.uid,
        )  # fmt: skip

    def loaded(self, digest: bytes) -> Recognised | None:
        """The script of that digest, if it is known and was recognised."""
        taken = self._known(digest.lower())
        return taken if isinstance(taken, Recognised) else None


def _shown(library: bytes) -> str:
    return library.decode(errors="backslashreplace")


def digest_of(text: bytes) -> bytes:
    return sha1(text, usedforsecurity=False).hexdigest().encode()


def refusal(taken: NotRecognised) -> str:
    """The error that it gets."""
    return (
        f"ERR lockd does not recognise this script as a lock operation ({taken.why}). Scripts are "
        f"recognised, never run. Known operations: {_OPERATIONS}. `lockctl script FILE` shows what a script "
        "is recognised as"
    )
