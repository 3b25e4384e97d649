"""What a run of the lab's tests has measured, for the end of its output: runs of site.yml, and what apps
noticed of each thing that was done to the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Report:
    """Rows in the order in which they were measured."""

    runs: list[tuple[str, float, str]] = field(default_factory=list)
    works: list[tuple[str, float, str]] = field(default_factory=list)
    holds: list[tuple[str, int, int]] = field(default_factory=list)

    def ran(self, what: str, took_s: float, recap: str) -> None:
        """A run of a playbook that is to be shown with its recap."""
        self.runs.append((what, took_s, recap))

    def worked(self, what: str, took_s: float, summary: str) -> None:
        """Apps were at work while this was done."""
        self.works.append((what, took_s, summary))

    def held(self, what: str, held: int, ended: int) -> None:
        """So many locks were held while this was done, and so many of them ended by it."""
        self.holds.append((what, held, ended))

    def lines(self) -> list[str]:
        lines = [f"{what}: {took_s:.0f} s\n{recap}" for what, took_s, recap in self.runs]
        if self.works:
            width = max(len(what) for what, _, _ in self.works)
            lines += ["while an app on each app host took and released locks all the time:"]
            lines += [f"  {what:{width}}  {took_s:4.0f} s  {summary}" for what, took_s, summary in self.works]
        lines += [f"held during {what}: {held} locks, {ended} ended" for what, held, ended in self.holds]
        return lines


REPORT = Report()
