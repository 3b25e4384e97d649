"""What operators do: release by force, form, admit. Always logged."""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lockd.clock import boottime_ns
from lockd.core.changes.admitting import admit
from lockd.core.changes.forming import form
from lockd.core.changes.ground import Ground
from lockd.core.changes.recovering import recover
from lockd.core.changes.steps import NotPossible, OwnClockIsWrong, Progress, Steps
from lockd.core.changes.upgrading import upgrade
from lockd.masters import changes, survey
from lockd.masters.aside import Credentials
from lockd.server.commands import catalog
from lockd.server.commands.arguments import BadRequest, resource_in
from lockd.server.resp import replies
from lockd.server.session import Handler, Session

if TYPE_CHECKING:
    from lockd.server.agent import Agent

_WAYS_TO_FORM = (b"UNUSED", b"RECOVER", b"UPGRADE")
_Change = Callable[[Ground], Steps[Progress]]
_DENIED_OPERATOR = (
    "DENIED this is for operators on this host: root, the agent's own user, or a member of admin_group"
)


class Operators:
    """Slow and rare: everything here takes round trips to all masters."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._one_change = asyncio.Lock()

    def handlers(self) -> dict[bytes, Handler]:
        return {b"FORCERELEASE": self._force_release, b"FORM": self._form, b"ADMIT": self._admit}

    def _for_operators(self, session: Session, command: str) -> None:
        why_not = "not one of them"
        if self._agent.permissions.is_admin(session.peer):
            why_not = session.why_not_on_this_host() or ""
        if why_not:
            self._agent.operator_denied(session.peer, command, why_not)
            raise BadRequest(f"{_DENIED_OPERATOR} ({why_not})")

    def _force_release(self, session: Session, words: list[bytes]) -> None:
        self._for_operators(session, "forcerelease")
        resource = resource_in(self._agent, session, words[1])
        if len(words) not in (2, 4) or (len(words) == 4 and words[2].upper() != b"HOLDER"):
            raise BadRequest(f"ERR syntax error: {catalog.usage('forcerelease')}")
        wanted = words[3] if len(words) == 4 else None
        if wanted is not None and not re.fullmatch(rb"[0-9a-f]{8,32}", wanted):
            raise BadRequest(
                "ERR HOLDER takes what HOLDER shows: the first 8 hex digits of the token, or more of it"
            )
        session.later(partial(self.force_release, session, resource, wanted), finish=True)

    def _form(self, session: Session, words: list[bytes]) -> None:
        self._for_operators(session, "form")
        said = words[1].upper() if len(words) > 1 else b""
        how = said if said in _WAYS_TO_FORM else b""
        writer = self._writer("form", words[2:] if how else words[1:])
        session.later(partial(self.form, session, how, writer), finish=True)

    def _admit(self, session: Session, words: list[bytes]) -> None:
        self._for_operators(session, "admit")
        writer = self._writer("admit", words[2:])
        name = words[1].decode(errors="replace")
        session.later(partial(self.admit, session, name, writer), finish=True)

    def _writer(self, command: str, rest: list[bytes]) -> Credentials | None:
        """AUTH user password: who writes identities, when the agent's own user may not."""
        match rest:
            case []:
                return None
            case [word, name, password] if word.upper() == b"AUTH":
                return Credentials(name.decode(errors="replace"), password)
        raise BadRequest(f"ERR syntax error: {catalog.usage(command)}")

    async def force_release(self, session: Session, resource: bytes, wanted: bytes | None) -> bytes:
        agent, peer = self._agent, session.peer
        found = await survey.copies_of(agent.fleet, resource)
        nonces = {copy.nonce for copy in found.copies if wanted is None or copy.nonce.startswith(wanted)}
        if not nonces:
            return replies.error(
                "NOTHELD it is free, or held by another than the one you named: look again with HOLDER"
            )
        whose = sorted(
            {
                f"{c.host.decode(errors='replace')} pid {c.pid} uid {c.uid}"
                for c in found.copies
                if c.nonce in nonces
            }
        )
        agent.log.always(
            "forced_release", resource=resource, by_pid=peer.pid, by_uid=peer.uid, held_by="; ".join(whose)
        )
        agent.metrics.forced_release()
        # Its holder first, if it is on this host: what is gone from the masters may be another's at once.
        agent.locks.take_away(resource, nonces, f"released by force, by uid {peer.uid}", boottime_ns())
        await survey.delete(agent.fleet, resource, nonces)
        left = {
            copy.master
            for copy in (await survey.copies_of(agent.fleet, resource)).copies
            if copy.nonce in nonces
        }
        return replies.integer(len({copy.master for copy in found.copies if copy.nonce in nonces} - left))

    async def form(self, session: Session, how: bytes, writer: Credentials | None) -> bytes:
        """how: empty, or a word of FORM that says of what."""
        known = self._agent.locks.known_counters()
        change: dict[bytes, _Change] = {
            b"": partial(form, unused=False, known=known),
            b"UNUSED": partial(form, unused=True, known=known),
            b"RECOVER": partial(recover, known=known),
            b"UPGRADE": upgrade,
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
                progress = await changes.carry_out(self._agent.fleet, change, writer)
            except OwnClockIsWrong as why:
                return replies.error(f"CLOCK {why}, nothing was changed: ask again when it is right")
            except NotPossible as why:
                self._agent.log.always(
                    "membership_refused", what=what, why=str(why), by_pid=peer.pid, by_uid=peer.uid
                )
                return replies.error(f"ERR {why}")
        if progress.status != "waiting":
            self._agent.log.always(
                "membership", what=what, status=progress.status, by_pid=peer.pid, by_uid=peer.uid
            )
        shown = {
            "status": progress.status,
            "remaining_ms": progress.remaining_ms,
            "total_ms": progress.total_ms,
        }
        return replies.value(shown, session.protocol)
