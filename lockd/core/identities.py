"""Who a master says it is, and which masters vote together (rule 8).

A cluster's members are names with admission numbers. When a master is admitted after it lost its data, or in
place of another machine, it gets a new number, which is first written on a quorum of the *others*. So of two
machines of one name, fewer than a quorum of masters still list the older one, and no agent finds a quorum
through it.

Every vote carries a digest of the members: of the cluster's id, the members with their numbers and the name
of the master that it is for, as the agent knows them. The master compares it with its own digest, so a vote
is for what the agent knew. The digests differ, and the vote is refused, when the agent has another list of
masters or means another cluster of the same name, when the list has changed meanwhile, and when the master's
data is a copy of another master's.

Why it is sound: a quorum counts only when every two of its masters have each other with their present numbers
(`voting_together`), and each has said so at the moment of its vote. Numbers only grow.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import combinations

from lockd.core.validity import DAY_MS

FORMAT = 2
"""The format of identities. Format 1 had neither a random id nor members."""

LONGEST_TTL_MS = DAY_MS
"""No configuration allows more: a master that names a larger TTL is not believed."""

_MEMBER = re.compile(r"([A-Za-z0-9._-]{1,64}):([1-9][0-9]{0,8})")
_CLUSTER_ID = re.compile(r"[0-9a-f]{32}")

MEMBERS_DIGEST = "electorate"
"""The name under which masters keep the digest of members."""


@dataclass(frozen=True, slots=True)
class Members:
    """The names of a cluster's masters, each with its latest admission number, sorted by name."""

    numbers: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, numbers: Mapping[str, int]) -> "Members":
        return cls(tuple(sorted(numbers.items())))

    @classmethod
    def first(cls, names: Iterable[str]) -> "Members":
        """The members when a cluster is formed."""
        return cls.of(dict.fromkeys(names, 1))

    @classmethod
    def parse(cls, text: str) -> "Members | None":
        found = [_MEMBER.fullmatch(word) for word in text.split(" ")]
        numbers = {match[1]: int(match[2]) for match in found if match is not None}
        members = cls.of(numbers)
        return members if str(members) == text else None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.numbers)

    def number_of(self, name: str) -> int:
        """0 if there is no such member."""
        for member, number in self.numbers:
            if member == name:
                return number
        return 0

    def with_number(self, name: str, number: int) -> "Members":
        return Members.of({**dict(self.numbers), name: number})

    def __str__(self) -> str:
        return " ".join(f"{name}:{number}" for name, number in self.numbers)


@dataclass(frozen=True, slots=True)
class Identity:
    """What is written on a master when the cluster is formed or the master admitted.

    was_max_ttl_ms: the ceiling before it was lowered, as long as leases from that time may live; else 0.
    """

    cluster: str
    name: str
    max_ttl_ms: int
    was_max_ttl_ms: int = 0
    cluster_id: str = ""
    members: Members = Members()
    format: int = FORMAT

    @property
    def number(self) -> int:
        """The number of its admission, which is also in its members."""
        return self.members.number_of(self.name)

    @property
    def is_older(self) -> bool:
        return self.format < FORMAT

    @property
    def longest_ttl_ms(self) -> int:
        """From now on, no lease that it has voted for can live longer than this (rule 9)."""
        return max(self.max_ttl_ms, self.was_max_ttl_ms)

    @property
    def members_digest(self) -> str:
        return self.members_digest_as(self.name, self.members.names)

    def members_digest_as(self, name: str, names: Iterable[str]) -> str:
        """What a vote for the master `name` carries, in a cluster of these masters with this id and these
        numbers."""
        members = Members.of({member: self.members.number_of(member) for member in names})
        said = f"lockd {self.cluster} {self.cluster_id} {members} as {name}"
        return sha256(said.encode()).hexdigest()[:32]

    def with_members(self, members: Members) -> "Identity":
        return replace(self, members=members)

    @property
    def list_fields(self) -> dict[str, str]:
        """What changes when another member gets a new number."""
        return {"members": str(self.members), MEMBERS_DIGEST: self.members_digest}

    @property
    def fields(self) -> dict[str, str]:
        """All its fields, as a master stores them."""
        return {
            "format": str(FORMAT),
            "cluster": self.cluster,
            "cluster_id": self.cluster_id,
            "name": self.name,
            "max_ttl_ms": str(self.max_ttl_ms),
            **self.list_fields,
        }

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> "Identity | None":
        """None when the fields are no identity at all (a blank master, or data that isn't ours). Of another
        format, it has only what all formats have."""
        ceiling_ms = _ttl_ms(fields.get("max_ttl_ms", ""))
        format_ = _format(fields.get("format", "1"))
        if not {"cluster", "name"} <= fields.keys() or ceiling_ms is None or format_ is None:
            return None
        was_ms = _ttl_ms(fields.get("was_max_ttl_ms", "")) or 0
        base = cls(fields["cluster"], fields["name"], ceiling_ms, was_ms, format=format_)
        return base if format_ != FORMAT else base._with_list(fields)

    def _with_list(self, fields: Mapping[str, str]) -> "Identity | None":
        """None if they contradict each other: then nobody can say which masters it votes with."""
        members, cluster_id = Members.parse(fields.get("members", "")), fields.get("cluster_id", "")
        if members is None or not _CLUSTER_ID.fullmatch(cluster_id):
            return None
        whole = replace(self, cluster_id=cluster_id, members=members)
        return whole if whole.number and whole.members_digest == fields.get(MEMBERS_DIGEST) else None


def _ttl_ms(text: str) -> int | None:
    """A TTL as a master stores it; None when it can't be one, since waits of that length would rest on it."""
    if not (text.isascii() and text.isdigit() and len(text) <= 8):
        return None
    ms = int(text)
    return ms if 0 < ms <= LONGEST_TTL_MS else None


def _format(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


def agree(one: Identity, other: Identity) -> bool:
    """Whether each lists the other under the other's number. Usually they have the same list, which settles
    it."""
    return one.cluster_id == other.cluster_id and (
        one.members == other.members
        or (
            one.members.number_of(other.name) == other.number
            and other.members.number_of(one.name) == one.number
        )
    )


def agrees_with_all(one: Identity, others: Iterable[Identity]) -> bool:
    return all(agree(one, other) for other in others)


def voting_together(identities: Sequence[Identity | None]) -> int:
    """The largest set of masters of which every two agree, as bits: only its votes can be a quorum. It never
    follows one list alone: a master that invents numbers is the one left out. Of several sets of that size,
    the one with the newest machines, whatever their order."""
    known = [(i, identity) for i, identity in enumerate(identities) if identity is not None]
    for size in range(len(known), 0, -1):
        sets = [chosen for chosen in combinations(known, size) if _all_agree([of for _, of in chosen])]
        if len(sets) == 1:
            return sum(1 << i for i, _ in sets[0])
        if sets:
            best = max(sets, key=lambda chosen: _newness([of for _, of in chosen]))
            return sum(1 << i for i, _ in best)
    return 0


def _all_agree(identities: Sequence[Identity]) -> bool:
    return all(agree(one, other) for one, other in combinations(identities, 2))


def _newness(identities: Sequence[Identity]) -> tuple[int, list[str]]:
    return sum(of.number for of in identities), sorted(f"{of.name} {of.cluster_id}" for of in identities)
