"""Order of refused events of foreign domains on one link (SPEC M-01, decision 0164)."""

from __future__ import annotations

import pytest

from wanderbus.broker.publish import foreign_order
from wanderbus.broker.publish.foreign_order import ForeignOrder

OUTBOX = "device", 5


def order(*numbers: int) -> ForeignOrder:
    """An order in which these events were refused."""
    found = ForeignOrder()
    for each in numbers:
        found.refused(OUTBOX, each, "disk_full")
    return found


def blocked(found: ForeignOrder) -> list[int]:
    """The numbers up to 9 that have to wait."""
    return [number for number in range(1, 10) if found.before(OUTBOX, number)]


def test_later_events_wait_until_the_first_is_sent_again() -> None:
    found = order(3, 5, 3, 7)
    assert blocked(found) == [4, 5, 6, 7, 8, 9]
    found.sent_again(OUTBOX, 5)
    assert blocked(found) == [4, 5, 6, 7, 8, 9]
    found.sent_again(OUTBOX, 3)
    assert blocked(found) == []


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [(2, [4, 5, 6, 7, 8, 9]), (3, [6, 7, 8, 9]), (6, [8, 9]), (7, []), (9, [])],
)
def test_the_next_refused_event_comes_first_once_those_before_were_accepted_elsewhere(
    accepted: int, expected: list[int]
) -> None:
    found = order(3, 5, 7)
    found.passed(OUTBOX, accepted)
    assert blocked(found) == expected


def test_numbers_beyond_the_bound_have_to_be_accepted_before_anything_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_order, "REFUSED_MAX", 2)
    found = order(1, 2, 3, 4)
    found.passed(OUTBOX, 3)
    assert blocked(found) == list(range(2, 10))
    found.passed(OUTBOX, 4)
    assert blocked(found) == []


def test_the_first_device_is_forgotten_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_order, "FOREIGN_ORDERS_MAX", 1)
    found = order(1)
    found.refused(("other", 5), 1, "disk_full")
    assert found.before(OUTBOX, 2) is None
    assert found.before(("other", 5), 2) == "disk_full"
