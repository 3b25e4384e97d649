"""The contents of the file, as a frozen value that is passed down.

An operator who made five mistakes wants to hear of five, each with its place and what to write instead.
Pydantic finds mistakes in single fields (fields.py), checks.py finds those between fields; problems.py has
the words for them, and yaml.py reads the file.
"""

import hashlib
import json
import os
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
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

from lockd.config.addresses import split_address
from lockd.config.checks import contradictions
from lockd.config.fields import (
    MASTER_ADDRESS,
    METRICS_ADDRESS,
    BoundTo,
    ClusterName,
    HostName,
    Label,
    MasterAddress,
    MetricsAddress,
    OctalMode,
    Pem,
    SecretFile,
    SocketPath,
    SystemName,
    optional,
    secret_in,
    text,
    unreadable,
    whole,
)
from lockd.config.globs import matcher
from lockd.config.problems import ConfigError, Schema, refused_at
from lockd.config.socket import DEFAULT_SOCKET
from lockd.config.yaml import RefusedValue, document_in
from lockd.core.identities import LONGEST_TTL_MS
from lockd.core.slot_names import resource_of
from lockd.core.validity import DAY_MS
from lockd.core.values import Bound, quorum_of

CANARY = "canary"
"""The class of the lock that the agent takes now and then, to check that locking works."""
CLASSES_REMEMBERED = 4_096  # resources whose class is remembered: bounded, since apps choose the names


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Master(_Section):
    """One of the independent Redis instances."""

    name: ClusterName
    address: MasterAddress = Field(description=MASTER_ADDRESS)

    @property
    def host(self) -> str:
        """Host name or IP address, IPv6 without brackets."""
        return split_address(self.address)[0]

    @property
    def port(self) -> int:
        return split_address(self.address)[1]


class Auth(_Section):
    """How the agent authenticates at the masters; the same for all of them."""

    username: SystemName | None = optional("a user name, or leave it out")
    password: Annotated[SecretStr, Field(min_length=1)] | None = optional("the password as text")
    password_file: SecretFile | None = optional("the path of a file")


class Tls(_Section):
    """TLS to the masters. The agent needs a certificate and key only if the masters ask for them."""

    ca_file: Pem = Field(description="the path of the CA certificates in PEM")
    cert_file: Pem | None = optional("the path of the agent's certificate in PEM")
    key_file: Pem | None = optional("the path of the certificate's key in PEM")
    server_name: SystemName | None = optional(
        'the name in the masters\' certificates, such as "{name}" or masters.example.com'
    )


class MetricsTls(_Section):
    """HTTPS where Prometheus reads metrics. client_ca_file: readers have to show a certificate signed by
    these."""

    cert_file: Pem = Field(description="the path of the certificate in PEM")
    key_file: Pem = Field(description="the path of the certificate's key in PEM")
    client_ca_file: Pem | None = optional("the path of CA certificates in PEM, or null")


class Socket(_Section):
    """The Unix socket that apps connect to. `mode` is written as octal text, and is an int here."""

    path: SocketPath = Field(default=Path(DEFAULT_SOCKET), description="the path of the socket")
    mode: OctalMode = 0o660
    group: SystemName | None = optional("a group name, or null for the agent's own")


class Timeouts(_Section):
    master_ms: StrictInt = whole(250, 1, 60_000)
    connect_ms: StrictInt = whole(1_000, 1, 60_000)
    dead_ms: StrictInt = whole(2_000, 1, 600_000)


class Policy(_Section):
    """The rules for a class. `max_ttl_ms` None: the global one. `users` and `groups` None: everybody may
    lock."""

    max_ttl_ms: StrictInt | None = whole(None, 10, DAY_MS)
    max_wait_ms: StrictInt = whole(60_000, 0, DAY_MS)
    max_hold_ms: StrictInt = whole(3_600_000, 1, 366 * DAY_MS)
    lock_delay_ms: StrictInt = whole(0, 0, DAY_MS)
    keep_ms: StrictInt = whole(0, 0, 60_000)
    bound: BoundTo = Field(default=Bound.PROCESS, description="process or connection")
    users: tuple[SystemName, ...] | None = optional("a list of user names, such as [alice, bob]")
    groups: tuple[SystemName, ...] | None = optional("a list of group names, such as [web, ops]")
    wait_objective_ms: StrictInt = whole(1_000, 1, DAY_MS)
    page_on_loss: StrictBool = Field(default=False, description="true or false")

    def _values(self, max_ttl_ms: int) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in Policy.model_fields},
            "max_ttl_ms": self.max_ttl_ms or max_ttl_ms,
        }


class LockClass(Policy):
    """A group of resources under one policy. In a Config its values are resolved, with all defaults filled
    in."""

    name: Label
    match: StrictStr = text('a glob for resource names, such as "billing:*", or "*" for all')
    max_ttl_ms: StrictInt = whole(60_000, 10, DAY_MS)


class Limits(_Section):
    connections: StrictInt = whole(10_000)
    connections_per_user: StrictInt = whole(1_024)
    leases: StrictInt = whole(100_000)
    leases_per_user: StrictInt = whole(50_000)
    waiters: StrictInt = whole(50_000)
    waiters_per_user: StrictInt = whole(20_000)
    resources_per_lock: StrictInt = whole(64, 1, 1_000)
    slots: StrictInt = whole(64, 1, 1_000)
    resource_bytes: StrictInt = whole(512)
    request_bytes: StrictInt = whole(65_536)
    pipeline_bytes: StrictInt = whole(131_072)
    buffered_bytes: StrictInt = whole(134_217_728)
    buffered_bytes_per_user: StrictInt = whole(33_554_432)
    unread_bytes: StrictInt = whole(4_194_304)
    unread_ms: StrictInt = whole(10_000)
    unknown_tokens_per_second: StrictInt = whole(500, 1, 1_000_000)


class Config(_Section):
    """The whole configuration. However it is made, it raises ConfigError with every mistake in it.

    To change one, validate a new document: `model_copy(update=...)` checks nothing and keeps the classes.
    """

    cluster: ClusterName
    masters: tuple[Master, ...] = Field(description='a list of 3, 5, 7 or 9 {name: m1, address: "m1:6379"}')
    max_ttl_ms: StrictInt = whole(60_000, 1_000, LONGEST_TTL_MS)
    min_ttl_ms: StrictInt = whole(100, 10, DAY_MS)
    min_validity_ms: StrictInt = whole(10, 0, 60_000)
    turn_ms: StrictInt = whole(10, 1, 1_000)
    recall_ms: StrictInt = whole(50, 0, 1_000)
    auth: Auth = Auth()
    tls: Tls | None = None
    socket: Socket = Socket()
    admin_group: SystemName | None = optional("a group name, or null for none")
    metrics: MetricsAddress | None = Field(default="127.0.0.1:9480", description=METRICS_ADDRESS)
    metrics_hosts: tuple[HostName, ...] = Field(
        default=(), description="a list of host names without ports, such as [web1.example.com]"
    )
    metrics_tls: MetricsTls | None = None
    canary_ms: StrictInt = whole(10_000, 0, DAY_MS)
    timeouts: Timeouts = Timeouts()
    clock_skew_allowance_ms: StrictInt = whole(100, 0, 60_000)
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
        problems = [_SCHEMA.problem(one) for one in errors if not isinstance(one["input"], RefusedValue)]
        known = {problem.path for problem in problems}
        problems += [problem for problem in contradictions(document, _SCHEMA) if problem.path not in known]
        if config is None or problems:  # none, yet no problems: `load` has told them
            raise ConfigError(problems)
        return config

    @property
    def quorum(self) -> int:
        return quorum_of(len(self.masters))

    @cached_property
    def other(self) -> LockClass:
        """The class of every resource that no configured class matches."""
        return LockClass(name="other", match="*", **self.defaults._values(self.max_ttl_ms))

    @property
    def labels(self) -> tuple[str, ...]:
        """Every class that metrics tell apart: those configured, `other`, and the canary's."""
        return (*(one.name for one in self.classes), "other", CANARY)

    def class_named(self, label: str) -> LockClass:
        """The policy of a class; that of `other` if none is configured under this name."""
        return next((one for one in self.classes if one.name == label), self.other)

    @cached_property
    def class_of(self) -> Callable[[bytes], LockClass]:
        """`class_of(resource)`: the first class that matches, else `other`. It is called for every lock, so
        it is a caching C function."""
        return lru_cache(maxsize=CLASSES_REMEMBERED)(self.find_class)

    @cached_property
    def find_class(self) -> Callable[[bytes], LockClass]:
        """The same without a cache, for many resources that are not about to be locked. Its cost is linear in
        the name for each class, whatever its glob. A slot belongs to the class of its resource."""
        matchers = [(matcher(one.match.encode("utf-8", "surrogateescape")), one) for one in self.classes]
        other = self.other

        def find(name: bytes) -> LockClass:
            resource = resource_of(name)
            return next((one for matches, one in matchers if matches(resource)), other)

        return find

    def password(self) -> str | None:
        """The masters' password, read from its file each time; ConfigError when that can't be done."""
        try:
            in_file = secret_in(self.auth.password_file) if self.auth.password_file else None
        except PydanticCustomError as error:
            raise ConfigError([refused_at("auth.password_file", error.context)]) from None
        return self.auth.password.get_secret_value() if self.auth.password else in_file

    def fingerprint(self) -> str:
        """12 hex digits. Two agents have the same if their configurations are the same, apart from secrets
        and from where each of them listens on its host."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        own: Any = {
            "auth": {"password"},
            "metrics": True,
            "metrics_hosts": True,
            "metrics_tls": True,
            "socket": True,
        }
        shared = self.model_dump(exclude=own)
        canonical = json.dumps(shared, sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def source(self) -> Path | None:
        """The file that it was read from, if any."""
        return self._source


_SCHEMA = Schema(
    {
        (): Config,
        ("masters",): Master,
        ("auth",): Auth,
        ("tls",): Tls,
        ("metrics_tls",): MetricsTls,
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
        raise ConfigError([refused_at("configuration", unreadable(Path(path), error).context)]) from None
    document, problems = document_in(data)
    try:
        config = Config.model_validate(document)
    except ConfigError as error:
        raise ConfigError(problems + error.problems) from None
    if problems:
        raise ConfigError(problems)
    config._source = Path(path)
    return config
