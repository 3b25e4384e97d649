"""Apps in a time namespace of their own, whose CLOCK_BOOTTIME isn't the agent's: what they are told of their
lease ends with it, or before."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import pytest

from tests.harness.cluster import Cluster
from tests.harness.waiting import PATIENCE_S
from tests.redis.module_cluster import module_cluster

TTL_S, RENEWED_TTL_S = 30.0, 3.0
BEHIND, AHEAD = -600, 600


def elsewhen(offset_s: int) -> list[str]:
    """A command behind it sees that much more on CLOCK_BOOTTIME."""
    return ["unshare", "--map-root-user", "--time", f"--boottime={offset_s}", "--fork"]


def why_no_time_namespace() -> str:
    """'': one can be made."""
    if not shutil.which("unshare"):
        return "no unshare here"
    shows = [sys.executable, "-c", "import time; print(time.clock_gettime(time.CLOCK_BOOTTIME))"]
    done = subprocess.run(
        [*elsewhen(AHEAD), *shows], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if done.returncode:
        return done.stderr.strip()
    gained_s = float(done.stdout) - time.clock_gettime(time.CLOCK_BOOTTIME)
    return "" if gained_s > AHEAD / 2 else "a time namespace changes nothing here"


pytestmark = pytest.mark.skipif(bool(reason := why_no_time_namespace()), reason=reason or "one can be made")

APP = """
import sys, time
from lockd import Client
with Client(sys.argv[1]) as client:
    lease = client.acquire("blocking", ttl=30)
    print(lease.remaining())
    if lease.lost:
        sys.exit()
    lease.extend(31)
    print(lease.remaining())
    # The agent renews it, and this app hears of that by itself; where the machine stands still, it is lost.
    while True:
        lease = client.acquire("renewed", ttl=3, wait=60)
        end_ns = lease.deadline_ns
        while lease.deadline_ns == end_ns and not lease.lost:
            time.sleep(0.01)
        if (left_s := lease.remaining()) and lease.deadline_ns != end_ns:
            break
    print(left_s)
"""


cluster = module_cluster(3)


def run_elsewhen(offset_s: int, cluster: Cluster) -> list[float]:
    """What is left of its leases there, as the app sees it."""
    command = [*elsewhen(offset_s), sys.executable, "-c", APP, str(cluster.socket)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return [float(shown) for shown in done.stdout.split()] or pytest.fail(done.stderr)


def test_a_client_whose_clock_is_behind_relies_on_its_lease_for_no_longer_than_its_ttl(
    cluster: Cluster,
) -> None:
    granted, extended, renewed = run_elsewhen(BEHIND, cluster)
    assert 0 < granted <= TTL_S
    assert 0 < extended <= TTL_S + 1
    assert 0 < renewed <= RENEWED_TTL_S


def test_a_client_whose_clock_is_ahead_takes_its_lease_for_over_and_never_for_longer(
    cluster: Cluster,
) -> None:
    assert run_elsewhen(AHEAD, cluster) == [0]
