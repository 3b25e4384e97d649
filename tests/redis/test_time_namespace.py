"""Apps in a time namespace of their own, whose CLOCK_BOOTTIME isn't the agent's: what they are told of their
lease ends with it, or before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster, running_cluster

TTL_S = 4.0
BEHIND, AHEAD = -600, 600


def elsewhen(offset_s: int) -> list[str]:
    """A command behind it sees that much more on CLOCK_BOOTTIME."""
    return ["unshare", "--map-root-user", "--time", f"--boottime={offset_s}", "--fork"]


def why_no_time_namespace() -> str:
    """'': one can be made."""
    if not shutil.which("unshare"):
        return "no unshare here"
    shows = [sys.executable, "-c", "import time; print(time.clock_gettime(time.CLOCK_BOOTTIME))"]
    done = subprocess.run([*elsewhen(AHEAD), *shows], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        return done.stderr.strip()
    gained_s = float(done.stdout) - time.clock_gettime(time.CLOCK_BOOTTIME)
    return "" if gained_s > AHEAD / 2 else "a time namespace changes nothing here"


pytestmark = pytest.mark.skipif(bool(reason := why_no_time_namespace()), reason=reason or "one can be made")

BLOCKING = """
import sys
from lockd import Client
with Client(sys.argv[1]) as client:
    lease = client.acquire("blocking", ttl=4)
    print(lease.remaining())
    lease.extend(5)
    print(lease.remaining())
    # The agent renews it, and this app hears of that by itself.
    end_ns = lease.deadline_ns
    while lease.deadline_ns == end_ns and not lease.lost:
        pass
    print(lease.remaining())
"""
ASYNCHRONOUS = """
import asyncio, sys
from lockd.aio import Client
async def main():
    async with Client(sys.argv[1]) as client:
        lease = await client.acquire("asynchronous", ttl=4)
        print(lease.remaining())
        await lease.extend(5)
        print(lease.remaining())
        end_ns = lease.deadline_ns
        while lease.deadline_ns == end_ns and not lease.lost:
            await asyncio.sleep(0.01)
        print(lease.remaining())
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def cluster(server_binary: Path) -> Iterator[Cluster]:
    with running_cluster(3) as running:
        yield running


def run_elsewhen(
    offset_s: int, words: Sequence[str | Path], cluster: Cluster
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*elsewhen(offset_s), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"LOCKD_SOCKET": str(cluster.socket)},
    )


@pytest.mark.parametrize("app", [BLOCKING, ASYNCHRONOUS], ids=["blocking", "asynchronous"])
def test_a_client_whose_clock_is_behind_relies_on_its_lease_for_no_longer_than_its_ttl(
    cluster: Cluster, app: str
) -> None:
    done = run_elsewhen(BEHIND, [sys.executable, "-c", app, cluster.socket], cluster)
    granted, extended, renewed = map(float, done.stdout.split())
    assert 0 < granted <= TTL_S, done
    assert TTL_S - 1 < extended <= TTL_S + 1
    assert 0 < renewed <= TTL_S + 1


@pytest.mark.parametrize("app", [BLOCKING, ASYNCHRONOUS], ids=["blocking", "asynchronous"])
def test_a_client_whose_clock_is_ahead_takes_its_lease_for_over_and_never_for_longer(
    cluster: Cluster, app: str
) -> None:
    done = run_elsewhen(AHEAD, [sys.executable, "-c", app, cluster.socket], cluster)
    assert float(done.stdout.split()[0]) == 0, done


def test_lockctl_run_goes_on_with_its_lease_and_tells_its_command_a_deadline_by_its_own_clock(
    cluster: Cluster,
) -> None:
    shows = (
        "import os, time; now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME); "
        "print((int(os.environ['LOCKD_DEADLINE_NS']) - now_ns) / 1e9); time.sleep(5)"
    )
    lockctl = Path(sys.executable).parent / "lockctl"
    words = [lockctl, "run", "--ttl", "4s", "job", "--", sys.executable, "-c", shows]
    done = run_elsewhen(BEHIND, words, cluster)
    assert done.returncode == 0, done
    assert 0 < float(done.stdout) <= TTL_S
