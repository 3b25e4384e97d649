/* Tenures: fences over several blocks, and leases one after the other, also when a tenure is taken away by force (rule 6
 * and 'Waiting'). What Spin checks here exhaustively:
 *
 *   fence_is_unique     no fence is given twice
 *   fences_in_order     under a tenure fences grow, and begin above all that were given before it was tried for
 *   stale_never_above   who was taken from by force, or is late, gives fences below those of the tenure that came after it:
 *                       a resource that looks at fences refuses them
 *   no deadlock         (pan's invalid end states)
 *
 * Masters keep who has the resource, and forget one of the tenures at any moment (a force-release, an expiry): there is no
 * time here, and an agent hears of nothing. Counters are not lost: that is in fences.pml.
 *
 *   Messages   one ordered pipe per agent and master, in which everything may wait for ever. Answers are heard at once.
 *   Restarts   an agent dies with a tenure; the next one takes it over under a new token, which counts by a quorum.
 */

#ifndef MASTERS
#define MASTERS 3
#endif
#ifndef AGENTS
#define AGENTS 2
#endif
#ifndef FORCES                 /* how often a master forgets who has it */
#define FORCES 2
#endif
#ifndef NEXTS                  /* how many blocks more agent 0 asks for */
#define NEXTS 1
#endif
#ifndef BLOCK                  /* values that a vote reserves */
#define BLOCK 1
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef TENURES                /* how often agent 0 tries */
#define TENURES 1
#endif

#define QUORUM (MASTERS / 2 + 1)
#define LINK(a, m) ((a) * MASTERS + (m))
#define BIT(m) (1 << (m))
#define COUNT(x) (((x) & 1) + ((x) >> 1 & 1) + ((x) >> 2 & 1))
#define MAY_TRY(a) (a == 0 -> TENURES : 1)
#define MOST(x, y) (x < y -> y : x)

mtype = { ACQUIRE, PROPOSE, NEXT, TAKE_OVER };
mtype = { IDLE, VOTING, PROPOSING, HOLDING, ASKING, TAKING_OVER };

/* What, a value, a token, the token before, the number of the question: answers to an older one count for nothing. */
chan asks[AGENTS * MASTERS] = [4] of { mtype, byte, byte, byte, byte };

/* --- What a master knows ------------------------------------------------------------------------------------- */

byte counter[MASTERS];
byte shown[MASTERS];           /* the token of who has it; 0: nobody */

/* --- What an agent knows ------------------------------------------------------------------------------------- */

mtype phase[AGENTS] = IDLE;
byte tries[AGENTS];
byte token[AGENTS];
byte question[AGENTS];
byte seen[AGENTS];
byte first[AGENTS];
bool differ[AGENTS];
byte proposed[AGENTS];
byte yes[AGENTS];
byte next[AGENTS];             /* the next fence of its block, and the end of that */
byte end_of[AGENTS];
byte nexts[AGENTS];
byte noted[AGENTS];            /* the last fence that its journal has */

/* --- What the whole world knows ------------------------------------------------------------------------------ */

int given;                     /* as bits */
byte largest;                  /* of them */
byte above[AGENTS];            /* what the next fence of this tenure has to be above */
bool after[AGENTS];            /* the other one had it when this tenure was tried for */
byte below[AGENTS];            /* what the fences of this tenure have to be below: 0: nobody has it after it */
byte tokens, victim, forces = FORCES, restarts = RESTARTS;

byte i, v, t, b, n, f, status;
mtype what;
bool fence_is_unique = true, fences_in_order = true, stale_never_above = true;

inline run_one(a, m) {
    asks[LINK(a, m)]?what, v, t, b, n;
    status = 0; f = 0;
    if
    :: what == ACQUIRE ->
        if
        :: shown[m] == 0 || shown[m] == t ->
            shown[m] = t; f = MOST(counter[m] + 1, v); counter[m] = f + BLOCK - 1; status = 1
        :: else
        fi
    :: what == TAKE_OVER ->
        if
        :: shown[m] == b || shown[m] == t -> shown[m] = t; status = 1
        :: else
        fi
    :: what == PROPOSE || what == NEXT ->
        if
#ifdef WITHOUT_TOKEN
        :: v > counter[m] -> f = v; counter[m] = v + BLOCK - 1; status = 1
#else
        :: v > counter[m] && (what == PROPOSE || shown[m] == t) -> f = v; counter[m] = v + BLOCK - 1; status = 1
#endif
        :: else -> f = counter[m]
        fi
    fi;
    printf("master %d runs %e %d for token %d of agent %d: %d %d\n", m, what, v, t, a, status, f)
}

inline settle(a) { yes[a] = 0; first[a] = 0; differ[a] = false; question[a]++ }

inline ask_all(a, kind, value, old) {
    settle(a);
    proposed[a] = value;
    i = 0;
    do
    :: i < MASTERS -> asks[LINK(a, i)]!kind, value, token[a], old, question[a]; i++
    :: else -> break
    od;
    i = 0
}

#define OTHER(a) (1 - a)
#define HAS(a) (phase[a] == HOLDING || phase[a] == ASKING || phase[a] == TAKING_OVER)

/* The other one, if it has it still, has it no more: it may not have heard. */
inline followed(a) {
    if
    :: after[a] && HAS(OTHER(a)) && below[OTHER(a)] == 0 -> below[OTHER(a)] = next[a]
    :: else
    fi
}

/* A quorum has it: its block begins here. */
inline has(a, from) {
    phase[a] = HOLDING; next[a] = from; end_of[a] = from + BLOCK;
    followed(a);
    printf("agent %d has it, fences from %d\n", a, next[a]);
    settle(a)
}

inline give(a) {
    fence_is_unique = !(given >> next[a] & 1);
    assert(fence_is_unique);
    fences_in_order = (next[a] > above[a]);
    assert(fences_in_order);
    stale_never_above = (below[a] == 0 || next[a] < below[a]);
    assert(stale_never_above);
    printf("agent %d gives %d\n", a, next[a]);
    given = given | 1 << next[a];
    largest = MOST(largest, next[a]);
    above[a] = next[a];
#ifdef NOTED_LATE
    noted[a] = next[a] - 1;
#else
    noted[a] = next[a];
#endif
    next[a]++
}

inline decide(a) {
    if
#ifdef OUTLIVES
    :: phase[a] == VOTING && next[a] < end_of[a] ->    /* a block is left from the tenure before */
        phase[a] = HOLDING; settle(a); followed(a)
    :: phase[a] == VOTING && next[a] >= end_of[a] && !differ[a] -> has(a, first[a])
    :: phase[a] == VOTING && next[a] >= end_of[a] && differ[a] -> phase[a] = PROPOSING; ask_all(a, PROPOSE, (seen[a] + 1), 0)
#else
    :: phase[a] == VOTING && !differ[a] -> has(a, first[a])
    :: phase[a] == VOTING && differ[a] -> phase[a] = PROPOSING; ask_all(a, PROPOSE, (seen[a] + 1), 0)
#endif
    :: phase[a] == PROPOSING -> has(a, proposed[a])
    :: phase[a] == ASKING -> phase[a] = HOLDING; next[a] = proposed[a]; end_of[a] = proposed[a] + BLOCK; settle(a)
    :: phase[a] == TAKING_OVER ->
        phase[a] = HOLDING; settle(a);
#ifdef OLD_BLOCK
        next[a] = noted[a] + 1; end_of[a] = next[a] + 1;
#endif
        printf("agent %d has taken it over\n", a)
    fi
}

inline hear(a, m) {
    if
    :: n == question[a] ->
        seen[a] = MOST(seen[a], (what == ACQUIRE && status -> f + BLOCK - 1 : f));
        if
        :: status ->
            yes[a] = yes[a] | BIT(m);
            if
            :: phase[a] == VOTING && first[a] == 0 -> first[a] = f
            :: phase[a] == VOTING && first[a] != 0 && first[a] != f -> differ[a] = true
            :: else
            fi
        :: else
        fi;
        if
        :: COUNT(yes[a]) >= QUORUM -> decide(a)
        :: else
        fi
    :: else
    fi;
    what = 0; v = 0; t = 0; b = 0; n = 0; f = 0; status = 0
}

proctype link(byte a; byte m) {
end: do
    :: d_step { len(asks[LINK(a, m)]) > 0 -> run_one(a, m); hear(a, m) }
    od
}

/* Somebody takes a tenure away on a master, or it ends there: one of all. Of two that were taken from in part, the older may
 * be what a quorum shows. */
proctype force(byte m) {
end: do
    :: d_step {
        forces > 0 && shown[m] != 0 && (victim == 0 || shown[m] == victim) ->
            forces--; printf("master %d forgets\n", m); victim = shown[m]; shown[m] = 0
       }
    od
}

proctype agent(byte me) {
    do
    :: d_step {
        phase[me] == IDLE && tries[me] < MAY_TRY(me) ->
            tries[me]++; tokens++; token[me] = tokens; phase[me] = VOTING; above[me] = largest; nexts[me] = 0;
            after[me] = HAS(OTHER(me)); below[me] = 0;
            ask_all(me, ACQUIRE, (seen[me] + 1), 0)
       }
    :: d_step { phase[me] == HOLDING && next[me] < end_of[me] -> give(me) }
    :: d_step {
        phase[me] == HOLDING && next[me] == end_of[me] && nexts[me] < NEXTS && me == 0 ->
            nexts[me]++; phase[me] = ASKING; ask_all(me, NEXT, (seen[me] + 1), 0)
       }
    /* Its clock may be ahead of all that it has seen. */
    :: d_step {
        phase[me] == HOLDING && next[me] == end_of[me] && nexts[me] < NEXTS && me == 0 ->
            nexts[me]++; phase[me] = ASKING; ask_all(me, NEXT, (seen[me] + 1 + 2 * BLOCK), 0)
       }
#if RESTARTS
    :: d_step {
        phase[me] == HOLDING && restarts > 0 && me == 0 ->
            printf("agent %d dies, and the next one takes over\n", me);
            restarts--; tokens++; next[me] = 0; end_of[me] = 0; seen[me] = 0;
            phase[me] = TAKING_OVER; b = token[me];
#ifndef OLD_TOKEN
            token[me] = tokens;
#endif
            ask_all(me, TAKE_OVER, 0, b); b = 0
       }
#endif
    /* It is done, or gives up; masters show it still, or it gives it back. What is on its way may land behind that. */
    :: d_step {
        phase[me] != IDLE ->
            phase[me] = IDLE; settle(me); proposed[me] = 0; below[me] = 0; below[OTHER(me)] = 0; after[me] = false; after[OTHER(me)] = false;
#ifdef GIVES_BACK
            i = 0;
            do
            :: i < MASTERS && shown[i] == token[me] -> shown[i] = 0; i++
            :: i < MASTERS && shown[i] != token[me] -> i++
            :: else -> break
            od;
            i = 0;
#endif
            skip
       }
    :: phase[me] == IDLE && tries[me] == MAY_TRY(me) -> break
    od
}

init {
    atomic {
        do
        :: i < AGENTS ->
            run agent(i);
            v = 0;
            do
            :: v < MASTERS -> run link(i, v); v++
            :: else -> break
            od;
            i++
        :: else -> break
        od;
        v = 0;
        do
        :: v < MASTERS -> run force(v); v++
        :: else -> break
        od;
        i = 0; v = 0
    }
}
