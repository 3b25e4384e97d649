"""Where a lease was not all the time."""

from lockd.core.ballots.ballot import bits
from lockd.core.validity import NEVER_NS


class Gone:
    """The masters that didn't have a lease all the time since it was last proven, as bits; `back`: those of
    them where it was put back. One value for all extensions of a lease in flight: what one of them finds gone
    must not count for another that was sent behind it.

    A put-back lands when it lands, also after later proofs, and what it lands on may have been another's just
    before. So where it was put back it counts for nothing until its being there was heard of before the last
    proof was asked for. `unsure`: those that are among the others only for that.
    """

    __slots__ = ("_put_on", "back", "mask", "unsure")

    def __init__(self) -> None:
        self.mask = 0
        self.back = 0
        self.unsure = 0
        self._put_on: dict[int, tuple[int, int]] | None = None
        """By master: when the last put-back was sent there, and when it was first heard that it is there.
        None: nothing was, as is usual."""

    def is_put_on(self, masters: int, now_ns: int) -> None:
        self.unsure |= masters & ~self.mask
        self.mask |= masters
        if self._put_on is None:
            self._put_on = {}
        for master in bits(masters):
            self._put_on[master] = now_ns, NEVER_NS

    def is_there(self, master: int, asked_ns: int, now_ns: int) -> None:
        """As it says when asked then."""
        if self._put_on is None or master not in self._put_on:
            return
        sent_ns, heard_ns = self._put_on[master]
        if asked_ns >= sent_ns:
            self._put_on[master] = sent_ns, min(heard_ns, now_ns)

    def add(self, bit: int) -> None:
        self.mask |= bit
        self.unsure &= ~bit

    def after_proof(self, t1_ns: int) -> "Gone":
        """What begins with a proof that was asked for then."""
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
