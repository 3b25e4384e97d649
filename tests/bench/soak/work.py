"""Those who use the agent, each in a process of its own, until they are told to stop."""

from __future__ import annotations

import random
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.attack.people import Stage, connected
from tests.harness.attackers import unread
from tests.harness.uses import USES, App, Use

_SLOWER = 20
"""How many times as rarely a slow use is done."""
_REMEMBERED, _SCRIPTS = 7_000, 400
"""More than an account has room for while two others have as many."""
_USES_OF_ONE_APP = 500
"""Then it reconnects."""
_BEHIND_S = 1.0
_TOLD = 150
"""Characters of a failure: its end says what was answered."""


@dataclass(slots=True)
class Done:
    """skipped: uses for which there was no time. failures: by the use and what was wrong."""

    uses: int = 0
    skipped: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, object]:
        return {"uses": self.uses, "skipped": self.skipped, "failures": dict(self.failures)}


def in_some_order(operator: bool, seed: int) -> Iterator[Use]:
    """All uses in each round, and each round in another order. Without an end."""
    random_order = random.Random(seed)
    may = [use for use in USES.values() if operator or not use.by_operator]
    round_number = 0
    while True:
        now = [use for use in may if not use.slow or round_number % _SLOWER == 0]
        random_order.shuffle(now)
        yield from now
        round_number += 1


def works(path: Path, rate: float, operator: bool, seed: int, stage: Stage) -> None:
    """So many uses a second. What can't be done in time is not made up for: the rate would not be fixed."""
    done, uses = Done(), in_some_order(operator, seed)
    app = App(path)
    _fills_what_remembers(app)
    stage.ready()
    due_s = time.monotonic()
    while not stage.told_to_stop(max(0.0, due_s - time.monotonic())):
        if time.monotonic() - due_s > _BEHIND_S:
            done.skipped += 1
        else:
            app = _one_more(app, path, next(uses), done)
        due_s += 1 / rate
    app.close()
    stage.give(done)


def _fills_what_remembers(app: App) -> None:
    """Requests that are over, scripts, the counters of fences: at the rate of the uses these would grow for
    hours until they forget, and nothing else could be seen."""
    for number in range(_REMEMBERED):
        name, token = app.name(f"filling {number}"), f"f{number}"
        app.unlock(name, app.lock(name, "TOKEN", token))
    for number in range(_SCRIPTS):
        USES["send a script that is new and is none"].once(app, -number)


def _one_more(app: App, path: Path, use: Use, done: Done) -> App:
    """The app that goes on: a new one when it failed, or after many uses."""
    done.uses += 1
    try:
        use.once(app, done.uses)
    except Exception as failure:
        done.failures[f"{use.name}: …{str(failure)[-_TOLD:]}"] += 1
    else:
        if done.uses % _USES_OF_ONE_APP:
            return app
    app.close()
    return App(path)


def reads_nothing(path: Path, stage: Stage) -> None:
    """Long replies, again and again, on connections that are closed with them."""
    stage.ready()
    while not stage.told_to_stop():
        links = connected(path, 5)
        unread(links)
        stage.told_to_stop(2.0)
        for link in links:
            link.close()
    stage.give(Done())


def reads_metrics(port: int, stage: Stage) -> None:
    done = Done()
    stage.ready()
    while not stage.told_to_stop(10.0):
        done.uses += 1
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
                reply.read()
        except OSError as failure:
            done.failures[f"metrics: {failure!r}"] += 1
    stage.give(done)
