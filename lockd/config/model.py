"""The contents of the file, as a frozen value that is passed down.

An operator who made five mistakes wants to hear of five, each with its place and what to write instead.
Mistakes under single keys are found by their kinds (fields.py), those between keys by checks.py; sections.py
has the words for them, and yaml.py reads the file.
"""

import hashlib
import json
import os
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

from lockd.config.addresses import split_address
from lockd.config.checks import contradictions
from lockd.config.fields import (
    HOST_NAME,
    Secret,
    bound,
    cluster_name,
    label,
    master_address,
    metrics_address,
    octal_mode,
    optional_file,
    optional_secret,
    optional_secret_file,
    optional_section,
    optional_text,
    optional_texts,
    readable_file,
    secret_in,
    section,
    sections,
    socket_path,
    text,
    texts,
    unreadable,
    whole,
    word,
    yes_or_no,
)
from lockd.config.globs import matcher
from lockd.config.problems import ConfigError, Problem, Refused
from lockd.config.sections import Mistakes, Schema, Section
from lockd.config.yaml import RefusedValue, document_in
from lockd.core.identities import LONGEST_TTL_MS
from lockd.core.slot_names import resource_of
from lockd.core.validity import DAY_MS
from lockd.core.values import Bound, quorum_of

CANARY = "canary"
"""The class of the lock that the agent takes now and then, to check that locking works."""
CLASSES_REMEMBERED = 4_096  # resources whose class is remembered: bounded, since apps choose the names


class Master(Section):
    """One of the independent Redis instances."""

    name: str = cluster_name()
    address: str = master_address()

    @property
    def host(self) -> str:
        """Host name or IP address, IPv6 without brackets."""
        return split_address(self.address)[0]

    @property
    def port(self) -> int:
        return split_address(self.address)[1]


class Auth(Section):
    """How the agent authenticates at the masters; the same for all of them."""

    username: str | None = optional_text("a user name without spaces, or leave it out", r"\S+")
    password: Secret | None = optional_secret("the password as text")
    password_file: Path | None = optional_secret_file("the path of a file")


class Tls(Section):
    """TLS to the masters. The agent needs a certificate and key only if the masters ask for them."""

    ca_file: Path = readable_file("the path of the CA certificates in PEM")
    cert_file: Path | None = optional_file("the path of the agent's certificate in PEM")
    key_file: Path | None = optional_file("the path of the certificate's key in PEM")
    server_name: str | None = optional_text(
        'the name in the masters\' certificates, such as "{name}" or masters.example.com'
    )


class MetricsTls(Section):
    """HTTPS where Prometheus reads metrics. client_ca_file: readers have to show a certificate signed by
    these."""

    cert_file: Path = readable_file("the path of the certificate in PEM")
    key_file: Path = readable_file("the path of the certificate's key in PEM")
    client_ca_file: Path | None = optional_file("the path of CA certificates in PEM, or null")


class Socket(Section):
    """The Unix socket that apps connect to. `mode` is written as octal text, and is an int here."""

    path: Path = socket_path()
    mode: int = octal_mode(0o660)
    group: str | None = optional_text("a group name, or null for the agent's own")


class Timeouts(Section):
    master_ms: int = whole(250, 1, 60_000)
    connect_ms: int = whole(1_000, 1, 60_000)
    dead_ms: int = whole(2_000, 1, 600_000)


class Policy(Section):
    """The rules for a class. `max_ttl_ms` None: the global one. `users` and `groups` None: everybody may
    lock."""

    max_ttl_ms: int | None = whole(None, 10, DAY_MS)
    max_wait_ms: int = whole(60_000, 0, DAY_MS)
    max_hold_ms: int = whole(3_600_000, 1, 366 * DAY_MS)
    lock_delay_ms: int = whole(0, 0, DAY_MS)
    keep_ms: int = whole(0, 0, 60_000)
    bound: Bound = bound()
    users: tuple[str, ...] | None = optional_texts("a list of user names, such as [alice, bob]")
    groups: tuple[str, ...] | None = optional_texts("a list of group names, such as [web, ops]")
    wait_objective_ms: int = whole(1_000, 1, DAY_MS)
    page_on_loss: bool = yes_or_no(False)

    def for_classes(self, max_ttl_ms: int) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in Policy.keys},
            "max_ttl_ms": self.max_ttl_ms or max_ttl_ms,
        }


class LockClass(Policy):
    """A group of resources under one policy. In a Config its values are resolved, with all defaults filled
    in."""

    name: str = label()
    match: str = text('a glob for resource names, such as "billing:*", or "*" for all')
    max_ttl_ms: int = whole(60_000, 10, DAY_MS)


FILES_LEAST = 128
"""With fewer files the agent's own connections find none."""


class Limits(Section):
    share_percent: int = whole(50, 1, 10_000)
    memory_mib: int | None = whole(None, 64, 1 << 20)
    files: int | None = whole(None, FILES_LEAST, 1 << 20)
    renewals_per_second: int = whole(3_200, 100, 1_000_000)
    resources_per_lock: int = whole(64, 1, 1_000)
    slots: int = whole(64, 1, 1_000)
    resource_bytes: int = whole(512)
    request_bytes: int = whole(65_536)
    pipeline_bytes: int = whole(131_072)
    unread_bytes: int = whole(4_194_304)
    unread_ms: int = whole(10_000)
    unknown_tokens_per_second: int = whole(500, 1, 1_000_000)


class Config(Section):
    """The whole configuration. However it is made, it raises ConfigError with every mistake in it.

    To change one, read a new document.
    """

    cluster: str = cluster_name()
    masters: tuple[Master, ...] = sections(Master, 'a list of 3, 5, 7 or 9 {name: m1, address: "m1:6379"}')
    max_ttl_ms: int = whole(60_000, 1_000, LONGEST_TTL_MS)
    min_ttl_ms: int = whole(100, 10, DAY_MS)
    min_validity_ms: int = whole(10, 0, 60_000)
    turn_ms: int = whole(10, 1, 1_000)
    recall_ms: int = whole(50, 0, 1_000)
    auth: Auth = section(Auth)
    tls: Tls | None = optional_section(Tls)
    socket: Socket = section(Socket)
    admin_group: str | None = optional_text("a group name, or null for none")
    metrics: str | None = metrics_address("127.0.0.1:9480")
    metrics_hosts: tuple[str, ...] = texts(
        "a list of host names without ports, such as [web1.example.com]", HOST_NAME
    )
    metrics_tls: MetricsTls | None = optional_section(MetricsTls)
    canary_ms: int = whole(10_000, 0, DAY_MS)
    timeouts: Timeouts = section(Timeouts)
    clock_skew_allowance_ms: int = whole(100, 0, 60_000)
    defaults: Policy = section(Policy)
    classes: tuple[LockClass, ...] = sections(LockClass, 'a list of {name: db, match: "db:*"}', ())
    limits: Limits = section(Limits)
    log_level: str = word("info", ("debug", "info", "warning", "error"))
    source: Path | None = None
    """The file that it was read from, if any."""

    @classmethod
    def _checked(cls, document: object) -> dict[str, Any]:
        mistakes = Mistakes()
        values = cls._values_in(document, (), mistakes)
        problems = [_SCHEMA.problem(one) for one in mistakes if not isinstance(one.value, RefusedValue)]
        known = {problem.path for problem in problems}
        problems += [problem for problem in contradictions(document, _SCHEMA) if problem.path not in known]
        if mistakes or problems:  # mistakes, yet no problems: `load` has told them
            raise ConfigError(problems)
        return values | {"classes": _resolved(document, values)}

    @property
    def quorum(self) -> int:
        return quorum_of(len(self.masters))

    @cached_property
    def other(self) -> LockClass:
        """The class of every resource that no configured class matches."""
        return LockClass(name="other", match="*", **self.defaults.for_classes(self.max_ttl_ms))

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
        except Refused as refused:
            raise ConfigError([refused.at("auth.password_file")]) from None
        return self.auth.password.text if self.auth.password else in_file

    def read_from(self, source: Path) -> Self:
        return self._made({**self.values(), "source": source})

    def fingerprint(self) -> str:
        """12 hex digits. Two agents have the same if their configurations are the same, apart from secrets
        and from where each of them listens on its host."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        shared = _plain(self)
        for own in ("metrics", "metrics_hosts", "metrics_tls", "socket"):
            del shared[own]
        del shared["auth"]["password"]
        canonical = json.dumps(shared, sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _resolved(document: Any, values: dict[str, Any]) -> tuple[LockClass, ...]:
    """The classes; what one leaves out is as in `defaults`."""
    defaults = values["defaults"].for_classes(values["max_ttl_ms"])
    written = (vars(one) if isinstance(one, LockClass) else one for one in document.get("classes", ()))
    return tuple(LockClass.read({**defaults, **one}) for one in written)


def _plain(value: Any) -> Any:
    """Sections as dicts."""
    if isinstance(value, Section):
        return {name: _plain(one) for name, one in value.values().items()}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


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
        raise ConfigError([unreadable(Path(path), error).at("configuration")]) from None
    return _written_in(data).read_from(Path(path))


def refusals(data: bytes) -> list[Problem]:
    """The mistakes in a configuration file for another host: whether its files can be read is seen there."""
    try:
        _written_in(data)
    except ConfigError as error:
        return [problem for problem in error.problems if not problem.of_host]
    return []


def _written_in(data: bytes) -> Config:
    document, problems = document_in(data)
    try:
        config = Config.read(document)
    except ConfigError as error:
        raise ConfigError(problems + error.problems) from None
    if problems:
        raise ConfigError(problems)
    return config
