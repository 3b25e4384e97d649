"""What the secrets of a cluster are encrypted with, where they are: for programs that write more of them."""

from __future__ import annotations

from pathlib import Path

from ansible.errors import AnsibleLookupError
from ansible.parsing.vault import AnsibleVaultError, VaultLib, VaultSecretsContext
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = """
name: vault_secrets
short_description: Vault passwords with which the secrets in a folder are encrypted
description:
  - Finds files of a folder that are encrypted with ansible-vault, and which vault password of this run
    decrypts them. Fails if none does.
options:
  _terms:
    description: The folder.
    required: true
  wanted:
    description: Take the first vault password of this run, if nothing is encrypted yet.
    type: bool
    default: false
"""
RETURN = """
_raw:
  description:
    - A list of vault ids and passwords, C([[id, password], ...]). New files are encrypted with the
      first. Empty if nothing is encrypted, and nothing should be.
  type: list
  elements: list
"""

MARK = b"$ANSIBLE_VAULT;"
Secrets = list[tuple[str, object]]


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **options):
        self.set_options(var_options=variables, direct=options)
        given: Secrets = VaultSecretsContext.current().secrets
        path = first_encrypted(Path(terms[0]))
        if path is not None:
            return [opening(path, given)]
        if not self.get_option("wanted"):
            return [[]]
        if not given:
            raise AnsibleLookupError(
                "The secrets should be encrypted, and this run was given no vault password. Give it "
                "--vault-id or --vault-password-file. Nothing was changed"
            )
        return [plain(given)]


def first_encrypted(folder: Path) -> Path | None:
    """The administrator's password before all others: it is the one that is always there."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and is_encrypted(path)]
    return min(found, key=lambda path: path != folder / "admin.password", default=None)


def is_encrypted(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK


def opening(path: Path, given: Secrets) -> list[list[str]]:
    """All that were given; first the one that opens it, under the id that it has there."""
    text = path.read_bytes()
    words = text.splitlines()[0].decode().split(";")
    named = words[3] if len(words) > 3 else "default"
    for one in given:
        try:
            VaultLib(secrets=[one]).decrypt(text)
        except AnsibleVaultError:
            continue
        return [[named, one[1].bytes.decode()], *plain(given)]
    raise AnsibleLookupError(
        f"{path} is encrypted, and no vault password of this run decrypts it. Give it the --vault-id or "
        "--vault-password-file that the file was encrypted with. Nothing was changed"
    )


def plain(given: Secrets) -> list[list[str]]:
    return [[name, secret.bytes.decode()] for name, secret in given]
