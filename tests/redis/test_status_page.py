"""The status page of a real agent, as curl and a real browser see it."""

from __future__ import annotations

import os
import threading
import urllib.request
from pathlib import Path

import redis

from lockd.config.current import Current
from lockd.config.model import CANARY
from lockd.http import server as http_server
from lockd.http.status_page import CLASS_PATHS, REFRESH_S
from lockd.metrics.collector import Metrics
from tests.harness.cluster import Cluster, MakeCluster
from tests.harness.configs import a_config
from tests.harness.waiting import PATIENCE_S, eventually
from tests.redis.browser import find_chromium, visit
from tests.redis.module_cluster import module_cluster

TTL_MS = 60_000
HOSTILE = b"<script>document.title='taken over'</script>"


def seen(cluster: Cluster, *words: str) -> str:
    """The page once it has all these words; it is made anew once a second."""

    def page_with() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{cluster.metrics_port}/", timeout=PATIENCE_S) as reply:
            page = str(reply.read().decode())
        missing = [word for word in words if word not in page]
        assert missing == []
        return page

    return eventually(page_with, f"the page shows {words}")


cluster = module_cluster(3, classes=[{"name": "invoices", "match": "invoice:*"}])


def test_the_port_shows_what_is_held_by_class_and_no_name_of_a_resource_nor_who_holds_it(
    cluster: Cluster,
) -> None:
    """Any local user, and whoever a firewall lets in, reads the port; names are had over the socket."""
    client, waiter = cluster.client(protocol=3), cluster.client()
    granted = client.execute_command("LOCK", "invoice:secret-42", TTL_MS)
    detached = client.execute_command("LOCK", "backup-of-acme", TTL_MS, "DETACHED")
    waiting = threading.Thread(
        target=waiter.execute_command, args=("LOCK", "invoice:secret-42", TTL_MS, "WAIT", TTL_MS)
    )
    waiting.start()
    counted = '<td>invoices</td><td class="n">1</td><td class="n">1</td>'
    addresses = [master.address for master in cluster.masters]
    pages = [seen(cluster, "2 held, 1 waiting", "Locks are available", "Locks are safe", counted, *addresses)]
    for path, accept in (("metrics", "*/*"), ("metrics", "application/openmetrics-text"), ("readyz", "*/*")):
        request = urllib.request.Request(f"http://127.0.0.1:{cluster.metrics_port}/{path}")
        request.add_header("Accept", accept)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            pages.append(reply.read().decode())
    assert client.execute_command("INFO", "classes")["class_invoices"]["leases"] == 1
    assert "class_invoices" not in client.execute_command("INFO", "all")
    client.execute_command("UNLOCK", "backup-of-acme", detached["token"])
    client.close()
    waiting.join()
    waiter.close()
    assert f'http-equiv="refresh" content="{REFRESH_S}"' in pages[0]
    for word in ("secret-42", "acme", granted["token"], f">{os.getpid()}<"):
        assert [page for page in pages if word in page] == []


def test_the_canary_calls_an_outage_an_outage_and_sings_again_after_it(make_cluster: MakeCluster) -> None:
    """Masters are up and refuse every lock, full, say: only when they are asked for one does that show."""
    cluster = make_cluster(3, canary_ms=50)

    def sung(outcome: str) -> float:
        return cluster.metric("lockd_canary_seconds_count", outcome=outcome)

    def silences() -> int:
        """How often it said that it fell silent, less how often that it sings again."""
        return cluster.log_text().count("event=canary_failed") - cluster.log_text().count("canary_works")

    eventually(lambda: sung("granted") >= 3)
    grants = [cluster.metric("lockd_grants_total", **{"class": name}) for name in (CANARY, "other")]
    assert (grants[0] >= 3, grants[1]) == (True, 0)
    masters = [redis.Redis(host="127.0.0.1", port=master.port) for master in cluster.masters[:2]]
    for master in masters:
        master.config_set("maxmemory", "1")
    seen(cluster, "1 of 3 masters", "it refuses LOCK: OOM", "<title>BAD: ")
    eventually(lambda: sung("unavailable") >= 3)
    assert sung("contended") == 0
    eventually(lambda: silences() == 1, what="it says so once, however often it fails")
    info = cluster.client(protocol=3).execute_command("INFO", "agent")
    assert (info["canary_failures"] >= 2, info["canary_trouble"]) == (True, "NOQUORUM")
    for master in masters:
        master.config_set("maxmemory", "0")
        master.close()
    seen(cluster, "Locks are available: all 3 masters have a vote.")
    eventually(lambda: silences() == 0, what="it says that it works again")


# In a browser


def test_a_browser_shows_it_without_complaint(cluster: Cluster, tmp_path: Path) -> None:
    find_chromium()
    document, complaints = visit(f"http://127.0.0.1:{cluster.metrics_port}/", tmp_path / "home")
    assert complaints == []
    assert "<title>GOOD: lockd on " in document


def test_every_order_of_the_classes_has_a_page_that_a_browser_shows(cluster: Cluster, tmp_path: Path) -> None:
    find_chromium()
    port = cluster.metrics_port
    for path in CLASS_PATHS:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as reply:
            assert "<td>invoices</td>" in reply.read().decode()
    document, complaints = visit(f"http://127.0.0.1:{port}/classes/held", tmp_path / "home")
    assert complaints == []
    assert '<th class="n by">' in document


def test_a_browser_refuses_whatever_script_would_get_into_it(tmp_path: Path) -> None:
    """So that a mistake in escaping would still be none: the page's headers over a page with a script."""
    find_chromium()
    evil = b"<!DOCTYPE html><title>as it was</title>" + HOSTILE + b"<style>p {color: red}</style>"
    server = http_server.start(
        "127.0.0.1:0",
        Metrics(Current(a_config())),
        lambda: True,
        lambda: (True, ""),
        status={"/": lambda: evil},
    )
    document, complaints = visit(f"http://127.0.0.1:{server.port}/", tmp_path / "home")
    server.stop()
    assert "<title>as it was</title>" in document
    assert len([line for line in complaints if "Content Security Policy" in line]) == 2  # script and style
