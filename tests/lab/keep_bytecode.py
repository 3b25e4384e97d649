"""Python on a host of the lab begins with this: it keeps the bytecode of sources that are read from a zip.

Ansible sends each module with all that it imports in a zip, and compiling that is a third of what a task
costs a host. By its hash what is the same is compiled once.
"""

import hashlib
import marshal
import os
import zipimport
from types import CodeType

_FOLDER = "/var/cache/lab-bytecode"
_compile = zipimport._compile_source


def _kept(path: str, source: bytes) -> CodeType:
    file = f"{_FOLDER}/{hashlib.sha256(source).hexdigest()}"
    try:
        with open(file, "rb") as code:
            return marshal.load(code)
    except (OSError, EOFError, ValueError):
        return _keep(file, _compile(path, source))


def _keep(file: str, code: CodeType) -> CodeType:
    half = f"{file}.{os.getpid()}"
    try:
        os.makedirs(_FOLDER, exist_ok=True)
        with open(half, "wb") as to:
            marshal.dump(code, to)
        os.rename(half, file)
    except OSError:
        pass  # not root, or in a sandbox
    return code


zipimport._compile_source = _kept
