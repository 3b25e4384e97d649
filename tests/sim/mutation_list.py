"""The rules that can be taken out, each with the patch that does it: see mutations.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Edit:
    """One place in a file: `old` stands there once, and becomes `new`."""

    file: str
    old: str
    new: str

    def made_in(self, text: str) -> str:
        """The file's text, edited."""
        assert text.count(self.old) == 1, f"{self.file} has {text.count(self.old)} times: {self.old}"
        return text.replace(self.old, self.new)

    def apply(self, root: Path) -> None:
        path = root / self.file
        path.write_text(self.made_in(path.read_text()))


@dataclass(frozen=True, slots=True)
class Mutation:
    """A rule of lockd/core/__init__.py, and how it is taken out: of the product, or of what the world of the
    simulator has in its place (a guard, a network, a disk). Of the scripts twice: of the masters', and of their
    model, since only one of them is run in each suite.

    simulated: whether the simulator finds it (found_by.json says with which seeds); what it doesn't, unit tests
    do (python -m tests.kills). shared: on hosts that greedy accounts share, whose seeds begin elsewhere
    (tests/sim/plan.py).
    """

    name: str
    rule: int
    edits: tuple[Edit, ...]
    simulated: bool = True
    shared: bool = False


def one(
    name: str, rule: int, file: str, old: str, new: str, *, simulated: bool = True, shared: bool = False
) -> Mutation:
    return Mutation(name, rule, (Edit(file, old, new),), simulated, shared)


ATTEMPT = "lockd/core/ballots/attempt.py"
EXTENSION = "lockd/core/ballots/extension.py"
RELEASE_BALLOT = "lockd/core/ballots/release.py"
FENCE_ROUND = "lockd/core/ballots/fence_round.py"
ADMISSION = "lockd/core/admission.py"
ADMITTING = "lockd/core/changes/admitting.py"
FORMING = "lockd/core/changes/forming.py"
GROUND = "lockd/core/changes/ground.py"
CLOCKS = "lockd/core/clocks.py"
VOTERS = "lockd/core/voters.py"
IDENTITIES = "lockd/core/identities.py"
COUNTERS = "lockd/core/counters.py"
DEBTS = "lockd/core/debts.py"
LEASES = "lockd/core/leases.py"
LOCKS = "lockd/core/locks.py"
LINE, TURNS, QUEUES, STAKES = (f"lockd/core/{name}.py" for name in ("line", "turns", "queues", "stakes"))
LOOP, ACCOUNTS = "lockd/server/turns.py", "lockd/server/accounts.py"
TVOTES, CAMPAIGNS, RENEWALS, RETURNS, HANDING_ON, KEEPING = (
    f"lockd/core/tenures/{name}.py"
    for name in ("votes", "campaigns", "renewals", "returns", "handing_on", "keeping")
)
PLACES = "lockd/core/tenures/places.py"
NAMES = "lockd/core/names.py"
POLLS = "lockd/core/polls.py"
PLAIN_VALUES = "lockd/core/plain_values.py"
PERFORMING = "lockd/server/dropin/performing.py"
JOURNAL = "lockd/core/journal.py"
TAKEOVER = "lockd/core/takeover.py"
MEMBERSHIP = "lockd/core/membership.py"
VALUES = "lockd/core/values.py"
VALIDITY = "lockd/core/validity.py"
AGENT = "tests/sim/agent.py"
LINK = "lockd/core/link.py"
INTRODUCTION = "lockd/core/introduction.py"
CARRIER = "tests/sim/link.py"
MASTER = "tests/sim/master.py"
NETWORK = "tests/sim/network.py"
STANDSTILL = "lockd/core/standstill.py"
SLEWING = "lockd/core/slewing.py"
SCRIPTS = "tests/harness/script_model.py"
WORLD = "tests/sim/world.py"
ENTER = "lockd/guard/enter.py"
LOSSES = "lockd/server/losses.py"
SESSION = "lockd/server/session.py"
OWNERS = "lockd/core/owners.py"
CLAIMS = "lockd/core/claims.py"
SEVERAL = "lockd/core/several.py"
SLOTS = "lockd/core/slots.py"
TOKENS = "lockd/server/tokens.py"
CLOCK = "lockd/clock.py"
VOTES = "lockd/core/changes/votes.py"
UPGRADING = "lockd/core/changes/upgrading.py"
RECOVERING = "lockd/core/changes/recovering.py"
TAKE_OVER_LUA = "lockd/masters/scripts/take_over.lua"
ACQUIRE_LUA, EXTEND_LUA, PROPOSE_LUA, RELEASE_LUA = (
    f"lockd/masters/scripts/{name}.lua" for name in ("acquire", "extend", "propose", "release")
)

ANY_AGREE = Edit(TVOTES, "return (voters & self._masters.agreeing).bit_count() >= self.quorum", "return True")
"""When votes are counted, it is looked at once more who has a vote: both have to go."""

CONTROL = one("nothing", 0, VALUES, "masters // 2 + 1", "masters // 2 + (1)", simulated=False)
"""Changes nothing: what finds it finds too much."""

MUTATIONS = (
    one("quorum off by one", 1, VALUES, "masters // 2 + 1", "masters // 2"),
    one(
        "a link rests for longer after each try, without bound",
        5,
        LINK,
        "min(1_000 * NS_PER_MS, 5 * NS_PER_MS << min(self._tries, 10))",
        "5 * NS_PER_MS << self._tries",
        simulated=False,
    ),
    Mutation(
        "what others hold is cut short",
        9,
        (
            Edit(SCRIPTS, "longest_ms = self.longest_ttl_ms if", "longest_ms = self.longest_ttl_ms // 8 if"),
            Edit(
                ACQUIRE_LUA,
                "reserved and 250 or math.max(ceiling_ms, before_ms)",
                "reserved and 250 or math.max(ceiling_ms, before_ms) / 8",
            ),
        ),
    ),
    Mutation(
        "wall clock for elapsed time",
        1,
        (
            Edit(CLOCK, "    return clock_gettime_ns(CLOCK_BOOTTIME)\n", "    return time_ns()\n"),
            Edit(AGENT, "self.boot_ns = clock.boot_ns", "self.boot_ns = clock.wall_ns"),
            # A line is in the order of that clock: one that goes back would end the program.
            Edit(
                "lockd/core/queues.py",
                "at = 0 if ready and ready[0] is holder else bisect_left(ready, holder.asked_ns, key=_ARRIVAL)",
                "at = ready.index(holder) if holder in ready else len(ready)",
            ),
            Edit(
                WORLD,
                "-(boot_ns - shown_ns) * 1_000_000",
                "-(boot_ns - _EPOCH_NS - self.wall_off_ns - shown_ns) * 1_000_000",
            ),
            Edit(
                AGENT,
                "wall_ahead_ns = self.clock.wall_ahead_ns()\n        self._beats",
                "wall_ahead_ns = 0\n        self._beats",
            ),
            Edit(MASTER, "ends_ns = self.clock.boot_ns()", "ends_ns = self.clock.wall_ns()"),
            Edit(
                AGENT,
                "self.locks.wall_ahead_ns = self.clock.wall_ahead_ns()\n        self.wake_after",
                "self.wake_after",
            ),
        ),
    ),
    one(
        "no drift allowance",
        1,
        VALIDITY,
        "return ttl_ms * NS_PER_MS * DRIFT_NUM // DRIFT_DEN + DRIFT_FLOOR_NS",
        "return 0",
    ),
    one(
        "validity counted from the answer",
        1,
        CAMPAIGNS,
        "        tenure = Tenure(attempt, cut_ns)\n",
        "        attempt.t1_ns = now_ns\n        tenure = Tenure(attempt, cut_ns)\n",
    ),
    one(
        "reply not checked again",
        1,
        CAMPAIGNS,
        "if now_ns >= self._ends_ns(attempt, cut_ns):",
        "if False:",
    ),
    Mutation(
        "an extension shortens",
        2,
        (
            Edit(
                SCRIPTS,
                "key.expires_ms = max(key.expires_ms, now_ms + ttl_ms)",
                "key.expires_ms = now_ms + ttl_ms",
            ),
            Edit(EXTEND_LUA, "math.max(call('PTTL', KEYS[1]), ttl_ms)", "ttl_ms"),
        ),
    ),
    one(
        "it is put back where another extension has found it since",
        2,
        LEASES,
        "        extension.missing &= ~self.proven\n",
        "",
        simulated=False,
    ),
    one(
        "no release where no answer came",
        3,
        ATTEMPT,
        "return self.asked & ~self.absent",
        "return self.yes",
    ),
    one(
        "no release at all after a failed try",
        3,
        CAMPAIGNS,
        "        if attempt.landed:\n",
        "        if False:\n",
    ),
    Mutation(
        "a release overtakes its acquire",
        3,
        (
            Edit(
                NETWORK,
                "self._last_ns, self._stuck_until_ns)",
                "0 if 'Release object' in repr(message) else self._last_ns, self._stuck_until_ns)",
            ),
            Edit(NETWORK, "self._last_ns = when_ns\n", "self._last_ns = max(self._last_ns, when_ns)\n"),
            Edit(
                CARRIER,
                "        answer, read_ns = message[2:]\n",
                "        answer, read_ns = message[2:]\n"
                "        mine = [q for q in self._in_flight if q[0] is message[1] or message[1] is None and "
                "not hasattr(q[0], 'answered')][0]\n"
                "        self._in_flight.remove(mine)\n"
                "        self._in_flight.appendleft(mine)\n",
            ),
        ),
    ),
    one(
        "more is asked at once than masters answer in time",
        12,
        LINE,
        "        return self.under_way < self.window and not self._waiting.has_jobs\n",
        "        return True\n",
        simulated=False,
    ),
    one(
        "what waits for the masters is let in first come, first served",
        12,
        LINE,
        "self._waiting.at(account, deadline_ns,",
        'self._waiting.at("all", 0,',
        simulated=False,
    ),
    one(
        "what waits for the masters is let in by the earliest deadline of all accounts",
        12,
        LINE,
        "self._waiting.at(account, deadline_ns,",
        'self._waiting.at("all", deadline_ns,',
        simulated=False,
    ),
    one(
        "there is one turn for all accounts, first come, first served",
        12,
        TURNS,
        "        share = self._house if account == HOUSE else self._share_of(account)\n",
        '        share = self._share_of("all")\n',
        shared=True,
    ),
    one(
        "what a job has cost is not charged",
        12,
        TURNS,
        "share.used_ns += max(1, self._worked_ns() - began_ns)",
        "share.used_ns += 1",
        shared=True,
    ),
    one(
        "what is done outside of an account's turn is not charged",
        12,
        TURNS,
        "share.used_ns = max(share.used_ns, self._level_ns) + cost_ns",
        "pass",
        simulated=False,
    ),
    one(
        "nobody pays for hearing what masters answer",
        12,
        TVOTES,
        "        self._turns.charge(ballot.account, ballot.asked.bit_count() * self._masters.answer_ns)\n",
        "        pass\n",
        simulated=False,
    ),
    one(
        "what masters will answer is left out of what is done at once",
        12,
        LOOP,
        "        self._at_once_ns += cost_ns + self.of.charged_ns - self._charged_ns\n",
        "        self._at_once_ns += cost_ns\n",
        simulated=False,
    ),
    one(
        "beside a modest account a greedy one does not rest",
        12,
        LOOP,
        "            self.of.rest()\n",
        "            pass\n",
        simulated=False,
    ),
    one(
        "each uid is an account",
        12,
        ACCOUNTS,
        "        return owner or STRANGERS\n",
        '        return f"uid {uid}"\n',
        shared=True,
    ),
    one(
        "floors are in the common pot",
        12,
        STAKES,
        "        self._common = total - FLOORS * self._floor\n",
        "        self._common = total\n",
        simulated=False,
    ),
    one(
        "nobody has a floor",
        12,
        STAKES,
        "        return floor + free * self.share // (100 + self.share)\n",
        "        return free * self.share // (100 + self.share)\n",
        simulated=False,
    ),
    one(
        "in the line for one resource the first that came is the first served, of whatever account",
        12,
        QUEUES,
        "        if len(self._ready) > 1 and (others := self._ready.pop(holder.account, None)):\n"
        "            self._ready[holder.account] = others\n",
        "",
        shared=True,
    ),
    one(
        "what is next for a line is done in the turn of its first, or of who holds it",
        12,
        CAMPAIGNS,
        "        return self._turns.first_of(queue.accounts if holder == HOUSE else (holder, *queue.accounts))\n",
        "        return next(iter(queue.accounts)) if holder == HOUSE else holder\n",
        shared=True,
    ),
    one(
        "who was at rest has saved up turns",
        12,
        TURNS,
        "                share.used_ns = max(share.used_ns, self._level_ns)\n",
        "",
        simulated=False,
    ),
    one(
        "the old session is not ended",
        3,
        INTRODUCTION,
        "        yield EndSession(old)\n",
        "        pass\n",
        simulated=False,
    ),
    one(
        "what a broken connection owed is forgotten",
        3,
        DEBTS,
        "        self._kept, self._due = self._due, {}\n",
        "        self._kept, self._due = {}, {}\n",
    ),
    one(
        "a release past its TTL is not sent after a break",
        3,
        DEBTS,
        "if number <= self._however_old or now_ns < release.until_ns:",
        "if now_ns < release.until_ns:",
        simulated=False,
    ),
    Mutation(
        "a token is used again",
        4,
        (
            Edit(TOKENS, "os.urandom(_BYTES)", "bytes(_BYTES)"),
            Edit(AGENT, "self.dice.getrandbits(128)", "self.dice.getrandbits(4)"),
        ),
    ),
    Mutation(
        "the release looks at no token",
        4,
        (
            Edit(
                SCRIPTS,
                "        if key is None or key.named(how) not in (word, *before):\n            return 0\n",
                "        if key is None:\n            return 0\n",
            ),
            Edit(RELEASE_LUA, "mine = mine or word == ARGV[i]", "mine = true"),
        ),
    ),
    one(
        "the release of a try looks at its app's token",
        4,
        CAMPAIGNS,
        "            release = Release(\n                attempt.resource, attempt.nonce, quorum=self._quorum, t1_ns=now_ns, until_ns=until_ns,\n                settled=nothing_more, how=how,\n            )  # fmt: skip\n",
        "            release = Release(\n                attempt.resource, attempt.terms.value or attempt.nonce, quorum=self._quorum, t1_ns=now_ns, until_ns=until_ns,\n                settled=nothing_more, how=How.BY_APP,\n            )  # fmt: skip\n",
        simulated=False,
    ),
    Mutation(
        "two with the same token are one",
        4,
        (
            Edit(
                SCRIPTS,
                "        elif key.nonce != nonce:",
                "        elif key.reserved is not None or key.fields()[3] != (terms.partition(b' =')[2] or nonce):",
            ),
            Edit(
                ACQUIRE_LUA,
                "  elseif string.sub(shown, 1, 32) == ARGV[1] then",
                "  elseif (string.match(shown, ' (=.*)$') or string.sub(shown, 1, 32)) == (string.match(ARGV[2], ' (=.*)$') or ARGV[1]) then",
            ),
        ),
    ),
    one(
        "a split vote is said to be a lease",
        1,
        ATTEMPT,
        "            self.settle(AttemptOutcome.SPLIT, now_ns)",
        "            self.settle(AttemptOutcome.TAKEN, now_ns)",
    ),
    Mutation(
        "an extension puts back what is gone",
        2,
        (
            Edit(
                EXTENSION,
                "        elif status == MISSING and not self.gone.mask & ~self.gone.unsure & bit:\n            self.missing |= bit\n",
                "        if status == MISSING:\n            self.missing |= bit\n",
            ),
            Edit(
                RENEWALS,
                "            self._turns.aside(self._watcher.renewed, lease, worked)\n",
                "            self._put_back(tenure, extension, now_ns)\n            self._turns.aside(self._watcher.renewed, lease, worked)\n",
            ),
            Edit(
                RENEWALS,
                "or extension.proof is not tenure.proof or not tenure.is_held",
                "or not tenure.is_held",
            ),
            Edit(RENEWALS, "        self._returns.take_back(tenure, tenure.gone, now_ns)\n", ""),
            Edit(
                RENEWALS,
                "lease is not None and lease.lost_by is Loss.GONE and",
                "False and lease is not None and",
            ),
        ),
        simulated=False,
    ),
    one(
        "the largest fence of the votes, without a second round",
        6,
        CAMPAIGNS,
        "            if fence is None:\n                self._second_round(attempt, now_ns)",
        "            if fence is None:\n                self._grant(queue, attempt, max(attempt.fences), now_ns)",
    ),
    one(
        "the fence that most votes named, not a quorum",
        6,
        ATTEMPT,
        "if self.fences.count(value) >= self._quorum), None)",
        "if self.fences.count(value) >= 2), None)",
    ),
    Mutation(
        "a fence accepted by one is enough",
        6,
        (Edit(FENCE_ROUND, "        if accepted >= self._quorum:", "        if accepted >= 1:"), ANY_AGREE),
    ),
    Mutation(
        "a master accepts a fence that isn't larger",
        6,
        (
            Edit(SCRIPTS, "        if value <= counter:\n            return 0, counter\n", ""),
            Edit(PROPOSE_LUA, "if proposed <= counter then return {0, counter, now_us} end\n", ""),
        ),
    ),
    Mutation(
        "a master accepts a fence that is as large as its counter",
        6,
        (
            Edit(SCRIPTS, "        if value <= counter:\n", "        if value < counter:\n"),
            Edit(PROPOSE_LUA, "if proposed <= counter then", "if proposed < counter then"),
        ),
        simulated=False,
    ),
    Mutation(
        "a vote doesn't move the counter",
        6,
        (
            Edit(
                SCRIPTS,
                "        self.counters[slot] = last\n        if place:",
                "        if place:",
            ),
            Edit(ACQUIRE_LUA, "call('HSET', KEYS[2], ARGV[4], string.format('%.0f', last))\n", ""),
        ),
    ),
    one(
        "renewal without bound",
        7,
        LEASES,
        "ttl_ms = min(wanted_ms, longest_ttl_ms(last_ns - now_ns))",
        "ttl_ms = wanted_ms",
    ),
    Mutation(
        "others extend without bound",
        7,
        (
            Edit(
                SCRIPTS,
                "            if left_ms <= 0:\n                return 4, 0\n            ttl_ms = min(ttl_ms, left_ms)\n",
                "",
            ),
            Edit(
                EXTEND_LUA,
                "  if left_ms <= 0 then return {4, 0, now_us} end\n  ttl_ms = math.min(ttl_ms, left_ms)\n",
                "",
            ),
        ),
    ),
    Mutation(
        "a blank master votes",
        8,
        (
            Edit(
                MEMBERSHIP,
                "    if keys == 0:\n        return (\n            State.BLANK,",
                "    if keys < 10**9:\n        return (\n            State.UP,",
            ),
            # Nor has it a ceiling.
            Edit(MEMBERSHIP, "sorted(ceilings_ms, reverse=True)", "sorted(ceilings_ms or [1], reverse=True)"),
            Edit(VOTERS, "if state in (State.UP, State.STALLED) and not together & bit:", "if False:"),
            Edit(
                SCRIPTS,
                "        if self.electorate != electorate:\n            return -1, 0\n        if ttl_ms > self.max_ttl_ms:\n            return -2, self.max_ttl_ms\n        fence",
                "        fence",
            ),
            Edit(
                SCRIPTS,
                "        if self.electorate != electorate:\n            return -1, 0\n        if tenure is not None",
                "        if tenure is not None",
            ),
            Edit(
                ACQUIRE_LUA,
                "if identity[1] ~= ARGV[#ARGV] then return {-1, 0, now_us} end\nlocal ceiling_ms = tonumber(identity[2])\nif tonumber(ARGV[3]) > ceiling_ms then return {-2, ceiling_ms, now_us} end\n",
                "local ceiling_ms = tonumber(identity[2] or 86400000)\n",
            ),
            Edit(
                PROPOSE_LUA,
                "if call('HGET', 'lockd:identity', 'electorate') ~= ARGV[#ARGV] then return {-1, 0, now_us} end\n",
                "",
            ),
        ),
    ),
    Mutation(
        "a list of other members votes",
        8,
        (
            Edit(MEMBERSHIP, "if set(identity.members.names) != set(configured.names):", "if False:"),
            Edit(
                IDENTITIES,
                "Members.of({member: self.members.number_of(member) for member in names})",
                "self.members",
            ),
        ),
    ),
    one(
        "upgrading keeps the counters that there are",
        6,
        UPGRADING,
        "yield from ground.write(link, new.fields, counters)",
        "yield from ground.write(link, new.fields)",
        simulated=False,
    ),
    one(
        "fences of a cluster that is formed of wiped masters begin with what the agent has seen",
        6,
        FORMING,
        "_counters_known if unused else counters_above_all",
        "_counters_known",
    ),
    one(
        "another machine gets no other number",
        8,
        ADMISSION,
        "number = current_members(others.values()).number_of(name) + 1",
        "number = current_members(others.values()).number_of(name)",
    ),
    one(
        "what another machine's predecessor helped to grant is not waited for",
        8,
        ADMISSION,
        "wait_for_blank([blank_since_ns, numbered.since_ns]",
        "wait_for_blank([blank_since_ns]",
    ),
    Mutation(
        "a machine is let in before its number is on a quorum",
        8,
        (
            Edit(
                ADMISSION,
                "if numbered is None or len(_showing(name, numbered.number, others)) < quorum:",
                "if numbered is None or len(_showing(name, numbered.number, others)) < 1:",
            ),
            Edit(
                ADMISSION,
                "return Ready(members, _showing(name, numbered.number, others))",
                "return Ready(members, list(others))",
            ),
            Edit(ADMITTING, "if written < ground.quorum:", "if written < 1:"),
        ),
    ),
    Mutation(
        "forming goes on with the id of a forming that was broken off",
        8,
        (
            Edit(FORMING, "    if begun:\n", "    if False:\n"),
            Edit(
                FORMING,
                "cluster_id = ground.new_id()",
                "cluster_id = next((of.cluster_id for link in links if (of := link.identity)), ground.new_id())",
            ),
        ),
    ),
    Mutation(
        "those that are left vote while others begin anew",
        8,
        (
            Edit(RECOVERING, "    yield from take_votes(ground, left, blank)\n", ""),
            Edit(VOTES, "link.taken is None or ground.shows", "link.taken is not None and ground.shows"),
            Edit(VOTES, "[_silent_since_ns(link) for", "[_silent_since_ns(link) or 0 for"),
        ),
    ),
    Mutation(
        "no votes are taken before upgrading",
        8,
        (
            Edit(UPGRADING, "    yield from take_votes(ground, links)\n", ""),
            Edit(VOTES, "link.taken is None or ground.shows", "link.taken is not None and ground.shows"),
            Edit(VOTES, "[_silent_since_ns(link) for", "[_silent_since_ns(link) or 0 for"),
        ),
        simulated=False,
    ),
    Mutation(
        "the votes of the blank ones are not taken when others begin anew",
        8,
        (
            Edit(
                RECOVERING,
                "    for link in blank:\n        yield from take_vote(ground, link, max_ttl_ms)\n",
                "",
            ),
            Edit(VOTES, "link.taken is None or ground.shows", "link.taken is not None and ground.shows"),
        ),
        simulated=False,
    ),
    one(
        "a change writes over what it has not seen",
        8,
        GROUND,
        "expected = self.shows(link)",
        "expected = _shown_by(link.identity)",
        simulated=False,
    ),
    one(
        "a promoted copy votes",
        8,
        MEMBERSHIP,
        "return self.was_replica or self.known",
        "return False",
    ),
    one(
        "a promoted copy is forgotten when it is restarted",
        8,
        MEMBERSHIP,
        "was_replica or self.known",
        "was_replica",
    ),
    one(
        "admission copies from one master only",
        8,
        MEMBERSHIP,
        "    for reading in sane:\n",
        "    for reading in sane[:1]:\n",
    ),
    one(
        "admission copies no counters",
        8,
        MEMBERSHIP,
        "    return highest\n",
        "    return {}\n",
    ),
    Mutation(
        "guard delay shorter than the TTL",
        10,
        (
            Edit(MASTER, "settle_ns(self._longest_ttl_ms)", "settle_ns(self._longest_ttl_ms) // 4"),
            Edit("lockd/guard/delay.py", "* 101 // 100 + NS_PER_S", "* 101 // 400 + NS_PER_S // 4"),
        ),
    ),
    Mutation(
        "a crash counts as a clean stop",
        10,
        (
            Edit(MASTER, "if self._clean or not self._guarding.enabled:", "if True:"),
            Edit(
                "lockd/guard/last_stop.py",
                'if (result, code, exit_status) == ("success", "exited", "0"):',
                "if True:",
            ),
        ),
    ),
    one(
        "a clean stop is proven once and for all",
        10,
        ENTER,
        "remove(MARKER, PERMIT, REST)",
        "remove(PERMIT, REST)",
        simulated=False,
    ),
    one(
        "the marker of an earlier stop counts",
        10,
        ENTER,
        "if marker.generation != state.generation:",
        "if False:",
        simulated=False,
    ),
    one(
        "a marker from another machine counts",
        10,
        ENTER,
        "if marker.host_id != guard.host.host_id():",
        "if False:",
        simulated=False,
    ),
    one(
        "a quarantine after a lower max TTL is too short",
        10,
        ENTER,
        "    known += [proof.longest_ttl_ms for proof in (marker, permit) if proof is not None]\n",
        "",
        simulated=False,
    ),
    one(
        "a clock that was stepped while Redis was down is not seen",
        11,
        ENTER,
        "    if rise_ns <= 0:\n",
        "    if True:\n",
        simulated=False,
    ),
    one(
        "a master whose settings break a promise votes",
        14,
        MEMBERSHIP,
        "    if wrong:\n",
        "    if False:\n",
        simulated=False,
    ),
    one("a replica votes", 14, MEMBERSHIP, 'if facts.role != "master":', "if False:", simulated=False),
    one(
        "a master that has a replica votes",
        8,
        MEMBERSHIP,
        "if facts.copying.replicas:",
        "if False:",
        simulated=False,
    ),
    one(
        "one Redis under two names votes twice",
        8,
        MEMBERSHIP,
        "if twin is not None and (",
        "if False and (",
        simulated=False,
    ),
    Mutation(
        "a lease above the ceiling of the masters is granted",
        9,
        (
            Edit(
                SCRIPTS,
                "        if ttl_ms > self.max_ttl_ms:\n            return -2, self.max_ttl_ms\n        fence",
                "        fence",
            ),
            Edit(
                ACQUIRE_LUA,
                "if tonumber(ARGV[3]) > ceiling_ms then return {-2, ceiling_ms, now_us} end\n",
                "",
            ),
        ),
        simulated=False,
    ),
    Mutation(
        "what is no lease is cleared by who wants the lock, also where it was put over a lease",
        9,
        (
            Edit(
                SCRIPTS,
                "                return -5, 0\n",
                "                del self.leases[resource]\n                return -5, 0\n",
            ),
            Edit(
                ACQUIRE_LUA,
                "    return {-5, 0, now_us}\n",
                "    call('DEL', KEYS[1])\n    return {-5, 0, now_us}\n",
            ),
        ),
        simulated=False,
    ),
    one(
        "a fence counter falls and nobody is told",
        6,
        COUNTERS,
        "if counter < self._seen.get(slot, 0)]",
        "if False]",
        simulated=False,
    ),
    one(
        "what leases may last since the max TTL was lowered is forgotten",
        9,
        IDENTITIES,
        "return max(self.max_ttl_ms, self.was_max_ttl_ms)",
        "return self.max_ttl_ms",
    ),
    one(
        "a clock is watched for as long as this agent's own leases last",
        9,
        CLOCKS,
        "settle_ns(max(self._max_ttl_ms, max_ttl_ms))",
        "settle_ns(self._max_ttl_ms)",
    ),
    Mutation(
        "a master does not keep the max TTL of before",
        9,
        (
            Edit(SCRIPTS, "if self.longest_ttl_ms > max_ttl_ms else {}", "if False else {}"),
            Edit(
                "lockd/masters/scripts/plays/set_max_ttl.lua",
                "if was > tonumber(ARGV[1]) then",
                "if false then",
            ),
        ),
    ),
    one(
        "a master that is stalled is asked",
        5,
        VOTERS,
        "            if state is State.UP:\n",
        "            if state in (State.UP, State.STALLED):\n",
        simulated=False,
    ),
    one(
        "a loss is told on its own connection or never",
        12,
        LOSSES,
        "if other.hears), None)",
        "if False), None)",
        simulated=False,
    ),
    one(
        "a vote is kept after a clock jump",
        11,
        CLOCKS,
        "        jumped, gap = lowest > floor + TOLERANCE_NS, unseen_ns > _GAP_NS\n",
        "        jumped, gap = False, unseen_ns > _GAP_NS\n",
    ),
    Mutation(
        "a vote counts although its master is distrusted",
        11,
        (
            Edit(
                ATTEMPT,
                '        if status == YES:\n            if not counts:\n                self.silent[master] = "its vote does not count"\n            else:\n                self.proof.masters |= bit',
                '        if status == YES:\n            if False:\n                self.silent[master] = "its vote does not count"\n            else:\n                self.proof.masters |= bit',
            ),
            ANY_AGREE,
        ),
    ),
    Mutation(
        "data that was restored votes",
        10,
        (
            Edit(MASTER, "        if self._foreign and self._guarding.enabled:\n", "        if False:\n"),
            Edit(ENTER, "            dirt = without_foreign_data(guard, state, dirt)\n", ""),
            Edit(ENTER, "return Dirt(Reason.DATA_CHANGED, changed) if changed else None", "return None"),
        ),
    ),
    one(
        "a host's clock may be slewed at any rate",
        11,
        SLEWING,
        "if abs(self.ppm) <= MOST_PPM:",
        "if True:",
    ),
    one(
        "a fresh agent trusts any clock",
        11,
        CLOCKS,
        "        if abs(off_ns) <= self._allowance_ns:\n",
        "        if True:\n",
    ),
    one(
        "what a host stood still comes off no deadline",
        11,
        RENEWALS,
        "            if cut_ns > tenure.cut_ns:\n",
        "            if False:\n",
    ),
    one(
        "whoever jumps, it was this host",
        11,
        STANDSTILL,
        "if self.steady or len(self.jumped) < quorum:",
        "if len(self.jumped) < 1:",
        simulated=False,
    ),
    one(
        "what turns out while it is renewed may be held for longer",
        7,
        LEASES,
        "min(self.tenure.deadline_ns, proven_ns, self.hold_until_ns)",
        "min(self.tenure.deadline_ns, proven_ns)",
        simulated=False,
    ),
    Mutation(
        "who could not be spared is told behind the deadline",
        12,
        (
            Edit(
                LEASES,
                "min(self.deadline_ns - _LEAST_NOTICE_NS, now_ns + patience_ns)",
                "min(self.deadline_ns, now_ns + patience_ns)",
            ),
            Edit(
                RENEWALS,
                "self.look_again(lease, min(again_ns, lease.lose_at_ns()))",
                "self.look_again(lease, again_ns)",
            ),
        ),
    ),
    one(
        "a loss is told at the deadline",
        12,
        LEASES,
        "return max(self.deadline_ns - notice_ns(self.ttl_ms), self.spared_until_ns)",
        "return self.deadline_ns",
    ),
    one(
        "an agent that stops gives back what is held",
        13,
        SESSION,
        "        if not shared.stopped:\n            shared.endings",
        "        if True:\n            shared.endings",
        simulated=False,
    ),
    one(
        "the end of a connection takes what belongs to its process",
        13,
        OWNERS,
        "lease.holder.bound is Bound.PROCESS and self.process is not None:",
        "False:",
    ),
    one(
        "what was granted and never told is kept",
        13,
        OWNERS,
        "        return (*self._untold, *(self._last if delivery is Delivery.CUT else ()))\n",
        "        return ()\n",
        simulated=False,
    ),
    one(
        "what somebody may believe in is given back",
        13,
        OWNERS,
        "        return (*self._untold, *(self._last if delivery is Delivery.CUT else ()))\n",
        "        return (*self._untold, *self._last, *self._covered)\n",
        simulated=False,
    ),
    one(
        "a dead process is waited for until its connections were read to their end",
        13,
        OWNERS,
        "{one: None for one in self.connections if one.port.is_open}",
        "dict(self.connections)",
        simulated=False,
    ),
    one(
        "the death of an app takes the lock from its child",
        13,
        OWNERS,
        "        return self.dead and not self.connections\n",
        "        return self.dead\n",
    ),
    one(
        "one who can't be told yet is granted",
        1,
        CAMPAIGNS,
        "queue.joins(holder, give_up, ready=ready)",
        "queue.joins(holder, give_up, ready=True)",
        simulated=False,
    ),
    one(
        "a request that was withdrawn is granted when it comes late",
        4,
        LOCKS,
        "if self.names.over(uid, resource, token, now_ns) is not None:",
        "if False:",
        simulated=False,
    ),
    one(
        "whoever names a request gets its lease",
        4,
        NAMES,
        "return (one.pid, one.started) == (other.pid, other.started)",
        "return True",
        simulated=False,
    ),
    one(
        "a lease that others may tell of ends with one of its connections",
        4,
        OWNERS,
        "        if telling.tellers or lease.inherited is not None:\n",
        "        if lease.inherited is not None:\n",
        simulated=False,
    ),
    one(
        "what was asked for twice is kept when nobody has read of it",
        13,
        OWNERS,
        "        telling.tellers.pop(self, None)\n",
        "",
        simulated=False,
    ),
    one(
        "what nobody is known to have read of is renewed by the next agent",
        13,
        TAKEOVER,
        "    lease.told = held.now.told or fate is Taken.FREED\n",
        "    lease.told = True\n",
        simulated=False,
    ),
    one(
        "what a child goes on with is free when the agent dies",
        13,
        TAKEOVER,
        "    if process is Seen.DEAD and not now.outlived:\n",
        "    if process is Seen.DEAD:\n",
        simulated=False,
    ),
    one(
        "that a child goes on with it is not noted",
        13,
        OWNERS,
        "            for lease in self.leases:\n                port.outlived(lease)\n",
        "            pass\n",
        simulated=False,
    ),
    one(
        "what has ended without an agent is told to nobody",
        12,
        TAKEOVER,
        "        else:\n            lease = _adopt(",
        "        elif fate is not Taken.OVER:\n            lease = _adopt(",
        simulated=False,
    ),
    one(
        "what an app has read of is not noted",
        13,
        LOCKS,
        "            lease.told = True\n            self._journal.told(lease)\n",
        "            lease.told = True\n",
        simulated=False,
    ),
    one(
        "a detached lease that ran out here is deleted",
        2,
        RENEWALS,
        '        if lease.holder.detached:\n            self._returns.over(lease, "expired", now_ns)\n            return\n',
        "",
    ),
    one(
        "the lock of a dead app waits for its TTL",
        13,
        LOCKS,
        '            self._returns.end(lease, "app gone", now_ns)\n\n    def untold',
        "            pass\n\n    def untold",
    ),
    one(
        "a grant is noted behind the reply",
        13,
        RENEWALS,
        "            self._journal.held(lease, self._masters.clock_lows_ns())\n",
        "            self._timers.at(now_ns, lambda _: self._journal.held(lease, self._masters.clock_lows_ns()))\n",
        simulated=False,
    ),
    one(
        "a renewal is not noted",
        13,
        RENEWALS,
        "        self.note(lease)\n        if tenure.inherited is not None and tenure.inherited.proof",
        "        if tenure.inherited is not None and tenure.inherited.proof",
    ),
    one(
        "a release is sent before it is noted",
        13,
        LOCKS,
        "        masters.before_sending = self._journal.keep_up\n",
        "",
        simulated=False,
    ),
    one(
        "a release that no quorum confirmed is not sent again",
        13,
        TAKEOVER,
        "        if now_ns() < ending.until_ns:\n            locks.release_again(ending, now_ns())\n",
        "        pass\n",
        simulated=False,
    ),
    one(
        "a release counts as done whoever confirmed it",
        13,
        RETURNS,
        "        if release.is_confirmed:\n            self._journal.ended(nonce)\n",
        "        if True:\n            self._journal.ended(nonce)\n",
        simulated=False,
    ),
    one(
        "what is taken over goes on under its old nonce",
        13,
        TAKEOVER,
        "grant = locks.proof_before(holder, None, held",
        "grant = locks.proof_before(holder, held.nonce, held",
        simulated=False,
    ),
    one(
        "the nonce of an agent that takes over is noted once it is proven",
        13,
        LOCKS,
        "        self._journal.held(lease, inherited.clock_lows_ns)\n",
        "",
        simulated=False,
    ),
    one(
        "what is taken over is put back",
        13,
        RENEWALS,
        "        if tenure.inherited is not None and tenure.inherited.proof is extension.proof:\n            return  # where the agent before had it is not known: "
        "what is missing may have been taken away\n",
        "",
        simulated=False,
    ),
    one(
        "where a lease may have been put back since its last proof counts for the next agent",
        13,
        TAKEOVER,
        "    tenure.gone.mask = tenure.gone.unsure = now.gone\n",
        "",
        simulated=False,
    ),
    Mutation(
        "what a master knew by its old nonce until now counts at once",
        13,
        (
            Edit(SCRIPTS, "(there_ms is None or was", "(there_ms is not None and was"),
            Edit(TAKE_OVER_LUA, "ARGV[5] == 'later' or there_ms", "ARGV[5] ~= 'later' and there_ms"),
        ),
        simulated=False,
    ),
    Mutation(
        "what the agent before had under way counts for the next one, however late it landed",
        13,
        (
            Edit(SCRIPTS, "(there_ms is None or was_there_ms < there_ms)", "there_ms is None"),
            Edit(TAKE_OVER_LUA, " or there_ms < tonumber(ARGV[5]))", ")"),
        ),
        simulated=False,
    ),
    one(
        "a process that can't be seen is dead",
        13,
        TAKEOVER,
        "    except CannotTell:\n        return Seen.UNKNOWN\n",
        "    except CannotTell:\n        return Seen.DEAD\n",
    ),
    one(
        "a process is known by its pid",
        13,
        TAKEOVER,
        "return Seen.ALIVE if started_of(held) == held.started else Seen.DEAD",
        "return Seen.ALIVE if started_of(held) is not None else Seen.DEAD",
        simulated=False,
    ),
    one(
        "the lock of a process that died without an agent is left to its deadline",
        13,
        TAKEOVER,
        "    if process is Seen.DEAD and not now.outlived:\n        return Taken.FREED\n",
        "    if process is Seen.DEAD and not now.outlived:\n        return Taken.LEFT\n",
        simulated=False,
    ),
    one(
        "max_hold begins anew with each agent",
        13,
        TAKEOVER,
        "    lease.hold_until_ns = now.hold_until_ns\n",
        "",
    ),
    one(
        "a lock_delay begins anew with each agent",
        13,
        TAKEOVER,
        "    lease.let_go_ns = now.let_go_ns\n",
        "",
        simulated=False,
    ),
    one(
        "a lock_delay ends with its agent",
        13,
        TAKEOVER,
        "if fate is Taken.FREED and held.lock_delay_ms == 0 and held.now.let_go_ns is None:",
        "if fate is Taken.FREED:",
        simulated=False,
    ),
    one(
        "what could not be proven is released at its deadline",
        13,
        RENEWALS,
        "        if lease.is_ours or lease.let_go_ns is not None:\n",
        "        if True:\n",
        simulated=False,
    ),
    one(
        "a lease is left to its deadline when its agent dies",
        13,
        TAKEOVER,
        "    wanted = process is Seen.ALIVE and held.bound is Bound.PROCESS and not now.lost\n",
        "    wanted = False\n",
        simulated=False,
    ),
    one(
        "what the host stood still without an agent is not counted",
        11,
        RENEWALS,
        "        return NEVER_NS if gained_ns is None else gained_ns\n",
        "        return 0\n",
        simulated=False,
    ),
    one(
        "a record that is not whole is believed",
        13,
        "lockd/core/journal.py",
        "        if size > _LONGEST_FRAME or crc32(frame) != checksum:",
        "        if size > _LONGEST_FRAME:",
        simulated=False,
    ),
    one(
        "a journal of somewhere else is believed",
        13,
        "lockd/core/journal.py",
        "    if differs is not None:\n        raise Unreadable",
        "    if False:\n        raise Unreadable",
        simulated=False,
    ),
    Mutation(
        "a wrong counter is believed, and passed on",
        6,
        (
            Edit(
                "lockd/core/answers.py",
                "sane = 0 < value <= most and value <= master_us + COUNTER_AHEAD_US",
                "sane = True",
            ),
            Edit("lockd/core/fences.py", "counter <= masters_us + _HEEDED_AHEAD_US:", "counter:"),
            Edit(
                "lockd/core/fences.py",
                "return above if clock_us < above <= masters_us + HINT_AHEAD_US else clock_us",
                "return max(above, clock_us)",
            ),
            Edit(SCRIPTS, "if fence < hint <= now_us + HINT_AHEAD_US - BLOCK + 1:", "if fence < hint:"),
            Edit(
                SCRIPTS,
                "        if last > now_us + COUNTER_AHEAD_US or last >= SANE_MOST:\n            return -3, 0\n",
                "",
            ),
            Edit(
                ACQUIRE_LUA,
                "if hint > fence and hint + block <= now_us + 43200000000 then fence = hint end",
                "if hint > fence then fence = hint end",
            ),
            Edit(
                PROPOSE_LUA,
                "if not (counter <= now_us + 86400000000 and counter < 4503599627370496) then return {-3, 0, now_us} end\n",
                "",
            ),
        ),
    ),
    Mutation(
        "a lease is handed on past the end of its tenure",
        1,
        (
            Edit(
                LEASES,
                "self.deadline_ns = min(tenure.deadline_ns, deadline_ns(began_ns, holder.ttl_ms))",
                "self.deadline_ns = deadline_ns(began_ns, holder.ttl_ms)",
            ),
            Edit(
                HANDING_ON,
                "        if now_ns >= min(tenure.deadline_ns - wanted_ns, ends_ns - self._min_validity_ns):\n            return False\n",
                "",
            ),
        ),
        simulated=False,
    ),
    one(
        "a tenure is handed on whether its last proof stands or not",
        11,
        HANDING_ON,
        "        return self._nothing_has_happened(tenure, now_ns)\n",
        "        return True\n",
        simulated=False,
    ),
    one(
        "one token for all leases of a tenure",
        4,
        CAMPAIGNS,
        "token = holder.value or self._chance.nonce()",
        "token = holder.value or tenure.nonce",
    ),
    Mutation(
        "a lease is handed on while masters show the token of the first one",
        4,
        (
            Edit(
                HANDING_ON,
                "if tenure.shown or not tenure.was_proven_lately(now_ns) or",
                "if not tenure.was_proven_lately(now_ns) or",
            ),
        ),
        simulated=False,
    ),
    one(
        "a fence is given twice under a tenure",
        6,
        LEASES,
        "        self._next_fence += 1\n",
        "",
    ),
    one(
        "a tenure that is taken over goes on with its block",
        6,
        TAKEOVER,
        "    now = held.now\n    tenure.began_ns",
        "    now = held.now\n    tenure.has_block(held.fence)\n    tenure.began_ns",
    ),
    one(
        "a block outlives its tenure",
        6,
        CAMPAIGNS,
        "        tenure.has_block(fence)\n",
        "        left = vars(self).setdefault('left', {})\n"
        "        first, size = left.get(queue.resource) or (fence, 64)\n"
        "        tenure.has_block(first, size)\n"
        "        left[queue.resource] = (first + 1, size - 1) if size > 1 else None\n",
    ),
    Mutation(
        "the next block of a tenure is had without its token",
        6,
        (
            Edit(
                SCRIPTS,
                "            if key is None or key.nonce != tenure[1]:\n                return 3, 0\n",
                "            pass\n",
            ),
            Edit(
                PROPOSE_LUA,
                "  if type(lease) ~= 'string' or string.sub(lease, 1, 32) ~= ARGV[4] then return {3, 0, now_us} end\n",
                "",
            ),
        ),
        simulated=False,
    ),
    one(
        "a tenure is handed on however old it is",
        7,
        HANDING_ON,
        "        too_old = now_ns >= tenure.began_ns + holder.max_hold_ms * NS_PER_MS\n",
        "        too_old = False\n",
    ),
    one(
        "what was taken away by force elsewhere is handed on for as long as it lasts",
        6,
        HANDING_ON,
        "if tenure.shown or not tenure.was_proven_lately(now_ns) or",
        "if tenure.shown or",
        simulated=False,
    ),
    one(
        "a session lock is granted that can't be renewed",
        13,
        CAMPAIGNS,
        "if holder.detached or self._votes.can_renew:",
        "if holder:",
        simulated=False,
    ),
    one(
        "each of two releases of one lease is told that it has done it",
        2,
        RELEASE_BALLOT,
        "        if self.missing >= self._quorum:",
        "        if self.missing >= self._quorum and not self.deleted:",
        simulated=False,
    ),
    one(
        "what can't be renewed is handed on",
        13,
        HANDING_ON,
        " or not self._votes.can_renew:",
        ":",
        simulated=False,
    ),
    one(
        "what is nobody's for a moment is noted as the last one's",
        13,
        HANDING_ON,
        "        self._journal.ending(tenure)\n        queue.asked",
        "        queue.asked",
        simulated=False,
    ),
    one(
        "a tenure is kept past its validity",
        7,
        KEEPING,
        "            tenure.deadline_ns,\n",
        "",
        simulated=False,
    ),
    one(
        "a tenure is kept for longer than it may be held",
        7,
        KEEPING,
        "            tenure.began_ns + holder.max_hold_ms * NS_PER_MS,\n",
        "",
        simulated=False,
    ),
    one(
        "a tenure that nobody has is renewed",
        7,
        LOCKS,
        "        self._keeping = Keeping(means, self._returns, self._put_down)\n",
        "        self._keeping = Keeping(means, self._returns, lambda queue, now_ns:\n"
        "            queue.tenure and self._renewals.extension(queue.tenure, 1_000, now_ns))\n",
    ),
    one(
        "what was DETACHED is kept",
        7,
        LEASES,
        "return terms.keep_ms > 0 and not (terms.detached or is_plain(terms.value))",
        "return terms.keep_ms > 0 and not is_plain(terms.value)",
        simulated=False,
    ),
    one(
        "what no master shows to be kept is kept",
        7,
        KEEPING,
        "if not (may_be_kept(holder) and may_be_kept(lease.tenure.terms)):",
        "if not may_be_kept(holder):",
        simulated=False,
    ),
    one(
        "who does not keep does not ask",
        7,
        CAMPAIGNS,
        "        attempt.asks = True\n",
        "        attempt.asks = queue.tried_for is not None and queue.tried_for.keep_ms > 0\n",
        simulated=False,
    ),
    one(
        "what fails where a grant is counted stops the grant",
        13,
        "lockd/core/turns.py",
        "        except Exception as failure:\n            self.fails(failure)\n",
        "        except ZeroDivisionError as failure:\n            self.fails(failure)\n",
        simulated=False,
    ),
    one(
        "what can't be noted stops what it is a note of",
        13,
        JOURNAL,
        "        except Exception as failure:\n            self._forget(nonce)\n",
        "        except ZeroDivisionError as failure:\n            self._forget(nonce)\n",
        simulated=False,
    ),
    one(
        "what was noted before stays when a later note fails",
        13,
        JOURNAL,
        "            self._forget(nonce)\n            self._unwritten, self._is_due",
        "            self._unwritten, self._is_due",
        simulated=False,
    ),
    one(
        "what was kept is handed on, whether its proof stands or not",
        1,
        HANDING_ON,
        "        self._keeping.no_more(queue, KeptEnd.LOCKED, now_ns)\n        self._go_on(queue, now_ns, proven=False)\n",
        "        self._keeping.no_more(queue, KeptEnd.LOCKED, now_ns)\n"
        "        self._hand_to(queue, queue.tenure, queue.first(), now_ns)\n",
    ),
    one(
        "what is kept is noted as the last one's",
        13,
        KEEPING,
        "        self._journal.ending(tenure)\n        self._journal.keep_up()\n",
        "",
        simulated=False,
    ),
    one(
        "that it is kept is noted only with what comes next",
        13,
        KEEPING,
        "        self._journal.ending(tenure)\n        self._journal.keep_up()\n",
        "        self._journal.ending(tenure)\n",
        simulated=False,
    ),
    one(
        "what another host waits for is kept",
        7,
        KEEPING,
        'if why != "released" or lease.tenure.turn is not None:',
        'if why != "released":',
        simulated=False,
    ),
    one(
        "a recall has nothing given back that is only kept",
        7,
        HANDING_ON,
        "        if queue.kept is not None:\n            self._keeping.no_more(queue, KeptEnd.RECALLED, now_ns)\n"
        "        if queue.lease is None and queue.asked is None:\n",
        "        if queue.lease is None and queue.asked is None and queue.kept is None:\n",
        simulated=False,
    ),
    one(
        "what is only kept is not given back to who asks for it",
        1,
        HANDING_ON,
        "        if queue.kept is None:\n            self._returns.answers(",
        "        if queue.kept is None or asker:\n            self._returns.answers(",
        simulated=False,
    ),
    one(
        "what one master says was given back is tried for",
        5,
        CAMPAIGNS,
        "if queue.rest is not None and (recall.in_use or recall.freed.bit_count() >= self._quorum):",
        "if queue.rest is not None and (recall.in_use or recall.freed):",
        simulated=False,
    ),
    one(
        "an agent that stops leaves what it kept",
        13,
        LOCKS,
        "        self._keeping.give_back(now_ns)\n        self._campaigns.answer",
        "        self._campaigns.answer",
        simulated=False,
    ),
    one(
        "a journal is believed as far as it can be read",
        13,
        TAKEOVER,
        "    if not replayed.is_whole:\n",
        "    if False:\n",
    ),
    one(
        "a lock_delay is not kept",
        13,
        LOCKS,
        "        if lease.holder.lock_delay_ms and lease.standing is Standing.HELD:\n",
        "        if False:\n",
    ),
    one(
        "what belongs to a connection lives with its process",
        13,
        OWNERS,
        "if lease.holder.bound is Bound.PROCESS and self.process is not None:",
        "if self.process is not None:",
    ),
    one(
        "a process ends with its last connection",
        13,
        OWNERS,
        "        return self.dead and not self.connections\n",
        "        return not self.connections\n",
    ),
    one(
        "that its last connection ends says nothing of a process",
        13,
        OWNERS,
        "if len(self.connections) == 1 and not self.dead and has_ended():",
        "if False:",
        simulated=False,
    ),
    one(
        "a grant that comes when its connection has ended is kept",
        13,
        OWNERS,
        "        self._leaves(lease, Fate.UNTOLD, ends)\n        self.carries_no_more(lease)\n",
        "        self.carries_no_more(lease)\n",
    ),
    one(
        "what was read is given back with its connection",
        13,
        OWNERS,
        "*(self._last if delivery is Delivery.CUT else ())",
        "*self._last",
        simulated=False,
    ),
    one(
        "what nobody can tell to have been read is kept",
        13,
        OWNERS,
        "        return (*self._covered, *(self._last if delivery is Delivery.UNREAD else ()))\n",
        "        return ()\n",
        simulated=False,
    ),
    one(
        "what is told on another connection than the first needs not be read",
        13,
        OWNERS,
        '            self._untold[lease] = b""\n',
        "            pass\n",
        simulated=False,
    ),
    one(
        "what was never told waits for its lock_delay",
        13,
        LOCKS,
        "        if lease.standing is not Standing.OVER:\n            self._returns",
        "        if lease.standing is not Standing.OVER:\n            self.holder_gone(lease, now_ns)\n            return\n            self._returns",
    ),
    one(
        "what its name was granted is told to many though it is over by then",
        4,
        CAMPAIGNS,
        "        if is_held and lease.was_just_known(now_ns):\n",
        "        if True:\n",
        simulated=False,
    ),
    one(
        "of many that have an outcome, one that has not heard it is tried for",
        4,
        CAMPAIGNS,
        "        if later:\n            queue.are_leaving(later)\n",
        "",
        simulated=False,
    ),
    one(
        "a connection is of who has the number of its process by now",
        13,
        "lockd/server/processes.py",
        "        return None if has_ended(file) else process\n",
        "        return process\n",
        simulated=False,
    ),
    one(
        "who withdraws a request that waits does not",
        4,
        LOCKS,
        "        waiting = self.names.end_waiting(resource, token)\n",
        "        waiting: list[Holder] = []\n",
        simulated=False,
    ),
    one(
        "a process that nobody can see is alive",
        13,
        TAKEOVER,
        "wanted = process is Seen.ALIVE and",
        "wanted = process is not Seen.DEAD and",
        simulated=False,
    ),
    one(
        "what a connection had is taken over for its process",
        13,
        TAKEOVER,
        "and held.bound is Bound.PROCESS and not now.lost",
        "and not now.lost",
        simulated=False,
    ),
    one(
        "what was lost is taken over",
        13,
        TAKEOVER,
        "and held.bound is Bound.PROCESS and not now.lost",
        "and held.bound is Bound.PROCESS",
        simulated=False,
    ),
    one(
        "a process is known that began nobody knows when",
        13,
        TAKEOVER,
        "    if held.pid == 0 or held.started == 0:\n",
        "    if False:\n",
        simulated=False,
    ),
    one(
        "a process that can't be opened is dead",
        13,
        "lockd/server/processes.py",
        "        raise CannotTell(str(failure)) from failure\n",
        "        return None\n",
        simulated=False,
    ),
    one(
        "a proof counts behind the old deadline",
        2,
        RENEWALS,
        "return agreed and now_ns < self._sure_until_ns(tenure)",
        "return agreed",
        simulated=False,
    ),
    one(
        "the release of what was taken over leaves its old nonces",
        13,
        RETURNS,
        "settled=self._gave_back, how=how, patient=patient, reply=reply, before=tenure.before,",
        "settled=self._gave_back, how=how, patient=patient, reply=reply,",
        simulated=False,
    ),
    *(
        one(
            f"a journal of another {name} is believed",
            13,
            JOURNAL,
            f'"{name}", ' if name != "masters" else ', "masters")',
            "" if name != "masters" else ")",
            simulated=False,
        )
        for name in ("boot_id", "pid_namespace", "time_namespace", "cluster", "masters")
    ),
    one(
        "a journal of another format is read",
        13,
        JOURNAL,
        "    if form != FORMAT:\n",
        "    if False:\n",
        simulated=False,
    ),
    one(
        "an older copy of a journal is believed",
        13,
        JOURNAL,
        "    if not is_last:\n",
        "    if False:\n",
        simulated=False,
    ),
    one(
        "any journal is the last",
        13,
        JOURNAL,
        "        return 0 < self.size <= len(data) and crc32(data[: self.size]) == self.checksum\n",
        "        return True\n",
        simulated=False,
    ),
    one(
        "a journal that can't be read is thrown away",
        13,
        "lockd/server/journal.py",
        "        os.replace(self.path, aside)\n",
        "        os.unlink(self.path)\n",
        simulated=False,
    ),
    one(
        "what is written while a journal is written anew is not in the new one",
        13,
        JOURNAL,
        "            self.rewriting.note(record)\n",
        "            pass\n",
        simulated=False,
    ),
    one(
        "a journal that is written anew has no seal when it takes its place",
        13,
        "lockd/server/journal.py",
        "        self._sealed(1)\n",
        "",
        simulated=False,
    ),
    one(
        "a copy of a journal as it was when it was new is believed",
        13,
        "lockd/server/journal.py",
        "        self._unsealed(1)\n",
        "",
        simulated=False,
    ),
    one(
        "an agent that goes on without a journal leaves an older one",
        13,
        "lockd/server/journal.py",
        "                self._unsealed(0)\n",
        "                pass\n",
        simulated=False,
    ),
    one(
        "several taken in the order of asking",
        13,
        SEVERAL,
        "self._left = sorted(parts, key=lambda part: part.resource, reverse=True)",
        "self._left = list(reversed(parts))",
    ),
    one(
        "a refused list keeps what it has",
        13,
        SEVERAL,
        "        self._give_back(reversed(had.values()), now_ns)\n",
        "",
        simulated=False,
    ),
    one(
        "a list whose app is gone keeps its place in line",
        13,
        SEVERAL,
        "        if self._left:\n            self._locks.gone(",
        "        if self._left and not self._over:\n            self._locks.gone(",
    ),
    Mutation(
        "a list is handed out with a lost lease in it",
        1,
        (
            Edit(
                SEVERAL,
                "lost(self, lease: Lease, now_ns: int) -> None:\n",
                "lost(self, lease: Lease, now_ns: int) -> None:\n        return\n",
            ),
            Edit(SEVERAL, "if not one.was_just_proven(self._had_all_ns)", "if False"),
            Edit(
                SEVERAL,
                "one.standing is not Standing.HELD or one.deadline_ns <= least_ns",
                "one.deadline_ns <= least_ns",
            ),
        ),
    ),
    one(
        "a list is handed out with a lease that is nearly over",
        1,
        SEVERAL,
        "one.standing is not Standing.HELD or one.deadline_ns <= least_ns",
        "one.standing is not Standing.HELD",
        simulated=False,
    ),
    Mutation(
        "a list is answered as soon as it has something",
        1,
        (
            Edit(
                SEVERAL,
                "        elif self._left:\n            self._ask",
                "        elif not self._had:\n            self._ask",
            ),
            Edit(SEVERAL, "for part in self._asked]", "for part in self._asked if part in self._had]"),
        ),
    ),
    one(
        "a list that was withdrawn goes on",
        4,
        SEVERAL,
        "            self._fail(_WITHDRAWN, now_ns)",
        "            pass",
        simulated=False,
    ),
    one(
        "a lease of two requests of one name is given back by the first that goes",
        4,
        CLAIMS,
        "        if wanting:\n            return False\n        del self._of[lease]\n",
        "        del self._of[lease]\n",
        simulated=False,
    ),
    one(
        "a lease that its app has is given back with a list's",
        4,
        CLAIMS,
        "        return not is_apps",
        "        return True",
    ),
    one(
        "a list goes on when its app unlocks what it had before",
        4,
        CLAIMS,
        "        self._of.setdefault(lease, {})[claimant] = None",
        "        if lease not in self._apps:\n            self._of.setdefault(lease, {})[claimant] = None",
    ),
    one(
        "a list is withdrawn when what it shares was never told",
        4,
        SEVERAL,
        "if not self._over and self._is_withdrawn(lease, now_ns):",
        "if True:",
        simulated=False,
    ),
    one(
        "a list is granted though its token was unlocked through another agent",
        4,
        SEVERAL,
        "if lease.said_gone is Kind.RELEASED:",
        "if False:",
        simulated=False,
    ),
    one(
        "a list is granted from memory",
        2,
        SEVERAL,
        "if not one.was_just_proven(self._had_all_ns)",
        "if False",
        simulated=False,
    ),
    one(
        "a list is granted with what could not be proven",
        2,
        SEVERAL,
        "            if not worked:\n                self._unproven = lease\n",
        "",
        simulated=False,
    ),
    one(
        "a list that may have been withdrawn is asked for again",
        4,
        SEVERAL,
        "if lease.lost_by is Loss.GONE and not self._over and self._asked[0].value:",
        "if False:",
        simulated=False,
    ),
    one(
        "a slot that was granted too much is kept",
        13,
        SLOTS,
        "        self._give_back(surplus, now_ns)\n",
        "",
        simulated=False,
    ),
    one(
        "who has a slot keeps its place in the other lines",
        13,
        SLOTS,
        "            if part is not None:\n                self._locks.gone(part, now_ns)",
        "            pass",
    ),
    one(
        "who waits for a slot stands in one line alone",
        5,
        SLOTS,
        "        for place in self._places:\n            self._locks.can_be_told",
        "        for place in self._places[:1]:\n            self._locks.can_be_told",
    ),
    one(
        "a slot is granted to a token that was unlocked",
        4,
        SLOTS,
        "        self._fail(WITHDRAWN, now_ns)",
        "        pass",
    ),
    one(
        "an unlock of a slot is not known of the resource that has the slot",
        4,
        NAMES,
        "filter(None, (resource, whole_of(resource)))",
        "(resource,)",
        simulated=False,
    ),
    one(
        "one name has two of several slots",
        4,
        SLOTS,
        "            self._name.has(lease, now_ns)",
        "            self.has(lease, now_ns)",
    ),
    one(
        "a slot is tried for under a name that has one",
        4,
        SLOTS,
        "        if lease is not None and lease.standing is Standing.HELD:",
        "        if False:",
        simulated=False,
    ),
    one(
        "who tries the slots lets nobody of its name try them after it",
        5,
        NAMES,
        "                other.may_try(now_ns)",
        "                pass",
        simulated=False,
    ),
    one(
        "the slot that a name has is not known to the next agent",
        4,
        LOCKS,
        "        self.names.was_taken_over(lease)\n",
        "",
        simulated=False,
    ),
    one(
        "of an unread reply only the last lease is given back",
        13,
        OWNERS,
        "                    self._last = (*self._last, lease)",
        "                    self._last = (lease,)",
        simulated=False,
    ),
    one(
        "a recall ignored",
        13,
        LOCKS,
        "        if queue is not None:\n            self._handing_on.recalled(queue, now_ns)\n        elif",
        "        if queue is not None:\n            pass\n        elif",
    ),
    one(
        "a turn without end",
        13,
        LEASES,
        "        return now_ns >= self.ends_ns or self.grants <= 0",
        "        return False",
    ),
    Mutation(
        "a place that never expires",
        13,
        (
            Edit(SCRIPTS, "return now_us < self.ends_us <= now_us + LIVES_US", "return True"),
            Edit(ACQUIRE_LUA, "not ends or ends_us <= now_us or ends_us > now_us + lives_us", "not ends"),
            Edit(
                RELEASE_LUA,
                "if ends and tonumber(ends) > now_us and tonumber(ends) <= now_us + 4000000 then",
                "if ends then",
            ),
        ),
        simulated=False,
    ),
    one(
        "a failed try that takes the first place",
        13,
        CAMPAIGNS,
        "How.TENURE if attempt.agreed else How.TRY",
        "How.TENURE",
        simulated=False,
    ),
    one(
        "a try that fails costs its host the place where it got votes",
        13,
        CAMPAIGNS,
        "goes_on = attempt.place and",
        "goes_on = b'' and",
        simulated=False,
    ),
    Mutation(
        "a master that has lost its data is written a place",
        8,
        (
            Edit(
                SCRIPTS,
                "        if self.electorate is None:\n            return\n        line, (name",
                "        line, (name",
            ),
            Edit(RELEASE_LUA, " or not call('HGET', 'lockd:identity', 'electorate')", ""),
        ),
    ),
    one(
        "a turn that is over leaves the old place where it was refused",
        13,
        RETURNS,
        "        if release.how is How.TURN:\n            self._line_up_again",
        "        if False:\n            self._line_up_again",
        simulated=False,
    ),
    Mutation(
        "a release that deleted nothing takes the first place",
        13,
        (
            Edit(
                SCRIPTS,
                "        if key is None or key.named(how) not in (word, *before):\n            return 0\n",
                "        if key is None or key.named(how) not in (word, *before):\n"
                "            if key is None and how != b'try':\n"
                "                self.leases[resource] = Key(b'', 0)\n"
                "                self._goes_to_the_first(resource, now_us, own)\n"
                "            return 0\n",
            ),
            Edit(
                RELEASE_LUA,
                "if not lease then return 0 end",
                "if not lease then lease = ARGV[1] .. ' 0 0 nobody ' end",
            ),
        ),
        simulated=False,
    ),
    Mutation(
        "a grace that never ends",
        13,
        (
            Edit(SCRIPTS, "now_us // 1000 + grace_ms)", "now_us // 1000 + 3_600_000)"),
            Edit(
                SCRIPTS,
                "longest_ms = self.longest_ttl_ms if",
                "longest_ms = 3_600_000 if key.reserved else self.longest_ttl_ms if",
            ),
            Edit(
                RELEASE_LUA,
                "'reserved ' .. first.place, 'PX', grace_ms",
                "'reserved ' .. first.place, 'PX', 3600000",
            ),
            Edit(ACQUIRE_LUA, "reserved and 250 or", "reserved and 3600000 or"),
        ),
    ),
    one(
        "places by the hosts' clocks",
        13,
        CAMPAIGNS,
        "attempt.waited_us = queue.place.waited_us(now_ns)",
        "attempt.waited_us = max(0, self._masters.clock_us(now_ns) - (queue.place.since_ns + self.wall_ahead_ns) // 1_000)",
    ),
    Mutation(
        "a full set that drops the oldest",
        13,
        (
            Edit(
                SCRIPTS,
                "youngest = max(others, key=lambda one: (others[one].began_us, one))",
                "youngest = min(others, key=lambda one: (others[one].began_us, one))",
            ),
            Edit(
                SCRIPTS,
                "            if place.began_us < others[youngest].began_us:\n",
                "            if True:\n",
            ),
            Edit(
                ACQUIRE_LUA,
                "if count >= 32 and began_us < youngest_us then\n    call('HDEL', places, youngest)",
                "if count >= 32 then\n    call('HDEL', places, oldest)",
            ),
            Edit(
                ACQUIRE_LUA,
                "local count, _, youngest, youngest_us, mine_until_us, recalled = others()",
                "local count, oldest, youngest, youngest_us, mine_until_us, recalled = others()",
            ),
        ),
        simulated=False,
    ),
    one(
        "who is told and wants nothing keeps it",
        13,
        CAMPAIGNS,
        "                self._passes_on(resource, master, now_ns)\n",
        "                pass\n",
        simulated=False,
    ),
    one(
        "one master's word is a turn",
        13,
        CAMPAIGNS,
        "        if place.told.bit_count() >= self._quorum:\n            place.hastened",
        "        if place.told:\n            place.hastened",
        simulated=False,
    ),
    one(
        "a turn is tried for over and over while no master votes",
        13,
        CAMPAIGNS,
        "        if queue.place is not None:\n            queue.place.tries()\n        voting",
        "        voting",
        simulated=False,
    ),
    one(
        "handed on although it is said to be gone",
        13,
        HANDING_ON,
        "        if tenure.said_gone:\n            return False\n",
        "",
        simulated=False,
    ),
    one(
        "a reservation that is waited for as long as a lease lasts",
        13,
        CAMPAIGNS,
        "retry_ms = min(attempt.retry_after_ms(), max(attempt.reserved_ms, default=0))",
        "retry_ms = attempt.retry_after_ms() if attempt.reserved_ms else 0",
        simulated=False,
    ),
    one(
        "a take-over leaves nobody to look after what was between two",
        13,
        LOCKS,
        "queue is not None and queue.tenure is not None and queue.lease is None:",
        "queue is not None and queue.kept is not None:",
        simulated=False,
    ),
    one(
        "who waits behind a try of one who does not has no place until it ends",
        13,
        CAMPAIGNS,
        "        if place is None and queue.has_patient and (refusal",
        "        if False and (refusal",
        simulated=False,
    ),
    one(
        "a turn that ends by the word of a recall alone",
        13,
        LEASES,
        "        elif now_ns >= self.handed_on_ns + _UNRECALLED_MOST_NS:\n            self.turn = Turn(now_ns + turn_ms * NS_PER_MS, None)\n",
        "",
        simulated=False,
    ),
    one(
        "a LOCK without WAIT leaves a place",
        13,
        CAMPAIGNS,
        "            if not queue.has_patient:\n"
        "                self._asks_for_it(queue, attempt, now_ns)\n                return\n",
        "",
        simulated=False,
    ),
    # Locks with a value that their app chose
    one(
        "a lease whose try is known is released by its value",
        4,
        RETURNS,
        "            settled=self._gave_back, how=how, patient=patient, reply=reply, before=tenure.before,\n        )  # fmt: skip\n",
        "            settled=self._gave_back, how=how, patient=patient, reply=reply, before=tenure.before,\n        )  # fmt: skip\n"
        "        if tenure.shown[:1] == b'\\0':\n"
        "            release.word, release.how = tenure.shown, How.BY_APP\n",
        simulated=False,
    ),
    one(
        "polls are remembered for ever",
        2,
        POLLS,
        "        if now_ns >= until_ns:\n            self._refused.pop(resource)\n            return None\n",
        "",
    ),
    one(
        "a tenure is handed on to a value, which no master shows",
        4,
        HANDING_ON,
        "is_its_own = holder.detached or is_plain(holder.value)",
        "is_its_own = holder.detached",
        simulated=False,
    ),
    one(
        "a value is not shown where others wait in line",
        4,
        CAMPAIGNS,
        "is_shown = holder.detached or len(queue.waiters) == 1 or is_plain(token)",
        "is_shown = holder.detached or len(queue.waiters) == 1",
        simulated=False,
    ),
    one(
        "a value is not told from a token",
        4,
        PLAIN_VALUES,
        "return _MARK + value",
        "return value",
        simulated=False,
    ),
    one(
        "a lease of the same value that was released elsewhere is taken for the one that is held",
        4,
        RETURNS,
        "        if before is not None:\n            self.over(before",
        "        if before is not None and lease.holder.detached:\n            self.over(before",
        simulated=False,
    ),
    one(
        "a lock that was given a TTL ends with its process",
        13,
        LOCKS,
        "if lease.ends_early:",
        "if False:",
        simulated=False,
    ),
    one(
        "the same, where its agent has ended since",
        13,
        TAKEOVER,
        " and held.now.let_go_ns is None:",
        ":",
        simulated=False,
    ),
    one(
        "a TTL that is shortened is not",
        13,
        LOCKS,
        "lease.let_go_ns, lease.ends_early = ends_ns, ends_ns is not None",
        "lease.let_go_ns = max(ends_ns or 0, lease.deadline_ns)\n        lease.ends_early = True",
        simulated=False,
    ),
    one(
        "what is given back early is given back where another agent has extended it, too",
        2,
        RETURNS,
        'how = How.EARLY if why in ("app gone", "expired") and lease.holder.detached else How.TENURE',
        "how = How.TENURE",
        simulated=False,
    ),
    one(
        "what another agent has extended gets a shorter TTL",
        2,
        LOCKS,
        "if ends_ns is not None and extended is not None and extended.is_elsewhere:",
        "if False:",
        simulated=False,
    ),
    one(
        "what is said to have been released elsewhere is given back unasked",
        12,
        LOCKS,
        "            tenure.is_said_gone(notice.kind, now_ns)\n",
        "            if queue is not None and queue.lease is not None:\n"
        "                self._renewals._was_released(queue.lease, now_ns)\n"
        "                return\n",
    ),
    one(
        "what is gone is free here, though nobody has said that he gave it back",
        12,
        RENEWALS,
        "if lease.said_gone is Kind.RELEASED and tenure.is_ours:",
        "if tenure.is_ours:",
        simulated=False,
    ),
    one(
        "what is said of a value is said of who was handed its tenure",
        12,
        LEASES,
        "return said if said is Kind.GONE or is_this else None",
        "return said",
        simulated=False,
    ),
    one(
        "what was not proven is given back where it is said to have been released",
        13,
        RENEWALS,
        "if lease.said_gone is Kind.RELEASED and tenure.is_ours:",
        "if lease.said_gone is Kind.RELEASED:",
        simulated=False,
    ),
    one(
        "who asks for what it has anyway is told so from memory",
        2,
        LOCKS,
        "            ask_ms = lease.extension_ttl_ms(wanted_ms, now_ns) or lease.proof_ttl_ms(now_ns)\n",
        "            ask_ms = lease.extension_ttl_ms(wanted_ms, now_ns)\n"
        "            if not ask_ms:\n"
        "                reply.done(Extended(lease.token, lease.fence, lease.deadline_ns, lease.holder.bound))\n"
        "                return\n",
        simulated=False,
    ),
    one(
        "who asks again by its name is granted it from memory",
        4,
        LOCKS,
        "            again = self._asking_again[holder] = _AskedAgain(self, holder, lease)\n"
        "            self._extend(lease, 0, again, now_ns)\n",
        "            holder.granted(lease, now_ns)\n",
        simulated=False,
    ),
    one(
        "who has asked again is granted it though it is gone",
        13,
        LOCKS,
        "        if (again := self._asking_again.pop(holder, None)) is not None:\n"
        "            cancel(again.timer)\n",
        "",
        simulated=False,
    ),
    one(
        "what was taken away by force elsewhere is kept from others here",
        12,
        RENEWALS,
        "if lease.said_gone is Kind.GONE and tenure.is_ours:",
        "if False:",
        simulated=False,
    ),
    one(
        "what was said after a proof was asked for is forgotten with it",
        12,
        LEASES,
        "if self._said_gone_ns <= self.t1_ns:",
        "if True:",
        simulated=False,
    ),
    one(
        "two requests of one name try for different slots",
        4,
        SLOTS,
        "name.trying is None and not (self._over or self._in_line)",
        "not (self._over or self._in_line or self._trying)",
        simulated=False,
    ),
    one(
        "a try with a value is broken off when its connection ends",
        2,
        LOCKS,
        "if queue.tried_for is holder and is_plain(holder.value):",
        "if False:",
        simulated=False,
    ),
    one(
        "what is still tried for with a value is extended by it",
        2,
        LOCKS,
        "if lease is None and self.tried_by(resource, value):",
        "if False:",
        simulated=False,
    ),
    one(
        "who has the same value by now is not found by it behind a release elsewhere",
        4,
        LOCKS,
        "if lease is not None and lease.holder.detached and lease.said_gone is Kind.RELEASED:",
        "if False:",
        simulated=False,
    ),
    one(
        "what a value was locked with is kept, and shown elsewhere as held",
        4,
        LEASES,
        "return terms.keep_ms > 0 and not (terms.detached or is_plain(terms.value))",
        "return terms.keep_ms > 0 and not terms.detached",
        simulated=False,
    ),
    one(
        "a stale journal ends what its app has persist since",
        13,
        TAKEOVER,
        "        lease.let_go_ns = None\n",
        "        pass\n",
        simulated=False,
    ),
    one(
        "what its process has read the value of is given back as never told",
        13,
        PERFORMING,
        "            if is_shown and found.value is not None:\n                self._is_named(found.value)\n",
        "",
        simulated=False,
    ),
    one(
        "a process of the same number is taken for who holds it",
        13,
        PERFORMING,
        " and holder.started == process.started",
        "",
        simulated=False,
    ),
    one(
        "a value that has nearly ended is told as granted",
        1,
        "lockd/server/dropin/plain_locks.py",
        "return boottime_ns() >= lease.deadline_ns - self._min_validity_ns",
        "return False",
        simulated=False,
    ),
    one(
        "an outage is remembered for who polls",
        2,
        CAMPAIGNS,
        "if refusal.code is ErrorWord.TAKEN and (poll := next(polls, None)) is not None:",
        "if (poll := next(polls, None)) is not None:",
        simulated=False,
    ),
)
