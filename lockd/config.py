"""The agent's configuration: one YAML file, read once into a frozen value that is passed down.

An operator who made five mistakes wants to hear of five, each with where it is and what to write instead.
Pydantic finds what is wrong with single fields, `_contradictions` what is wrong between fields. The latter
looks at the document as it was written: pydantic compares fields only once each is good by itself.

YAML is read more narrowly than PyYAML does it: `no` and `12:30` are text, `0660` is not octal, and duplicate
keys, aliases and tags are refused: each of these has made a file mean something else than its author thought.
"""

import difflib
import fnmatch
import grp
import hashlib
import ipaddress
import json
import os
import pwd
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

Loc = tuple[str | int, ...]
DAY_MS = 86_400_000
SOCKET_PATH_BYTES = 107  # sun_path holds 108 with its final NUL
CLASSES_REMEMBERED = 4_096  # resources whose class is remembered: bounded, since apps choose the names


class Problem(NamedTuple):
    """One mistake: where it is (`masters[2].address`), what is wrong, and what to write instead."""

    path: str
    wrong: str
    right: str

    def __str__(self) -> str:
        return f"{self.path}: {self.wrong}; {self.right}"


class ConfigError(Exception):
    """The configuration can't be used. `problems` has every mistake that was found; str() has one a line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


# ---- what one field may be. A field's description completes the sentence "write ..." of a problem.


def _refuse(wrong: str, right: str) -> PydanticCustomError:
    return PydanticCustomError("lockd", "{wrong}", {"wrong": wrong, "right": right})


def _whole(default: int | None, low: int = 1, high: int = 1_000_000_000) -> Any:
    described = f"a whole number from {low} to {high}, in plain digits"
    return Field(default=default, ge=low, le=high, description=described)


def _optional(description: str) -> Any:
    return Field(default=None, description=description)


def _text(description: str, pattern: str = r".+") -> Any:
    return Field(pattern=rf"(?s)^{pattern}$", description=description)


def split_address(address: str) -> tuple[str, int]:
    """Host (an IPv6 address without its brackets) and port of `host:port`; ValueError when it isn't one."""
    found = re.fullmatch(r"(?:\[(?P<v6>[^]]+)]|(?P<name>[^:\[\]]{1,253})):(?P<port>[0-9]{1,5})", address)
    if found is None or int(found["port"]) > 65_535:
        raise ValueError("not host:port")
    host: str = found["v6"] or found["name"]
    if found["v6"]:
        ipaddress.IPv6Address(host)
    elif re.search(r"(^|\.)[0-9]+\.?$", host):  # it ends in a number: an IPv4 address, or one mistyped
        ipaddress.IPv4Address(host)
    elif not re.fullmatch(r"([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?", host):
        raise ValueError("not a host name")
    return host, int(found["port"])


def _endpoint(address: str) -> tuple[str, int] | None:
    """What an address comes down to, so that two spellings of it are equal; None when it isn't one."""
    try:
        host, port = split_address(address)
    except ValueError:
        return None
    host = ipaddress.IPv6Address(host).compressed if ":" in host else host.lower().rstrip(".")
    return ("127.0.0.1" if host == "localhost" else host), port


def _address(lowest_port: int, right: str) -> AfterValidator:
    def check(address: str) -> str:
        endpoint = _endpoint(address)
        if endpoint is None or endpoint[1] < lowest_port:
            raise _refuse(f"is {_shown(address)}", f"write {right}")
        return address

    return AfterValidator(check)


def _unreadable(path: Path, error: Exception) -> PydanticCustomError:
    reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
    return _refuse(f"names {path}, which can't be read ({reason})",
                   "write the path of a file that the user running lockd may read")


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
        raise _refuse(f"names {path}, which is empty", "put the password into that file, on one line")
    return secret


def _secret_file(path: Path) -> Path:
    _secret_in(path)
    return path


def _socket_path(path: Path) -> Path:
    if (size := len(os.fsencode(path))) > SOCKET_PATH_BYTES:
        raise _refuse(f"is {size} bytes long", f"write a path of at most {SOCKET_PATH_BYTES} bytes")
    return path


def _mode(mode: object) -> int:
    if not isinstance(mode, str) or not re.fullmatch(r"0?[0-7]{3}", mode):
        raise _refuse(f"is {_shown(mode)}", 'write the octal permissions in quotes, as "0660"')
    return int(mode, 8)


MASTER_ADDRESS = 'host:port, as "10.0.0.1:6379" or "[2001:db8::1]:6379"'
METRICS_ADDRESS = 'host:port, as "127.0.0.1:9480" or "[::1]:9480", or null for none'
ClusterName = Annotated[StrictStr, _text("1 to 64 letters, digits, '.', '_' or '-'", "[A-Za-z0-9._-]{1,64}")]
Label = Annotated[StrictStr, _text("1 to 63 of a-z, 0-9 and '_', a letter first", "[a-z][a-z0-9_]{0,62}")]
SystemName = Annotated[StrictStr, Field(min_length=1)]
Pem = Annotated[Path, AfterValidator(_readable)]


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
        default=Path("/run/lockd/lockd.sock"), description="the path of the socket")
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

    def _values(self, max_ttl_ms: int) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in Policy.model_fields},
                "max_ttl_ms": self.max_ttl_ms or max_ttl_ms}


class LockClass(Policy):
    """A group of resources under one policy. In a Config its values are resolved: none is left to look up."""

    name: Label
    match: StrictStr = _text('a glob over resource names, as "billing:*", or "*" for all')
    max_ttl_ms: StrictInt = _whole(60_000, 10, DAY_MS)


class Limits(_Section):
    connections: StrictInt = _whole(10_000)
    connections_per_user: StrictInt = _whole(4_096)
    leases: StrictInt = _whole(100_000)
    leases_per_user: StrictInt = _whole(50_000)
    waiters: StrictInt = _whole(50_000)
    waiters_per_user: StrictInt = _whole(20_000)
    resource_bytes: StrictInt = _whole(512)
    request_bytes: StrictInt = _whole(65_536)
    pipeline_bytes: StrictInt = _whole(131_072)
    unsent_bytes: StrictInt = _whole(262_144)


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
        default="127.0.0.1:9480", description=METRICS_ADDRESS)
    timeouts: Timeouts = Timeouts()
    clock_skew_allowance_ms: StrictInt = _whole(100, 0, 60_000)
    defaults: Policy = Policy()
    classes: tuple[LockClass, ...] = Field(default=(), description='a list of {name: db, match: "db:*"}')
    limits: Limits = Limits()
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error")
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
        problems = [_problem(one) for one in errors if not isinstance(one["input"], _Refused)]
        known = {problem.path for problem in problems}
        problems += [problem for problem in _contradictions(document) if problem.path not in known]
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

    @cached_property
    def class_of(self) -> Callable[[bytes], LockClass]:
        """`class_of(resource)`: the first class that matches, else `other`. Hot, so a caching C function."""
        matchers = [(re.compile(fnmatch.translate(one.match)).match, one) for one in self.classes]
        other = self.other

        @lru_cache(maxsize=CLASSES_REMEMBERED)
        def class_of(resource: bytes) -> LockClass:
            name = resource.decode("utf-8", "surrogateescape")
            return next((one for matches, one in matchers if matches(name)), other)

        return class_of

    def password(self) -> str | None:
        """The masters' password, read anew from its file each time; ConfigError when that can't be done."""
        try:
            in_file = _secret_in(self.auth.password_file) if self.auth.password_file else None
        except PydanticCustomError as error:
            raise ConfigError([_custom("auth.password_file", error.context)]) from None
        return self.auth.password.get_secret_value() if self.auth.password else in_file

    def fingerprint(self) -> str:
        """12 hex digits that two agents share when their configurations, but for secrets, are the same."""
        canonical = json.dumps(self.model_dump(exclude={"auth": {"password"}}), sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def warnings(self) -> list[str]:
        """What works but is likely not meant, judged on this host and at this moment."""
        return [*_warn_of_numbers(self), *_warn_of_classes(self), *_warn_of_unknown_names(self),
                *_warn_of_open_secrets(self, self._source)]


def load(path: str | os.PathLike[str]) -> Config:
    """Reads a configuration file; raises ConfigError with every mistake in it."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError([_custom("configuration", _unreadable(Path(path), error).context)]) from None
    problems: list[Problem] = []
    document = _plain(_parsed(data), (), problems)
    try:
        config = Config.model_validate(document)
    except ConfigError as error:
        raise ConfigError(problems + error.problems) from None
    if problems:
        raise ConfigError(problems)
    config._source = Path(path)
    return config


# ---- YAML to plain values


class _Refused:
    """Stands where a value was refused, and has been reported, before pydantic saw it."""


class _Yaml(yaml.SafeLoader):
    """Resolves null, true, false and decimal numbers; everything else is text."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.current_event.start_mark
            raise yaml.MarkedYAMLError(problem="an alias (*) is not taken", problem_mark=mark)
        return super().compose_node(parent, index)


_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, Callable[[str], Any]] = {
    f"{_TAG}null": lambda text: None, f"{_TAG}bool": lambda text: text.lower() == "true",
    f"{_TAG}int": int, f"{_TAG}float": float, f"{_TAG}str": str}
_Yaml.yaml_implicit_resolvers = {}
for _kind, _pattern in (("null", r"(~|null|Null|NULL|)\Z"), ("bool", r"(true|True|TRUE|false|False|FALSE)\Z"),
                        ("int", r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)\Z"),
                        ("float", r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?\Z")):
    _Yaml.add_implicit_resolver(_TAG + _kind, re.compile(_pattern), None)


def _parsed(data: bytes) -> yaml.Node:
    where, wrong, text = "configuration", "is empty", data.decode("utf-8", "replace")
    try:
        data.decode("utf-8")
        if node := yaml.compose(text, _Yaml):
            return node
    except UnicodeDecodeError as error:
        where, wrong = f"line {data[:error.start].count(10) + 1}", "is not UTF-8"
    except yaml.reader.ReaderError as error:
        where, wrong = f"line {text[:error.position].count(chr(10)) + 1}", "has a control character"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else where
        wrong = f"is not YAML as it is read here: {error.problem or error.context}"
    except RecursionError:
        wrong = "is nested too deeply"
    except (ValueError, OverflowError):  # PyYAML lets these out, as on the escape \UFFFFFFFF
        wrong = "is not YAML: it has an escape or a directive that stands for nothing"
    right = 'write "key: value" lines, with quotes around text that has any of : # [ { & * ! % @'
    raise ConfigError([Problem(where, wrong, right)])


def _plain(node: yaml.Node, loc: Loc, problems: list[Problem]) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*loc, index), problems) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, loc, problems)
    wrong, right = "has a line break or an unprintable character in it", "write printable text on one line"
    try:
        if node.value.isprintable():
            return _SCALARS[node.tag](node.value)
    except (KeyError, ValueError):
        wrong, right = "has a tag (!) or a number that is not understood", "write it plainly, or in quotes"
    problems.append(Problem(_path(loc), wrong, right))
    return _Refused()


def _mapping(node: yaml.MappingNode, loc: Loc, problems: list[Problem]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key, line = key_node.value, key_node.start_mark.line + 1
        if not isinstance(key, str) or not key.isprintable():
            problems.append(Problem(_path(loc), f"has no key on line {line}", "write a name and a colon"))
            continue
        if key in found:
            problems.append(Problem(_path((*loc, key)), f"is repeated on line {line}", "keep one of them"))
        found[key] = _plain(value_node, (*loc, key), problems)
    return found


# ---- pydantic's errors in an operator's words

_SECTIONS: dict[tuple[str, ...], type[BaseModel]] = {
    (): Config, ("masters",): Master, ("auth",): Auth, ("tls",): Tls, ("socket",): Socket,
    ("timeouts",): Timeouts, ("defaults",): Policy, ("classes",): LockClass, ("limits",): Limits}


def _path(loc: Loc) -> str:
    """`("masters", 2, "address")` as `masters[2].address`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part[:64]}" for part in loc)
    return "".join(parts).removeprefix(".") or "configuration"


def _names(loc: Loc) -> tuple[str, ...]:
    return tuple(part for part in loc if isinstance(part, str))


def _field(loc: Loc) -> FieldInfo | None:
    *section, name = _names(loc) or ("",)
    return _SECTIONS[tuple(section)].model_fields.get(name) if tuple(section) in _SECTIONS else None


def _problem(error: ErrorDetails) -> Problem:
    loc, kind, value = error["loc"], error["type"], error["input"]
    path = _path(loc)
    if kind == "lockd":
        return _custom(path, error["ctx"])
    if kind == "extra_forbidden":
        return Problem(path, "is not a known key", _nearest_key(loc))
    if kind == "missing":
        return Problem(path, "is missing", _right(loc))
    shown = _kind_of(value) if loc[:1] == ("auth",) else _shown(value)  # secrets stay out of logs
    quotes = ", in quotes" if kind == "string_type" and isinstance(value, int | float) else ""
    return Problem(path, f"is {shown}", _right(loc) + quotes)


def _custom(path: str, context: dict[str, Any] | None) -> Problem:
    return Problem(path, (context or {})["wrong"], (context or {})["right"])


def _kind_of(value: object) -> str:
    kinds = ((str, "a text"), (int | float, "a number"), (dict, "a mapping"), (list | tuple, "a list"))
    named = next((kind for types, kind in kinds if isinstance(value, types)), "of no use here")
    return "empty" if value is None or value == "" else named


def _shown(value: object) -> str:
    if isinstance(value, str) and value and "@" not in value:  # with an @ it may be a URL with a password
        return f"the text {json.dumps(value[:64], ensure_ascii=False)}"
    if isinstance(value, bool):
        return str(value).lower()
    return f"the number {str(value)[:64]}" if isinstance(value, int | float) else _kind_of(value)


def _right(loc: Loc) -> str:
    field = _field(loc)
    if field and field.description:
        return f"write {field.description}"
    keys = ", ".join(_SECTIONS.get(_names(loc), Config).model_fields)
    return f'write "key: value" lines of {keys}' + (", or leave it out" if loc else "")


def _nearest_key(loc: Loc) -> str:
    *section, key = _names(loc)
    here = _SECTIONS[tuple(section)].model_fields
    if homes := [home for home, model in _SECTIONS.items() if key in model.model_fields]:
        return f"write it under {_path(homes[0])}" if homes[0] else "write it at the top level"
    near = difflib.get_close_matches(key[:64], here, 1)
    return f"did you mean {near[0]}?" if near else f"remove it; known here: {', '.join(here)}"


# ---- what is wrong between fields


def _at(document: Any, *loc: str | int) -> Any:
    """The value at a path of the document (or of models, when made in Python); None where there is none."""
    for part in loc:
        if isinstance(document, BaseModel):
            document = getattr(document, str(part), None)
        elif isinstance(document, dict):
            document = document.get(part)
        elif isinstance(document, list | tuple) and isinstance(part, int):
            document = document[part]
        else:
            return None
    return document


def _items(document: Any, section: str) -> Sequence[Any]:
    items = _at(document, section)
    return items if isinstance(items, list | tuple) else ()


def _contradictions(document: Any) -> Iterator[Problem]:
    yield from _wrong_number_of_masters(document)
    yield from _repeated(document, "masters", "name", str)
    yield from _repeated(document, "masters", "address", _endpoint)
    yield from _repeated(document, "classes", "name", str)
    for index, one in enumerate(_items(document, "classes")):
        if _at(one, "name") == "other":
            yield Problem(f"classes[{index}].name", "is other, which is the class of what no class matches",
                          "write another name, or set its policy under defaults")
    yield from _wrong_pairs(document)
    for low, high in _orders(document):
        yield from _out_of_order(document, low, high)


def _wrong_number_of_masters(document: Any) -> Iterator[Problem]:
    masters = _at(document, "masters")
    if isinstance(masters, list | tuple) and len(masters) not in (1, 3, 5, 7, 9):
        count = len(masters)
        even = f", which survive no more failures than {count - 1} do" if count in (4, 6, 8) else ""
        yield Problem("masters", f"has {count} masters{even}", "write 3, 5, 7 or 9 (or 1, to try things out)")


def _repeated(document: Any, section: str, key: str, same: Callable[[str], object]) -> Iterator[Problem]:
    seen: dict[object, str] = {}
    for index, item in enumerate(_items(document, section)):
        value, path = _at(item, key), f"{section}[{index}].{key}"
        identity = same(value) if isinstance(value, str) else None
        if identity is not None and seen.setdefault(identity, path) != path:
            yield Problem(path, f"is {_shown(value)}, the same as {seen[identity]}", f"write another {key}")


def _wrong_pairs(document: Any) -> Iterator[Problem]:
    password, file = _at(document, "auth", "password"), _at(document, "auth", "password_file")
    if password is not None and file is not None:
        yield Problem("auth", "has both password and password_file", "keep one, better password_file")
    if _at(document, "auth", "username") is not None and password is None and file is None:
        yield Problem("auth", "has a username but no password", "write password_file beside it")
    if (_at(document, "tls", "cert_file") is None) != (_at(document, "tls", "key_file") is None):
        yield Problem("tls", "has only one of cert_file and key_file", "write both, or neither")


def _orders(document: Any) -> Iterator[tuple[Loc, Loc]]:
    """Paths of numbers of which the first must not be above the second."""
    yield ("min_ttl_ms",), ("max_ttl_ms",)
    classes = [("classes", index, "max_ttl_ms") for index, _ in enumerate(_items(document, "classes"))]
    for ceiling in (("defaults", "max_ttl_ms"), *classes):
        yield ceiling, ("max_ttl_ms",)
        yield ("min_ttl_ms",), ceiling
    for what in ("connections", "leases", "waiters"):
        yield ("limits", f"{what}_per_user"), ("limits", what)
    yield ("limits", "resource_bytes"), ("limits", "request_bytes")
    yield ("limits", "request_bytes"), ("limits", "pipeline_bytes")


def _out_of_order(document: Any, low: Loc, high: Loc) -> Iterator[Problem]:
    least, most = _number(document, low), _number(document, high)
    written = [loc for loc in (low, high) if _at(document, *loc) is not None]
    if least is None or most is None or least <= most or not written:
        return
    if max(written, key=len) == low:  # the more particular one is to blame
        yield Problem(_path(low), f"is {least}, above {_path(high)} ({most})",
                      f"write at most {most}, or raise {_path(high)}")
    elif not str(low[-1]).endswith("_per_user"):  # a default per user above the total does no harm
        yield Problem(_path(high), f"is {most}, below {_path(low)} ({least})",
                      f"write at least {least}, or lower {_path(low)}")


def _number(document: Any, loc: Loc) -> int | None:
    """The number at a path, or its default; None when it is inherited, or no number, as pydantic will say."""
    value, field = _at(document, *loc), _field(loc)
    if value is None and field and loc[0] != "classes":
        value = field.default
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# ---- what works, but is likely not meant


def _warn_of_numbers(config: Config) -> Iterator[str]:
    if len(config.masters) == 1:
        yield "masters: there is only one, and its failure stops all locking; write 3, 5, 7 or 9"
    drift_ms = config.min_ttl_ms // 100 + 2
    if config.min_ttl_ms - drift_ms <= config.min_validity_ms:
        yield (f"min_ttl_ms: a lease of {config.min_ttl_ms} ms is never granted: {drift_ms} ms for drift "
               f"and min_validity_ms ({config.min_validity_ms}) use it up; raise min_ttl_ms")


def _warn_of_classes(config: Config) -> Iterator[str]:
    for index, one in enumerate(config.classes):
        shadow = next((first for first in config.classes[:index] if _covers(first.match, one.match)), None)
        if shadow is not None:
            yield (f"classes[{index}]: {one.name} is never reached, since {shadow.name} before it matches "
                   f"all of {one.match!r}; put {one.name} first")
        if (one.users, one.groups) != (None, None) and not one.users and not one.groups:
            yield f"classes[{index}]: nobody may lock {one.name}; name someone in its users or groups"


def _covers(earlier: str, later: str) -> bool:
    """Whether a glob matches all that a later one does, where that is plain: [ and ? are left alone."""
    plain = not set("[?").intersection(earlier) and "[" not in later
    return earlier == later or (plain and fnmatch.fnmatchcase(later, earlier))


def _warn_of_unknown_names(config: Config) -> Iterator[str]:
    named = [("admin_group", "group", config.admin_group), ("socket.group", "group", config.socket.group)]
    policies: dict[str, Policy] = {"defaults": config.defaults}
    policies |= {f"classes[{index}]": one for index, one in enumerate(config.classes)}
    for path, policy in policies.items():
        named += [(f"{path}.users", "user", name) for name in policy.users or ()]
        named += [(f"{path}.groups", "group", name) for name in policy.groups or ()]
    for path, kind, name in named:
        if name is not None and not _on_this_host(kind, name):
            yield f"{path}: there is no {kind} {name!r} on this host; create it, or correct the name"


def _on_this_host(kind: str, name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name) if kind == "user" else grp.getgrnam(name))
    except (KeyError, ValueError):
        return False


def _warn_of_open_secrets(config: Config, source: Path | None) -> Iterator[str]:
    for name, path in (("password", source if config.auth.password else None),
                       ("password_file", config.auth.password_file)):
        if path is not None and path.exists() and path.stat().st_mode & 0o004:
            yield f"auth.{name}: everybody on this host can read it; chmod o-r {path}"
