"""What is no command here, and is sent all the same by code that was written for a Redis: what to do instead.

These words stand in errors alone. COMMAND does not name what they are of, and no handler has to refuse it.
"""

_NO_OTHER_DATA = "It stores locks and no other data; COMMAND LIST names its commands"
_NO_MESSAGES = (
    "It publishes nothing, no release either: wait with LOCK resource ttl-ms WAIT ms, or try again until it "
    "is free"
)
_NO_CACHING = "It sends no invalidations: turn client-side caching off"
_WOULD_TAKE = "That would take a lock from whoever has it: take it with SET key value NX PX milliseconds"
_WOULD_FREE = "That would release it, whoever holds it: release what is yours with DELEX key IFEQ value"
_WOULD_FREE_ALL = (
    "That would release every lock, whoever holds it: release what is yours with DELEX key IFEQ value, each "
    "by itself"
)
_NO_WATCH = (
    "There is nothing to watch: release with DELEX key IFEQ value, extend with SET key value IFEQ value PX "
    "milliseconds, or send a script that compares"
)
_NO_FUNCTIONS = "There are no functions: scripts of locks are taken by EVAL"
_NO_ABSOLUTE_TIMES = "There are no absolute times here but in SET: use PEXPIRE key milliseconds, and PTTL key"
_IN_TWO = "Read with GET key, and extend with PEXPIRE key milliseconds"
_SEVERAL = "Take several locks at once with LOCK resource ttl-ms AND resource"
_LISTING = "LOCKS [pattern] lists what is locked"
_ONE_REDIS = "It is one Redis to its apps: connect without cluster and sentinel"

_OF_NAMES = {
    "SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE": _NO_MESSAGES,
    "PUBLISH SPUBLISH PUBSUB": _NO_MESSAGES,
    "CLIENT|TRACKING CLIENT|TRACKINGINFO CLIENT|CACHING": _NO_CACHING,
    "GETSET MSET PSETEX SETEX": _WOULD_TAKE,
    "GETDEL": _WOULD_FREE,
    "FLUSHALL FLUSHDB": _WOULD_FREE_ALL,
    "WATCH": _NO_WATCH,
    "FCALL FCALL_RO FUNCTION": _NO_FUNCTIONS,
    "EXPIREAT EXPIRETIME PEXPIREAT PEXPIRETIME": _NO_ABSOLUTE_TIMES,
    "GETEX": _IN_TWO,
    "MSETNX": _SEVERAL,
    "DBSIZE KEYS RANDOMKEY SCAN": _LISTING,
    "CLUSTER SENTINEL": _ONE_REDIS,
}
"""By the names of commands; with "|" of subcommands."""
_INSTEAD = {name: words for names, words in _OF_NAMES.items() for name in names.split()}


def unknown(name: str) -> str:
    """The error of what is no command here. It begins as that of Redis: by that, clients know what a server
    lacks."""
    words = _INSTEAD.get(name.upper(), _NO_OTHER_DATA)
    return f"ERR unknown command '{name}': this is a lock agent. {words}"


def unknown_of_client(name: str) -> str:
    """That of a subcommand of CLIENT. The usage of CLIENT follows."""
    words = _INSTEAD.get(f"CLIENT|{name.upper()}")
    return f"ERR unknown subcommand '{name}': this is a lock agent. {f'{words}. ' if words else ''}Try"
