"""What the agent's deadlines mean on the clock of this process. No I/O.

App and agent share CLOCK_BOOTTIME, so a deadline needs no conversion. But a process in a separate time
namespace (a container that was restored from a checkpoint, `unshare --time`) has another CLOCK_BOOTTIME, and
the agent's deadlines may be minutes off. So the smaller one counts: the deadline, or now plus the validity
that came with it (rule 12). Pushes carry no validity, and may be read late: they are corrected by the largest
difference that was seen.

When an answer was written nobody here knows. So where the clock is behind the agent's, what is read late is
relied on for as much too long: by who was stopped between the two, for as long as that took.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockd.core.validity import NS_PER_MS


class AgentClock:
    """One agent's clock compared with ours, as known from its grants. ahead_ns: how much is taken off its
    deadlines. Within one time namespace it is below a millisecond, since validities are rounded."""

    __slots__ = ("ahead_ns",)

    def __init__(self) -> None:
        self.ahead_ns = 0

    def deadline_ns(self, reply: Mapping[bytes, int], now_ns: int) -> int:
        """The deadline of a lease that was granted or extended just now, from the agent's answer."""
        told_ns: int = reply[b"deadline_ns"]
        ahead_ns = max(self.ahead_ns, told_ns - (now_ns + reply[b"validity_ms"] * NS_PER_MS))
        self.ahead_ns = ahead_ns
        return told_ns - ahead_ns

    def here_ns(self, told_ns: int) -> int:
        """A deadline that comes in a push."""
        return told_ns - self.ahead_ns
