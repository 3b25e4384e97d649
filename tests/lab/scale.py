"""How long plays take with so many app hosts: real hosts, with systemd and an agent each.

    sudo .venv-lab/bin/python -m tests.lab scale 5 50

For each number the inventory has so many: site.yml brings agents to those that have none yet, and is run
again; then agents are restarted, and upgraded to another version; then one more is added and removed. As
users have it, unless `mitogen`. Prints each duration as it is known.

All hosts share this machine's processors. Agents take no lock of their own here, and Prometheus reads them
less often; but each of them still looks at all masters every second, so two hundred idle agents are 1.4
processors. With two, site.yml took an hour then, and agents that were restarted did not get ready. Mitogen
keeps eight interpreters on each host while a play runs, which is 130 MiB of memory for each host besides 70
for what runs there: a hundred hosts need 20 GiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

from tests.lab import inventory
from tests.lab.lab import Lab, crowd
from tests.lab.plays import Played, play

LIMIT_S = 4 * 3600
THIN = {"lockd_settings": {"canary_ms": 0}, "lockd_prometheus_scrape_interval_s": 30}
COLUMNS = ("hosts", "site.yml", "again", "rolling_restart", "upgrade_lockd", "add_apps", "remove_app")


def measure(lab: Lab, sizes: Sequence[int], *, mitogen: bool) -> None:
    """Raises AssertionError, with what it printed, when a play fails. The lab has one more host than the
    largest of sizes."""
    print("  ".join(COLUMNS), flush=True)
    for size in sorted(sizes):
        write_inventory(lab, size)
        took = (f"{played.took_s:.0f} s" for played in plays(lab, size, mitogen))
        for column, cell in zip(COLUMNS, chain([str(size)], took), strict=True):
            print(cell.rjust(len(column)), end="  ", flush=True)
        print(flush=True)


def plays(lab: Lab, size: int, mitogen: bool) -> Iterator[Played]:
    run = partial(_run, lab, mitogen)
    yield run("site.yml")
    yield run("site.yml")
    yield run("rolling_restart.yml", "--tags", "agents")
    (lab.source / f"lockd/of_{size}.py").write_text(f'"""Another version, for {size} hosts."""\n')
    yield run("upgrade_lockd.yml")
    write_inventory(lab, size + 1)
    newest = f"w{size + 1}"
    yield run("add_apps.yml", "-e", f"apps={newest}")
    yield run("remove_app.yml", "-e", f"app={newest}")


def _run(lab: Lab, mitogen: bool, playbook: str, *words: str) -> Played:
    return play(lab, playbook, *words, "-f", "20", as_users_do=not mitogen, within_s=LIMIT_S).must_work()


def write_inventory(lab: Lab, size: int) -> None:
    inventory.write_document(lab.folder / "inventory", inventory.document(lab, THIN, crowd(size)))
