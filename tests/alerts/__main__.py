"""python -m tests.alerts: make every fault on a whole chain of real programs, and print the alerts it fires.

For each alert the seconds from the fault until Alertmanager had it, in [brackets] when it is inhibited, in
(parentheses) when it came of the mending; and the seconds from the mending until all had gone. What is
critical must have reached the pager, what is a warning the tickets, and the watchdog its own receiver. Every
`for` and every range of the rules is divided by 20 (FACTOR): 3 seconds here are a minute in production.
"""

from __future__ import annotations

import sys

import click

from tests.alerts.chain import ALWAYS, FAULTS, Outcome, ground, suffer
from tests.alerts.monitoring import FACTOR
from tests.harness.prometheus import CHAIN, find

_LINE = "{:<22} {:<70} {:>5} {:>9} {}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", default="", help="Only faults with this in their name.")
def main(only: str) -> None:
    """The table: fault, alerts, seconds."""
    missing = [name for name in CHAIN if find(name) is None]
    if missing:
        raise click.ClickException(
            f"not on this machine: {', '.join(missing)} (make prometheus unpacks them)"
        )
    wrong = 0
    click.echo(f"Rules with every duration divided by {FACTOR}. (…): while it was mended; […]: inhibited.")
    click.echo(_LINE.format("fault", "alerts, after seconds", "pages", "gone after", "").rstrip())
    with ground() as where:
        for fault in FAULTS:
            if only in fault.name:
                outcome = suffer(where, fault)
                wrong += bool(outcome.problems())
                show(outcome)
    click.echo("every fault fired exactly its alerts, and they cleared" if not wrong else f"{wrong} wrong")
    sys.exit(bool(wrong))


def show(outcome: Outcome) -> None:
    names = sorted(outcome.fired_s.keys() - {ALWAYS}, key=outcome.fired_s.__getitem__)
    alerts = ", ".join(_alert_text(outcome, name) for name in names)
    problems = "; ".join(outcome.problems())
    result = f"WRONG: {problems}" if problems else "ok"
    click.echo(_LINE.format(outcome.fault.name, alerts, outcome.pages, f"{outcome.cleared_s:.0f}", result))


def _alert_text(outcome: Outcome, name: str) -> str:
    text = f"{name} {outcome.fired_s[name]:.0f}"
    if name in outcome.inhibited:
        text = f"[{text}]"
    return text if name in outcome.fault.alerts else f"({text})"


if __name__ == "__main__":
    main()
