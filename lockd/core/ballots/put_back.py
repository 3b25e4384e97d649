"""Putting a lease on masters that never had it."""

from collections.abc import Callable

from lockd.core.ballots.ballot import PUT_BACK, YES, Ballot, Ended
from lockd.core.ballots.gone import Gone


class PutBack(Ballot):
    """A lease that was just proven is put on masters that never had it (rule 2): it should be on all of them.

    text: how it reads there, after its nonce. It does not count there until a proof was asked for when it was
    known to be there: `gone` notes that.
    """

    __slots__ = ("age_ms", "gone", "nonce", "resource", "text", "ttl_ms")

    def __init__(
        self,
        resource: bytes,
        nonce: bytes,
        *,
        ttl_ms: int,
        text: bytes,
        age_ms: int,
        gone: Gone,
        t1_ns: int,
        until_ns: int,
        settled: "Callable[[PutBack, int], None]",
    ) -> None:
        super().__init__(t1_ns, until_ns, settled)
        self.resource = resource
        self.nonce = nonce
        self.ttl_ms = ttl_ms
        self.text = text
        self.age_ms = age_ms
        self.gone = gone

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, holder_nonce: bytes = b""
    ) -> None:
        bit = 1 << master
        self.pending &= ~bit
        if status in (PUT_BACK, YES):
            self.gone.is_there(master, self.t1_ns, now_ns)
        if status == PUT_BACK:
            self.gone.add(bit)
            self.gone.back |= bit
        self.weigh(now_ns)

    def weigh(self, now_ns: int) -> None:
        """Called at each answer: if it lands after the lease was lost, it must not stay."""
        self.settled(self, now_ns)
        if not self.pending:
            self.ends(Ended.DONE)
