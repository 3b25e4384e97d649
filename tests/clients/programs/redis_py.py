"""redis-py: a pool, and a thread for each command."""

import sys
import threading

import redis


def flat(value):
    if isinstance(value, dict):
        value = [one for pair in value.items() for one in pair]
    if isinstance(value, list):
        return " ".join(map(flat, value))
    return "nil" if value is None else str(value)


def opened(timeout_ms):
    return redis.Redis(
        unix_socket_path=sys.argv[1], socket_timeout=int(timeout_ms) / 1000, retry=None, decode_responses=True
    )


def piped(pipeline, *commands):
    for command in commands:
        pipeline.execute_command(*command)
    return pipeline.execute()


def run(verb, name, *words):
    if verb == "open":
        clients[name] = opened(*words)
    elif verb == "drop":
        clients[name].connection_pool.disconnect()
    elif verb == "multi":
        return piped(clients[name].pipeline(), words)
    elif verb == "pipe":
        return piped(clients[name].pipeline(transaction=False), ["ECHO", "a"], words, ["ECHO", "b"])
    else:
        return clients[name].execute_command(*words)
    return "OK"


def answer(tag, *words):
    try:
        said = f"{tag} + {flat(run(*words))}\n"
    except redis.RedisError as error:
        said = f"{tag} - {error}\n"
    sys.stdout.write(said)
    sys.stdout.flush()


clients = {}
for line in sys.stdin:
    threading.Thread(target=answer, args=line.split(), daemon=True).start()
