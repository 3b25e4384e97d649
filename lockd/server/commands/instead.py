"""Commands that lockd does not have, and that code written for a Redis sends all the same: what to do
instead.

These texts are only in errors. COMMAND does not list these commands, and no handler has to refuse them.
"""

from lockd.core.scripts.other_data import instead_of

_STORES_LOCKS = "It stores only locks"
_NO_MESSAGES = (
    "It has no publish and subscribe: wait with LOCK resource ttl-ms WAIT ms, or retry until it is free"
)
_NO_CACHING = "It sends no invalidations: turn client-side caching off"
_WOULD_TAKE = "That would take a lock from its holder: take it with SET key value NX PX milliseconds"
_WOULD_FREE = "That would release it, no matter who holds it: release your own lock with DELEX key IFEQ value"
_WOULD_FREE_ALL = (
    "That would release every lock, no matter who holds it: release your own locks with DELEX key IFEQ "
    "value, one by one"
)
_NO_FUNCTIONS = "Functions are not supported: send lock scripts with EVAL"
_NO_ABSOLUTE_TIMES = "Absolute times are supported only in SET: use PEXPIRE key milliseconds, and PTTL key"
_IN_TWO = "Read with GET key, and extend with PEXPIRE key milliseconds"
_ONE_REDIS = "It behaves like a single Redis: connect without cluster and sentinel"

_OF_NAMES = {
    "SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE": _NO_MESSAGES,
    "PUBLISH SPUBLISH PUBSUB": _NO_MESSAGES,
    "CLIENT|TRACKING CLIENT|TRACKINGINFO CLIENT|CACHING": _NO_CACHING,
    "GETSET MSET PSETEX SETEX": _WOULD_TAKE,
    "GETDEL": _WOULD_FREE,
    "FLUSHALL FLUSHDB": _WOULD_FREE_ALL,
    "FCALL FCALL_RO FUNCTION": _NO_FUNCTIONS,
    "EXPIREAT EXPIRETIME PEXPIREAT PEXPIRETIME": _NO_ABSOLUTE_TIMES,
    "GETEX": _IN_TWO,
    "CLUSTER SENTINEL": _ONE_REDIS,
}
"""By the names of commands; subcommands with "|"."""
_INSTEAD = {name: words for names, words in _OF_NAMES.items() for name in names.split()}


def unknown(name: str) -> str:
    """The error for a command that does not exist here. It begins as in Redis: clients recognise it by
    that."""
    other = instead_of(name)
    no_lock = f"{_STORES_LOCKS}: {other}" if other else f"{_STORES_LOCKS}; COMMAND LIST lists its commands"
    words = _INSTEAD.get(name.upper(), no_lock)
    return f"ERR unknown command '{name}': this is a lock agent. {words}"


def unknown_of_client(name: str) -> str:
    """The error for a subcommand of CLIENT. The usage of CLIENT follows."""
    words = _INSTEAD.get(f"CLIENT|{name.upper()}")
    return f"ERR unknown subcommand '{name}': this is a lock agent. {f'{words}. ' if words else ''}Try"
