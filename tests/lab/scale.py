"""How long plays take with so many app hosts: real hosts, with systemd and an agent each.

    python -m tests.lab scale 5 50 200

For each number the inventory has so many: site.yml brings agents to those that have none yet, and is run
again; then agents are restarted, and upgraded to another version; then one more is added and removed. As
users have it, without Mitogen. Prints a row for each number as it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.lab import inventory
from tests.lab.lab import Lab, crowd
from tests.lab.plays import Played, play

FORMAT = "{:>6} {:>10} {:>10} {:>16} {:>14} {:>9} {:>11}"
HEAD = FORMAT.format(
    "hosts", "site.yml", "again", "rolling_restart", "upgrade_lockd", "add_apps", "remove_app"
)


def measure(lab: Lab, sizes: Sequence[int]) -> None:
    """Raises AssertionError, with what it printed, when a play fails. The lab has one more host than the
    largest of sizes."""
    print(HEAD, flush=True)
    for size in sorted(sizes):
        write_inventory(lab, size)
        print(FORMAT.format(size, *(f"{played.took_s:.0f} s" for played in plays(lab, size))), flush=True)


def plays(lab: Lab, size: int) -> Iterator[Played]:
    yield run(lab, "site.yml")
    yield run(lab, "site.yml")
    yield run(lab, "rolling_restart.yml", "--tags", "agents")
    (lab.source / f"lockd/of_{size}.py").write_text(f'"""Another version, for {size} hosts."""\n')
    yield run(lab, "upgrade_lockd.yml")
    write_inventory(lab, size + 1)
    newest = f"w{size + 1}"
    yield run(lab, "add_apps.yml", "-e", f"apps={newest}")
    yield run(lab, "remove_app.yml", "-e", f"app={newest}")


def run(lab: Lab, playbook: str, *words: str) -> Played:
    return play(lab, playbook, *words, "-f", "20", as_users_do=True).must_work()


def write_inventory(lab: Lab, size: int) -> None:
    inventory.write_document(lab.folder / "inventory", inventory.document(lab, {}, crowd(size)))
