"""Order of outboxes: nothing overtakes an event that was refused temporarily (SPEC X25, M-01; decisions 0164, 0167)."""

from __future__ import annotations

import pytest

from wanderbus.protocol import outbox_order
from wanderbus.protocol.outbox_order import OutboxOrder

OUTBOX = "device"


def order(*numbers: int, outboxes_max: int | None = None) -> OutboxOrder[str, str]:
    """An order in which these events were refused."""
    found: OutboxOrder[str, str] = OutboxOrder(outboxes_max=outboxes_max)
    for each in numbers:
        found.refused(OUTBOX, each, f"full at {each}")
    return found


def blocked(found: OutboxOrder[str, str]) -> list[int]:
    """The numbers up to 9 that have to wait."""
    return [number for number in range(1, 10) if found.before(OUTBOX, number)]


@pytest.mark.parametrize("refused", [(3, 5), (5, 3)])
def test_x25_nothing_overtakes_the_earliest_of_several(refused: tuple[int, ...]) -> None:
    found = order(*refused)
    assert [found.before(OUTBOX, number) for number in (2, 3, 4, 6)] == [None, None, "full at 3", "full at 3"]
    assert (found.before("other", 6), found.has(OUTBOX), found.has("other")) == (None, True, False)


def test_x25_the_others_follow_once_it_is_sent_again_and_no_earlier() -> None:
    found = order(3, 5, 3, 7)
    assert blocked(found) == [4, 5, 6, 7, 8, 9]
    for number in (2, 4, 5):
        found.sent_again(OUTBOX, number)
    found.sent_again("other", 3)
    assert blocked(found) == [4, 5, 6, 7, 8, 9]
    found.sent_again(OUTBOX, 3)
    assert (blocked(found), len(found)) == ([], 0)


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
    monkeypatch.setattr(outbox_order, "REFUSED_MAX", 2)
    found = order(1, 2, 3, 4)
    found.passed(OUTBOX, 3)
    assert blocked(found) == list(range(2, 10))
    found.passed(OUTBOX, 4)
    assert blocked(found) == []


def test_another_epoch_of_an_outbox_waits_for_nothing_of_the_earlier_one() -> None:
    found = order(3)
    assert (found.before(OUTBOX, 4), found.before(OUTBOX, 4, epoch=7)) == ("full at 3", None)
    found.passed(OUTBOX, 9, epoch=7)
    found.sent_again(OUTBOX, 3, epoch=7)
    assert blocked(found) == [4, 5, 6, 7, 8, 9]
    found.refused(OUTBOX, 1, "full", epoch=7)
    assert (blocked(found), found.before(OUTBOX, 2, epoch=7), len(found)) == ([], "full", 1)


def test_the_first_outbox_is_forgotten_beyond_the_bound() -> None:
    found = order(1, outboxes_max=1)
    found.refused("other", 1, "full")
    assert (blocked(found), found.before("other", 2)) == ([], "full")
