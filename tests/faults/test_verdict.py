"""The checkers of crash and power cut complain when they should, and by the right name."""

from __future__ import annotations

import pytest

from faults.verdict import Verdict, check_order, check_publishes, check_state, folded
from tests.published import published as record_of
from wanderbus import records
from wanderbus.event import Event


def published(number: int, *, epoch: int = 1) -> bytes:
    event = Event("Trade", {"n": number})
    return records.encode_record(record_of(event, number=number, epoch=epoch, at_us=number))


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        ([1, 2, 5], {}),
        ([1, 5], {"lost": 1}),
        ([1, 2, 2, 5], {"repeated": 1}),
        ([1, 2, 5, 1], {"repeated": 1}),
        ([1, 5, 2], {"out_of_order": 1}),
        ([1, 2, 5, 6], {"integrity_errors": 1}),
        ([], {"lost": 3}),
    ],
)
def test_expected_events_are_found_once_and_in_order(found: list[int], broken: dict[str, int]) -> None:
    verdict = Verdict()
    check_order(verdict, [1, 2, 5], found, "a list")
    assert verdict.counts == broken
    assert verdict.good is not bool(broken)
    assert [goal["met"] for goal in verdict.goals()].count(False) == len(broken)


def test_a_publish_is_in_the_log_once() -> None:
    verdict = Verdict()
    check_publishes(verdict, [published(1), published(2), published(1, epoch=2)])
    assert verdict.good
    check_publishes(verdict, [published(1), published(2), published(1)])
    assert verdict.counts == {"repeated": 1}


def test_a_state_is_what_its_log_gives() -> None:
    payloads = [
        records.encode_record(records.StatusChanged(at_us=1, user="sip:a@x", device="d", status=status, reason="test"))
        for status in ("CONNECTED", "DISCONNECTED", "CONNECTED")
    ]
    verdict = Verdict()
    check_state(verdict, folded("wb", 8, payloads), folded("wb", 8, payloads))
    assert verdict.good
    check_state(verdict, folded("wb", 8, payloads[:2]), folded("wb", 8, payloads))
    assert verdict.counts == {"integrity_errors": 2}
    assert any("rows of devices" in word for word in verdict.words)
