"""The masters and their clocks as this agent sees them, looked at during a scrape."""

from __future__ import annotations

from lockd.core.membership import Memory
from lockd.masters.fleet import Fleet
from lockd.metrics.families import Measured, counter, gauge


class FleetView(Measured):
    """The fleet at one instant."""

    def __init__(self, fleet: Fleet, now_ns: int) -> None:
        self._voting = fleet.giving()
        self._clocks = fleet.clocks
        self._slew_ppm = fleet.slewing.ppm
        self._now_ns = now_ns
        self._links = {link.master.name: link for link in fleet.links}
        self._facts = {name: link.facts for name, link in self._links.items()}

    @gauge("Masters that have a vote, and refuse no LOCK, EXTEND or UNLOCK.")
    def masters_voting(self) -> int:
        return self._voting.bit_count()

    @gauge("Whether a master has a vote, and refuses no LOCK, EXTEND or UNLOCK: 1 or 0.", by="master")
    def master_vote(self) -> dict[str, int]:
        return {name: self._voting >> link.index & 1 for name, link in self._links.items()}

    @gauge(
        "Always 1: the state of a master, as this agent sees it. Absent for states that it is not in.",
        by=("master", "state"),
    )
    def master_state(self) -> dict[str, dict[str, int]]:
        return {name: {str(link.state): 1} for name, link in self._links.items()}

    @gauge(
        "Always 1: the address of a master, and the version that it runs (empty until it was asked).",
        by=("master", "address", "version"),
    )
    def master_info(self) -> dict[str, dict[str, dict[str, int]]]:
        return {
            name: {self._links[name].master.address: {known.version if known else "": 1}}
            for name, known in self._facts.items()
        }

    @gauge(
        "The longest TTL that a master accepts, by its identity; absent when it has no identity.", by="master"
    )
    def master_max_ttl_seconds(self) -> dict[str, float]:
        return {
            name: known.identity.max_ttl_ms / 1e3
            for name, known in self._facts.items()
            if known is not None and known.identity is not None
        }

    @gauge("How much memory a master uses, asked every 5 s; absent until it was asked.", by="master")
    def master_memory_used_bytes(self) -> dict[str, int]:
        return {name: memory.used_bytes for name, memory in self._memory().items()}

    @gauge("The maxmemory of a master, 0 if it has none; absent until it was asked.", by="master")
    def master_memory_max_bytes(self) -> dict[str, int]:
        return {name: memory.most_bytes for name, memory in self._memory().items()}

    @counter("Keys that a master has evicted since it was started; absent until it was asked.", by="master")
    def master_evicted_keys(self) -> dict[str, int]:
        return {name: memory.evicted for name, memory in self._memory().items()}

    def _memory(self) -> dict[str, Memory]:
        return {name: known.memory for name, known in self._facts.items() if known is not None}

    @gauge(
        "Whether a master's last rewrite of its AOF worked, 1 or 0; absent until it was asked.", by="master"
    )
    def master_aof_rewrite_ok(self) -> dict[str, int]:
        return {
            name: int(known.aof_rewrite_ok)
            for name, known in self._facts.items()
            if known is not None and known.aof_rewrite_ok is not None
        }

    @gauge(
        "When the certificate ends that a master has shown on the present connection; absent without TLS, "
        "and without a connection.",
        by="master",
    )
    def master_certificate_expiry_timestamp_seconds(self) -> dict[str, float]:
        return {
            name: link.certificate_end_s
            for name, link in self._links.items()
            if link.certificate_end_s is not None
        }

    @gauge(
        "How far a master's clock is ahead of the median of all; absent if it was never read.", by="master"
    )
    def master_clock_offset_seconds(self) -> dict[str, float]:
        offsets_us = {
            name: self._clocks.off_median_us(link.index, self._now_ns) for name, link in self._links.items()
        }
        return {name: us / 1e6 for name, us in offsets_us.items() if us is not None}

    @gauge("Whether a master's votes may rest on its clock: 1 or 0.", by="master")
    def master_clock_trusted(self) -> dict[str, int]:
        return {
            name: int(self._clocks.distrust(link.index, self._now_ns) is None)
            for name, link in self._links.items()
        }

    @counter("Jumps forward of a master's clock that this agent saw.", by="master")
    def master_clock_jumps(self) -> dict[str, int]:
        return {name: self._clocks.watches[link.index].jumps for name, link in self._links.items()}

    @gauge(
        "How fast this host's clock is slewed, compared with CLOCK_MONOTONIC_RAW; below 0: it runs slower.",
    )
    def clock_slew_ppm(self) -> float:
        return self._slew_ppm

    @counter(
        "How often this host stood still, judged by the masters' clocks, as a virtual machine does when it "
        "is paused.",
    )
    def standstills(self) -> int:
        return self._clocks.standstills

    @counter("How long this host stood still in all.")
    def stood_still_seconds(self) -> float:
        return self._clocks.stood_still_ns / 1e9
