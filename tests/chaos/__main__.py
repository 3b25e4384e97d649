"""`make chaos`: a campaign on real processes, for as long as one likes.

Exit status: 0 nothing was violated, 1 something was, 2 the command line was wrong, 3 the campaign itself
failed, 130 it was told to stop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import uvloop

from lockd.dev.processes import default_server
from tests.chaos.campaign import Outcome, Plan, campaign
from tests.chaos.hosts import NotUp
from tests.chaos.nemesis import KINDS, NEEDS_CLOCKS, NEEDS_DISKS, OF_AGENTS
from tests.chaos.report import as_document, as_text, keep
from tests.chaos.wrong_agent import WRONGS
from tests.harness.clock_shim import c_compiler
from tests.harness.disks import why_no_disks
from tests.harness.masters import ON_DISK, short_folder
from tests.harness.options import above_zero, some

_AGENTS_ALONE = 0.35
"""Of the time."""
_AGENTS_PACE_S = 1.5
"""There are three: they should also be there for a while."""


def main() -> int:
    options = _options()
    kinds = possible(options.only)
    if not kinds:
        print("nothing is left to inject", file=sys.stderr)
        return 2
    violated, documents = False, []
    for plan in _parts(options, kinds):
        print(f"seed {plan.seed}: {', '.join(plan.kinds)}", file=sys.stderr, flush=True)
        with short_folder(ON_DISK) as folder:
            try:
                outcome = uvloop.run(_in_order(folder, plan))
            except asyncio.CancelledError:
                return 130
            except NotUp as failure:
                print(f"the campaign itself failed, after seed {plan.seed}: {failure}", file=sys.stderr)
                return 3
            kept = keep(plan, outcome, folder) if outcome.violations else None
        violated |= bool(outcome.violations)
        documents.append(as_document(plan, outcome, kept))
        if not options.json:
            print(as_text(plan, outcome, kept), flush=True)
    if options.json:
        print(json.dumps(documents, indent=2))
    return 1 if violated else 0


def _parts(options: argparse.Namespace, kinds: Sequence[str]) -> list[Plan]:
    """Everything at once; then, while the masters are well, agents and apps alone: only there it can be said
    what has to be kept."""
    whole = Plan(
        seconds=options.seconds,
        seed=options.seed,
        kinds=tuple(kinds),
        apps=options.apps,
        holders=options.holders,
        wrong=options.wrong,
    )
    of_agents = tuple(kind for kind in kinds if kind in OF_AGENTS)
    alone = replace(whole, kinds=of_agents, pace_s=_AGENTS_PACE_S)
    if len(of_agents) in (0, len(kinds)):
        return [alone if of_agents else whole]
    return [
        replace(whole, seconds=whole.seconds * (1 - _AGENTS_ALONE)),
        replace(alone, seconds=whole.seconds * _AGENTS_ALONE),
    ]


async def _in_order(folder: Path, plan: Plan) -> Outcome:
    """A campaign that undoes all it did, mounts too, when it is told to stop."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await campaign(folder, default_server(), plan, _say)


def possible(wanted: Sequence[str]) -> tuple[str, ...]:
    """What this machine can do of it; what it can't is said."""
    impossible = dict.fromkeys(NEEDS_DISKS, why_no_disks())
    if c_compiler() is None:
        impossible |= dict.fromkeys(NEEDS_CLOCKS, "no C compiler")
    for kind in wanted:
        if impossible.get(kind):
            print(f"left out: {kind}: {impossible[kind]}", file=sys.stderr)
    return tuple(kind for kind in wanted if not impossible.get(kind))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seconds", type=above_zero, default=60.0, help="how long faults are injected")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="of all that is chance")
    parser.add_argument("--only", type=_kinds, default=KINDS, metavar="KIND,…", help=", ".join(KINDS))
    parser.add_argument("--apps", type=some, default=Plan().apps, help="how many apps there are")
    parser.add_argument("--holders", type=some, default=Plan().holders, help="processes on each host")
    parser.add_argument("--wrong", default="", choices=("", *WRONGS), help="agents that are wrong on purpose")
    parser.add_argument("--json", action="store_true", help="print JSON, an object for each part")
    return parser.parse_args()


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(text.split(",")))
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are only {', '.join(KINDS)}")
    return kinds


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
