"""django-redis: cache.lock, of a cache whose LOCATION is the socket."""

import sys

from django.conf import settings
from of_redis_py import REFUSALS, Locks
from serving import serve

settings.configure(
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"unix://{sys.argv[1]}"}}
)
from django.core.cache import cache  # noqa: E402 - it looks at the settings

serve(Locks(lambda name, timeout, **options: cache.lock(name, timeout=timeout, **options)), REFUSALS)
