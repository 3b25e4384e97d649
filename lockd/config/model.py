"""The agent's configuration: one YAML file, read once into a frozen value that is passed down.

An operator who made five mistakes wants to hear of five, each with where it is and what to write instead.
Pydantic finds what is wrong with single fields, config/checks.py what is wrong between fields;
config/problems.py has the words for it, and config/yaml.py reads the file.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from lockd.config.addresses import HIGHEST_PORT, split_address
from lockd.config.checks import contradictions, warnings_of
from lockd.config.globs import matcher
from lockd.config.problems import ConfigError, Schema, refuse, refused_at, shown
from lockd.config.yaml import Refused, document_in

DAY_MS = 86_400_000
SOCKET_PATH_BYTES = 107  # sun_path holds 108 with its final NUL
CANARY = "canary"
"""The class of the lock that the agent takes now and then, to see that locks can be had."""
CLASSES_REMEMBERED = 4_096  # resources whose class is remembered: bounded, since apps choose the names


# ---- what one field may be. A field's description completes the sentence "write ..." of a problem.


def _whole(default: int | None, low: int = 1, high: int = 1_000_000_000) -> Any:
    described = f"a whole number from {low} to {high}, in plain digits"
    return Field(default=default, ge=low, le=high, description=described)


def _optional(description: str) -> Any:
    return Field(default=None, description=description)


def _text(description: str, pattern: str = r".+") -> Any:
    return Field(pattern=rf"(?s)^{pattern}$", description=description)


def _address(lowest_port: int, right: str) -> AfterValidator:
    def check(address: str) -> str:
        try:
            _, port = split_address(address)
        except ValueError:
            raise refuse(f"is {shown(address)}", f"write {right}") from None
        if not lowest_port <= port <= HIGHEST_PORT:
            wrong = f"is {shown(address)}, whose port is not from {lowest_port} to {HIGHEST_PORT}"
            raise refuse(wrong, f"write {right}")
        return address

    return AfterValidator(check)


def _unreadable(path: Path, error: Exception) -> PydanticCustomError:
    reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
    return refuse(
        f"names {path}, which can't be read ({reason})",
        "write the path of a file that the user running lockd may read",
    )


def _readable(path: Path) -> Path:
    try:
        path.open("rb").close()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return path


def _secret_in(path: Path) -> str:
    try:
        secret = path.read_text("utf-8").strip("\r\n")
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not secret:
        raise refuse(f"names {path}, which is empty", "put the password into that file, on one line")
    return secret


def _secret_file(path: Path) -> Path:
    _secret_in(path)
    return path


def _socket_path(path: Path) -> Path:
    if not path.is_absolute():  # started by systemd, the agent would make it in the root folder
        raise refuse(
            f"is {shown(str(path))}, which depends on the folder that lockd is started in",
            'write the whole path, as "/run/lockd/lockd.sock"',
        )
    if (size := len(os.fsencode(path))) > SOCKET_PATH_BYTES:
        raise refuse(f"is {size} bytes long", f"write a path of at most {SOCKET_PATH_BYTES} bytes")
    return path


def _mode(mode: object) -> int:
    if not isinstance(mode, str) or not re.fullmatch(r"0?[0-7]{3}", mode):
        raise refuse(f"is {shown(mode)}", 'write the octal permissions in quotes, as "0660"')
    return int(mode, 8)


MASTER_ADDRESS = 'host:port, as "10.0.0.1:6379" or "[2001:db8::1]:6379"'
METRICS_ADDRESS = 'host:port, as "127.0.0.1:9480" or "[::1]:9480", or null for none'
ClusterName = Annotated[StrictStr, _text("1 to 64 letters, digits, '.', '_' or '-'", "[A-Za-z0-9._-]{1,64}")]
Label = Annotated[StrictStr, _text("1 to 63 of a-z, 0-9 and '_', a letter first", "[a-z][a-z0-9_]{0,62}")]
HostName = Annotated[StrictStr, _text("a host name without a port", r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")]
SystemName = Annotated[StrictStr, Field(min_length=1)]
Pem = Annotated[Path, AfterValidator(_readable)]


# ---- the document


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Master(_Section):
    """One of the independent Redis instances."""

    name: ClusterName
    address: Annotated[StrictStr, _address(1, MASTER_ADDRESS)] = Field(description=MASTER_ADDRESS)

    @property
    def host(self) -> str:
        """Host name or IP address, IPv6 without brackets."""
        return split_address(self.address)[0]

    @property
    def port(self) -> int:
        return split_address(self.address)[1]


class Auth(_Section):
    """How the agent authenticates at the masters; the same for all of them."""

    username: SystemName | None = _optional("a user name, or leave it out")
    password: Annotated[SecretStr, Field(min_length=1)] | None = _optional("the password as text")
    password_file: Annotated[Path, AfterValidator(_secret_file)] | None = _optional("the path of a file")


class Tls(_Section):
    """TLS to the masters. A certificate and key of the agent's own only when the masters ask for them."""

    ca_file: Pem = Field(description="the path of the CA certificates in PEM")
    cert_file: Pem | None = _optional("the path of the agent's certificate in PEM")
    key_file: Pem | None = _optional("the path of the certificate's key in PEM")
    server_name: SystemName | None = _optional("the name in the masters' certificates")


class Socket(_Section):
    """The Unix socket that apps connect to. `mode` is written as octal text, and is an int here."""

    path: Annotated[Path, AfterValidator(_socket_path)] = Field(
        default=Path("/run/lockd/lockd.sock"), description="the path of the socket"
    )
    mode: Annotated[int, BeforeValidator(_mode)] = 0o660
    group: SystemName | None = _optional("a group name, or null for the agent's own")


class Timeouts(_Section):
    master_ms: StrictInt = _whole(250, 1, 60_000)
    connect_ms: StrictInt = _whole(1_000, 1, 60_000)
    dead_ms: StrictInt = _whole(2_000, 1, 600_000)
    drain_ms: StrictInt = _whole(5_000, 0, 600_000)


class Policy(_Section):
    """What a class may do. `max_ttl_ms` None: the global one. `users` and `groups` None: everybody may."""

    max_ttl_ms: StrictInt | None = _whole(None, 10, DAY_MS)
    max_wait_ms: StrictInt = _whole(60_000, 0, DAY_MS)
    max_hold_ms: StrictInt = _whole(3_600_000, 1, 366 * DAY_MS)
    lock_delay_ms: StrictInt = _whole(0, 0, DAY_MS)
    users: tuple[SystemName, ...] | None = _optional("a list of user names, as [alice, bob]")
    groups: tuple[SystemName, ...] | None = _optional("a list of group names, as [web, ops]")
    wait_objective_ms: StrictInt = _whole(1_000, 1, DAY_MS)
    page_on_loss: StrictBool = Field(default=False, description="true or false")

    def _values(self, max_ttl_ms: int) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in Policy.model_fields},
            "max_ttl_ms": self.max_ttl_ms or max_ttl_ms,
        }


class LockClass(Policy):
    """A group of resources under one policy. In a Config its values are resolved: none is left to look up."""

    name: Label
    match: StrictStr = _text('a glob over resource names, as "billing:*", or "*" for all')
    max_ttl_ms: StrictInt = _whole(60_000, 10, DAY_MS)


class Limits(_Section):
    connections: StrictInt = _whole(10_000)
    connections_per_user: StrictInt = _whole(1_024)
    leases: StrictInt = _whole(100_000)
    leases_per_user: StrictInt = _whole(50_000)
    waiters: StrictInt = _whole(50_000)
    waiters_per_user: StrictInt = _whole(20_000)
    resource_bytes: StrictInt = _whole(512)
    request_bytes: StrictInt = _whole(65_536)
    pipeline_bytes: StrictInt = _whole(131_072)
    buffered_bytes: StrictInt = _whole(134_217_728)
    buffered_bytes_per_user: StrictInt = _whole(33_554_432)
    unread_bytes: StrictInt = _whole(4_194_304)
    unread_ms: StrictInt = _whole(10_000)
    unknown_tokens_per_second: StrictInt = _whole(500, 1, 1_000_000)


class Config(_Section):
    """The whole configuration. However it is made, it raises ConfigError with every mistake in it.

    To change one, validate a new document: `model_copy(update=...)` checks nothing and keeps the classes.
    """

    cluster: ClusterName
    masters: tuple[Master, ...] = Field(description='a list of 3, 5, 7 or 9 {name: m1, address: "m1:6379"}')
    max_ttl_ms: StrictInt = _whole(60_000, 1_000, DAY_MS)
    min_ttl_ms: StrictInt = _whole(100, 10, DAY_MS)
    min_validity_ms: StrictInt = _whole(10, 0, 60_000)
    auth: Auth = Auth()
    tls: Tls | None = None
    socket: Socket = Socket()
    admin_group: SystemName | None = _optional("a group name, or null for none")
    metrics: Annotated[StrictStr, _address(0, METRICS_ADDRESS)] | None = Field(
        default="127.0.0.1:9480", description=METRICS_ADDRESS
    )
    metrics_hosts: tuple[HostName, ...] = Field(
        default=(), description="a list of host names without ports, as [web1.example.com]"
    )
    canary_ms: StrictInt = _whole(10_000, 0, DAY_MS)
    timeouts: Timeouts = Timeouts()
    clock_skew_allowance_ms: StrictInt = _whole(100, 0, 60_000)
    defaults: Policy = Policy()
    classes: tuple[LockClass, ...] = Field(default=(), description='a list of {name: db, match: "db:*"}')
    limits: Limits = Limits()
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error"
    )
    _source: Path | None = PrivateAttr(default=None)

    @field_validator("classes")
    @classmethod
    def _resolve(cls, classes: tuple[LockClass, ...], info: ValidationInfo) -> tuple[LockClass, ...]:
        if not {"defaults", "max_ttl_ms"} <= info.data.keys():
            return classes  # those were refused, so there will be no Config
        values = info.data["defaults"]._values(info.data["max_ttl_ms"])
        missing = [{name: values[name] for name in values.keys() - one.model_fields_set} for one in classes]
        return tuple(one.model_copy(update=some) for one, some in zip(classes, missing, strict=True))

    @model_validator(mode="wrap")
    @classmethod
    def _find_every_problem(cls, document: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        config, errors = None, list[ErrorDetails]()
        try:
            config = handler(document)
        except ValidationError as error:
            errors = error.errors()
        problems = [_SCHEMA.problem(one) for one in errors if not isinstance(one["input"], Refused)]
        known = {problem.path for problem in problems}
        problems += [problem for problem in contradictions(document, _SCHEMA) if problem.path not in known]
        if config is None or problems:  # none, yet no problems: `load` has told them
            raise ConfigError(problems)
        return config

    @property
    def quorum(self) -> int:
        return len(self.masters) // 2 + 1

    @cached_property
    def other(self) -> LockClass:
        """The class of every resource that no configured class matches."""
        return LockClass(name="other", match="*", **self.defaults._values(self.max_ttl_ms))

    @property
    def labels(self) -> tuple[str, ...]:
        """Every class that metrics tell apart: those configured, `other`, and the canary's."""
        return (*(one.name for one in self.classes), "other", CANARY)

    def class_named(self, label: str) -> LockClass:
        """The policy of a class; that of `other` where none is configured under this name."""
        return next((one for one in self.classes if one.name == label), self.other)

    @cached_property
    def class_of(self) -> Callable[[bytes], LockClass]:
        """`class_of(resource)`: the first class that matches, else `other`. Hot, so a caching C function."""
        return lru_cache(maxsize=CLASSES_REMEMBERED)(self.find_class)

    @cached_property
    def find_class(self) -> Callable[[bytes], LockClass]:
        """The same without remembering: for many resources that nobody is about to lock. Linear in the name
        for each class, whatever its glob."""
        matchers = [(matcher(one.match.encode("utf-8", "surrogateescape")), one) for one in self.classes]
        other = self.other
        return lambda resource: next((one for matches, one in matchers if matches(resource)), other)

    def password(self) -> str | None:
        """The masters' password, read anew from its file each time; ConfigError when that can't be done."""
        try:
            in_file = _secret_in(self.auth.password_file) if self.auth.password_file else None
        except PydanticCustomError as error:
            raise ConfigError([refused_at("auth.password_file", error.context)]) from None
        return self.auth.password.get_secret_value() if self.auth.password else in_file

    def fingerprint(self) -> str:
        """12 hex digits that two agents share when their configurations are the same, but for secrets and for
        where on its host each of them listens."""
        own: Any = {"auth": {"password"}, "metrics": True, "metrics_hosts": True, "socket": True}
        shared = self.model_dump(exclude=own)
        canonical = json.dumps(shared, sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def warnings(self) -> list[str]:
        """What works but is likely not meant, judged on this host and at this moment."""
        return warnings_of(self, self._source)


_SCHEMA = Schema(
    {
        (): Config,
        ("masters",): Master,
        ("auth",): Auth,
        ("tls",): Tls,
        ("socket",): Socket,
        ("timeouts",): Timeouts,
        ("defaults",): Policy,
        ("classes",): LockClass,
        ("limits",): Limits,
    }
)


def load(path: str | os.PathLike[str]) -> Config:
    """Reads a configuration file; raises ConfigError with every mistake in it."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError([refused_at("configuration", _unreadable(Path(path), error).context)]) from None
    document, problems = document_in(data)
    try:
        config = Config.model_validate(document)
    except ConfigError as error:
        raise ConfigError(problems + error.problems) from None
    if problems:
        raise ConfigError(problems)
    config._source = Path(path)
    return config
