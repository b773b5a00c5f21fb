"""The table of who is limited: counts, bound, order."""

from __future__ import annotations

from wanderbus.refusal_table import PARTY_CHARACTERS_MAX, Limited, RefusalTable


def test_counts_by_limit_and_party() -> None:
    table = RefusalTable()
    table.note(Limited("flood.requests_per_s", "192.0.2.1", "REGISTER dropped"), 1.0)
    table.note(Limited("flood.requests_per_s", "192.0.2.2", "INVITE dropped", 3), 2.0)
    entry = table.note(Limited("flood.requests_per_s", "192.0.2.1", "INVITE dropped", 4), 3.0)
    assert (entry.count, entry.reason, entry.first_s, entry.last_s) == (5, "INVITE dropped", 1.0, 3.0)
    assert [entry.party for entry in table.entries()] == ["192.0.2.1", "192.0.2.2"]
    assert table.totals == {"flood.requests_per_s": 8}


def test_who_was_limited_longest_ago_gives_way_and_the_total_stays() -> None:
    table = RefusalTable(entries_max=2)
    for second, party in enumerate(["a", "b", "a", "c"]):
        table.note(Limited("broker.publish_per_s", party, "deferred"), second)
    assert [entry.party for entry in table.entries()] == ["c", "a"]
    assert table.totals["broker.publish_per_s"] == 4


def test_long_names_are_cut() -> None:
    table = RefusalTable()
    table.note(Limited("logins.free_failures", "x" * 10_000, "refused"), 0.0)
    assert len(table.entries()[0].party) == PARTY_CHARACTERS_MAX
