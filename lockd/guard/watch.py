"""`watch`: looks at the clocks, and notes what Redis writes, while it runs."""

from __future__ import annotations

import threading
import time

from .clock_steps import count_backward_step, revoke, rise_since_start_ns
from .clocks import ClockAlarm, WallClock, read_offset, read_slewing
from .data import awaits_data, mark_data
from .delay import NS_PER_S, quarantine_ns
from .guard import METRICS_EVERY_NS, Guard
from .printable import said

MARK_EVERY_S = 5.0
# While there is no data yet: a crash before the first note leaves only "Redis has begun".
MARK_SOON_S = 0.5
SAMPLE_EVERY_S = 0.1
KILL_AGAIN_S = 0.02


class StepWatch:
    """Looks at the clocks ten times a second, and whenever it is set."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._host = guard.host
        first = read_offset(self._host)
        # A lease may be as long as the guard's delay says.
        longest_ns = quarantine_ns(guard.config.max_ttl_ms)
        self._clock = WallClock(first, guard.config.clock_step_ms, longest_ns)
        # It takes 1,000 ppm for drift: faster slewing adds up to a step, and ends leases as early.
        self._slewing = WallClock(read_slewing(self._host), guard.config.clock_step_ms, longest_ns)
        self._kill_of: int | None = None
        self._told_ns = self._written_ns = -METRICS_EVERY_NS

    def run(self, alarm: ClockAlarm) -> None:
        """Watch until Interrupted."""
        self.begin()
        # In a separate thread, since it waits for the disk: a step of the clock must not wait with it.
        threading.Thread(target=self._mark_for_ever, daemon=True).start()
        self._host.tell_systemd("READY=1\nSTATUS=watching the wall clock")
        while True:
            alarm.wait(KILL_AGAIN_S if self.killing else SAMPLE_EVERY_S)
            self.look()

    def _mark_for_ever(self) -> None:
        failed = ""
        while True:
            try:
                why = mark_data(self._guard)
                why = f"it is not what Redis wrote: {why}" if why else ""
            except OSError as error:
                why = said(error)
            if why and why != failed:
                self._host.log("error", "no_mark", why=why)
            failed = why
            time.sleep(MARK_SOON_S if awaits_data(self._guard) else MARK_EVERY_S)

    def begin(self) -> None:
        """A step may have come while nobody watched."""
        self._guard.folder.prepare()
        rise_ns = rise_since_start_ns(self._guard)
        if rise_ns:
            self._forward(rise_ns)

    @property
    def killing(self) -> bool:
        """True while a Redis that has lost its permit may still run, or be about to."""
        return self._kill_of is not None

    def look(self) -> None:
        """One look at the clock, and what follows from it."""
        step_ns = self._clock.look(read_offset(self._host))
        slewed_ns = self._slewing.look(read_slewing(self._host))
        if slewed_ns > 0:
            step_ns = max(step_ns, slewed_ns)
        if step_ns > 0:
            self._forward(step_ns)
        elif step_ns < 0:
            self._backward(step_ns)
        elif self.killing:
            self._kill_again()
        self._say_alive(self._host.boottime_ns())

    def _say_alive(self, now_ns: int) -> None:
        if now_ns - self._told_ns >= NS_PER_S:
            self._host.tell_systemd("WATCHDOG=1")
            self._told_ns = now_ns
        if now_ns - self._written_ns >= METRICS_EVERY_NS:
            self._guard.write_metrics()
            self._written_ns = now_ns

    def _forward(self, step_ns: int) -> None:
        failures: list[str] = []

        def stop_redis() -> None:
            failures.append(self._host.kill_main_process(self._guard.config.unit))

        revoked = None
        try:
            revoked = revoke(self._guard, step_ns, stop_redis)
        except OSError as error:
            self._host.log("error", "step_not_recorded", why=error)
        killed = "" in failures
        # Killed or not there: with a permit it may be about to start.
        self._kill_of = None if killed else revoked
        self._host.log(
            "error",
            "clock_step",
            forward_s=f"{step_ns / NS_PER_S:.3f}",
            killed="yes" if killed else "no",
            why="" if killed else "; ".join(failures),
        )

    def _kill_again(self) -> None:
        if self._guard.generation() != self._kill_of:
            self._kill_of = None  # that start is over; the next one was weighed after the step
        elif not self._host.kill_main_process(self._guard.config.unit):
            self._kill_of = None
            self._host.log("error", "killed", why="its permit was revoked because of a clock step")

    def _backward(self, step_ns: int) -> None:
        self._host.log("warning", "clock_step", backward_s=f"{-step_ns / NS_PER_S:.3f}")
        try:
            count_backward_step(self._guard)
        except OSError as error:
            self._host.log("error", "step_not_recorded", why=error)
