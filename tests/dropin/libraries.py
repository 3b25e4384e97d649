"""The libraries that are played with here; `environments` has their versions again, to be installed."""

from __future__ import annotations

from tests.dropin.library import compiled, of_npm, of_pypi, snippet
from tests.dropin.snippets import SNIPPETS

ITS_LOCK_ALONE = "Its lock alone: what else it keeps in Redis (queues, schedules) is no lock, and stays."
SAYS_NOTHING = "It does not say whether it released; what was left was looked at."
NO_ENDLESS = (
    "Its `expire=None` sends `EXPIRE key -1`, by which a Redis deletes the lock at once, and the library "
    "goes on without it. Here it gets an error, and nothing is locked. Give it an `expire`."
)
OLD_CLIENTS = "node-redis 3: it calls `evalsha`, which node-redis has no more since 4."
ONE_CLIENT = "It knows ioredis only."
NOT_USING = (
    "Its `using()` does not extend: its script compares what is left with a number, and is not recognised. "
    "The lock then ends at its TTL, and its signal is aborted."
)
NEW_VALUES = (
    "Its `extend` and `lockAtLeastFor` set another value each time (`SET XX`) and get `TAKEN`: a lock keeps "
    "its value. It then stays until `lockAtMostFor`."
)
NO_HASH = "`RedisExpireHuey`: a `RedisHuey` keeps its locks in a hash."

_REDIS_PY = "for ever, waits, extend, add, reacquire, locked, owned, token, release_as"
_BY_TOKEN = "waits, extend, token, release_as"

LIBRARIES = [
    of_pypi("redis", "8.1.0", "redis_py.py", f"{_REDIS_PY}, release_in_thread", "redis-py Lock"),
    of_pypi("redis", "8.1.0", "redis_py_asyncio.py", _REDIS_PY, "redis-py asyncio Lock"),
    of_pypi("django-redis", "7.0.0", "django_cache.py", f"{_REDIS_PY}, release_in_thread"),
    of_pypi("pottery", "3.0.1", "pottery_redlock.py", "waits, extend, owned"),
    of_pypi("redlock-py", "1.0.8", "redlock_py.py", "waits, token, release_as", note=SAYS_NOTHING),
    of_pypi("aioredlock", "0.7.3", "aioredlock_lock.py", f"{_BY_TOKEN}, locked", folder="then"),
    of_pypi("python-redis-lock", "4.0.1", "python_redis_lock.py", f"{_BY_TOKEN}, for ever, locked, owned"),
    of_pypi("walrus", "0.9.8", "walrus_lock.py", "waits, for ever, token, release_as"),
    of_pypi("sherlock", "0.4.1", "sherlock_redis.py", "waits, extend, locked", note=NO_ENDLESS),
    of_pypi("celery-redbeat", "2.4.2", "redbeat_lock.py", "waits, extend, owned", note=ITS_LOCK_ALONE),
    of_pypi("rq", "3.0.0", "rq_scheduler.py", "extend", note=ITS_LOCK_ALONE),
    of_pypi("huey", "3.5.4", "huey_lock.py", "for ever, locked, careless", note=NO_HASH),
    of_npm("node-redis-warlock", "1.0.2", "warlock.js", _BY_TOKEN, "ioredis"),
    of_npm("node-redis-warlock", "1.0.2", "warlock.js", _BY_TOKEN, "node-redis", note=OLD_CLIENTS),
    of_npm("redlock", "4.2.0", "redlock4.js", _BY_TOKEN, "ioredis", "redlock4"),
    of_npm("redlock", "4.2.0", "redlock4.js", _BY_TOKEN, "node-redis", "redlock4", note=OLD_CLIENTS),
    of_npm("redlock", "5.0.0-beta.2", "redlock5.js", _BY_TOKEN, "ioredis", "redlock5", note=ONE_CLIENT),
    of_npm("redlock-universal", "0.8.5", "redlock_universal.js", _BY_TOKEN, "ioredis", note=NOT_USING),
    of_npm("node-redis", "5.12.1", "node_redis.js", f"{_BY_TOKEN}, for ever, locked, owned", folder="redis5"),
    compiled("redigo NewScript, SET NX PX in a script", "redigo/locks", f"{_BY_TOKEN}, locked"),
    compiled(
        "Jedis 8.0.2, raw CAS and CAD", "jedis/locks", f"{_BY_TOKEN}, for ever, locked, owned, newer", "sh"
    ),
    compiled("ShedLock 5.12.0 over Jedis", "shedlock/locks", "careless", "sh", note=NEW_VALUES),
    *map(snippet, SNIPPETS),
]

QUICK = "SET NX PX, compare-and-delete of redis.io"
"""What is played in `make test`, too: nothing has to be installed for it, and most libraries lock so."""
