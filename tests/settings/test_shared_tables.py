"""Tables of a domain's file that all its servers have to share (SPEC J-01, K-01)."""

from __future__ import annotations

import pytest

from tests.settings.test_event_domain import FILE, KEY, domain
from wanderbus.settings.shared_tables import layout_of, shared_tables

ORDERED = FILE.replace('model = "decentralised"\nmerging = "adaptive"\nprecision_min = 0.8\n', 'merging = "perfect"\n')
S3 = f'[servers.s3]\naddress = "127.0.0.3:5601"\npublic_key = "{KEY}"\nroles = ["access"]\n'


def differing(one: str, other: str) -> list[str]:
    """The names of the tables that differ in two files."""
    first, second = shared_tables(domain(one)), shared_tables(domain(other))
    assert first.keys() == second.keys()
    assert (layout_of(first) == layout_of(second)) == (first == second)
    return [name for name in first if first[name] != second[name]]


def test_equal_files_have_equal_tables() -> None:
    assert differing(FILE, FILE + "# a comment\n") == []


@pytest.mark.parametrize(
    ("old", "new", "table"),
    [
        ("groups = 16", "groups = 32", "groups"),
        ("Flight = 3", "Flight = 4", "pins"),
        ('Departure = "Flight"', 'Departure = "Flight"\nArrival = "Flight"', "parents"),
        ('roles = ["access", "resolution"]', 'roles = ["access"]', "servers"),
        ("groups = 16", 'groups = 16\nmodel = "decentralised"', "model"),
        ('merging = "adaptive"', 'merging = "perfect"', "merging"),
        ("precision_min = 0.8", "precision_min = 0.7", "merging"),
        ("precision_min = 0.8", 'precision_min = 0.8\nadvertisements = "required"', "advertisements"),
    ],
)
def test_a_table_that_moves_events_or_interest_has_to_be_equal(old: str, new: str, table: str) -> None:
    assert old in FILE
    assert differing(FILE, FILE.replace(old, new)) == [table]


def test_another_key_changes_every_table() -> None:
    changed = FILE.replace(f'hash_key = "{KEY}"', f'hash_key = "{"cd" * 32}"')
    assert set(differing(FILE, changed)) == shared_tables(domain(FILE)).keys()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("127.0.0.2:5601", "127.0.0.2:5602"),
        ("[pins]", f"{S3}\n[pins]"),
        ('merging = "perfect"', 'merging = "none"'),
    ],
    ids=["address", "server that leads nothing", "merging of an ordered channel"],
)
def test_a_setting_of_one_server_alone_may_differ(old: str, new: str) -> None:
    assert old in ORDERED
    assert differing(ORDERED, ORDERED.replace(old, new)) == []


def test_decentralised_channels_need_the_same_list_of_servers() -> None:
    assert differing(FILE, FILE.replace("[pins]", f"{S3}\n[pins]")) == ["servers"]


@pytest.mark.parametrize("file", [FILE, ORDERED], ids=["decentralised", "ordered"])
def test_j11_servers_that_join_and_leave_later_change_no_table(file: str) -> None:
    joined = file.replace("[pins]", f"{S3}joined = 1\n[pins]")
    assert differing(file, joined) == []
    assert differing(joined, joined.replace("joined = 1", "joined = 1\nleft = true")) == []


def test_j11_a_leader_that_leaves_changes_only_who_spreads_interest() -> None:
    left = 'roles = ["access", "resolution"]\nleft = true'
    assert differing(ORDERED, ORDERED.replace('roles = ["access", "resolution"]', left)) == []
    assert differing(FILE, FILE.replace('roles = ["access", "resolution"]', left)) == ["servers"]
    domain_after = domain(FILE.replace('roles = ["access", "resolution"]', left))
    assert domain_after.directory.table.leaders == domain(FILE).directory.table.leaders
    assert {each.server for each in domain_after.interest_directory.table.leaders} == {"s1"}
    assert domain_after.channel("Flight").leader == "s1"


def test_a_model_that_is_the_default_need_not_be_written() -> None:
    assert differing(ORDERED, ORDERED.replace('merging = "perfect"', 'merging = "perfect"\nmodel = "ordered"')) == []


def test_the_digests_do_not_reveal_the_key() -> None:
    assert all(len(each) == 8 and each not in bytes.fromhex(KEY) for each in shared_tables(domain(FILE)).values())
