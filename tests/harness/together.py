"""Were the promises kept to those who ask for several resources together, or for one of several slots?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from lockd.core.validity import NEVER_NS
from lockd.core.values import RedlockParameters
from tests.harness.checker import (
    CHECKS,
    Bounds,
    Reading,
    Violation,
    calm_since,
    name_of,
    tenure_of,
)
from tests.harness.clocks import MS
from tests.harness.history import (
    Answered,
    Asked,
    Began,
    Claimed,
    Declined,
    Fault,
    Found,
    Granted,
    HadSlot,
    HungUp,
    Landed,
    LostUntold,
    Refused,
    Removed,
    TakenBack,
    Tried,
)

_ENDS = Answered, Declined, HungUp, TakenBack
_ONE_TRY_MS = 2 * RedlockParameters(5).master_timeout_ms
"""It is tried again for a timeout where votes were split, or masters changed: the last for another one."""
_SLEWING_FORGOTTEN_MS = 12_000
"""So long after its host's clock was slewed an agent may stand aside, or only learn of that (rule 11e)."""
LOOK_MS = 1_000
"""So often it is looked at what masters have."""
FREE_MOST_MS = 1_000
"""For so long a slot may be free while somebody waits for one: the longest back-offs of those who meet."""


def all_or_none(history: Reading, _: Bounds) -> Iterable[Violation]:
    """Nobody is told of a part of what he asked for, or of what was lost before the rest was granted."""
    parts: dict[int, set[int]] = defaultdict(set)
    for asked in history.all(Asked):
        if asked.whole:
            parts[asked.whole].add(asked.request)
    granted_at_ns = {granted.request: granted.at_ns for granted in history.all(Granted)}
    for whole, requests in parts.items():
        when_ns = {granted_at_ns.get(request) for request in requests}
        if len(when_ns) > 1:
            at_ns = max(ns for ns in when_ns if ns is not None)
            yield Violation("all or none", at_ns, f"a part of request {whole} was granted without the rest")
    lost_ns = {event.token: event.at_ns for event in history.all(LostUntold)}
    for answered in history.all(Answered):
        if lost_ns.get(answered.token, NEVER_NS) <= answered.at_ns:
            yield Violation("all or none", answered.at_ns, f"it was lost before: {answered}")


def taken_back(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """What its app has unlocked by its name is granted no more, and who waits is told so at once (rule 4)."""
    back_ns = {event.request: event.at_ns for event in history.all(TakenBack)}
    for answered in history.all(Answered):
        if back_ns.get(answered.request, NEVER_NS) < answered.at_ns:
            yield Violation("taken back", answered.at_ns, f"its app had taken it back: {answered}")
    over_ns = history.over_ns(Answered, Declined, HungUp)
    claims = {event.request: event for event in history.all(Claimed)}
    for request, since_ns in back_ns.items():
        claimed, due_ns = claims.get(request), since_ns + bounds.at_once_ms * MS
        if claimed is None or over_ns.get(request, NEVER_NS) <= due_ns:
            continue
        if claimed.at_ns < since_ns and _is_awake(history, claimed.token, since_ns, due_ns):
            yield Violation("taken back", due_ns, f"it goes on since {since_ns / 1e9:.6f}: {claimed}")


def _is_awake(history: Reading, token: bytes, from_ns: int, to_ns: int) -> bool:
    """The agent that looks after that lease then: whatever becomes of masters, it knows of its own."""
    agent = history.keeper_of(token, to_ns)
    if agent is None or history.died_ns.get(agent, NEVER_NS) <= to_ns:
        return False
    if not any(began.host == agent and began.at_ns <= from_ns for began in history.all(Began)):
        return False
    return not history.was_stopped(name_of(agent), from_ns, to_ns)


def one_slot(history: Reading, _: Bounds) -> Iterable[Violation]:
    """One name never has two slots, and no request is refused because of what its own name has (rule 4)."""
    for had in history.all(HadSlot):
        if had.answer in ("granted", "TAKEN"):
            yield Violation("one slot", had.at_ns, f"its name has another lease: {had}")


def in_line_no_more(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """For a request that is over nothing is tried any more (rule 13), nor handed to it. What was tried for
    before may come in; for a slot that isn't waited for, within what is one try to its app."""
    over_ns = history.over_ns(*_ENDS)
    tried_ns = {tried.token: tried.at_ns for tried in history.all(Tried)}
    for claimed in history.all(Claimed):
        since_ns = over_ns.get(claimed.request, claimed.at_ns)
        asked, began_ns = history.asked[claimed.request], claimed.at_ns
        if history.is_first(claimed.token):
            began_ns = tried_ns.get(tenure_of(claimed.token), 0)
        is_one_try = asked.among and asked.wait_ms is None
        may_ms = _ONE_TRY_MS if is_one_try else bounds.at_once_ms
        late = began_ns > since_ns and claimed.at_ns > since_ns + may_ms * MS
        if late and _is_awake(history, claimed.token, since_ns, claimed.at_ns):
            text = f"its request was over since {since_ns / 1e9:.6f}: {claimed}"
            yield Violation("for nobody", claimed.at_ns, text)


def whichever_is_free(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """Who waits for a slot has one soon after any of them is free, while nothing is broken."""
    if not bounds.quorum:
        return
    slots = {name for asked in history.all(Asked) if asked.wait_ms for name in asked.among}
    had = {name: list(_had(history, name)) for name in slots}
    calm = calm_since(history)
    faults_ns = [fault.at_ns for fault in history.all(Fault)]
    slewed = any("slew clock" in fault.what for fault in history.all(Fault))
    after_ns = _SLEWING_FORGOTTEN_MS * MS if slewed else 0
    for answer in (*history.all(Granted), *history.all(Refused)):
        asked = history.asked[answer.request]
        if not (asked.among and asked.wait_ms):
            continue
        calm_ns = calm(answer.at_ns) if faults_ns and faults_ns[0] <= answer.at_ns else 0
        if calm_ns is None:
            continue
        from_ns = max(asked.at_ns, _all_serve_ns(history, calm_ns + after_ns))
        for name in asked.among:
            free_ns = _longest_gap_ns(had[name], from_ns, answer.at_ns)
            if free_ns > FREE_MOST_MS * MS:
                text = f"{name.decode()} was free for {free_ns / MS:.0f} ms: {asked} got {answer}"
                yield Violation("whichever is free", answer.at_ns, text)


def _all_serve_ns(history: Reading, since_ns: int) -> int:
    """When the last of the agents that ever tried had granted something, from then on."""
    host_of = {tried.token: name_of(tried.host) for tried in history.all(Tried)}
    first_ns = dict.fromkeys(host_of.values(), NEVER_NS)
    for answered in history.all(Answered):
        host = host_of.get(tenure_of(answered.token), "")
        if answered.at_ns >= since_ns and host in first_ns:
            first_ns[host] = min(first_ns[host], answered.at_ns)
    return max(first_ns.values(), default=NEVER_NS)


def _had(history: Reading, resource: bytes) -> Iterator[tuple[int, int]]:
    """From when to when masters had a lease of it. What nobody has removed was there when it was last looked
    at."""
    tokens = {tried.token for tried in history.all(Tried) if tried.resource == resource}
    on: dict[bytes, dict[str, int]] = defaultdict(dict)
    first_ns: dict[bytes, int] = {}
    there = (*history.all(Landed), *history.all(Found), *history.all(Removed))
    for event in sorted(there, key=lambda event: event.at_ns):
        if event.token in tokens:
            first_ns.setdefault(event.token, event.at_ns)
            until_ns = event.at_ns + (0 if isinstance(event, Removed) else LOOK_MS * MS)
            on[event.token][event.master] = until_ns
    for token, from_ns in first_ns.items():
        yield from_ns, max(on[token].values())


def _longest_gap_ns(had: Iterable[tuple[int, int]], from_ns: int, to_ns: int) -> int:
    """For how long in that time nobody had it."""
    longest_ns, free_ns = 0, from_ns
    for began_ns, ended_ns in sorted(had):
        if ended_ns > from_ns and began_ns < to_ns:
            longest_ns = max(longest_ns, began_ns - free_ns)
            free_ns = max(free_ns, ended_ns)
    return max(longest_ns, to_ns - free_ns)


ALL_CHECKS = (*CHECKS, all_or_none, taken_back, one_slot, in_line_no_more, whichever_is_free)
