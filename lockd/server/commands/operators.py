"""What operators do: release by force, form, admit. It is always logged."""

import asyncio
import re
from collections.abc import Callable
from functools import partial

from lockd.clock import boottime_ns
from lockd.core.changes.admitting import admit
from lockd.core.changes.forming import form
from lockd.core.changes.ground import Ground
from lockd.core.changes.recovering import recover
from lockd.core.changes.steps import NotPossible, OwnClockIsWrong, Progress, Steps
from lockd.core.changes.upgrading import upgrade
from lockd.core.locks import Locks
from lockd.masters import changes, survey
from lockd.masters.aside import Credentials
from lockd.masters.fleet import Fleet
from lockd.metrics.agent import AgentMetrics
from lockd.server.commands.arguments import BadRequest, Misused, number_in
from lockd.server.commands.command import RESOURCE, Argument, Command, Group
from lockd.server.commands.tenants import tenant_of
from lockd.server.log import EventLog
from lockd.server.resp import replies
from lockd.server.session import Session

COMMANDS = Group()

_WRITER = Argument(
    "auth",
    "block",
    token="AUTH",
    optional=True,
    arguments=(Argument("username"), Argument("password")),
)
_PROGRESS = "remaining_ms, total_ms"
_ADMIN = ("write", "admin", "noscript", "stale")
_WAYS_TO_FORM = (b"UNUSED", b"RECOVER", b"UPGRADE")
_Change = Callable[[Ground], Steps[Progress]]


class Operators:
    """Slow and rare: everything here takes round trips to all masters."""

    def __init__(self, fleet: Fleet, locks: Locks, metrics: AgentMetrics, log: EventLog) -> None:
        self._fleet = fleet
        self._locks = locks
        self._metrics = metrics
        self._log = log
        self._one_change = asyncio.Lock()

    @COMMANDS(
        Command(
            "forcerelease",
            -2,
            "lock",
            _ADMIN,
            "Releases a resource by force. This does not stop the holder: only fences protect from it.",
            "integer: on how many masters it was deleted",
            (
                RESOURCE,
                Argument(
                    "what",
                    "oneof",
                    optional=True,
                    arguments=(
                        Argument(
                            "whose",
                            "block",
                            arguments=(
                                Argument("id", token="HOLDER"),
                                Argument("fence", "integer", token="FENCE", optional=True),
                            ),
                        ),
                        Argument("nolease", "pure-token", token="NOLEASE"),
                    ),
                ),
            ),
            key_access=("RW", "delete"),
            promise=(
                "for operators on this host (not in a container): on how many masters it was deleted. With "
                "`HOLDER`, only that tenure. With `FENCE` (`HOLDER` shows it on its host), only that "
                "lease, and not the next one it was handed on to. With `NOLEASE`, only what somebody else "
                "than lockd has put there and is no lease. Always logged, with the operator, the "
                "resource and the holder"
            ),
        )
    )
    def _force_release(self, session: Session, words: list[bytes]) -> None:
        if [word.upper() for word in words[2:]] == [b"NOLEASE"]:
            session.later(lambda _place: self.clear(session, words[1]), finish=True)
            return
        names = [word.upper() for word in words[2::2]]
        if len(words) % 2 or names not in ([], [b"HOLDER"], [b"HOLDER", b"FENCE"]):
            raise Misused
        wanted = words[3] if names else b""
        if names and not re.fullmatch(rb"[0-9a-f]{8,32}", wanted):
            raise BadRequest(
                "ERR HOLDER takes the holder that HOLDER shows: at least the first 8 hex digits of its nonce"
            )
        fence = number_in(words[5], "FENCE") if len(names) == 2 else None
        session.later(lambda _place: self.force_release(session, words[1], wanted, fence), finish=True)

    @COMMANDS(
        Command(
            "form",
            -1,
            "masters",
            _ADMIN,
            "Forms a cluster of blank masters, recovers one (RECOVER) or upgrades its format (UPGRADE).",
            f"map: status (formed, recovered, upgraded, already or waiting), {_PROGRESS}",
            (
                Argument(
                    "how",
                    "oneof",
                    optional=True,
                    arguments=(
                        Argument("unused", "pure-token", token="UNUSED"),
                        Argument("recover", "pure-token", token="RECOVER"),
                        Argument("upgrade", "pure-token", token="UPGRADE"),
                    ),
                ),
                _WRITER,
            ),
            promise=(
                "for operators: map `status` (`formed`, `recovered`, `upgraded`; `already`; `waiting`: ask "
                "again), `remaining_ms`, `total_ms`"
            ),
        )
    )
    def _form(self, session: Session, words: list[bytes]) -> None:
        said = words[1].upper() if len(words) > 1 else b""
        how = said if said in _WAYS_TO_FORM else b""
        writer = self._writer(words[2:] if how else words[1:])
        session.later(lambda _place: self.form(session, how, writer), finish=True)

    @COMMANDS(
        Command(
            "admit",
            -2,
            "masters",
            _ADMIN,
            "Gives a blank master a vote, a max TTL after the others were told; or one that was away.",
            f"map: status (admitted, updated, already or waiting), {_PROGRESS}",
            (Argument("name"), _WRITER),
            promise=(
                "for operators: map `status` (`admitted`, `updated`; `already`; `waiting`: ask again), "
                "`remaining_ms`, `total_ms`"
            ),
        )
    )
    def _admit(self, session: Session, words: list[bytes]) -> None:
        writer = self._writer(words[2:])
        name = words[1].decode(errors="replace")
        session.later(lambda _place: self.admit(session, name, writer), finish=True)

    def _writer(self, rest: list[bytes]) -> Credentials | None:
        """AUTH user password: the user that writes identities, if the agent's own may not."""
        match rest:
            case []:
                return None
            case [word, name, password] if word.upper() == b"AUTH":
                return Credentials(name.decode(errors="replace"), password)
        raise Misused

    async def force_release(
        self, session: Session, resource: bytes, wanted: bytes, fence: int | None
    ) -> bytes:
        """wanted: the beginning of its nonce. fence: of the lease on this host that is meant; None: any lease
        under that tenure."""
        peer = session.peer
        found = await survey.copies_of(self._fleet, resource)
        nonces = {copy.nonce for copy in found.copies if copy.is_lease and copy.nonce.startswith(wanted)}
        if not nonces or (fence is not None and fence not in self._locks.fences_of(resource, nonces)):
            return replies.error(
                "NOTHELD it is free, or has another holder than the one you named: check with HOLDER"
            )
        whose = sorted({self._whose(resource, copy) for copy in found.copies if copy.nonce in nonces})
        self._log.always(
            "forced_release", resource=resource, by_pid=peer.pid, by_uid=peer.uid, held_by="; ".join(whose)
        )
        self._metrics.forced_releases += 1
        # First its holder, if it is on this host: once it is gone from the masters, another may have it at
        # once.
        self._locks.take_away(resource, nonces, f"released by force, by uid {peer.uid}", boottime_ns())
        await survey.delete(self._fleet, resource, nonces)
        left = {
            copy.master
            for copy in (await survey.copies_of(self._fleet, resource)).copies
            if copy.nonce in nonces
        }
        return replies.integer(len({copy.master for copy in found.copies if copy.nonce in nonces} - left))

    async def clear(self, session: Session, resource: bytes) -> bytes:
        """What is there and is no lease."""
        found = [copy for copy in (await survey.copies_of(self._fleet, resource)).copies if not copy.is_lease]
        if not found:
            return replies.error("NOTHELD there is nothing but leases")
        peer = session.peer
        self._log.always("key_cleared", resource=resource, by_pid=peer.pid, by_uid=peer.uid)
        await survey.delete(self._fleet, resource, {copy.nonce for copy in found})
        left = (await survey.copies_of(self._fleet, resource)).copies
        return replies.integer(len(found) - sum(not copy.is_lease for copy in left))

    def _whose(self, resource: bytes, copy: survey.Copy) -> str:
        tenant = tenant_of(self._locks, resource, copy.nonce) or copy
        return f"{copy.host.decode(errors='replace')} pid {tenant.pid} uid {tenant.uid}"

    async def form(self, session: Session, how: bytes, writer: Credentials | None) -> bytes:
        """how: empty, or a word of FORM that says from what."""
        known = self._locks.known_counters()
        change: dict[bytes, _Change] = {
            b"": partial(form, unused=False, known=known),
            b"UNUSED": partial(form, unused=True, known=known),
            b"RECOVER": partial(recover, known=known),
            b"UPGRADE": partial(upgrade, known=known),
        }
        what = " ".join(word for word in ("form", how.decode().lower()) if word)
        return await self._change(session, what, change[how], writer)

    async def admit(self, session: Session, name: str, writer: Credentials | None) -> bytes:
        return await self._change(session, f"admit {name}", partial(admit, name=name), writer)

    async def _change(
        self, session: Session, what: str, change: _Change, writer: Credentials | None
    ) -> bytes:
        peer = session.peer
        async with self._one_change:
            try:
                progress = await changes.carry_out(self._fleet, change, writer)
            except OwnClockIsWrong as why:
                return replies.error(f"CLOCK {why}. Nothing was changed. Try again when it is right")
            except NotPossible as why:
                self._log.always(
                    "membership_refused", what=what, why=str(why), by_pid=peer.pid, by_uid=peer.uid
                )
                return replies.error(f"ERR {why}")
        if progress.status != "waiting":
            self._log.always(
                "membership", what=what, status=progress.status, by_pid=peer.pid, by_uid=peer.uid
            )
        answer = {
            "status": progress.status,
            "remaining_ms": progress.remaining_ms,
            "total_ms": progress.total_ms,
        }
        return replies.value(answer, session.protocol)
