"""The types of the configuration's fields.

A field's description completes the sentence "write ..." of a problem.
"""

import os
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr
from pydantic_core import PydanticCustomError

from lockd.config.addresses import HIGHEST_PORT, split_address
from lockd.config.problems import describe_value, refuse
from lockd.config.socket import DEFAULT_SOCKET, SOCKET_PATH_BYTES
from lockd.core.values import Bound


def whole(default: int | None, low: int = 1, high: int = 1_000_000_000) -> Any:
    described = f"a whole number from {low} to {high}, in plain digits"
    return Field(default=default, ge=low, le=high, description=described)


def optional(description: str) -> Any:
    return Field(default=None, description=description)


def text(description: str, pattern: str = r".+") -> Any:
    return Field(pattern=rf"(?s)^{pattern}$", description=description)


def _address(lowest_port: int, right: str) -> AfterValidator:
    def check(address: str) -> str:
        try:
            _, port = split_address(address)
        except ValueError:
            raise refuse(f"is {describe_value(address)}", f"write {right}") from None
        if not lowest_port <= port <= HIGHEST_PORT:
            wrong = f"is {describe_value(address)}, whose port is not from {lowest_port} to {HIGHEST_PORT}"
            raise refuse(wrong, f"write {right}")
        return address

    return AfterValidator(check)


def unreadable(path: Path, error: Exception) -> PydanticCustomError:
    reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
    return refuse(
        f"names {path}, which can't be read ({reason})",
        "write the path of a file that the user running lockd may read",
    )


def _readable(path: Path) -> Path:
    try:
        path.open("rb").close()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    return path


def secret_in(path: Path) -> str:
    try:
        secret = path.read_text("utf-8").strip("\r\n")
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not secret:
        raise refuse(f"names {path}, which is empty", "put the password into that file, on one line")
    return secret


def _secret_file(path: Path) -> Path:
    secret_in(path)
    return path


def _socket_path(path: Path) -> Path:
    if not path.is_absolute():  # started by systemd, the agent would make it in the root folder
        raise refuse(
            f"is {describe_value(str(path))}, which is relative to the folder where lockd is started",
            f'write an absolute path, such as "{DEFAULT_SOCKET}"',
        )
    if (size := len(os.fsencode(path))) > SOCKET_PATH_BYTES:
        raise refuse(f"is {size} bytes long", f"write a path of at most {SOCKET_PATH_BYTES} bytes")
    return path


def _octal_mode(mode: object) -> int:
    if not isinstance(mode, str) or not re.fullmatch(r"0?[0-7]{3}", mode):
        raise refuse(f"is {describe_value(mode)}", 'write octal permissions in quotes, such as "0660"')
    return int(mode, 8)


def _bound(word: object) -> Bound:
    if word not in (Bound.PROCESS, Bound.CONNECTION):
        raise refuse(f"is {describe_value(word)}", "write process or connection")
    return Bound(str(word))


MASTER_ADDRESS = 'host:port, such as "10.0.0.1:6379" or "[2001:db8::1]:6379"'
METRICS_ADDRESS = 'host:port, such as "127.0.0.1:9480" or "[::1]:9480", or null for none'
ClusterName = Annotated[StrictStr, text("1 to 64 letters, digits, '.', '_' or '-'", "[A-Za-z0-9._-]{1,64}")]
Label = Annotated[
    StrictStr, text(("1 to 63 of a-z, 0-9 and '_', beginning with a letter"), "[a-z][a-z0-9_]{0,62}")
]
HostName = Annotated[StrictStr, text("a host name without a port", r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")]
SystemName = Annotated[StrictStr, Field(min_length=1)]
Pem = Annotated[Path, AfterValidator(_readable)]
SecretFile = Annotated[Path, AfterValidator(_secret_file)]
SocketPath = Annotated[Path, AfterValidator(_socket_path)]
OctalMode = Annotated[int, BeforeValidator(_octal_mode)]
MasterAddress = Annotated[StrictStr, _address(1, MASTER_ADDRESS)]
BoundTo = Annotated[Bound, BeforeValidator(_bound)]
MetricsAddress = Annotated[StrictStr, _address(0, METRICS_ADDRESS)]
