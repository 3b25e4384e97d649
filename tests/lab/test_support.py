"""What a support bundle shows of a host, and what it blots out."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.lab.lab import REPOSITORY

PLANTED = "pl4nted-Secret/with+signs"


@pytest.fixture(scope="module")
def support() -> Any:
    spec = importlib.util.spec_from_file_location("support", REPOSITORY / "ansible/files/support.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "text",
    [
        f"auth: {{username: lockd, password: {PLANTED}}}",
        f"auth: {{password_file: /etc/lockd/masters.password, password: {PLANTED}}}",
        f"  password: '{PLANTED} and more words of it'",
        f"password:\n  {PLANTED}",
        f"password: >-\n  {PLANTED}",
        f'{{"level": "info", "admin_password": "{PLANTED}"}}',
        f"requirepass {PLANTED}",
        f"masterauth {PLANTED}",
        f"tls-key-file-pass {PLANTED}",
        f"2026-01-01T00:00:00 m1 lockd[7]: event=odd password={PLANTED} why=x",
        f"REDISCLI_AUTH={PLANTED}",
        f"REDIS_PASSWORD={PLANTED}",
        f"Authorization: Bearer {PLANTED}",
        f"api-key = {PLANTED}",
        f"the master is rediss://lockd_exporter:{PLANTED.replace('/', '_')}@10.0.0.1:6379",
        f"redis-cli -a {PLANTED} PING",
        f"redis-cli --pass {PLANTED} PING",
        f"said AUTH lockd {PLANTED}",
        f"user lockd on >{PLANTED} ~lockd:*",
        f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----",
        f"-----BEGIN EC PRIVATE KEY-----\n{PLANTED}",
    ],
)
def test_what_looks_like_a_secret_is_blotted_out(support: Any, text: str) -> None:
    clean = support.without_secrets(f"before\n{text}\n")
    assert PLANTED not in clean
    assert PLANTED.replace("/", "_") not in clean
    assert clean.startswith("before\n")
    assert "(not shown)" in clean


def test_a_hash_of_a_password_is_blotted_out(support: Any) -> None:
    assert "ab12" not in support.without_secrets(f"user lockd on #{'ab12' * 16} ~lockd:*")


@pytest.mark.parametrize(
    "text",
    [
        "auth: {username: lockd, password_file: /etc/lockd/masters.password}",
        "cluster: shop\nmasters:\n  - {name: m1, address: '10.0.0.1:6379'}",
        "aclfile /etc/lockd-master/users.acl",
        "NOAUTH Authentication required",
        "lockd-master.service - Lock master m1 of the cluster shop (Redis)",
    ],
)
def test_what_is_none_is_shown(support: Any, text: str) -> None:
    assert support.without_secrets(text) == text


def test_the_secrets_of_the_host_are_blotted_out_wherever_they_are(support: Any, tmp_path: Path) -> None:
    places = []
    for number, (path, pattern) in enumerate(support.SECRETS):
        name = tmp_path / str(number)
        name.write_text(
            {
                "/etc/lockd/masters.password": "agent0word\n",
                "/etc/lockd/lockd.yml": 'auth: {username: lockd, password: "inline1word"}\n',
                "/etc/lockd/agent.pem": f"-----BEGIN PRIVATE KEY-----\n{'agen' * 8}\n-----END\n",
                "/etc/lockd-master/loader.password": "loader5word\n",
                "/etc/lockd-master/users.acl": f"user lockd on #{'3ac1' * 16} >acl3word ~*\n",
                "/etc/lockd-master/tls/master.key": f"-----BEGIN PRIVATE KEY-----\n{'key4' * 8}\n-----END\n",
            }[path]
        )
        places.append((str(name), pattern))
    secrets = support.secrets_of([*places, (str(tmp_path / "is not there"), r"\S+")])
    words = {"agent0word", "inline1word", "agen" * 8, "3ac1" * 16, "acl3word", "key4" * 8, "loader5word"}
    assert secrets == words
    for word in words:
        assert support.without_secrets(f"somebody wrote {word} here", secrets) == (
            "somebody wrote (not shown) here"
        )
