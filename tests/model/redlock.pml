/* Leases in time: acquire, release, extend, crash, restart with delay, as Spin can check them exhaustively.
 *
 * What is checked here, whatever is delayed, lost, cut or restarted, and in whatever order:
 *
 *   mutual_exclusion   never do two holders rely on one resource at the same true time     (rules 1 to 4, 8 to 10)
 *   given_back         what an agent gave back is on no master that has heard of it        (rule 3)
 *   unbroken           no extension is proven when another held the resource since the last proof, not even after an
 *                      operator has taken the lease away by force (-DFORCE)                (rule 2)
 *   stays_gone         nor is what was taken away so put back where the last proof had found it, by an agent that it was
 *                      not proven to again meanwhile                                       (rule 2)
 *   not_self_beaten    a master refuses an acquire for another's lease, never for its own  (rule 4)
 *   no deadlock        (pan's invalid end states), and with -DPATIENT the formula `ends`:
 *                      every try comes to an end, and so does every lease
 *
 * The numbers are the rules of lockd/core/__init__.py. Each rule can be taken out with a -D of its own; the table in
 * rows.py has, for each, the promise that must then be broken. Fences are in fences.pml: they need no time,
 * leases need no counters, and together they would be too many states.
 *
 * How the real thing is abstracted:
 *
 *   Resource   one. Slots, queues and the apps of one host behind each other are not here: an agent makes one try at a time.
 *   Time       true time passes in ticks, at any moment, however much is still on its way; only what is left of
 *              something is kept. An agent's clock shows true time. All that clocks may differ by (DRIFT ticks over a
 *              TTL) is given to the masters and their guards, whose clocks may be that much fast.
 *   Messages   one ordered pipe per agent and master, in which everything may wait for ever. Answers are heard at once,
 *              or lost with the connection: that one is late is covered by the agent, which may decide on it at any
 *              time later. A connection breaks before a command was run, or after it, and nobody knows which.
 *   Crash      the master loses every lease, whatever fsync promised, and every connection to it breaks. Then it is
 *              either kept from starting by its guard (rule 10), or stands there blank until it is admitted
 *              (rule 8): what is asked of it waits, or is answered with a refusal.
 *   Symmetry   masters differ by their number only, so they are numbered in the order in which they first run something;
 *              and agents in the order in which they first try. A crash or a broken connection that could change
 *              nothing is left out. With -DEXTENSIONS only agent 0 extends; the others are there to come between.
 */

#ifndef MASTERS
#define MASTERS 3
#endif
#ifndef AGENTS
#define AGENTS 2
#endif
#ifndef TRIES                  /* how often each agent tries */
#define TRIES 1
#endif
#ifndef EXTENSIONS             /* how often each lease is extended, at most */
#define EXTENSIONS 0
#endif
#ifndef CRASHES                /* all together */
#define CRASHES 1
#endif
#ifndef BREAKS                 /* connections that break, all together */
#define BREAKS 1
#endif
#ifndef TTL                    /* of every lease, and the ceiling on the masters (rule 9), in ticks */
#define TTL 3
#endif
/* -DSTILL: no time passes, for what has nothing to do with it: fewer states. */
#ifndef DRIFT                  /* what two clocks may differ by over a TTL, in ticks */
#define DRIFT 1
#endif

/* -DFORCE: an operator may once take agent 0's lease off the masters (`lockctl release --force`), one after the other in any
 * order, and may never get to some of them. That overrules its holder, so mutual_exclusion asks nothing of such a lease any
 * more; unbroken and stays_gone do. Assumed is that no acquire of it is still on its way then: with -DLATE_ACQUIRE, one
 * may land after another came and went, and count for an extension. */

/* -DSKIPPED: master 0 is down for agent 0 when that tries, and so isn't asked (rule 5): there the lease is put back. The other
 * agent comes when the operator has begun. Fewer states: for as many extensions as it takes. */

#ifdef QUORUM_LESS_ONE
#define QUORUM (MASTERS / 2)
#else
#define QUORUM (MASTERS / 2 + 1)
#endif

#ifdef NO_CEILING              /* rule 9: the guard's delay does not cover what an agent asks for */
#define ASKED_TTL (TTL + 2)
#else
#define ASKED_TTL TTL
#endif

#ifdef NO_DRIFT                /* rule 1: the holder relies on the whole TTL */
#define VALIDITY ASKED_TTL
#else
#define VALIDITY (ASKED_TTL - DRIFT)
#endif

/* Rules 8 and 10: out for max_ttl x 1.01 + 1 s, by a clock that may be fast. DELAY can be given, to see how short is too short. */
#ifndef DELAY
#ifdef NO_DELAY
#define DELAY 0
#else
#define DELAY (TTL + DRIFT)
#endif
#endif

#define PIPE (TRIES * 2 + EXTENSIONS * 2)
#define LINK(a, m) ((a) * MASTERS + (m))
#define BIT(m) (1 << (m))
#define COUNT(x) (((x) & 1) + ((x) >> 1 & 1) + ((x) >> 2 & 1) + ((x) >> 3 & 1) + ((x) >> 4 & 1))

mtype = { ACQUIRE, EXTEND, PUT, RELEASE, YES, PUT_BACK, MISSING, NO }
mtype = { IDLE, TRYING, HOLDING }

/* --- What is on its way -------------------------------------------------------------------------------------- */

/* To a master: what, the lease's token; for EXTEND its number and that of the lease's last proof; for PUT, that of the
 * proof behind which it was sent. */
chan asks[AGENTS * MASTERS] = [PIPE] of { mtype, byte, byte, byte };
#ifdef RELEASE_OVERTAKES
byte stray[AGENTS * MASTERS];  /* an acquire in the buffers of a connection that broke: the token */
#endif

/* --- What a master knows: acquire.lua, extend.lua, put_back.lua, release.lua --------------------------------- */

byte lease[MASTERS];           /* the token of the lease that is there; 0: none */
byte lease_left[MASTERS];      /* its PTTL */
#if EXTENSIONS
byte mark[MASTERS];            /* put_back.lua's pN: 1 + number of the proof that it was put back after; 0: it came by an acquire */
#endif
bool down[MASTERS];            /* crashed, and kept out */
byte out_left[MASTERS];        /* what is left of the delay, by the guard's clock */

/* --- What an agent knows: locks.py, ballots/, leases.py ------------------------------------------------------ */

mtype phase[AGENTS] = IDLE;
byte tries[AGENTS];
byte token[AGENTS];            /* of the present try or lease, never used before: rule 4 */
byte left[AGENTS];             /* until the deadline, which is counted from before the first byte: rule 1 */
byte yes[AGENTS];              /* masters that voted for the try; of a lease: those that proved it last */
byte absent[AGENTS];           /* masters that certainly said no */
#if EXTENSIONS
byte round[AGENTS];            /* the number of the last extension */
bool open[AGENTS];             /* it has no outcome yet */
byte proof[AGENTS];            /* the number of the extension that proved the lease last; 0: the acquire did */
byte left_then[AGENTS];        /* until the deadline, should this extension be proven */
byte confirmed[AGENTS];        /* masters that confirmed it */
byte gone[AGENTS];             /* masters that did not have it all the time since it was proven: ballots.Gone */
byte missing[AGENTS];          /* masters that show none, by the last extension, and never had it: Extension.missing */
byte unseen[AGENTS];           /* masters that it was put on, and that nobody has heard of since: leases.PutBacks */
byte waits[AGENTS];            /* those of them when the last extension was sent */
byte unsure[AGENTS];           /* those of them when the last proof was sent: they don't count for the next */
byte put_now[AGENTS];          /* masters that it was put on behind the last proof */
byte blind[AGENTS];            /* and after the last extension was sent: what that shows may be from before */
byte not_there[AGENTS];        /* masters where what the last proof still brings is not put back: they had it before it */
#ifdef FORCE
byte acquires;                 /* of agent 0 that are still on their way */
#endif
bool overruled;                /* agent 0's lease was taken away by force */
byte visited;                  /* masters that the operator has asked to forget it */
byte taken, taken_then;        /* those of them where it was, as the last proof knows; and the one before that */
bool another, another_then;    /* another was granted: since the last extension was sent; before that, since the last proof */
#endif

byte crashes = CRASHES, breaks = BREAKS;
#ifdef SKIPPED
byte awake = 1;
#else
byte awake;                    /* how many masters have run something */
#endif

/* Scratch of single steps: between them always the same, so no part of the state. */
mtype what;
byte i, j, t, n, p, count;
#if EXTENSIONS
bool put;                      /* what was run is a PUT */
#endif
bool mutual_exclusion = true, given_back = true, unbroken = true, stays_gone = true, not_self_beaten = true;

#ifdef PATIENT
#define trying_0 (phase[0] == TRYING)
#define holding_0 (phase[0] == HOLDING)
ltl ends { [] (trying_0 -> <> !trying_0) && [] (holding_0 -> <> !holding_0) }
#endif

#if EXTENSIONS
inline forget_scratch() { what = 0; t = 0; n = 0; p = 0; put = false }
#else
inline forget_scratch() { what = 0; t = 0; n = 0; p = 0 }
#endif

/* --- A master at work ---------------------------------------------------------------------------------------- */

inline forget_lease(m) {
    lease[m] = 0; lease_left[m] = 0;
#if EXTENSIONS
    mark[m] = 0
#endif
}

#ifdef ACQUIRE_NOT_IDEMPOTENT
#define FREE_OR_MINE false
#else
#define FREE_OR_MINE true
#endif

inline vote(a, m) {            /* acquire.lua: free or mine (rule 4) */
    if
    :: lease[m] == 0 ->
        lease[m] = t; lease_left[m] = ASKED_TTL; what = YES
    :: lease[m] == t && FREE_OR_MINE ->
        lease_left[m] = ASKED_TTL; what = YES
    :: else ->
        what = NO;
        not_self_beaten = (lease[m] != t);
        assert(not_self_beaten)
    fi
}

#if EXTENSIONS
inline land(a, m, k) {         /* behind proof k */
    lease[m] = t; lease_left[m] = TTL; mark[m] = 1 + k; what = PUT_BACK
}

inline look_whether_it_was_taken(a, m) {
    stays_gone = !(a == 0 && (taken | taken_then) & BIT(m));
    assert(stays_gone)
}

inline put_there(a, m) {       /* put_back.lua */
    if
    :: lease[m] == 0 -> land(a, m, n)
    :: lease[m] == t -> what = YES
    :: else -> what = NO
    fi
}

inline go_on(a, m) {           /* extend.lua */
    if
    :: lease[m] == 0 ->
#ifdef EXTENSION_PUTS_BACK
        land(a, m, p); look_whether_it_was_taken(a, m)
#else
        what = MISSING
#endif
    :: lease[m] == t ->
        lease_left[m] = TTL;   /* never less than it was */
        if
        :: mark[m] == 1 + p -> what = PUT_BACK
        :: else -> what = YES
        fi
    :: else ->
        what = NO
    fi
}
#endif

inline give_up_lease(m) {      /* release.lua */
    if
    :: lease[m] == t -> forget_lease(m)
    :: else
    fi
}

#ifdef PUT_BACK_ANYWHERE       /* rule 2: also where the last proof has found it */
#define HEED_PROOF false
#else
#define HEED_PROOF true
#endif

#ifdef FORCE                   /* how many acquires of agent 0 are on their way */
inline sent(a, x) { acquires = acquires + (a == 0 -> x : 0) }
inline landed(a) { acquires = acquires - (a == 0 && what == ACQUIRE -> 1 : 0) }
#else
inline sent(a, x) { skip }
inline landed(a) { skip }
#endif

/* A master takes the next thing that an agent sent it. One that is out is down, and this step does not happen; or it is
 * blank, and refuses (rule 8). */
inline execute(a, m) {
    asks[LINK(a, m)]?what, t, n, p;
    landed(a);
    if
    :: awake == m -> awake++
    :: else
    fi;
    printf("master %d runs %e of agent %d, token %d\n", m, what, a, t);
    if
#ifndef BLANK_VOTES
    :: down[m] && what != RELEASE -> what = NO
    :: down[m] && what == RELEASE -> skip
    :: !down[m] && what == ACQUIRE -> vote(a, m)
    :: !down[m] && what == RELEASE -> give_up_lease(m)
#else
    :: what == ACQUIRE -> vote(a, m)
    :: what == RELEASE -> give_up_lease(m)
#endif
#if EXTENSIONS
    :: !down[m] && what == EXTEND -> go_on(a, m); put = false
    :: !down[m] && what == PUT -> put_there(a, m); put = true
#endif
    fi
}

/* --- A link: link.py ----------------------------------------------------------------------------------------- */

/* The connection breaks, and nobody knows what was run. On the next one, before anything else, the master throws away what
 * the old one still had, and is asked again, in the old order, what is still worth it: releases always; a vote or
 * an extension while its ballot is open, whether it was run or not (link._settle_debts). */
inline cut(a, m) {
    printf("the connection of agent %d to master %d breaks\n", a, m);
    count = len(asks[LINK(a, m)]);
    do
    :: count > 0 ->
        asks[LINK(a, m)]?what, t, n, p;
        landed(a);
        if
        :: what == RELEASE -> asks[LINK(a, m)]!what, t, n, p
#if EXTENSIONS
        :: what == PUT ->
            if
            :: phase[a] == HOLDING && t == token[a] && n == proof[a] -> asks[LINK(a, m)]!what, t, n, p
            :: else
            fi
#endif
#ifdef RELEASE_OVERTAKES
        :: what == ACQUIRE -> stray[LINK(a, m)] = t
        :: what == EXTEND
#else
        :: else
#endif
        fi;
        count--
    :: else -> break
    od;
    if
    :: phase[a] == TRYING && !((yes[a] | absent[a]) & BIT(m)) -> asks[LINK(a, m)]!ACQUIRE, token[a], 0, 0; sent(a, 1)
    :: else
    fi;
#if EXTENSIONS
    if
    :: phase[a] == HOLDING && open[a] && !(confirmed[a] & BIT(m)) -> asks[LINK(a, m)]!EXTEND, token[a], round[a], proof[a]
    :: else
    fi;
#endif
    forget_scratch()
}

/* --- An agent at work ---------------------------------------------------------------------------------------- */

inline ask_all(a, kind) {
    i = 0;
    do
    :: i < MASTERS ->
#if EXTENSIONS
        asks[LINK(a, i)]!kind, token[a], round[a], proof[a];
#else
        asks[LINK(a, i)]!kind, token[a], 0, 0;
#endif
        i++
    :: else -> break
    od;
    i = 0
}

inline lock(a) {
    tries[a]++;
    token[a] = AGENTS * (tries[a] - 1) + a + 1;
    phase[a] = TRYING;
    left[a] = VALIDITY;
    printf("agent %d: LOCK, token %d\n", a, token[a]);
    ask_all(a, ACQUIRE);
    sent(a, MASTERS);
#ifdef SKIPPED
    if
    :: a == 0 -> asks[LINK(0, 0)]?what, t, n, p; forget_scratch(); sent(0, -1); absent[0] = 1
    :: else
    fi
#endif
}

#if EXTENSIONS
/* Only masters that had the lease all the time since its last proof count for the next one; what they show of an older
 * extension says nothing any more (rule 2). Of the last proof itself, a late answer still has it put back. */
inline extension_heard(a, m) {
    if
    :: n == round[a] && (what == YES || what == PUT_BACK) && !(blind[a] & BIT(m)) -> unseen[a] = unseen[a] & ~BIT(m)
    :: else
    fi;
    if
    :: n > proof[a] && (what == PUT_BACK || (what != YES && yes[a] & BIT(m) && HEED_PROOF)) -> gone[a] = gone[a] | BIT(m)
    :: else
    fi;
    if
    :: n == round[a] && open[a] && what == MISSING && !(gone[a] & BIT(m)) -> missing[a] = missing[a] | BIT(m)
#ifdef PUT_BACK_COUNTS
    :: n == round[a] && open[a] && (what == YES || what == PUT_BACK) -> confirmed[a] = confirmed[a] | BIT(m)
#else
    :: n == round[a] && open[a] && what == YES && !((gone[a] | unsure[a]) & BIT(m)) -> confirmed[a] = confirmed[a] | BIT(m)
#endif
    :: n == proof[a] && what == YES -> yes[a] = yes[a] | BIT(m)
    :: n == proof[a] && what == MISSING && left[a] > 0 && !(not_there[a] & BIT(m) && HEED_PROOF) -> put_back(a, m)
    :: else
    fi
}

/* What became of a PUT: it counts from the next proof on. */
inline put_back_heard(a, m) {
    if
    :: n == proof[a] && what == PUT_BACK -> gone[a] = gone[a] | BIT(m)
    :: else
    fi;
    if
    :: (n == proof[a] || !(put_now[a] & BIT(m))) && (what == PUT_BACK || what == YES) -> unseen[a] = unseen[a] & ~BIT(m)
    :: else
    fi
}

inline put_back(a, m) {
    printf("agent %d puts token %d back on master %d, behind proof %d\n", a, token[a], m, proof[a]);
    look_whether_it_was_taken(a, m);
    put_now[a] = put_now[a] | BIT(m);
#ifndef LATE_PUT_BACK_COUNTS
    unseen[a] = unseen[a] | BIT(m); unsure[a] = unsure[a] | BIT(m); waits[a] = waits[a] | BIT(m);
    if
    :: round[a] > proof[a] -> blind[a] = blind[a] | BIT(m)
    :: else
    fi;
#endif
    asks[LINK(a, m)]!PUT, token[a], proof[a], 0
}
#endif

inline hear(a, m) {            /* ballots.Attempt.answered, ballots.Extension.answered */
    printf("agent %d hears %e of master %d\n", a, what, m);
    if
    :: t != token[a]           /* that is settled */
    :: t == token[a] && phase[a] == TRYING && what == YES -> yes[a] = yes[a] | BIT(m)
    :: t == token[a] && phase[a] == TRYING && what == NO -> absent[a] = absent[a] | BIT(m)
#if EXTENSIONS
    :: t == token[a] && phase[a] == HOLDING && n == 0 && what == YES && proof[a] == 0 ->
        yes[a] = yes[a] | BIT(m)                       /* late, and still counts: rule 2 */
    :: t == token[a] && phase[a] == HOLDING && n > 0 && !put -> extension_heard(a, m)
    :: t == token[a] && phase[a] == HOLDING && put -> put_back_heard(a, m)
#endif
    :: else
    fi
}

/* An agent hands out a lease, or a longer one. This is where two could rely on one resource. */
inline rely(a) {
    mutual_exclusion = true;
    i = 0;
    do
    :: i < AGENTS ->
        mutual_exclusion = mutual_exclusion && !(i != a && phase[i] == HOLDING && left[i] > 0);
        i++
    :: else -> break
    od;
    i = 0;
#if EXTENSIONS
    mutual_exclusion = mutual_exclusion || overruled;
#endif
    assert(mutual_exclusion)
}

inline grant(a) {
    printf("agent %d: granted, token %d\n", a, token[a]);
#ifdef COUNT_FROM_ANSWER
    left[a] = VALIDITY;
#endif
    phase[a] = HOLDING;
    rely(a);
#if EXTENSIONS
    if
    :: a != 0 && phase[0] == HOLDING -> another = true
    :: else
    fi
#else
    yes[a] = 0
#endif
}

/* Given back wherever it may have landed: on all masters but those that certainly said no (rule 3). */
inline give_back(a) {
#ifndef NO_RELEASE
    i = 0;
    do
    :: i < MASTERS ->
        if
        :: absent[a] & BIT(i)
        :: else -> asks[LINK(a, i)]!RELEASE, token[a], 0, 0
        fi;
        i++
    :: else -> break
    od;
#endif
    i = 0;
    phase[a] = IDLE; token[a] = 0; left[a] = 0; yes[a] = 0; absent[a] = 0;
#if EXTENSIONS
    round[a] = 0; open[a] = false; proof[a] = 0; left_then[a] = 0; confirmed[a] = 0; gone[a] = 0; missing[a] = 0; not_there[a] = 0;
    unseen[a] = 0; waits[a] = 0; unsure[a] = 0; put_now[a] = 0; blind[a] = 0;
    if
    :: a == 0 -> overruled = false; visited = 0; taken = 0; taken_then = 0; another = false; another_then = false
    :: else
    fi;
#endif
    skip
}

#if EXTENSIONS
inline extend(a) {
    round[a]++;
    open[a] = true; confirmed[a] = 0; missing[a] = 0; blind[a] = 0; waits[a] = unseen[a]; left_then[a] = VALIDITY;
    another_then = another_then || another; another = false;
    absent[a] = 0;             /* it may be put back anywhere: Lease.landed */
    printf("agent %d: EXTEND %d, token %d\n", a, round[a], token[a]);
    ask_all(a, EXTEND)
}

inline prove(a) {
    printf("agent %d: EXTEND %d is proven\n", a, round[a]);
    if
    :: left[a] < left_then[a] -> left[a] = left_then[a]
    :: else
    fi;
    not_there[a] = yes[a] | gone[a]; taken_then = taken; taken = 0;
    proof[a] = round[a]; yes[a] = confirmed[a]; gone[a] = 0; unsure[a] = waits[a]; waits[a] = 0; put_now[a] = 0;
    open[a] = false; confirmed[a] = 0; left_then[a] = 0;
    rely(a);
    unbroken = !another_then;
    assert(unbroken);
    i = 0;                     /* and only now is it put where it was missing (rule 2) */
    do
    :: i < MASTERS ->
        if
        :: missing[a] & BIT(i) && !(not_there[a] & BIT(i) && HEED_PROOF) -> put_back(a, i)
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0; missing[a] = 0
}
#endif

/* --- The processes: every choice below is taken whenever it can be -------------------------------------------- */

#define ASKED (len(asks[LINK(a, m)]) > 0 && m <= awake)

proctype link(byte a; byte m) {
end: do
    :: d_step { ASKED -> execute(a, m); hear(a, m); forget_scratch() }
    :: d_step { ASKED && breaks > 0 -> breaks--; execute(a, m); cut(a, m) }
    :: d_step { ASKED && breaks > 0 -> breaks--; cut(a, m) }
#ifdef RELEASE_OVERTAKES
    :: d_step {
        stray[LINK(a, m)] && !down[m] ->
            printf("master %d runs what was left in an old connection of agent %d: ACQUIRE, token %d\n", m, a, stray[LINK(a, m)]);
            t = stray[LINK(a, m)]; stray[LINK(a, m)] = 0;
            if
            :: lease[m] == 0 -> lease[m] = t; lease_left[m] = ASKED_TTL
            :: else
            fi;
            t = 0
       }
#endif
    od
}

proctype master(byte m) {
end: do
#ifndef STILL
    :: d_step {
        lease[m] && lease_left[m] <= DRIFT ->
            printf("master %d, whose clock is fast, ends the lease with token %d\n", m, lease[m]);
            forget_lease(m)
       }
#endif
    :: d_step {
        crashes > 0 && !down[m] && lease[m] ->
            printf("master %d crashes and loses the lease with token %d\n", m, lease[m]);
            crashes--; forget_lease(m); down[m] = true; out_left[m] = DELAY;
            i = 0;
            do
            :: i < AGENTS -> cut(i, m); i++
            :: else -> break
            od;
            i = 0
       }
    :: d_step {
        down[m] && out_left[m] <= DRIFT ->
            printf("master %d is back\n", m);
            down[m] = false; out_left[m] = 0
       }
    od
}

#ifdef PATIENT                 /* an app that waits: a try ends by its votes, or by its time limit (rule 5) */
#ifdef NO_TIME_LIMIT
#define HOPELESS (COUNT(absent[me]) > MASTERS - QUORUM)
#else
#define HOPELESS (COUNT(absent[me]) > MASTERS - QUORUM || left[me] < VALIDITY)
#endif
#else                          /* or at any moment, when the app is gone */
#define HOPELESS true
#endif

#ifdef SKIPPED
#define MY_TURN (me == 0 || overruled)
#elif EXTENSIONS
#define MY_TURN true
#else
#define MY_TURN (me == 0 || tries[me - 1] > 0)
#endif

proctype agent(byte me) {
#ifdef SKIPPED
end:
#endif
    do
    :: d_step { phase[me] == IDLE && tries[me] < TRIES && MY_TURN -> lock(me) }
    :: d_step { phase[me] == TRYING && COUNT(yes[me]) >= QUORUM && left[me] > 0 -> grant(me) }
    :: d_step { phase[me] == TRYING && HOPELESS -> printf("agent %d: gives up, token %d\n", me, token[me]); give_back(me) }
    :: d_step { phase[me] == HOLDING -> printf("agent %d: UNLOCK, token %d\n", me, token[me]); give_back(me) }
#if EXTENSIONS
    /* Also while one has no outcome: that one timed out, and its answers may still come. */
    :: d_step { me == 0 && phase[me] == HOLDING && left[me] > 0 && round[me] < EXTENSIONS -> extend(me) }
    :: d_step { phase[me] == HOLDING && open[me] && COUNT(confirmed[me]) >= QUORUM && left[me] > 0 -> prove(me) }
#endif
    :: phase[me] == IDLE && tries[me] == TRIES -> break
    od
}

#ifdef FORCE
#ifdef LATE_ACQUIRE
#define ALL_LANDED true
#else
#define ALL_LANDED (acquires == 0)
#endif

inline visit(m) {
    visited = visited | BIT(m);
    if
    :: lease[m] == token[0] ->
        printf("it is taken off master %d\n", m);
        forget_lease(m); taken = taken | (yes[0] & BIT(m))
    :: else
    fi;
    m = 0
}

proctype operator() {
    byte m;
end_idle: d_step { phase[0] == HOLDING && ALL_LANDED -> overruled = true; printf("an operator takes the lease with token %d away\n", token[0]) };
end: do
    :: d_step { overruled && !(visited & 1) && ALL_LANDED -> m = 0; visit(m) }
    :: d_step { overruled && !(visited & 2) && ALL_LANDED -> m = 1; visit(m) }
    :: d_step { overruled && !(visited & 4) && ALL_LANDED -> m = 2; visit(m) }
    od
}
#endif

/* --- Time ---------------------------------------------------------------------------------------------------- */

inline pass(x) {
    if
    :: x > 0 -> x--; count++
    :: else
    fi
}

/* Rule 3, looked at whenever time passes: a master that heard all an idle agent had to say has none of its leases. */
inline look_for_leftovers() {
    given_back = true;
    i = 0;
    do
    :: i < AGENTS ->
        j = 0;
        do
        :: j < MASTERS ->
            given_back = given_back && !(phase[i] == IDLE && !down[j] && len(asks[LINK(i, j)]) == 0 && lease[j] && (lease[j] - 1) % AGENTS == i);
            j++
        :: else -> break
        od;
        i++
    :: else -> break
    od;
    i = 0; j = 0;
    assert(given_back)
}

inline tick() {
    printf("tick\n");
    count = 0; i = 0;
    do
    :: i < AGENTS ->
        pass(left[i]);
#if EXTENSIONS
        pass(left_then[i]);
#endif
        i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < MASTERS ->
        pass(lease_left[i]); pass(out_left[i]);
        if
        :: lease[i] && lease_left[i] == 0 -> forget_lease(i)
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0; count = 0
}

#define ANY(x) (x[0] | x[1] | x[2] MORE(x))
#if MASTERS > 3
#define MORE(x) | x[3] | x[4]
#else
#define MORE(x)
#endif
#if AGENTS > 2
#define ANYBODY (left[0] | left[1] | left[2])
#else
#define ANYBODY (left[0] | left[1])
#endif

proctype time() {
end: do
    :: d_step { ANYBODY || ANY(lease_left) || ANY(out_left) -> look_for_leftovers(); tick() }
    od
}

init {
    atomic {
        i = 0;
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
        j = 0;
        do
        :: j < MASTERS -> run master(j); j++
        :: else -> break
        od;
#ifndef STILL
        run time();
#endif
#ifdef FORCE
        run operator();
#endif
        i = 0; j = 0
    }
}
