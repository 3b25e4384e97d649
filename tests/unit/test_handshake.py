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
            case "HMGET":
                return [None, b"7", None, b"no number"]
        return []

    return await handshake.read_facts(ask, [4, 5, 6])


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


async def test_its_counters_are_read_as_far_as_they_are_numbers() -> None:
    assert (await facts(b"")).counters == {4: 7, 5: 0}


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
