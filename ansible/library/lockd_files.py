"""The folders and files of a role, by one call: Ansible's own modules take a call for each of them, and calls
are what takes time."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: lockd_files
short_description: Writes the folders and files of a role in one call
description:
  - Creates folders and writes files in the given order, and then removes files that are not listed.
  - A file is replaced atomically, with its owner and mode.
  - A link in the place of a file is replaced, and never followed.
options:
  folders:
    description: The folders that must exist.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Its absolute path, type: path, required: true}
      owner: {description: Its owner, type: str, default: root}
      group: {description: Its group, type: str, default: root}
      mode: {description: Its mode in octal, type: str, default: "0755"}
      follow: {description: Whether a link to a folder is accepted, type: bool, default: true}
  files:
    description: The files and their contents.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Its absolute path, type: path, required: true}
      content: {description: The whole content. Without it the file is left alone, type: str}
      owner: {description: Its owner, type: str, default: root}
      group: {description: Its group, type: str, default: root}
      mode: {description: Its mode in octal, type: str, default: "0644"}
      validate: {description: A command that has to accept the new file at %s before it is used, type: str}
      only_new: {description: Whether an existing file is left as it is, type: bool, default: false}
      secret: {description: Whether logs and diffs hide the content, type: bool, default: false}
  purge:
    description: Folders from which other files are removed.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: The folder, type: path, required: true}
      pattern: {description: Files that match and are not listed are removed, type: str, required: true}
attributes:
  check_mode: {support: full, description: Shows what it would change}
  diff_mode: {support: full, description: Shows differences; of secrets only that they differ}
author: [The founders of lockd]
"""

EXAMPLES = r"""
- name: Write the agent's configuration
  lockd_files:
    folders:
      - path: /etc/lockd
    files:
      - path: /etc/lockd/lockd.yml
        content: "{{ lookup('ansible.builtin.template', 'lockd.yml.j2') }}"
        group: lockd
        mode: "0640"
        validate: lockd check-config %s
"""

RETURN = r"""
changed_paths:
  description: What was created, replaced or removed, or got another owner or mode.
  type: list
  elements: str
  returned: always
"""

ATTRIBUTES = {
    "path": {"type": "path", "required": True},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
}
FOLDER = {
    **ATTRIBUTES,
    "mode": {"type": "str", "default": "0755"},
    "follow": {"type": "bool", "default": True},
}
FILE = {
    **ATTRIBUTES,
    "mode": {"type": "str", "default": "0644"},
    "content": {"type": "str"},
    "validate": {"type": "str"},
    "only_new": {"type": "bool", "default": False},
    "secret": {"type": "bool", "default": False},
}
PURGE = {"path": {"type": "path", "required": True}, "pattern": {"type": "str", "required": True}}


class Refused(Exception):
    """Something can't be made as it was asked for."""


class Quiet(AnsibleModule):
    """Says nothing to the host's log: its arguments are whole files, some of them secret. That a module is
    made with `no_log` doesn't count, as the task's `no_log: false`, which every task has, overrules it."""

    def _log_invocation(self) -> None:
        pass


class Change:
    """What one call changes."""

    def __init__(self, module: AnsibleModule) -> None:
        self._module = module
        self.paths: list[str] = []
        self.differences: list[dict[str, str]] = []

    def folder(self, wanted: dict[str, Any]) -> None:
        path = Path(wanted["path"])
        if path.is_symlink() and not wanted["follow"]:
            raise Refused(f"{path} is a link, and must be a folder")
        if path.exists() and not path.is_dir():
            raise Refused(f"{path} exists, and is not a folder")
        if not path.is_dir():
            self._note(path, "no folder\n", "a folder\n")
            if self._module.check_mode:
                return
            path.mkdir(parents=True)
        self._give(path, wanted)

    def file(self, wanted: dict[str, Any]) -> None:
        path = Path(wanted["path"])
        if wanted["content"] is None or (wanted["only_new"] and path.exists()):
            return
        content = wanted["content"].encode()
        before = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        if before == content:
            self._give(path, wanted)
            return
        if wanted["secret"]:
            self._note(path, "" if before is None else "a secret\n", "another secret\n")
        else:
            self._note(path, _text(before), _text(content))
        self._replace(path, content, wanted)

    def purge(self, folder: Path, pattern: str, written: set[str]) -> None:
        for path in sorted(folder.glob(pattern)):
            if str(path) not in written and (path.is_symlink() or not path.is_dir()):
                self._note(path, "there\n", "")
                if not self._module.check_mode:
                    path.unlink()

    def _replace(self, path: Path, content: bytes, wanted: dict[str, Any]) -> None:
        """Under another name until it is whole, good, nobody else's, and on the disk: a host that loses power
        now has the one before or this one."""
        if self._module.check_mode:
            return  # nor is it validated: what that needs may be made by the same run
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(handle)
            self._validate(path, name, wanted["validate"])
            os.chown(name, *_ids(wanted))
            os.chmod(name, int(wanted["mode"], 8))
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)

    def _validate(self, path: Path, name: str, command: str | None) -> None:
        if not command:
            return
        words = [name if word == "%s" else word for word in shlex.split(command)]
        status, output, errors = self._module.run_command(words)
        if status:
            raise Refused(f"{path} is left as it was, the new one is refused: {(errors or output).strip()}")

    def _give(self, path: Path, wanted: dict[str, Any]) -> None:
        now = path.stat()
        has = now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)
        try:
            wants = *_ids(wanted), int(wanted["mode"], 8)
        except KeyError:
            if not self._module.check_mode:
                raise
            wants = has  # they are made before
        if has == wants:
            return
        self._note(path, _attributes(has), _attributes(wants))
        if not self._module.check_mode:
            os.chown(path, *wants[:2])
            os.chmod(path, wants[2])

    def _note(self, path: Path, before: str, after: str) -> None:
        if str(path) not in self.paths:
            self.paths.append(str(path))
        self.differences.append(
            {"before_header": str(path), "after_header": str(path), "before": before, "after": after}
        )


def main() -> None:
    module = Quiet(
        argument_spec={
            "folders": {"type": "list", "elements": "dict", "default": [], "options": FOLDER},
            "files": {"type": "list", "elements": "dict", "default": [], "options": FILE},
            "purge": {"type": "list", "elements": "dict", "default": [], "options": PURGE},
        },
        supports_check_mode=True,
    )
    for wanted in module.params["files"]:
        if wanted["secret"] and wanted["content"]:
            module.no_log_values.add(wanted["content"])
    change = Change(module)
    failure = ""
    try:
        for wanted in module.params["folders"]:
            change.folder(wanted)
        for wanted in module.params["files"]:
            change.file(wanted)
        written = {wanted["path"] for wanted in module.params["files"]}
        for wanted in module.params["purge"]:
            change.purge(Path(wanted["path"]), wanted["pattern"], written)
    except (Refused, OSError) as error:
        failure = str(error)
    except KeyError as error:
        failure = f"there is no such user or group: {error.args[0]}"
    outcome = {"changed": bool(change.paths), "changed_paths": change.paths, "diff": change.differences}
    if failure:
        module.fail_json(msg=failure, **outcome)
    module.exit_json(**outcome)


def _ids(wanted: dict[str, Any]) -> tuple[int, int]:
    return pwd.getpwnam(wanted["owner"]).pw_uid, grp.getgrnam(wanted["group"]).gr_gid


def _attributes(values: tuple[int, int, int]) -> str:
    return "user {} group {} mode {:04o}\n".format(*values)


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode(errors="replace")


if __name__ == "__main__":
    main()
