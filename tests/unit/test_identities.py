"""Identities of masters: how they are stored, what votes carry of them, and which vote together (rule 8)."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import pytest

from lockd.core.identities import FORMAT, Identity, Members, agree, voting_together

NAMES = ("m1", "m2", "m3", "m4", "m5")
MEMBERS = Members.first(NAMES)
ALL = [Identity("prod", name, 60_000, cluster_id="ab" * 16, members=MEMBERS) for name in NAMES]
ME = ALL[0]
QUORUM = 3


# Stored


@pytest.mark.parametrize("missing", ["cluster", "name", "max_ttl_ms", "cluster_id", "members", "electorate"])
def test_what_is_no_whole_identity_is_none(missing: str) -> None:
    assert Identity.parse({}) is None
    assert Identity.parse(ME.fields) == ME
    assert ME.fields["members"] == "m1:1 m2:1 m3:1 m4:1 m5:1"
    assert Identity.parse({name: value for name, value in ME.fields.items() if name != missing}) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_ttl_ms": "x"},
        {"max_ttl_ms": "-1"},
        {"max_ttl_ms": "0"},
        {"max_ttl_ms": "86400001"},
        {"max_ttl_ms": "1" * 400},
        {"max_ttl_ms": "\u0663"},
        {"cluster_id": "AB" * 16},
        {"members": "m1:1 m2:1 m3:1 m4:1"},
        {"members": "m2:1 m1:1 m3:1 m4:1 m5:1"},
        {"members": "m1:1 m1:1 m2:1 m3:1 m4:1 m5:1"},
        {"members": "m1:0 m2:1 m3:1 m4:1 m5:1"},
        {"name": "m2"},
        {"name": "m9"},
        {"electorate": ALL[1].members_digest},
        {"format": "two"},
        {"format": "-1"},
    ],
)
def test_one_that_makes_no_sense_or_contradicts_itself_is_none(wrong: dict[str, str]) -> None:
    assert Identity.parse({**ME.fields, **wrong}) is None


def test_of_another_format_only_what_all_have_is_read() -> None:
    old = Identity.parse({"cluster": "prod", "name": "m1", "max_ttl_ms": "60000"})
    assert old == Identity("prod", "m1", 60_000, format=1)
    newer = Identity.parse({**ME.fields, "format": str(FORMAT + 1), "members": "who knows"})
    assert newer == Identity("prod", "m1", 60_000, format=FORMAT + 1)


@pytest.mark.parametrize(("was", "longest_ms"), [("60000", 60_000), ("9" * 15, 5_000)])
def test_after_the_ceiling_was_lowered_leases_from_before_may_still_live(was: str, longest_ms: int) -> None:
    """If what it is said to have been makes sense."""
    assert ME.longest_ttl_ms == 60_000
    lowered = Identity.parse({**ME.fields, "max_ttl_ms": "5000", "was_max_ttl_ms": was})
    assert lowered is not None
    assert (lowered.max_ttl_ms, lowered.longest_ttl_ms) == (5_000, longest_ms)


# What a vote carries


def test_a_vote_is_for_one_master_of_one_cluster_with_these_members_and_numbers() -> None:
    others = [
        ALL[1],
        replace(ME, cluster="staging"),
        replace(ME, cluster_id="cd" * 16),
        ME.with_members(MEMBERS.with_number("m5", 2)),
    ]
    assert len({one.members_digest for one in (ME, *others)}) == 5
    for names in (NAMES[:3], NAMES[2:], (*NAMES[:4], "m6"), (*NAMES, "m6")):
        assert ME.members_digest_as("m1", names) != ME.members_digest
    assert ME.members_digest_as("m1", reversed(NAMES)) == ME.members_digest


# Who votes together


def after(name: str, *up_to_date: str) -> list[Identity]:
    """The five while another machine is admitted as `name`: these others have its new number; the old machine
    is there, and reached in its entry."""
    newer = MEMBERS.with_number(name, 2)
    return [one.with_members(newer) if one.name in up_to_date else one for one in ALL]


def names_of(identities: list[Identity], together: int) -> list[str]:
    return [one.name for i, one in enumerate(identities) if together >> i & 1]


def test_all_vote_together_when_nobody_was_replaced() -> None:
    assert voting_together(ALL) == 0b11111
    assert voting_together([*ALL[:2], None, *ALL[3:]]) == 0b11011
    assert voting_together([None] * 5) == 0


def test_an_old_machine_and_those_that_know_nothing_newer_are_no_quorum() -> None:
    """Its new number is on a quorum of the others: whoever asks whomever, with the old one there is none."""
    for up_to_date in combinations(("m1", "m2", "m4", "m5"), QUORUM):
        identities = after("m3", *up_to_date)
        assert voting_together(identities) == 0b11011
        for seen in product((True, False), repeat=5):
            visible = [one if see else None for one, see in zip(identities, seen, strict=True)]
            names = names_of(identities, voting_together(visible))
            assert "m3" not in names or len(names) < QUORUM


def test_with_its_number_on_fewer_than_a_quorum_of_the_others_the_old_machine_may_find_one() -> None:
    """Which is why so many are written before anything else."""
    assert names_of(ALL, voting_together(after("m3", "m1", "m2"))) == ["m1", "m2", "m4", "m5"]
    visible = [one if one.name not in ("m1",) else None for one in after("m3", "m1", "m2")]
    assert "m3" in names_of(ALL, voting_together([None, None, *visible[2:]]))


def test_one_that_was_not_told_of_the_new_machine_does_not_vote_beside_it() -> None:
    identities = after("m3", "m1", "m2", "m4")
    identities[2] = ALL[2].with_members(MEMBERS.with_number("m3", 2))
    assert voting_together(identities) == 0b01111


def test_one_master_that_makes_up_numbers_puts_nobody_out_but_itself() -> None:
    liar = ALL[4].with_members(Members.of(dict.fromkeys(NAMES, 99)))
    assert voting_together([*ALL[:4], liar]) == 0b01111


def test_masters_of_two_clusters_from_one_template_do_not_vote_together() -> None:
    theirs = [replace(one, cluster_id="cd" * 16) for one in ALL]
    assert not agree(ME, theirs[1])
    assert voting_together([*ALL[:3], *theirs[3:]]) == 0b00111


def test_of_two_sets_as_large_the_one_with_the_newer_machine_votes() -> None:
    """Three masters: m2 was admitted, m3 knows it and m1 was away. Either would be a quorum, and both have
    m3."""
    names = NAMES[:3]
    lists = Members.first(names)
    old = Identity("prod", "m1", 60_000, cluster_id="ab" * 16, members=lists)
    new = [replace(old, name=name, members=lists.with_number("m2", 2)) for name in ("m2", "m3")]
    assert voting_together([old, *new]) == 0b110
    assert voting_together([*new, old]) == 0b011
