"""The libraries in the comparison, each used the way its own manual shows, behind one small interface.

One contender serves one client. What can be made once is made once (connections, lock objects), which is the
fastest that each can do. All ask for a TTL of 10 s, and stand in line for `wait_s` at most when another holds
the resource: those that can wait do it in their own way, with their default pauses; redlock-py gives up after
three tries, so it is asked again until the time is up.
"""

from __future__ import annotations

import importlib
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import hiredis
import redis
from redis.lock import Lock

from lockd import Client, Taken, WaitTimeout
from lockd.dev.processes import LOOPBACK
from tests.bench.peers import ETCD, ZOOKEEPER

TTL_S = 10
TTL_MS = TTL_S * 1000


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the agent of a host and the masters listen. The libraries for one Redis use the first master.
    others: agents of other hosts. peers: the members of etcd and ZooKeeper, by name. relay: see relay.py."""

    socket: str
    ports: Sequence[int]
    others: Sequence[str] = ()
    peers: dict[str, list[int]] = field(default_factory=dict)
    relay: str = ""

    def on(self, host: int) -> Addresses:
        """As they are for a client on this host."""
        return self if host == 0 else replace(self, socket=self.others[host - 1])


class Contender(Protocol):
    """One client of one library."""

    def acquire(self, resource: str) -> Any:
        """What `release` takes, or None when another held it until the wait was over."""

    def release(self, held: Any) -> None: ...


Make = Callable[[Addresses, float], Contender]
"""Makes the contender of one client; the number is how many seconds it may stand in line (0: it doesn't)."""


class LockdClient:
    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        self._client = Client(addresses.socket)
        self._wait_s = wait_s

    def acquire(self, resource: str) -> Any:
        try:
            return self._client.acquire(resource, ttl=TTL_S, wait=self._wait_s)
        except (Taken, WaitTimeout):
            return None

    def release(self, held: Any) -> None:
        held.release()


class RawLink:
    """A socket and a parser, as little as a client in any language could be."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._reader = hiredis.Reader()

    @classmethod
    def to_agent(cls, path: str) -> RawLink:
        link = socket.socket(socket.AF_UNIX)
        link.connect(path)
        return cls(link)

    @classmethod
    def to_master(cls, port: int) -> RawLink:
        link = socket.create_connection((LOOPBACK, port))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(link)

    def ask(self, request: bytes) -> Any:
        """The reply; an error is returned, not raised."""
        self.send(request)
        return self.hear()

    def close(self) -> None:
        self._link.close()

    def send(self, request: bytes) -> None:
        self._link.sendall(request)

    def hear(self) -> Any:
        while (reply := self._reader.gets()) is False:
            data = self._link.recv(65_536)
            if not data:
                raise ConnectionError("the connection was closed")
            self._reader.feed(data)
        return reply


class LockdRaw:
    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        self._link = RawLink.to_agent(addresses.socket)
        self._options = (b"WAIT", int(wait_s * 1000)) if wait_s else ()

    def acquire(self, resource: str) -> Any:
        reply = self._link.ask(packed("LOCK", resource, TTL_MS, *self._options))
        if isinstance(reply, hiredis.ReplyError):
            if str(reply).startswith(("TAKEN", "TIMEOUT")):
                return None
            raise reply
        return resource, reply[1]

    def release(self, held: Any) -> None:
        reply = self._link.ask(packed("UNLOCK", *held))
        if isinstance(reply, hiredis.ReplyError):
            raise reply


class RelayClient(LockdClient):
    """The same client, of the least that an agent could do: relay.py."""

    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        super().__init__(replace(addresses, socket=addresses.relay), wait_s)


class RelayRaw(LockdRaw):
    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        super().__init__(replace(addresses, socket=addresses.relay), wait_s)


class RedlockPy:
    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        library: Any = importlib.import_module("redlock")
        self._redlock = library.Redlock([{"host": LOOPBACK, "port": port} for port in addresses.ports])
        self._wait_s = wait_s

    def acquire(self, resource: str) -> Any:
        until_s = time.monotonic() + self._wait_s
        while True:
            held = self._redlock.lock(resource, TTL_MS)
            if held:
                return held
            if time.monotonic() >= until_s:
                return None

    def release(self, held: Any) -> None:
        self._redlock.unlock(held)


class Pottery:
    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        self._library: Any = importlib.import_module("pottery")
        self._masters = {redis.Redis(LOOPBACK, port) for port in addresses.ports}
        self._wait_s = wait_s
        self._locks: dict[str, Any] = {}

    def acquire(self, resource: str) -> Any:
        lock = self._locks.get(resource)
        if lock is None:
            lock = self._locks[resource] = self._library.Redlock(
                key=resource, masters=self._masters, auto_release_time=TTL_S
            )
        worked = lock.acquire(timeout=self._wait_s) if self._wait_s else lock.acquire(blocking=False)
        return lock if worked else None

    def release(self, held: Any) -> None:
        held.release()


class RedisPyLock:
    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        self._redis = self._connected(addresses)
        self._wait_s = wait_s
        self._locks: dict[str, Lock] = {}

    @staticmethod
    def _connected(addresses: Addresses) -> redis.Redis:
        return redis.Redis(LOOPBACK, addresses.ports[0])

    def acquire(self, resource: str) -> Any:
        lock = self._locks.get(resource)
        if lock is None:
            lock = self._locks[resource] = self._redis.lock(
                resource, timeout=TTL_S, blocking=self._wait_s > 0, blocking_timeout=self._wait_s or None
            )
        return lock if lock.acquire() else None

    def release(self, held: Any) -> None:
        held.release()


class DropIn(RedisPyLock):
    """The same, with the agent's socket as its address."""

    @staticmethod
    def _connected(addresses: Addresses) -> redis.Redis:
        return redis.Redis(unix_socket_path=addresses.socket)


class LockByRedisPy:
    """LOCK and UNLOCK as commands of redis-py: what the agent is asked at the pace of `DropIn`."""

    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        self._ask = redis.Redis(unix_socket_path=addresses.socket).execute_command
        self._options = ("WAIT", int(wait_s * 1000)) if wait_s else ()

    def acquire(self, resource: str) -> Any:
        try:
            return resource, self._ask("LOCK", resource, TTL_MS, *self._options)[b"token"]
        except redis.ResponseError as error:
            if str(error).startswith(("TAKEN", "TIMEOUT")):
                return None
            raise

    def release(self, held: Any) -> None:
        self._ask("UNLOCK", *held)


class Etcd:
    """One lease for each client, kept while it runs, and one transaction for each lock: what etcd's own
    client for Go does, and the most that can be had of it. The lock of the client for Python takes a new
    lease each time."""

    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        library: Any = importlib.import_module("etcd3")
        ports = addresses.peers[ETCD]
        self._late = library.exceptions.WatchTimedOut
        self._etcd = library.client(LOOPBACK, ports[id(self) // 64 % len(ports)])
        self._lease = self._etcd.lease(TTL_S)
        self._good_until_s = time.monotonic() + TTL_S / 3
        self._wait_s = wait_s

    def acquire(self, resource: str) -> Any:
        until_s = time.monotonic() + self._wait_s
        self._keep_lease()
        etcd, key = self._etcd, f"/{resource}"
        while True:
            mine, answers = etcd.transaction(
                compare=[etcd.transactions.create(key) == 0],
                success=[etcd.transactions.put(key, b"x" * 32, lease=self._lease)],
                failure=[etcd.transactions.get(key)],
            )
            if mine:
                return key
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return None
            [[(_, seen)]] = answers
            with suppress(self._late):
                etcd.watch_once(key, left_s, start_revision=seen.response_header.revision + 1)

    def _keep_lease(self) -> None:
        if time.monotonic() > self._good_until_s:
            self._lease.refresh()
            self._good_until_s = time.monotonic() + TTL_S / 3

    def release(self, held: Any) -> None:
        self._etcd.delete(held)


class ZooKeeper:
    """kazoo's lock recipe. It has no TTL: what is held ends with its session."""

    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        library: Any = importlib.import_module("kazoo.client")
        self._late = importlib.import_module("kazoo.exceptions").LockTimeout
        hosts = ",".join(f"{LOOPBACK}:{port}" for port in addresses.peers[ZOOKEEPER])
        self._kazoo = library.KazooClient(hosts=hosts, timeout=TTL_S)
        self._kazoo.start(timeout=30)
        self._wait_s = wait_s
        self._locks: dict[str, Any] = {}

    def acquire(self, resource: str) -> Any:
        lock = self._locks.get(resource)
        if lock is None:
            lock = self._locks[resource] = self._kazoo.Lock(f"/{resource}")
        try:
            worked = lock.acquire(timeout=self._wait_s) if self._wait_s else lock.acquire(blocking=False)
        except self._late:
            return None
        return lock if worked else None

    def release(self, held: Any) -> None:
        held.release()


class PlainSet:
    """No lock: the one command that any lock on one master has to wait for. The key is deleted by DEL."""

    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        self._redis = redis.Redis(LOOPBACK, addresses.ports[0])

    def acquire(self, resource: str) -> Any:
        return resource if self._redis.set(resource, "x" * 32, nx=True, px=TTL_MS) else None

    def release(self, held: Any) -> None:
        self._redis.delete(held)


class RawSet:
    def __init__(self, addresses: Addresses, wait_s: float) -> None:
        self._link = RawLink.to_master(addresses.ports[0])

    def acquire(self, resource: str) -> Any:
        reply = self._link.ask(packed("SET", resource, "x" * 32, "NX", "PX", TTL_MS))
        return None if reply is None else resource

    def release(self, held: Any) -> None:
        self._link.ask(packed("DEL", held))


def packed(*words: bytes | str | int) -> bytes:
    request: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub knows one word only
    return request


CLIENT, RAW = "lockd (lockd.Client)", "lockd (raw socket)"
DROP_IN, BY_REDIS_PY = "lockd (redis-py Lock)", "lockd (LOCK by redis-py)"
REDLOCK_PY, POTTERY, REDIS_PY = "redlock-py", "pottery Redlock", "redis-py Lock (1 master)"
ETCD_3, ZOOKEEPER_3 = "etcd (3 members, etcd3)", "ZooKeeper (3 members, kazoo)"
PLAIN_SET, RAW_SET = "plain SET (redis-py)", "plain SET (raw socket)"
RELAY, RAW_RELAY = "bare relay (lockd.Client)", "bare relay (raw socket)"

CONTENDERS: dict[str, Make] = {
    CLIENT: LockdClient,
    RAW: LockdRaw,
    DROP_IN: DropIn,
    BY_REDIS_PY: LockByRedisPy,
    REDLOCK_PY: RedlockPy,
    POTTERY: Pottery,
    REDIS_PY: RedisPyLock,
    ETCD_3: Etcd,
    ZOOKEEPER_3: ZooKeeper,
}
PEERS = {ETCD_3: ETCD, ZOOKEEPER_3: ZOOKEEPER}
"""Contenders with servers of their own, by tests/bench/peers.py's names."""
BASELINES: dict[str, Make] = {PLAIN_SET: PlainSet, RAW_SET: RawSet}
RELAYS: dict[str, Make] = {RELAY: RelayClient, RAW_RELAY: RelayRaw}
"""No locks either: what an agent would come to here that kept no rule at all."""

# Distributions beside redis-py that a contender needs, by the module to import.
NEEDS = {REDLOCK_PY: "redlock", POTTERY: "pottery"}
