"""The certificates of masters, as cluster_secrets makes them on the controller: renewed in time, by the same
authority for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.lab.inventory import ANSIBLE

PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.include_role": {"name": "cluster_secrets", "tasks_from": "tls"}}],
    }
]


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., str]:
    """What any run of site.yml does about certificates, into tmp_path/tls; `words` are more for Ansible."""
    pytest.importorskip("ansible", reason="no Ansible here: make test-lab")
    pytest.importorskip("cryptography", reason="no cryptography here: make test-lab")
    (tmp_path / "play.yml").write_text(yaml.safe_dump(PLAY))
    variables = {
        "cluster_secrets_dir": str(tmp_path), "lockd_cluster": "certified",
        "ansible_python_interpreter": sys.executable,
    }  # fmt: skip
    masters = {"hosts": {"m1": {"ansible_host": "10.77.0.11"}, "m2": {"ansible_host": "10.77.0.12"}}}
    (tmp_path / "hosts.yml").write_text(
        yaml.safe_dump({"all": {"vars": variables, "children": {"lock_masters": masters}}})
    )

    environment = {**os.environ, "ANSIBLE_CONFIG": f"{ANSIBLE}/ansible.cfg", "ANSIBLE_NOCOLOR": "1"}

    def run(*words: str, status: int = 0) -> str:
        program = Path(sys.executable).with_name("ansible-playbook")
        done = subprocess.run(
            [program, "-i", tmp_path / "hosts.yml", tmp_path / "play.yml", *words],
            cwd=ANSIBLE, env=environment, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        assert (done.returncode != 0) == bool(status), done.stdout + done.stderr
        return done.stdout

    return run


def files(folder: Path, pattern: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "tls").glob(pattern)}


def days_left(certificate: Path, days: int) -> bool:
    """Whether it is still good in so many days."""
    look = ["openssl", "x509", "-noout", "-checkend", str(days * 86_400), "-in", str(certificate)]
    return subprocess.run(look, capture_output=True, check=False, timeout=60).returncode == 0


def believed(certificate: Path, authority: Path) -> bool:
    look = ["openssl", "verify", "-CAfile", str(authority), str(certificate)]
    return subprocess.run(look, capture_output=True, check=False, timeout=60).returncode == 0


def test_certificates_that_are_good_for_long_stay(site: Callable[..., str], tmp_path: Path) -> None:
    site()
    before = files(tmp_path, "*")
    assert set(before) == {f"{name}.{end}" for name in ("ca", "m1", "m2") for end in ("key", "csr", "pem")}
    assert " changed=0 " in site()
    assert files(tmp_path, "*") == before


def test_one_that_ends_within_sixty_days_is_renewed_with_its_key(
    site: Callable[..., str], tmp_path: Path
) -> None:
    site("-e", "cluster_secrets_certificate_days=59")
    short, keys = files(tmp_path, "*.pem"), files(tmp_path, "*.key")
    site()
    renewed = files(tmp_path, "*.pem")
    assert {name for name in short if renewed[name] != short[name]} == {"m1.pem", "m2.pem"}
    assert files(tmp_path, "*.key") == keys
    assert days_left(tmp_path / "tls/m1.pem", 800)


def test_a_renewed_authority_and_the_one_before_believe_the_same_masters(
    site: Callable[..., str], tmp_path: Path
) -> None:
    site("-e", "cluster_secrets_ca_days=59")
    before = tmp_path / "before.pem"
    before.write_bytes((tmp_path / "tls/ca.pem").read_bytes())
    (tmp_path / "m1-before.pem").write_bytes((tmp_path / "tls/m1.pem").read_bytes())
    (tmp_path / "tls/m2.pem").unlink()
    site()
    assert days_left(tmp_path / "tls/ca.pem", 3000)
    assert not days_left(before, 60)
    for authority in (before, tmp_path / "tls/ca.pem"):
        assert believed(tmp_path / "m1-before.pem", authority)
        assert believed(tmp_path / "tls/m2.pem", authority)


def test_a_key_that_cannot_be_read_is_never_made_anew(site: Callable[..., str], tmp_path: Path) -> None:
    site()
    (tmp_path / "tls/ca.key").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    before = files(tmp_path, "*")
    assert "Unable to read the key" in site(status=2)
    assert files(tmp_path, "*") == before
