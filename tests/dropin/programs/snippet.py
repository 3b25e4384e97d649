"""A snippet of an article: plain commands over redis-py, as tests/dropin/snippets.py has them."""

import json
import sys
import uuid

import redis
from serving import seconds, serve


class Locks:
    def __init__(self, path, snippet):
        self._client = redis.Redis(unix_socket_path=path, decode_responses=True)
        self._snippet = snippet
        self._tokens = {}

    def _run(self, step, name, token, ttl_ms=0):
        """True when the first of its commands did it; those after it come only then, but for a MULTI."""
        words = {"name": name, "token": token, "ms": ttl_ms, "s": seconds(ttl_ms)}
        commands = [[filled(word, words) for word in command] for command in self._snippet[step]]
        if self._snippet.get("multi"):
            with self._client.pipeline() as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return bool(pipeline.execute()[0])
        return bool(self._client.execute_command(*commands[0])) and all(
            self._client.execute_command(*command) for command in commands[1:]
        )

    def acquire(self, name, ttl_ms, wait_ms=0):
        token = uuid.uuid4().hex
        got = self._run("acquire" if ttl_ms else "acquire for ever", name, token, ttl_ms)
        if got:
            self._tokens[name] = token
        return got

    def release(self, name):
        return self.release_as(name, self._tokens[name])

    def extend(self, name, ttl_ms):
        return self._run("extend", name, self._tokens[name], ttl_ms)

    def locked(self, name):
        return self._client.exists(name) == 1

    def owned(self, name):
        return name in self._tokens and self._client.get(name) == self._tokens[name]

    def token(self, name):
        return self._tokens[name]

    def release_as(self, name, token):
        if self._snippet["release"] == "get, then del":
            return self._client.get(name) == token and self._client.delete(name) == 1
        return self._run("release", name, token)


def filled(word, words):
    """{name}, {token}, {ms} or {s}, or the word as it is: scripts have braces of their own."""
    return words[word[1:-1]] if word[:1] == "{" and word[1:-1] in words else word


serve(Locks(sys.argv[1], json.loads(sys.argv[2])), ())
