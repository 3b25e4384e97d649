"""How files with secrets are read and written, on the controller: encrypted by ansible-vault where the others
are, whole or not at all, and never readable by others."""

from __future__ import annotations

import os
from pathlib import Path

MARK = b"$ANSIBLE_VAULT;"


class SecretFiles:
    """secrets: vault ids and passwords, [[id, password], ...], the first of which new files are encrypted
    with. None: they are written as they are."""

    def __init__(self, secrets: list[list[str]]) -> None:
        self._secrets = secrets

    def read(self, path: Path) -> bytes:
        """Raises ValueError: it is encrypted, and none of the passwords opens it."""
        content = path.read_bytes()
        if not content.startswith(MARK):
            return content
        from ansible.errors import AnsibleError

        try:
            opened: bytes = self._vault().decrypt(content)
        except AnsibleError as error:
            raise ValueError(f"no vault password of this run decrypts it: {error}") from None
        return opened

    def write(self, path: Path, content: bytes) -> None:
        """A secret."""
        if self._secrets:
            content = self._vault().encrypt(content, vault_id=self._label())
        write_whole(path, content)

    def _label(self) -> str | None:
        """The id 'default' is written by leaving it out, as ansible-vault does."""
        label = self._secrets[0][0]
        return None if label == "default" else label

    def _vault(self):
        from ansible.parsing.vault import VaultLib, VaultSecret

        return VaultLib(secrets=[(label, VaultSecret(text.encode())) for label, text in self._secrets])


def write_whole(path: Path, content: bytes) -> None:
    """Half a password would be refused for ever."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    half = path.with_name(f".{path.name}.new")
    half.unlink(missing_ok=True)
    with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    half.rename(path)
