"""The words that the errors of apps begin with.

A new one is an entry of `ErrorWord`: what is counted, what `lockctl` says and exits with, what dashboards ask
for and the table of docs/reference/errors.md are read from there.
"""

from enum import Enum, Flag, StrEnum, auto
from typing import NamedTuple


class Kind(Enum):
    """What an error means to whoever gets it. Contention is no outage, and an outage no contention."""

    CONTENDED = auto()
    UNAVAILABLE = auto()
    NOT_HELD = auto()
    LOST = auto()
    FORBIDDEN = auto()
    STOPPING = auto()
    WRONG = auto()


class Of(Flag):
    """The answers to which it belongs: to LOCK, or to EXTEND and UNLOCK. Of each, its words are counted from
    the start."""

    LOCK = auto()
    LEASE = auto()
    BOTH = LOCK | LEASE


_NOTHING_DONE = "nothing was locked or changed"
_STOP = "stop working on the resource"
_WHO_HAS_IT = "`lockctl holder RESOURCE` says who has it"


class ForApps(NamedTuple):
    """Its row of errors.md: what the word means, what an app does about it, and what follows it."""

    meaning: str
    to_do: str
    then: str = "…"


class ErrorWord(StrEnum):
    """The word, its kind, what it answers, what apps are told of it, and for operators: what to do next, and
    what can be relied upon meanwhile."""

    kind: Kind
    of: Of
    for_apps: ForApps
    then: str
    safe: str

    def __new__(
        cls, word: str, kind: Kind, of: Of, for_apps: ForApps, then: str, safe: str = _NOTHING_DONE
    ) -> "ErrorWord":
        self = str.__new__(cls, word)
        self._value_ = word
        self.kind, self.of, self.for_apps, self.then, self.safe = kind, of, for_apps, then, safe
        return self

    TAKEN = (
        "TAKEN", Kind.CONTENDED, Of.LOCK,
        ForApps("another holds it, and there was no `WAIT`", "try again, or give `WAIT`", "retry-after=ms …"),
        f"wait for it with --wait 30s; {_WHO_HAS_IT}",
    )  # fmt: skip
    NOQUORUM = (
        "NOQUORUM", Kind.UNAVAILABLE, Of.BOTH,
        ForApps(
            "too few masters have a vote, or answered in time; with `WAIT` it is tried again until that "
            "ends (the first try has its `timeouts.master_ms`, however short the `WAIT`). To `EXTEND` also "
            "when the lease was put back on masters by the agent that granted it: only that one extends it",
            "an outage: `lockctl doctor`; for what was put back: extend it on the host that granted it, else "
            "stop by its deadline",
            "m1=reason …",
        ),
        "`lockctl masters` says why each master has no vote, `lockctl doctor` what to do about it",
        "nobody on this host is granted a lock now; what is held ends at its deadline at the latest",
    )  # fmt: skip
    TIMEOUT = (
        "TIMEOUT", Kind.CONTENDED, Of.LOCK,
        ForApps(
            "`WAIT` ran out while another held it; or several tried for it at the same moment again and "
            "again, and none of them got it (without `WAIT`: for `timeouts.master_ms`)",
            "as above",
        ),
        f"wait longer; {_WHO_HAS_IT}",
    )  # fmt: skip
    NOTHELD = (
        "NOTHELD", Kind.NOT_HELD, Of.BOTH,
        ForApps(
            "no such lease: it ended, or the token is wrong. To a `LOCK … TOKEN`: that token was unlocked, "
            "before it was granted or after",
            f"{_STOP}; each request wants a token of its own",
        ),
        _WHO_HAS_IT, "nothing was changed",
    )  # fmt: skip
    EXPIRED = (
        "EXPIRED", Kind.LOST, Of.LEASE,
        ForApps("the lease was lost, and why", _STOP),
        "check what was done under it: another may have had the resource meanwhile",
        "whatever was left of the lease was given back",
    )  # fmt: skip
    DENIED = (
        "DENIED", Kind.FORBIDDEN, Of.BOTH,
        ForApps("the class's policy, or a command for operators", "ask the operator"),
        "do it as a user who may, or have the configuration changed",
    )  # fmt: skip
    LIMIT = (
        "LIMIT", Kind.FORBIDDEN, Of.BOTH,
        ForApps("a limit of the agent (see the configuration)", "the operator may raise it", "which …"),
        "hold or wait for less at a time, or have that limit raised",
    )  # fmt: skip
    DRAINING = (
        "DRAINING", Kind.STOPPING, Of.LOCK,
        ForApps("the agent is stopping", "try again in a moment"),
        "try again when the agent is back, in a moment",
    )  # fmt: skip
    CLOCK = (
        "CLOCK", Kind.UNAVAILABLE, Of.BOTH,
        ForApps(
            "enough masters are up, but their clocks or this host's can't be trusted now (set, slewed too "
            "fast, or this host stood still); what is only a doubt was tried again first, for "
            "`timeouts.master_ms` or the `WAIT`",
            "an outage: `lockctl masters`",
        ),
        "look at the clocks of this host and of the masters': `lockctl masters`, `chronyc tracking`",
    )  # fmt: skip
    ERR = (
        "ERR", Kind.WRONG, Of.LOCK,
        ForApps("bad input; the text says what would be right", "mend the call"),
        "put that right and try again", "nothing was done",
    )  # fmt: skip

    @classmethod
    def named(cls, word: str) -> "ErrorWord":
        """What another word that an agent may send is taken for: the request was wrong."""
        return next((one for one in cls if one == word), cls.ERR)

    @classmethod
    def answering(cls, of: Of, *kinds: Kind) -> tuple["ErrorWord", ...]:
        """Those of an answer, of these kinds or of all."""
        return tuple(word for word in cls if of in word.of and (not kinds or word.kind in kinds))
