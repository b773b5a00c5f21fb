"""Predicted outcome of an event for each subscription (SPEC U-01)."""

from __future__ import annotations

from typing import Any

import pytest

from wanderbus.cli.domain.dry_run import Predicted, predicted
from wanderbus.event import Event
from wanderbus.operator_rows import DeviceInfo, ReaderInfo, SessionInfo, SubscriptionInfo
from wanderbus.subscription import PATTERN, Custom, Frequency, Interval

ALICE = "sip:alice@localhost"
NOW_US = 1_700_000_000_000_000
EVENT = Event("Arrival", {"Dest": "IAH", "Delay": 3})
READ = {"readers": (ReaderInfo("phone", 0),)}


def subscription(**given: Any) -> SubscriptionInfo:
    plain = {
        **{"subscription": "wb1-x-1", "user": ALICE, "session": "default", "subject": "Arrival", "expression": ""},
        **{"language": "eci", "expires_us": None, "last_us": None, "state": "reading", "queued": 0},
        **{"oldest_s": None, "blocked_s": None},
    }
    return SubscriptionInfo(**{**plain, **given})


def session(status: str = "CONNECTED") -> SessionInfo:
    phone = DeviceInfo("phone", status, None, None, 1)
    return SessionInfo(ALICE, "default", status, 1, 0, 0, (phone,))


def outcomes(row: SubscriptionInfo, of: SessionInfo | None = None) -> list[Predicted]:
    sessions = {} if of is None else {(of.user, of.session): of}
    return predicted(EVENT, ["Arrival", "Flight"], [row], sessions, NOW_US)


@pytest.mark.parametrize(
    ("given", "status", "verdict", "reason"),
    [
        (READ, "CONNECTED", "delivered", "to phone"),
        ({"subject": "Flight", **READ}, "CONNECTED", "delivered", "to phone"),
        ({"subject": "*", **READ}, "CONNECTED", "delivered", "to phone"),
        ({"expression": "Delay > 3"}, "CONNECTED", "filtered", "Delay > 3 is false: Delay is 3"),
        ({"expires_us": NOW_US}, "CONNECTED", "expired", "the subscription expired at 2023-11-14T22:13:20.000Z"),
        ({"expression": "("}, "CONNECTED", "unreadable", "its filter cannot be read here"),
        ({"queued": 4, "state": "not_read"}, "DISCONNECTED", "queued", "no device is connected, behind 4 waiting"),
        ({"device": "tablet"}, "CONNECTED", "queued", "no device is connected, first in the queue"),
        ({"state": "window_full", "queued": 2, **READ}, "CONNECTED", "queued", "the window of its reader is full"),
        ({}, "CONNECTED", "queued", "no device reads it"),
        (
            {"restrictions": (Frequency(60.0),), "last_us": NOW_US - 5_000_000},
            *("CONNECTED", "restricted", "at most one notification in 60 s, and the last was 5 s before"),
        ),
        ({"restrictions": (Interval(1, 2, when="away"),), **READ}, "CONNECTED", "delivered", "to phone"),
        ({"restrictions": (Interval(1, 2, when="away"),)}, "DISCONNECTED", "restricted", "while the user is away"),
        ({"restrictions": (Custom("here", {}),)}, "CONNECTED", "undecided", "the restriction here is code of the op"),
    ],
)
def test_an_outcome_has_its_reason(given: dict[str, Any], status: str, verdict: str, reason: str) -> None:
    (outcome,) = outcomes(subscription(**given), session(status))
    assert outcome.verdict == verdict
    assert outcome.reason.startswith(reason)
    assert outcome.is_match is (verdict not in ("filtered", "expired", "unreadable"))


def test_other_subjects_have_no_outcome() -> None:
    assert outcomes(subscription(subject="Departure"), session()) == []


def test_a_pattern_takes_part_by_any_step() -> None:
    text = "pattern late match a: Departure then b: Arrival (Delay > 2) within 1 hour emit late"
    (outcome,) = outcomes(subscription(expression=text, language=PATTERN, subject="*"), session())
    assert outcome.verdict == "took_part"


def test_a_filter_that_takes_too_much_work_is_not_evaluated() -> None:
    terms = " OR ".join(f"UPPER(CONCAT(Text, Text, '{number}')) = 'X'" for number in range(50))
    row = subscription(expression=terms, language="cesql", **READ)
    [found] = predicted(Event("Arrival", {"Text": "x" * 30_000}), ["Arrival"], [row], {}, NOW_US)
    assert found.verdict == "undecided"
    assert "units of work for the event; the limit is 500000" in found.reason
    [found] = predicted(Event("Arrival", {"Text": "x"}), ["Arrival"], [row], {}, NOW_US)
    assert found.verdict == "filtered"
