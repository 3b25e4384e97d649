"""WAIT and BLPOP, as lock libraries use them."""

from functools import partial

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.core.leases import Lease, Standing
from lockd.core.validity import NS_PER_MS
from lockd.server.commands.arguments import BadRequest, quoted, whole
from lockd.server.commands.checks import Checks
from lockd.server.commands.command import Argument, Command, Group
from lockd.server.dropin.signals import ITEM, Signals, lock_of
from lockd.server.resp import replies
from lockd.server.session import Session

COMMANDS = Group()

_LONGEST_WAIT_MS = 60_000
_NO_SIGNAL = (
    "ERR BLPOP waits for one list, 'lock-signal:NAME' of python-redis-lock or 'lock.event:NAME' of walrus: "
    "this is a lock agent and has no other lists"
)


class Waiting:
    def __init__(self, current: Current, signals: Signals, checks: Checks) -> None:
        self._current = current
        self._checks = checks
        self._signals = signals

    @COMMANDS(
        Command(
            "wait",
            3,
            "redis",
            ("blocking",),
            "Returns on how many masters the last lock of this connection is.",
            "integer",
            (Argument("numreplicas", "integer"), Argument("timeout", "integer")),
            promise=(
                "on how many masters the last lock of this connection is, written to disk. `0` if it has "
                "ended, or a later `SET NX` was refused. Waits for that many masters, up to the timeout"
            ),
        )
    )
    def _wait(self, session: Session, words: list[bytes]) -> None:
        wanted, most_ms = whole(words[1], least=0), whole(words[2], least=0)
        wait_ms = min(most_ms or _LONGEST_WAIT_MS, _LONGEST_WAIT_MS)
        session.later(lambda _place: self._stands_on(session, wanted, wait_ms), in_turn=True)

    async def _stands_on(self, session: Session, wanted: int, wait_ms: int) -> bytes:
        until_ns = boottime_ns() + wait_ms * NS_PER_MS
        wanted = min(wanted, len(self._current.config.masters))
        # An answer that comes late is counted where it arrives, and calls nobody.
        await session.shared.turns.until(session.account, partial(_is_answered, session, wanted), until_ns)
        return replies.integer(_masters_of(session))

    @COMMANDS(
        Command(
            "blpop",
            -3,
            "redis",
            ("write", "blocking"),
            "Waits until a lock may be free, as python-redis-lock and walrus do.",
            "array of the list and an item, or nil",
            (Argument("key", multiple=True), Argument("timeout", "integer")),
            promise=(
                "waits on `lock-signal:NAME` (python-redis-lock) or `lock.event:NAME` (walrus): an item when "
                "`lock:NAME` may be free"
            ),
        )
    )
    def _blpop(self, session: Session, words: list[bytes]) -> None:
        name, lock = words[1], lock_of(words[1])
        if len(words) != 3 or lock is None:
            raise BadRequest(_NO_SIGNAL)
        if len(lock) > self._current.config.limits.resource_bytes:
            raise BadRequest(f"LIMIT resource_bytes: the name of the lock has {len(lock)} bytes")
        self._checks.may(session, lock, takes=False, about="", holds=False)
        timeout_s = _seconds(words[2])
        session.later(lambda _place: self._item(session, name, lock, timeout_s))

    async def _item(self, session: Session, name: bytes, lock: bytes, timeout_s: float | None) -> bytes:
        if not await self._signals.wait(session, name, lock, timeout_s):
            return b"*-1\r\n" if session.protocol == 2 else replies.nil(3)
        return replies.array([replies.bulk(word, session.protocol) for word in (name, ITEM)])


def _is_answered(session: Session, wanted: int) -> bool:
    """Nothing is left to be waited for, also if it stands no more."""
    lease = session.last_taken
    return lease is None or not _stands(lease) or lease.proven.bit_count() >= wanted


def _masters_of(session: Session) -> int:
    lease = session.last_taken
    return lease.proven.bit_count() if lease is not None and _stands(lease) else 0


def _stands(lease: Lease) -> bool:
    """As far as this agent knows. The proof of a lease that is over says nothing."""
    is_held = lease.standing is Standing.HELD and boottime_ns() < lease.deadline_ns
    return is_held and lease.said_gone is None


def _seconds(word: bytes) -> float | None:
    """None: for any time."""
    try:
        seconds = float(word)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise BadRequest(f"ERR timeout is not a float or out of range: '{quoted(word)}'")
    return seconds or None
