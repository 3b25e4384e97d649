"""What an agent reads of a master when it connects."""

from __future__ import annotations

import ssl
from types import SimpleNamespace
from typing import Any

import pytest

from lockd.masters import handshake


async def facts(info: bytes) -> Any:
    """Of a blank master that says this in INFO."""

    async def ask(*words: Any) -> Any:
        match words[0]:
            case "INFO":
                return b"redis_version:7.0.15\r\nrole:master\r\n" + info
            case "DBSIZE":
                return 0
            case "HGET":
                return None
        return []

    return await handshake.read_facts(ask)


@pytest.mark.parametrize(
    ("info", "ok"),
    [
        (b"aof_last_bgrewrite_status:ok\r\n", True),
        (b"aof_last_bgrewrite_status:err\r\n", False),
        (b"", None),
    ],
)
async def test_a_master_says_whether_its_last_rewrite_of_the_aof_worked(info: bytes, ok: bool | None) -> None:
    assert (await facts(info)).aof_rewrite_ok is ok


def shown(certificate: Any) -> Any:
    return SimpleNamespace(getpeercert=lambda: certificate)


def test_the_end_of_a_certificate_is_read_from_the_connection_that_shows_it() -> None:
    end = "Jan 15 08:00:00 2027 GMT"
    assert handshake.certificate_end_s(shown({"notAfter": end})) == ssl.cert_time_to_seconds(end)


@pytest.mark.parametrize("certificate", [None, {}, {"notAfter": "some day"}, {"subject": ()}])
def test_a_certificate_that_can_not_be_read_costs_no_connection(certificate: Any) -> None:
    assert handshake.certificate_end_s(shown(certificate)) is None


def test_a_connection_without_tls_shows_no_certificate() -> None:
    assert handshake.certificate_end_s(None) is None
