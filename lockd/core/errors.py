"""The words that the errors of apps begin with.

A new word is an entry of `ErrorWord`. Metrics, `lockctl` with its exit statuses, dashboards, and the table of
docs/reference/errors.md read it from there.
"""

from enum import Enum, Flag, StrEnum, auto
from typing import NamedTuple


class Kind(Enum):
    """What an error means to the app that gets it. Contention is no outage, and an outage no contention."""

    CONTENDED = auto()
    UNAVAILABLE = auto()
    NOT_HELD = auto()
    LOST = auto()
    FORBIDDEN = auto()
    STOPPING = auto()
    WRONG = auto()


class Of(Flag):
    """The answers in which the word occurs: those to LOCK, or those to EXTEND and UNLOCK. Metrics count each
    word of an answer from the start."""

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
    """The word, its kind, and the answers it belongs to; what apps are told of it; and for operators, what to
    do next and what can be relied upon meanwhile."""

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
        ForApps((
            "another holder has it, and there was no `WAIT`"
        ), "try again, or use `WAIT`", "retry-after=ms …"),
        f"wait for it with --wait 30s; {_WHO_HAS_IT}",
    )  # fmt: skip
    NOQUORUM = (
        "NOQUORUM", Kind.UNAVAILABLE, Of.BOTH,
        ForApps(
            "too few masters have a vote, or answered in time. With `WAIT` the agent retries until the "
            "`WAIT` ends. The first try always gets `timeouts.master_ms`. Also a reply to `EXTEND` if the "
            "agent that granted the lease has put it back on masters: then only that agent can extend it. "
            "Also a reply to `UNLOCK` if masters refuse it: the lease is over, and others get it at its TTL "
            "at the latest. Also a reply to `LOCK` if the masters that grant it refuse to extend it",
            "treat it as an outage: run `lockctl doctor`. If the lease was put back, extend it on the host "
            "that granted it, or stop before its deadline",
            "m1=reason …",
        ),
        "`lockctl masters` shows why a master has no vote, and `lockctl doctor` how to fix it",
        "no lock is granted on this host now; leases end at their deadlines at the latest",
    )  # fmt: skip
    TIMEOUT = (
        "TIMEOUT", Kind.CONTENDED, Of.LOCK,
        ForApps(
            "the `WAIT` ended while another holder had it. Or several hosts tried at the same moment, "
            "repeatedly, and none of them got it (without `WAIT`: for `timeouts.master_ms`)",
            "as above",
        ),
        f"wait longer; {_WHO_HAS_IT}",
    )  # fmt: skip
    NOTHELD = (
        "NOTHELD", Kind.NOT_HELD, Of.BOTH,
        ForApps(
            "no such lease: it ended, or the token is wrong. As a reply to `LOCK … TOKEN`: that token was "
            "already unlocked, before or after the grant",
            f"{_STOP}; use a new token for each request",
        ),
        _WHO_HAS_IT, "nothing was changed",
    )  # fmt: skip
    EXPIRED = (
        "EXPIRED", Kind.LOST, Of.LEASE,
        ForApps("the lease was lost, with the reason", _STOP),
        "check what was done under it: another holder may have had the resource meanwhile",
        "the rest of the lease was released",
    )  # fmt: skip
    DENIED = (
        "DENIED", Kind.FORBIDDEN, Of.BOTH,
        ForApps((
            "the policy of the class forbids it, or the command is only for operators"
        ), "ask the operator"),
        "use a permitted user, or have the configuration changed",
    )  # fmt: skip
    LIMIT = (
        "LIMIT", Kind.FORBIDDEN, Of.BOTH,
        ForApps((
            "a limit of the agent was reached (see the configuration). With `bytes`, `files` or `renewals` "
            "the account of this app has its share of what is free: the numbers say how much that is now"
        ), "the operator may raise it", "which …"),
        "hold or wait for fewer locks at a time, or have the limit raised",
    )  # fmt: skip
    DRAINING = (
        "DRAINING", Kind.STOPPING, Of.LOCK,
        ForApps("the agent is stopping", "try again in a moment"),
        "try again in a moment, when the agent is back",
    )  # fmt: skip
    CLOCK = (
        "CLOCK", Kind.UNAVAILABLE, Of.BOTH,
        ForApps(
            "enough masters are up, but their clocks or this host's can't be trusted now: a clock was set "
            "or slewed too fast, or this host was paused. If that was only suspected, the agent retried "
            "first, for `timeouts.master_ms` or the `WAIT`",
            "treat it as an outage: run `lockctl masters`",
        ),
        "check the clocks of this host and of the masters: `lockctl masters`, `chronyc tracking`",
    )  # fmt: skip
    ERR = (
        "ERR", Kind.WRONG, Of.LOCK,
        ForApps("invalid input; the text says what is expected", "fix the call"),
        "correct it and try again", "nothing was done",
    )  # fmt: skip

    @classmethod
    def named(cls, word: str) -> "ErrorWord":
        """The word of that name. A name that is not known here counts as ERR: the request was wrong."""
        return next((one for one in cls if one == word), cls.ERR)

    @classmethod
    def answering(cls, of: Of, *kinds: Kind) -> tuple["ErrorWord", ...]:
        """The words of an answer, of these kinds or of all."""
        return tuple(word for word in cls if of in word.of and (not kinds or word.kind in kinds))
