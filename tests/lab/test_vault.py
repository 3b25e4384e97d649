"""Secrets that are encrypted with ansible-vault stay so: what a play writes beside them is encrypted, too,
with the same vault id."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from tests.lab import local_ansible

MARK = "$ANSIBLE_VAULT;"
STEPS = {"make": ["main"], "rotate": ["next", "keep_next"], "interrupted": ["next"]}


@pytest.fixture
def controller(tmp_path: Path, ansible: None) -> Controller:
    pytest.importorskip("cryptography", reason="no cryptography here: make test-lab")
    return Controller(tmp_path)


class Controller:
    """What plays do about secrets on the controller, into a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.secrets = folder / "secrets"
        self.apps = ["a1"]
        for name in ("ops", "other"):
            (folder / name).write_text(f"the password of {name}\n")

    def runs(self, what: str, *words: str, vault: str = "", status: int = 0) -> str:
        tasks = [
            {"ansible.builtin.import_role": {"name": "cluster_secrets", "tasks_from": step}}
            for step in STEPS[what]
        ]
        self._write("play.yml", [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}])
        variables = {
            "lockd_secrets_dir": str(self.secrets), "lockd_cluster": "sealed",
            "ansible_python_interpreter": sys.executable, "ansible_connection": "local",
        }  # fmt: skip
        groups = {
            "lock_masters": {"hosts": {"m1": {}}},
            "lock_apps": {"hosts": {name: {} for name in self.apps}},
        }
        self._write("hosts.yml", {"all": {"vars": variables, "children": groups}})
        vault_id = ["--vault-id", f"{vault}@{self._folder / vault}"] if vault else []
        program = ["ansible-playbook", "-i", self._folder / "hosts.yml", self._folder / "play.yml"]
        return self._run([*program, *vault_id, *words], status)

    def encrypts(self, *names: str, vault: str = "ops") -> None:
        vault_id = ["--encrypt-vault-id", vault, "--vault-id", f"{vault}@{self._folder / vault}"]
        self._run(["ansible-vault", "encrypt", *vault_id, *(self.secrets / name for name in names)], 0)

    def opened(self, name: str, vault: str = "ops") -> str:
        vault_id = ["--vault-id", f"{vault}@{self._folder / vault}"]
        return self._run(["ansible-vault", "view", *vault_id, self.secrets / name], 0)

    def label(self, name: str) -> str:
        """Of the vault that it is encrypted with; empty: it is not encrypted."""
        first = (self.secrets / name).read_text().splitlines()[0]
        return first.rpartition(";")[2] if first.startswith(MARK) else ""

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.secrets.rglob("*") if path.is_file())
        return {str(path.relative_to(self.secrets)): path.read_bytes() for path in found}

    def _write(self, name: str, content: object) -> None:
        (self._folder / name).write_text(yaml.safe_dump(content))

    def _run(self, command: list[str | Path], status: int) -> str:
        done = local_ansible.run(*command)
        assert (done.returncode != 0) == bool(status), done.stdout + done.stderr
        return local_ansible.said_by(done)


def test_secrets_that_are_not_encrypted_are_written_as_they_are(controller: Controller) -> None:
    controller.runs("make")
    assert {
        name for name, content in controller.files().items() if content.startswith(MARK.encode())
    } == set()
    assert len((controller.secrets / "admin.password").read_text()) == 41


def test_new_passwords_are_encrypted_with_the_vault_id_of_the_old_ones(controller: Controller) -> None:
    controller.runs("make")
    names = ["admin.password", "operator.password", "loader.password", "agents/a1.password"]
    controller.encrypts(*names)
    before = {name: controller.opened(name) for name in names}
    controller.runs("rotate", vault="ops")
    for name in names:
        assert controller.label(name) == "ops"
        after = controller.opened(name)
        assert len(after.strip()) == 40
        assert after != before[name]
    assert not [name for name in controller.files() if name.endswith(".next")]


def test_passwords_that_an_interrupted_rotation_leaves_are_encrypted(controller: Controller) -> None:
    controller.runs("make")
    controller.encrypts("admin.password")
    controller.runs("interrupted", vault="ops")
    left = [name for name in controller.files() if name.endswith(".next")]
    assert len(left) == 4
    assert {controller.label(name) for name in left} == {"ops"}


def test_what_a_new_host_gets_is_encrypted_and_the_authority_is_read_encrypted(
    controller: Controller,
) -> None:
    controller.runs("make")
    controller.encrypts("admin.password", "ca.password", "tls/ca.key", "tls/m1.key")
    before = controller.files()
    controller.apps.append("a2")
    controller.runs("make", vault="ops")
    assert controller.label("agents/a2.password") == "ops"
    assert controller.label("tls/a2.key") == "ops"
    assert "PRIVATE KEY" in controller.opened("tls/a2.key")
    assert controller.label("tls/a2.pem") == "", "a certificate is no secret"
    assert {name: content for name, content in controller.files().items() if name in before} == before


def test_without_the_vault_password_nothing_is_written_and_it_says_so(controller: Controller) -> None:
    controller.runs("make")
    controller.encrypts("admin.password")
    before = controller.files()
    controller.apps.append("a2")
    for what in ("make", "rotate"):
        for vault in ("", "other"):
            said = controller.runs(what, vault=vault, status=1)
            assert "admin.password is encrypted, and no vault password of this run decrypts it" in said
    assert controller.files() == before


def test_secrets_are_encrypted_from_the_start_where_that_is_asked_for(controller: Controller) -> None:
    wanted = ["-e", "lockd_cluster_secrets_vault=true"]
    said = controller.runs("make", *wanted, status=1)
    assert "this run was given no vault password" in said
    assert controller.files() == {}
    controller.runs("make", *wanted, vault="ops")
    secret = [name for name in controller.files() if not name.endswith(".pem")]
    assert {controller.label(name) for name in secret} == {"ops"}


def test_no_secret_is_shown_when_the_play_is_verbose(controller: Controller) -> None:
    controller.runs("make")
    controller.encrypts("admin.password")
    said = controller.runs("rotate", "-vvv", vault="ops")
    assert "the password of ops" not in said
    assert controller.opened("admin.password").strip() not in said
