"""redis-py: Redis.lock."""

import sys

import redis
from of_redis_py import REFUSALS, Locks
from serving import serve

client = redis.Redis(unix_socket_path=sys.argv[1])
serve(Locks(lambda name, timeout, **options: client.lock(name, timeout=timeout, **options)), REFUSALS)
