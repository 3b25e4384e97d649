"""Carries out changes of the members (lockd/core/changes) on the masters.

`writer` has the right to write identities. Agents may only read them, so that a compromised app host can't
wipe them. Without a writer the agent tries it as itself, which works if no ACL forbids it.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from lockd.clock import boottime_ns
from lockd.core.answers import Nonsense
from lockd.core.changes.ground import Ground
from lockd.core.changes.steps import (
    GLANCE_NS,
    LookAgain,
    NotPossible,
    Pause,
    Progress,
    ReadCounters,
    ReadField,
    Step,
    Steps,
    Unread,
    Write,
)
from lockd.core.fences import SLOTS
from lockd.core.membership import State
from lockd.core.validity import NS_PER_MS
from lockd.masters import replies, scripts
from lockd.masters.aside import Credentials, ask_as
from lockd.masters.failures import MasterError
from lockd.masters.fleet import Fleet
from lockd.masters.link import Link


async def carry_out(
    fleet: Fleet, change: Callable[[Ground], Steps[Progress]], writer: Credentials | None = None
) -> Progress:
    """Raises NotPossible, or OwnClockIsWrong."""
    steps, does = change(ground_of(fleet)), _Doer(fleet, writer)
    answer, failure = None, None
    while True:
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # its Progress
        try:
            answer, failure = await does.what(step), None
        except NotPossible as why:
            failure = why


def ground_of(fleet: Fleet) -> Ground:
    config = fleet.config
    patience_ns = config.timeouts.dead_ms * NS_PER_MS
    return Ground(fleet, config.max_ttl_ms, patience_ns, boottime_ns, lambda: secrets.token_hex(16))


class _Doer:
    """Does each step, with the rights of a writer."""

    def __init__(self, fleet: Fleet, writer: Credentials | None) -> None:
        self._fleet = fleet
        self._writer = writer

    async def what(self, step: Step) -> Any:
        """Ask it. Returns its answer. Raises NotPossible."""
        links = self._fleet.links
        match step:
            case LookAgain():
                return await look_again(self._fleet)
            case Write():
                return await self._write(links[step.master], step)
            case ReadCounters(masters):
                readings = await asyncio.gather(*(_reading(links[master]) for master in masters))
                return dict(zip(masters, readings, strict=True))
            case ReadField(master, name):
                return await _field(links[master], name)
            case Pause(for_ns):
                return await asyncio.sleep(for_ns / 1e9)

    async def _write(self, link: Link, step: Write) -> bool:
        words = scripts.identify(step.expected, step.fields, step.counters)
        try:
            if self._writer is None:
                written = await link.call(*words)
            else:
                written = await ask_as(self._writer, link.approach, self._fleet.config.timeouts, *words)
        except MasterError as failure:
            raise NotPossible(self._not_written(link.master.name, str(failure))) from failure
        return bool(written)

    def _not_written(self, name: str, why: str) -> str:
        if not why.startswith(("NOPERM", "WRONGPASS", "NOAUTH")):
            return f"{name} failed while its identity was written ({why}): repeat this"
        if self._writer is None:
            return (
                f"{name} does not let this agent write identities ({why}): only operators may. Repeat this "
                "with AUTH user password (lockctl … --operator-user lockd_operator)"
            )
        user = self._writer.username
        return f"{name} does not let '{user}' write identities ({why}): use a user who may"


async def look_again(fleet: Fleet) -> set[int]:
    """Returns the masters that answered."""
    with suppress(TimeoutError):
        async with asyncio.timeout(fleet.config.timeouts.connect_ms / 1000):
            await _blank_ones_introduced(fleet)
    links = [link for link in fleet.links if link.introduced]
    looks = (asyncio.wait_for(link.inspect_now(), fleet.config.timeouts.connect_ms / 1000) for link in links)
    ends = await asyncio.gather(*looks, return_exceptions=True)
    return {link.index for link, end in zip(links, ends, strict=True) if end is None}


async def _blank_ones_introduced(fleet: Fleet) -> None:
    """Right after a start they are known to be blank, and may not be asked yet: their scripts are still being
    loaded."""
    # Rarely needed, and it would take an event of each link's: so it polls.
    while any(link.state is State.BLANK and not link.introduced for link in fleet.links):  # noqa: ASYNC110
        await asyncio.sleep(GLANCE_NS / 1e9)


async def _reading(link: Link) -> dict[int, int] | Unread:
    try:
        return await counters_of(link)
    except (MasterError, Nonsense) as failure:
        return Unread(str(failure))


async def counters_of(link: Link) -> dict[int, int]:
    counters = replies.pairs(await link.call("HGETALL", scripts.FENCES_KEY))
    return {replies.digits(slot, SLOTS - 1): replies.digits(value, 10**16) for slot, value in counters}


async def _field(link: Link, name: str) -> str | Unread | None:
    try:
        stored = await link.call("HGET", scripts.IDENTITY_KEY, name)
        return None if stored is None else replies.text(stored)
    except (MasterError, Nonsense) as failure:
        return Unread(str(failure))
