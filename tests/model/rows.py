"""What the models are asked: each row is a model, what is taken out of it, and what then breaks."""

from __future__ import annotations

from dataclasses import dataclass

LEASES, FENCES, TENURES = "redlock.pml", "fences.pml", "tenures.pml"

EXCLUSION, GIVEN_BACK, NOT_SELF_BEATEN = "mutual_exclusion", "given_back", "not_self_beaten"
UNBROKEN, STAYS_GONE = "unbroken", "stays_gone"
UNIQUE, IN_ORDER, NOT_ABOVE = "fence_is_unique", "fences_in_order", "stale_never_above"
DEADLOCK, ENDS = "no deadlock", "ends"


@dataclass(frozen=True, slots=True)
class Row:
    """One search. flags: `-D` of the model, separated by blanks. broken: the promises of which one must be
    found broken; none: all must hold. formula: the LTL formula that is checked instead of promises."""

    name: str
    rule: str
    model: str
    flags: str = ""
    broken: tuple[str, ...] = ()
    formula: str = ""
    depth_first: bool = False
    """Some way to break the promise is found sooner than the shortest, because all are long."""
    long: bool = False
    """Takes a good part of a minute: `make test` leaves it to `make test-all`."""
    deep: bool = False
    """Takes minutes and gigabytes: only asked with --deep, and in `make test-all`."""

    @property
    def slow(self) -> bool:
        return self.long or self.deep

    @property
    def expected(self) -> str:
        return f"broken: {' or '.join(self.broken)}" if self.broken else "holds"


_ONE_CRASH = "-DCRASHES=1 -DBREAKS=1"
_SHORT = "-DCRASHES=1 -DBREAKS=0 -DTTL=2"
_CALM = "-DCRASHES=0 -DBREAKS=1"
_FORCED = "-DEXTENSIONS=2 -DFORCE -DSTILL -DCRASHES=0 -DBREAKS=0"
_SKIPPED = "-DFORCE -DSKIPPED -DSTILL -DCRASHES=0"
_LATE = f"{_SKIPPED} -DEXTENSIONS=3 -DBREAKS=0"
_PATIENT = "-DPATIENT -DCRASHES=0 -DBREAKS=0 -DTTL=2"
_WIPED = "-DTRIES=1 -DWIPES=1"
_TAKEN_OVER = "-DRESTARTS=1 -DFORCES=0 -DNEXTS=0 -DBLOCK=2"

ROWS = (
    # Leases: what must hold ...
    Row("leases", "1-4, 8-10", LEASES, _ONE_CRASH, long=True),
    Row("leases, a short ttl", "1-4, 8-10", LEASES, _SHORT),
    Row("leases, a short ttl and a break", "1-4", LEASES, "-DCRASHES=0 -DBREAKS=1 -DTTL=2"),
    Row("extensions", "2", LEASES, f"{_SKIPPED} -DEXTENSIONS=2 -DBREAKS=1", long=True),
    Row("extensions, no break", "2", LEASES, f"{_SKIPPED} -DEXTENSIONS=2 -DBREAKS=0"),
    Row("put-backs that land late", "2", LEASES, _LATE, long=True),
    Row("progress", "5", LEASES, _PATIENT, formula=ENDS, long=True),
    # ... and what breaks without a rule.
    Row("a quorum of one less", "1", LEASES, f"{_ONE_CRASH} -DQUORUM_LESS_ONE", (EXCLUSION,)),
    Row("no allowance for drift", "1", LEASES, f"{_SHORT} -DNO_DRIFT", (EXCLUSION,)),
    Row("validity from the answer", "1", LEASES, "-DCRASHES=0 -DBREAKS=0 -DCOUNT_FROM_ANSWER", (EXCLUSION,)),
    Row("what is put back counts", "2", LEASES, f"{_LATE} -DPUT_BACK_COUNTS", (UNBROKEN,), depth_first=True),
    Row(
        "what is put back counts from the next proof on",
        "2",
        LEASES,
        f"{_LATE} -DLATE_PUT_BACK_COUNTS",
        (UNBROKEN,),
        depth_first=True,
    ),
    Row(
        "an extension puts back by itself",
        "2",
        LEASES,
        f"{_FORCED} -DEXTENSION_PUTS_BACK",
        (STAYS_GONE,),
        depth_first=True,
    ),
    Row(
        "put back where the last proof found it",
        "2",
        LEASES,
        f"{_FORCED} -DPUT_BACK_ANYWHERE",
        (STAYS_GONE,),
        depth_first=True,
    ),
    Row(
        "a vote that lands after a force",
        "2",
        LEASES,
        f"{_FORCED} -DLATE_ACQUIRE",
        (UNBROKEN,),
        depth_first=True,
    ),
    Row("nothing given back", "3", LEASES, f"{_CALM} -DNO_RELEASE", (GIVEN_BACK,)),
    Row("a release overtakes", "3", LEASES, f"{_CALM} -DRELEASE_OVERTAKES", (GIVEN_BACK,)),
    Row("acquire only when free", "4", LEASES, f"{_CALM} -DACQUIRE_NOT_IDEMPOTENT", (NOT_SELF_BEATEN,)),
    Row("no time limit", "5", LEASES, f"{_PATIENT} -DNO_TIME_LIMIT", (DEADLOCK,)),
    Row("blank masters vote", "8", LEASES, f"{_ONE_CRASH} -DBLANK_VOTES", (EXCLUSION,)),
    Row("no ceiling of the ttl", "9", LEASES, f"{_SHORT} -DNO_CEILING", (EXCLUSION,)),
    Row("no delay after a crash", "10", LEASES, f"{_ONE_CRASH} -DNO_DELAY", (EXCLUSION,)),
    Row("a delay too short by a tick", "10", LEASES, "-DCRASHES=1 -DBREAKS=0 -DDELAY=2", (EXCLUSION,)),
    # Fences: what must hold ...
    Row("fences", "6", FENCES, "-DTRIES=2 -DHINTS=1"),
    Row("fences, any hints", "6", FENCES, "-DTRIES=1 -DHINTS=2 -DROUNDS=2", long=True),
    Row("fences, broken connections", "6", FENCES, "-DTRIES=1 -DBREAKS=1", long=True),
    Row("fences, broken connections, one hint", "6", FENCES, "-DTRIES=1 -DBREAKS=1 -DHINTS=1"),
    Row("fences, a wiped master", "6, 8", FENCES, _WIPED, long=True),
    Row("fences, a wiped master, one hint", "6, 8", FENCES, f"{_WIPED} -DHINTS=1"),
    # ... and what breaks without a rule.
    Row("no second round", "6", FENCES, "-DTRIES=2 -DHINTS=1 -DNO_SECOND_ROUND", (UNIQUE, IN_ORDER)),
    Row("any value is accepted", "6", FENCES, "-DTRIES=2 -DHINTS=1 -DACCEPTS_ANYTHING", (UNIQUE, IN_ORDER)),
    Row("fences of one vote", "6", FENCES, "-DTRIES=2 -DHINTS=1 -DQUORUM_LESS_ONE", (UNIQUE, IN_ORDER)),
    Row("admitted without the delay", "8", FENCES, f"{_WIPED} -DNO_DELAY", (UNIQUE, IN_ORDER)),
    Row("counters copied from too few", "8", FENCES, f"{_WIPED} -DCOPIES_TOO_FEW", (UNIQUE, IN_ORDER)),
    Row("counters lost, identity kept", "8", FENCES, f"{_WIPED} -DFORGETS", (UNIQUE, IN_ORDER)),
    # Tenures: what must hold ...
    Row("tenures, the next block", "6", TENURES, long=True),
    Row("tenures, the next block, one force", "6", TENURES, "-DFORCES=1"),
    Row("tenures, taken over", "6, 13", TENURES, _TAKEN_OVER),
    # ... and what breaks without a rule.
    Row("the next block without the token", "6", TENURES, "-DWITHOUT_TOKEN", (NOT_ABOVE, IN_ORDER, UNIQUE)),
    Row(
        "a block outlives its tenure",
        "6",
        TENURES,
        "-DTENURES=2 -DNEXTS=0 -DBLOCK=2 -DGIVES_BACK -DOUTLIVES",
        (NOT_ABOVE, IN_ORDER, UNIQUE),
        depth_first=True,
    ),
    Row(
        "the block goes on with the next agent, by a journal that is behind",
        "6, 13",
        TENURES,
        f"{_TAKEN_OVER} -DOLD_BLOCK -DNOTED_LATE",
        (UNIQUE, IN_ORDER),
    ),
    # Larger bounds.
    Row("leases, two crashes", "1-4, 8-10", LEASES, "-DCRASHES=2 -DBREAKS=0", deep=True),
    Row("leases, two tries", "1-4, 8-10", LEASES, "-DTRIES=2 -DCRASHES=0 -DBREAKS=0 -DTTL=2", deep=True),
    Row("leases, a longer ttl", "1-4, 8-10", LEASES, "-DTTL=4 -DCRASHES=1 -DBREAKS=0", deep=True),
    Row("extensions, all asked", "2", LEASES, _FORCED, deep=True),
    Row("extensions in time", "1, 2, 10", LEASES, "-DEXTENSIONS=1 -DCRASHES=1 -DBREAKS=0", deep=True),
    Row(
        "progress, a crash", "5", LEASES, "-DPATIENT -DCRASHES=1 -DBREAKS=0 -DTTL=2", formula=ENDS, deep=True
    ),
    Row("fences, blocks", "6", FENCES, "-DTRIES=2 -DHINTS=2 -DBLOCK=2", deep=True),
    Row("tenures, given back", "6", TENURES, "-DGIVES_BACK", deep=True),
    Row("fences, wiped and cut", "6, 8", FENCES, "-DTRIES=1 -DWIPES=1 -DBREAKS=1", deep=True),
)
