"""Refusals are counted in one table and logged, and a flood of them is not."""

from __future__ import annotations

import pytest

from wanderbus.refusal_table import ENTRIES_MAX, OTHERS
from wanderbus.refusals import Limited, LoginRefused
from wanderbus.runtime.limit_log import LINES_MAX, QUIET_S, Refusals

ALICE = LoginRefused("sip:alice@localhost", "Wrong", "192.0.2.1")


def test_the_first_and_each_doubling_are_logged_and_no_more_than_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    for _ in range(100):
        refusals.note(ALICE)
    assert [message.partition(", ")[2] for message in caplog.messages] == [
        "",
        "2 times so far",
        "4 times so far; 1 other refusals were not logged meanwhile",
        "8 times so far; 3 other refusals were not logged meanwhile",
        "16 times so far; 7 other refusals were not logged meanwhile",
        "32 times so far; 15 other refusals were not logged meanwhile",
        "64 times so far; 31 other refusals were not logged meanwhile",
    ]
    assert caplog.messages[0] == (
        "sip:alice@localhost is limited by logins.free_failures: "
        "login of sip:alice@localhost from 192.0.2.1 refused: Wrong"
    )
    for number in range(1_000):
        refusals.note(Limited("flood.requests_per_s", f"192.0.2.{number}", "INVITE dropped"))
    assert len(caplog.messages) == LINES_MAX
    now[0] = QUIET_S
    refusals.note(Limited("flood.requests_per_s", "192.0.2.1", "INVITE dropped", 500))
    suppressed = 1_000 - (LINES_MAX - 7)
    assert caplog.messages[-1].endswith(
        f"INVITE dropped, 501 times so far; {suppressed} other refusals were not logged meanwhile"
    )


def test_names_of_strangers_forge_no_line(caplog: pytest.LogCaptureFixture) -> None:
    Refusals().note(Limited("broker.user_devices_max", "sip:a\nb@c", "no place for \x1b[2J"))
    assert "\n" not in caplog.messages[0]
    assert "\x1b" not in caplog.messages[0]


def test_a_row_for_each_limit_and_party_and_one_for_those_that_gave_way() -> None:
    now = [10.0]
    refusals = Refusals(lambda: now[0])
    for number in range(ENTRIES_MAX + 5):
        refusals.note(Limited("flood.requests_per_s", f"party {number}", "dropped", 2))
    now[0] = 12.0
    refusals.note(ALICE)
    rows = refusals.rows()
    assert len(rows) == ENTRIES_MAX + 1
    assert sum(row["count"] for row in rows) == 2 * (ENTRIES_MAX + 5) + 1
    (others,) = (row for row in rows if row["party"] == OTHERS)
    assert others["count"] == 12
    (alice,) = (row for row in rows if row["party"] == "sip:alice@localhost")
    assert (alice["limit"], alice["count"], alice["since_s"]) == ("logins.free_failures", 1, 0.0)
    assert max(row["since_s"] for row in rows if "since_s" in row) == 2.0


def test_a_limit_that_only_shares_the_processor_is_counted_and_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals(lambda: 0.0)
    for _ in range(LINES_MAX + 1):
        refusals.note(Limited("broker.turn_units", "sip:s2@localhost", "waited"))
    assert caplog.messages == []
    assert [(row["limit"], row["count"]) for row in refusals.rows()] == [("broker.turn_units", LINES_MAX + 1)]
    refusals.note(Limited("flood.requests_per_s", "192.0.2.1", "INVITE dropped"))
    assert [message.partition(" is ")[0] for message in caplog.messages] == ["192.0.2.1"]
