"""The kinds of keys that a configuration has.

A key's description completes the sentence "write ..." of a problem. What is read as a value is typed Any, so
that the key can stand where the value will be: `leases: int = whole(100_000)`.
"""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lockd.config.addresses import ALL_ADDRESSES, HIGHEST_PORT, endpoint, split_address
from lockd.config.problems import Refused, describe_value
from lockd.config.sections import REQUIRED, Key, NotText, Section, Wrong, listed, single
from lockd.config.socket import DEFAULT_SOCKET, SOCKET_PATH_BYTES
from lockd.core.values import Bound

MASTER_ADDRESS = 'host:port, such as "10.0.0.1:6379" or "[2001:db8::1]:6379"'
METRICS_ADDRESS = 'host:port, such as "127.0.0.1:9480" or "[::1]:9480", or null for none'
HOST_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}"


class Secret:
    """Text that shows itself to nobody who doesn't ask for it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return "Secret('**********')"


# Keys


def whole(default: int | None, low: int = 1, high: int = 1_000_000_000) -> Any:
    described = f"a whole number from {low} to {high}, in plain digits"
    return Key(single(partial(_whole, low, high)), described, default, nullable=default is None)


def yes_or_no(default: bool) -> Any:
    return Key(single(_yes_or_no), "true or false", default)


def text(description: str, pattern: str = ".+") -> Any:
    """Text that must be there."""
    return Key(single(partial(_matching, pattern)), description)


def optional_text(description: str, pattern: str = ".+") -> Any:
    return Key(single(partial(_matching, pattern)), description, None, nullable=True)


def optional_secret(description: str) -> Any:
    return Key(single(_secret), description, None, nullable=True)


def optional_texts(description: str) -> Any:
    return Key(listed(single(partial(_matching, ".+"))), description, None, nullable=True)


def texts(description: str, pattern: str) -> Any:
    return Key(listed(single(partial(_matching, pattern))), description, ())


def cluster_name() -> Any:
    return text("1 to 64 letters, digits, '.', '_' or '-'", "[A-Za-z0-9._-]{1,64}")


def label() -> Any:
    return text("1 to 63 of a-z, 0-9 and '_', beginning with a letter", "[a-z][a-z0-9_]{0,62}")


def word(default: str, words: tuple[str, ...]) -> Any:
    return Key(single(partial(_word, words)), f"{', '.join(words[:-1])} or {words[-1]}", default)


def bound() -> Any:
    return Key(single(_bound), "process or connection", Bound.PROCESS)


def master_address() -> Any:
    return Key(single(_master_address), MASTER_ADDRESS)


def metrics_address(default: str) -> Any:
    read = single(partial(_address, 0, METRICS_ADDRESS))
    return Key(read, METRICS_ADDRESS, default, nullable=True)


def readable_file(description: str) -> Any:
    return Key(single(_readable), description)


def optional_file(description: str, check: Callable[[object], Path] | None = None) -> Any:
    return Key(single(check or _readable), description, None, nullable=True)


def optional_secret_file(description: str) -> Any:
    return optional_file(description, _secret_file)


def socket_path() -> Any:
    return Key(single(_socket_path), "the path of the socket", Path(DEFAULT_SOCKET))


def octal_mode(default: int) -> Any:
    return Key(single(_octal_mode), "", default)


def section(of: type[Section]) -> Any:
    """A section that may be left out, and then has its defaults."""
    return Key(of.read_at, "", of(), section=of)


def optional_section(of: type[Section]) -> Any:
    return Key(of.read_at, "", None, nullable=True, section=of)


def sections(of: type[Section], description: str, default: tuple[()] = REQUIRED) -> Any:
    return Key(listed(of.read_at), description, default, section=of)


# Values


def _whole(low: int, high: int, written: object) -> int:
    if not isinstance(written, int) or isinstance(written, bool) or not low <= written <= high:
        raise Wrong
    return written


def _yes_or_no(written: object) -> bool:
    if not isinstance(written, bool):
        raise Wrong
    return written


def _text(written: object) -> str:
    if not isinstance(written, str):
        raise NotText
    return written


def _matching(pattern: str, written: object) -> str:
    found = _text(written)
    if not re.fullmatch(pattern, found, re.DOTALL):
        raise Wrong
    return found


def _secret(written: object) -> Secret:
    return written if isinstance(written, Secret) else Secret(_matching(".+", written))


def _word(words: tuple[str, ...], written: object) -> str:
    if not isinstance(written, str) or written not in words:
        raise Wrong
    return written


def _bound(written: object) -> Bound:
    if written not in (Bound.PROCESS, Bound.CONNECTION):
        raise Refused(f"is {describe_value(written)}", "write process or connection")
    return Bound(str(written))


def _master_address(written: object) -> str:
    address = _address(1, MASTER_ADDRESS, written)
    host, _ = endpoint(address) or ("", 0)
    if host in ALL_ADDRESSES:
        wrong = f"is {describe_value(address)}, which would be another master on each host"
        raise Refused(wrong, f"write {MASTER_ADDRESS}")
    return address


def _address(lowest_port: int, right: str, written: object) -> str:
    address = _text(written)
    try:
        _, port = split_address(address)
    except ValueError:
        raise Refused(f"is {describe_value(address)}", f"write {right}") from None
    if not lowest_port <= port <= HIGHEST_PORT:
        wrong = f"is {describe_value(address)}, whose port is not from {lowest_port} to {HIGHEST_PORT}"
        raise Refused(wrong, f"write {right}")
    return address


def unreadable(path: Path, error: Exception) -> Refused:
    reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
    return Refused(
        f"names {path}, which can't be read ({reason})",
        "write the path of a file that the user running lockd may read",
        of_host=True,
    )


def _path(written: object) -> Path:
    if not isinstance(written, str | Path):
        raise Wrong
    return Path(written)


def _readable(written: object) -> Path:
    path = _path(written)
    try:
        path.open("rb").close()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    return path


def secret_in(path: Path) -> str:
    try:
        secret = path.read_text("utf-8-sig").strip("\r\n")
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not secret:
        raise Refused(f"names {path}, which is empty", "put the password into that file, on one line")
    return secret


def _secret_file(written: object) -> Path:
    path = _path(written)
    secret_in(path)
    return path


def _socket_path(written: object) -> Path:
    path = _path(written)
    if not path.is_absolute():  # started by systemd, the agent would make it in the root folder
        raise Refused(
            f"is {describe_value(str(path))}, which is relative to the folder where lockd is started",
            f'write an absolute path, such as "{DEFAULT_SOCKET}"',
        )
    if (size := len(os.fsencode(path))) > SOCKET_PATH_BYTES:
        raise Refused(f"is {size} bytes long", f"write a path of at most {SOCKET_PATH_BYTES} bytes")
    return path


def _octal_mode(written: object) -> int:
    if not isinstance(written, str) or not re.fullmatch(r"0?[0-7]{3}", written):
        raise Refused(f"is {describe_value(written)}", 'write octal permissions in quotes, such as "0660"')
    return int(written, 8)
