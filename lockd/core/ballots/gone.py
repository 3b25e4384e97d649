"""The masters where a lease was not all the time."""

from lockd.core.ballots.ballot import bits
from lockd.core.validity import NEVER_NS


class Gone:
    """The masters that didn't have a lease all the time since it was last proven, as bits. `back`: those of
    them where it was put back. It is a value that is never changed: extensions of one lease may be in flight
    together, and what one of them finds gone must not count for another that was sent after it.

    A put-back may land late, even after later proofs, and another may have had the resource there just
    before. So a master where the lease was put back does not count until the lease was seen there before the
    last proof was asked for. `unsure`: the masters that are among the others only for that reason.
    """

    __slots__ = ("_put_on", "back", "mask", "unsure")

    def __init__(self) -> None:
        self.mask = 0
        self.back = 0
        self.unsure = 0
        self._put_on: dict[int, tuple[int, int]] | None = None
        """By master: when the last put-back was sent there, and when the lease was first seen there. None:
        nothing was put back, as usual."""

    def is_put_on(self, masters: int, now_ns: int) -> None:
        self.unsure |= masters & ~self.mask
        self.mask |= masters
        if self._put_on is None:
            self._put_on = {}
        for master in bits(masters):
            self._put_on[master] = now_ns, NEVER_NS

    def is_there(self, master: int, asked_ns: int, now_ns: int) -> None:
        """This master shows the lease, when asked at that time."""
        if self._put_on is None or master not in self._put_on:
            return
        sent_ns, heard_ns = self._put_on[master]
        if asked_ns >= sent_ns:
            self._put_on[master] = sent_ns, min(heard_ns, now_ns)

    def add(self, bit: int) -> None:
        self.mask |= bit
        self.unsure &= ~bit

    def after_proof(self, t1_ns: int) -> "Gone":
        """The state after a proof that was asked for at that time."""
        gone = Gone()
        put_on = self._put_on
        if put_on is None:
            return gone
        gone._put_on = put_on
        for master, (_, heard_ns) in list(put_on.items()):
            if heard_ns < t1_ns:
                del put_on[master]
            else:
                gone.mask |= 1 << master
        gone.unsure = gone.mask
        return gone
