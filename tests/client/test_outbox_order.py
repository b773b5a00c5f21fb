"""The earliest event of an outbox that was refused temporarily comes before all later ones (SPEC X25)."""

from __future__ import annotations

import pytest

from wanderbus.protocol.outbox_order import OutboxOrder


@pytest.mark.parametrize("refused", [(3, 5), (5, 3)])
def test_x25_nothing_overtakes_the_earliest_of_several(refused: tuple[int, ...]) -> None:
    order: OutboxOrder[str, str] = OutboxOrder()
    for number in refused:
        order.refused("a", number, f"full at {number}")
    assert [order.before("a", number) for number in (2, 3, 4, 6)] == [None, None, "full at 3", "full at 3"]
    assert (order.before("b", 6), order.has("a"), order.has("b")) == (None, True, False)


def test_x25_the_others_follow_once_it_is_sent_again_and_no_earlier() -> None:
    order: OutboxOrder[str, str] = OutboxOrder()
    order.refused("a", 3, "full")
    for number in (2, 4):
        order.sent_again("a", number)
    order.sent_again("b", 3)
    assert order.before("a", 4) == "full"
    order.sent_again("a", 3)
    assert order.before("a", 4) is None
