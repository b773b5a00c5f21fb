"""The table of limited users and sources: counts, bound, order."""

from __future__ import annotations

from wanderbus.refusal_table import OTHERS, PARTY_CHARACTERS_MAX, TALLIED_MAX, RefusalTable, Tally
from wanderbus.refusals import Limited


def test_counts_by_limit_and_party() -> None:
    table = RefusalTable()
    table.note(Limited("flood.requests_per_s", "192.0.2.1", "REGISTER dropped"), 1.0)
    table.note(Limited("flood.requests_per_s", "192.0.2.2", "INVITE dropped", 3), 2.0)
    entry = table.note(Limited("flood.requests_per_s", "192.0.2.1", "INVITE dropped", 4), 3.0)
    assert (entry.count, entry.reason, entry.first_s, entry.last_s) == (5, "INVITE dropped", 1.0, 3.0)
    assert [entry.party for entry in table.entries()] == ["192.0.2.1", "192.0.2.2"]
    assert table.totals == {"flood.requests_per_s": 8}


def test_the_oldest_row_is_removed_and_the_total_stays() -> None:
    table = RefusalTable(entries_max=2)
    for second, party in enumerate(["a", "b", "a", "c"]):
        table.note(Limited("broker.publish_per_s", party, "deferred"), second)
    assert [entry.party for entry in table.entries()] == ["c", "a"]
    assert table.totals["broker.publish_per_s"] == 4


def test_long_names_are_cut() -> None:
    table = RefusalTable()
    table.note(Limited("logins.free_failures", "x" * 10_000, "refused"), 0.0)
    assert len(table.entries()[0].party) == PARTY_CHARACTERS_MAX


def test_a_tally_reports_at_once_and_then_once_a_second_with_the_count_since() -> None:
    tally = Tally()
    reported: list[tuple[float, int]] = []
    for hundredths in range(250):
        now = hundredths / 100
        tally.note("flood.requests_per_s", "192.0.2.1", "REGISTER dropped")
        reported += [(now, each.count) for each in tally.take(now)]
    assert reported == [(0.0, 1), (1.0, 100), (2.0, 100)]
    assert tally.take(3.0) == [Limited("flood.requests_per_s", "192.0.2.1", "REGISTER dropped", 49)]
    assert tally.take(9.0) == []


def test_a_tally_distinguishes_a_bounded_number_of_parties_and_loses_no_count() -> None:
    tally = Tally()
    reports = []
    for number in range(3 * TALLIED_MAX):
        tally.note("flood.requests_per_s", f"party {number}", "dropped")
        reports += tally.take(0.5)
    assert len(reports) == TALLIED_MAX
    reports += tally.take(2.0)
    assert len(reports) == TALLIED_MAX + 1
    assert (reports[-1].party, sum(each.count for each in reports)) == (OTHERS, 3 * TALLIED_MAX)


def test_removed_rows_stay_in_the_total() -> None:
    table = RefusalTable(entries_max=1)
    for party in ("a", "b", "b", "c"):
        table.note(Limited("x", party, ""), 0.0)
    assert table.evicted() == {"x": 3}
