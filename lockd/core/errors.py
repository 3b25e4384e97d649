"""The words that the errors of apps begin with.

A new one is a line of `ErrorWord`: what is counted, what `lockctl` says and exits with, and what dashboards
ask for is read from there.
"""

from enum import Enum, Flag, StrEnum, auto


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
_WHO_HAS_IT = "`lockctl holder RESOURCE` says who has it"


class ErrorWord(StrEnum):
    """The word, its kind, what it answers, what to do next, and what can be relied upon meanwhile."""

    kind: Kind
    of: Of
    then: str
    safe: str

    def __new__(cls, word: str, kind: Kind, of: Of, then: str, safe: str = _NOTHING_DONE) -> "ErrorWord":
        self = str.__new__(cls, word)
        self._value_ = word
        self.kind, self.of, self.then, self.safe = kind, of, then, safe
        return self

    TAKEN = "TAKEN", Kind.CONTENDED, Of.LOCK, f"wait for it with --wait 30s; {_WHO_HAS_IT}"
    NOQUORUM = (
        "NOQUORUM", Kind.UNAVAILABLE, Of.BOTH,
        "`lockctl masters` says why each master has no vote, `lockctl doctor` what to do about it",
        "nobody on this host is granted a lock now; what is held ends at its deadline at the latest",
    )  # fmt: skip
    TIMEOUT = "TIMEOUT", Kind.CONTENDED, Of.LOCK, f"wait longer; {_WHO_HAS_IT}"
    NOTHELD = "NOTHELD", Kind.NOT_HELD, Of.LEASE, _WHO_HAS_IT, "nothing was changed"
    EXPIRED = (
        "EXPIRED", Kind.LOST, Of.LEASE,
        "check what was done under it: another may have had the resource meanwhile",
        "whatever was left of the lease was given back",
    )  # fmt: skip
    DENIED = "DENIED", Kind.FORBIDDEN, Of.BOTH, "do it as a user who may, or have the configuration changed"
    LIMIT = "LIMIT", Kind.FORBIDDEN, Of.BOTH, "hold or wait for less at a time, or have that limit raised"
    DRAINING = "DRAINING", Kind.STOPPING, Of.LOCK, "try again when the agent is back, in a moment"
    CLOCK = (
        "CLOCK", Kind.UNAVAILABLE, Of.BOTH,
        "look at the clocks of this host and of the masters': `lockctl masters`, `chronyc tracking`",
    )  # fmt: skip
    ERR = "ERR", Kind.WRONG, Of.LOCK, "put that right and try again", "nothing was done"

    @classmethod
    def named(cls, word: str) -> "ErrorWord":
        """What another word that an agent may send is taken for: the request was wrong."""
        return next((one for one in cls if one == word), cls.ERR)

    @classmethod
    def answering(cls, of: Of, *kinds: Kind) -> tuple["ErrorWord", ...]:
        """Those of an answer, of these kinds or of all."""
        return tuple(word for word in cls if of in word.of and (not kinds or word.kind in kinds))
