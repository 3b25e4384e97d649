/* Fences: unique and ordered, even when mutual exclusion is broken (rule 6). What Spin checks here exhaustively:
 *
 *   fence_is_unique    no fence is given twice
 *   fences_in_order    of two grants, the one that ended before the other began has the smaller fence
 *   no deadlock        (pan's invalid end states)
 *
 * No lease is looked at: every master that is asked may vote for everybody, as if they all had lost their data or their
 * minds about time. So there is no time here either, and the delay after a wipe (rules 8, 10) is what it is for:
 * whoever began before the wipe is done. Leases in time are in redlock.pml.
 *
 *   Hints      an agent's clock may say anything: an attempt's hint, and a proposal, is any number up to HINTS, or one more
 *              than the agent has seen. The order must not rest on them.
 *   Messages   one ordered pipe per agent and master, in which everything may wait for ever. Answers are heard at once,
 *              or lost with the connection, and then the question is asked again: the master names another number.
 *   Wipes      a master loses all its data, is blank, and is admitted: when the delay has passed, it begins with the highest
 *              counter that a quorum of the *others* shows, read one after the other. A restart that keeps the counters is
 *              no more than a broken connection here.
 */

#ifndef MASTERS
#define MASTERS 3
#endif
#ifndef AGENTS
#define AGENTS 2
#endif
#ifndef TRIES                  /* how often agent 0 tries */
#define TRIES 2
#endif
#ifndef OTHERS_TRY             /* and how often each of the others */
#define OTHERS_TRY 1
#endif
#ifndef ROUNDS                 /* how often a try proposes a value, at most */
#define ROUNDS 1
#endif
#ifndef BLOCK                  /* values that a vote reserves */
#define BLOCK 1
#endif
#ifndef HINTS
#define HINTS 2
#endif
#ifndef BREAKS
#define BREAKS 0
#endif
#ifndef WIPES
#define WIPES 0
#endif

#ifdef QUORUM_LESS_ONE
#define QUORUM (MASTERS / 2)
#else
#define QUORUM (MASTERS / 2 + 1)
#endif

#define LINK(a, m) ((a) * MASTERS + (m))
#define BIT(m) (1 << (m))
#define COUNT(x) (((x) & 1) + ((x) >> 1 & 1) + ((x) >> 2 & 1) + ((x) >> 3 & 1) + ((x) >> 4 & 1))
#define MAY_TRY(a) (a == 0 -> TRIES : OTHERS_TRY)
#define MOST(x, y) (x < y -> y : x)

mtype = { ACQUIRE, PROPOSE }
mtype = { IDLE, VOTING, PROPOSING }

/* What, the hint or the proposed value, and the number of the question: answers to an older one count for nothing. */
chan asks[AGENTS * MASTERS] = [TRIES * (1 + ROUNDS)] of { mtype, byte, byte };

/* --- What a master knows: acquire.lua, propose.lua ----------------------------------------------------------- */

byte counter[MASTERS];         /* the last value that it named, reserved or accepted */
bool blank[MASTERS];
byte waits_for[MASTERS];       /* the agents whose present try it may have voted for before it was wiped */
byte copied[MASTERS];          /* the others whose counters were read for its admission */
byte highest[MASTERS];         /* and the highest of them */

/* --- What an agent knows: ballots.Attempt, ballots.FenceRound ------------------------------------------------ */

mtype phase[AGENTS] = IDLE;
byte tries[AGENTS];
byte question[AGENTS];         /* the number of the last one put to all masters */
byte rounds[AGENTS];           /* proposals of this try */
byte seen[AGENTS];             /* fences.FenceHints */
byte asked_with[AGENTS];       /* the hint, or the value proposed */
byte first[AGENTS];            /* the first fence that a master named; 0: none yet */
bool differ[AGENTS];           /* and another named another */
byte yes[AGENTS];              /* masters that named one, or accepted */
byte refused[AGENTS];

/* --- What the whole world knows ------------------------------------------------------------------------------ */

int given;                     /* the fences that were given, as bits */
byte largest;                  /* of them */
byte before[AGENTS];           /* the largest when this try began */

byte breaks = BREAKS, wipes = WIPES;
byte awake;                    /* masters are numbered in the order in which they first run something */

/* Scratch of single steps: between them always the same, so no part of the state. */
mtype what;
byte i, j, v, n, f;
bool answered, fence_is_unique = true, fences_in_order = true;

/* --- A master at work ---------------------------------------------------------------------------------------- */

inline run_one(a, m) {
    asks[LINK(a, m)]?what, v, n;
    if
    :: awake == m -> awake++
    :: else
    fi;
    if
    :: blank[m] -> answered = false; f = 0             /* no identity, no vote: rule 8 */
    :: !blank[m] && what == ACQUIRE ->                 /* acquire.lua */
        answered = true;
        f = MOST(counter[m] + 1, v);
        counter[m] = f + BLOCK - 1
    :: !blank[m] && what == PROPOSE ->                 /* propose.lua */
#ifdef ACCEPTS_ANYTHING
        answered = true; f = v; counter[m] = MOST(counter[m], v)
#else
        answered = (v > counter[m]);
        if
        :: answered -> counter[m] = v + BLOCK - 1; f = v
        :: else -> f = counter[m]
        fi
#endif
    fi;
    printf("master %d runs %e %d of agent %d: %d, counter %d\n", m, what, v, a, f, counter[m])
}

/* --- An agent at work ---------------------------------------------------------------------------------------- */

inline settle(a) { yes[a] = 0; refused[a] = 0; first[a] = 0; differ[a] = false }

inline finish(a) {
    settle(a);
    phase[a] = IDLE; question[a]++; rounds[a] = 0; asked_with[a] = 0; before[a] = 0;
    if
    :: tries[a] == MAY_TRY(a) -> seen[a] = 0
    :: else
    fi;
    i = 0;
    do
    :: i < MASTERS -> waits_for[i] = waits_for[i] & ~BIT(a); i++
    :: else -> break
    od;
    i = 0
}

inline give(a, fence) {
    printf("agent %d: granted with fence %d\n", a, fence);
    fence_is_unique = !(given >> fence & 1);
    assert(fence_is_unique);
    fences_in_order = (fence > before[a]);
    assert(fences_in_order);
    given = given | 1 << fence;
    largest = MOST(largest, fence);
    finish(a)
}

/* A quorum said yes: the fence is what they all named, or what they accepted. */
inline decide(a) {
    if
    :: phase[a] == PROPOSING -> give(a, asked_with[a])
    :: phase[a] == VOTING && !differ[a] -> give(a, first[a])
    :: phase[a] == VOTING && differ[a] ->
#ifdef NO_SECOND_ROUND
        give(a, seen[a])                               /* the largest that was named */
#else
        question[a]++; phase[a] = PROPOSING; settle(a); asked_with[a] = 0
#endif
    fi
}

inline hear(a, m) {
    if
    :: n != question[a]
    :: n == question[a] && !answered ->
        refused[a] = refused[a] | BIT(m); seen[a] = MOST(seen[a], f)
    :: n == question[a] && answered ->
        yes[a] = yes[a] | BIT(m); seen[a] = MOST(seen[a], (f + BLOCK - 1));
        if
        :: phase[a] == VOTING && first[a] == 0 -> first[a] = f
        :: phase[a] == VOTING && first[a] != 0 && first[a] != f -> differ[a] = true
        :: else
        fi
    fi;
    if
    :: n == question[a] && COUNT(yes[a]) >= QUORUM -> decide(a)
    :: else
    fi
}

inline ask_all(a, kind, value) {
    asked_with[a] = value;
    printf("agent %d: %e %d\n", a, kind, value);
    i = 0;
    do
    :: i < MASTERS -> asks[LINK(a, i)]!kind, value, question[a]; i++
    :: else -> break
    od;
    i = 0
}

inline lock(a, hint) {
    tries[a]++;
    phase[a] = VOTING;
    before[a] = largest;
    ask_all(a, ACQUIRE, hint)
}

/* --- The processes: every choice below is taken whenever it can be -------------------------------------------- */

/* A connection breaks: what is still worth it is asked again on the next one, whether it was run or not (link.py). */
inline cut(a, m) {
    do
    :: len(asks[LINK(a, m)]) > 0 -> asks[LINK(a, m)]?what, v, n
    :: else -> break
    od;
    if
    :: phase[a] == VOTING && !((yes[a] | refused[a]) & BIT(m)) -> asks[LINK(a, m)]!ACQUIRE, asked_with[a], question[a]
    :: phase[a] == PROPOSING && asked_with[a] && !((yes[a] | refused[a]) & BIT(m)) -> asks[LINK(a, m)]!PROPOSE, asked_with[a], question[a]
    :: else
    fi
}

inline forget_scratch() { what = 0; v = 0; n = 0; f = 0; answered = false }

#define ASKED (len(asks[LINK(a, m)]) > 0 && m <= awake)

proctype link(byte a; byte m) {
end: do
    :: d_step { ASKED -> run_one(a, m); hear(a, m); forget_scratch() }
    :: d_step {
        ASKED && breaks > 0 -> breaks--;
        run_one(a, m); printf("and the connection breaks before the answer\n"); cut(a, m); forget_scratch()
       }
    od
}

#if WIPES
inline copy(m, other) {
    copied[m] = copied[m] | BIT(other); highest[m] = MOST(highest[m], counter[other])
}

proctype master(byte m) {
end: do
    :: d_step {
        wipes > 0 && !blank[m] && counter[m] > 0 ->
            printf("master %d loses all its data\n", m);
            wipes--; counter[m] = 0;
#ifndef FORGETS
            blank[m] = true;
#endif
            i = 0;
            do
            :: i < AGENTS ->
                cut(i, m);
                if
                :: phase[i] != IDLE -> waits_for[m] = waits_for[m] | BIT(i)
                :: else
                fi;
                i++
            :: else -> break
            od;
            i = 0; forget_scratch()
       }
#ifdef NO_DELAY
#define DELAY_IS_OVER true
#else
#define DELAY_IS_OVER (waits_for[m] == 0)
#endif
    :: d_step { blank[m] && DELAY_IS_OVER && m != 0 && !blank[0] && !(copied[m] & BIT(0)) -> copy(m, 0) }
    :: d_step { blank[m] && DELAY_IS_OVER && m != 1 && !blank[1] && !(copied[m] & BIT(1)) -> copy(m, 1) }
    :: d_step { blank[m] && DELAY_IS_OVER && m != 2 && !blank[2] && !(copied[m] & BIT(2)) -> copy(m, 2) }
#ifdef COPIES_TOO_FEW
#define READ_ENOUGH (COUNT(copied[m]) >= QUORUM - 1)
#else
#define READ_ENOUGH (COUNT(copied[m]) >= QUORUM)
#endif
    :: d_step {
        blank[m] && READ_ENOUGH ->
            printf("master %d is admitted with counter %d\n", m, highest[m]);
            counter[m] = highest[m]; blank[m] = false; highest[m] = 0; copied[m] = 0; waits_for[m] = 0
       }
    od
}

#endif

proctype agent(byte me) {
    byte hint;
    do
    :: d_step { phase[me] == IDLE && tries[me] < MAY_TRY(me) -> lock(me, (seen[me] + 1)) }
    :: atomic {
        phase[me] == IDLE && tries[me] < MAY_TRY(me) ->
            select (hint : 1 .. HINTS);
            d_step { lock(me, hint); hint = 0 }
       }
    :: d_step { phase[me] == PROPOSING && asked_with[me] == 0 -> rounds[me]++; ask_all(me, PROPOSE, (seen[me] + 1)) }
    :: atomic {
        phase[me] == PROPOSING && asked_with[me] == 0 ->
            select (hint : 1 .. HINTS);
            d_step { rounds[me]++; ask_all(me, PROPOSE, hint); hint = 0 }
       }
    /* Too many refused the value: another is proposed, while the lease is valid. */
    :: d_step {
        phase[me] == PROPOSING && rounds[me] < ROUNDS && COUNT(refused[me]) > MASTERS - QUORUM ->
            question[me]++; settle(me); asked_with[me] = 0
       }
    :: d_step { phase[me] != IDLE -> printf("agent %d: gives up\n", me); finish(me) }
    :: phase[me] == IDLE && tries[me] == MAY_TRY(me) -> break
    od
}

init {
    atomic {
        do
        :: i < AGENTS ->
            run agent(i);
            j = 0;
            do
            :: j < MASTERS -> run link(i, j); j++
            :: else -> break
            od;
            i++
        :: else -> break
        od;
#if WIPES
        j = 0;
        do
        :: j < MASTERS -> run master(j); j++
        :: else -> break
        od;
#endif
        i = 0; j = 0
    }
}
