"""A cluster without TLS gets it while apps lock: three runs of site.yml, and nobody notices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import inventory
from tests.lab.conftest import WITHOUT_TLS, MakeLab
from tests.lab.lab import APPS, MASTERS, Lab
from tests.lab.load import at_work
from tests.lab.plays import play
from tests.lab.waiting import PATIENCE_S

PLAIN, TLS = 6379, 6380
STEPS = (
    {"lockd_tls": False, "lockd_master_tls_port": TLS},
    {"lockd_tls": True, "lockd_master_port": TLS, "lockd_master_plain_port": PLAIN},
    {"lockd_tls": True, "lockd_master_port": TLS},
)


@pytest.fixture(scope="module")
def plain(make_lab: MakeLab) -> Iterator[Lab]:
    """A cluster of its own, without TLS."""
    with make_lab(Lab(WITHOUT_TLS)) as lab:
        inventory.write(lab, {"lockd_tls": False})
        play(lab, "site.yml").must_work()
        yield lab


def test_tls_comes_to_a_cluster_that_has_none_and_nobody_notices(plain: Lab) -> None:
    inventory.write(plain, {"lockd_tls": True})
    play(plain, "site.yml").must_stop_with("TLS", "comes in three steps", "Nothing was changed")
    for number, settings in enumerate(STEPS, 1):
        inventory.write(plain, settings)
        with at_work(plain, f"site.yml, step {number} of 3 towards TLS") as work:
            play(plain, "site.yml").must_work()
        work.must_be_flawless()
        assert play(plain, "site.yml").must_work().changed_hosts == []
    for host in APPS:
        config = plain.host(host).run("cat", "/etc/lockd/lockd.yml")
        assert "ca_file" in config
        assert f":{TLS}" in config
        assert f":{PLAIN}" not in config
    for host in MASTERS:
        listening = plain.host(host).run("ss", "--no-header", "-tln")
        assert f":{TLS} " in listening
        assert f":{PLAIN} " not in listening


def test_who_connects_needs_no_certificate_where_that_is_said(plain: Lab) -> None:
    without = "import ssl, socket; t = ssl.create_default_context(cafile='/etc/lockd/ca.pem'); " + (
        f"s = socket.create_connection(('{MASTERS['m1']}', {TLS}), {PATIENCE_S}); "
        "s = t.wrap_socket(s, server_hostname='m1'); "
        "s.sendall(b'PING\\r\\n'); print(s.recv(100))"
    )
    assert "NOAUTH" not in plain.host("a1").run("sh", "-c", f'python3 -c "{without}" 2>&1 || true')
    inventory.write(plain, {**STEPS[-1], "lockd_redis_master_tls_clients": False})
    play(plain, "site.yml").must_work()
    assert "NOAUTH" in plain.host("a1").run("python3", "-c", without)
