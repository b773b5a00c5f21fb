"""A link with a delay: every packet arrives in order, neither earlier nor later than set."""

from __future__ import annotations

from wanderbus.testbed.delayed_link import WAITING_MAX, LinkDirection


def test_datagrams_leave_after_the_delay_and_in_order() -> None:
    sent: list[bytes] = []
    way = LinkDirection(2.0, sent.append)
    way.enter(b"a", 10.0)
    way.enter(b"b", 10.5)
    way.leave(11.9)
    assert sent == []
    assert way.due_s == 12.0
    way.leave(12.0)
    assert sent == [b"a"]
    assert way.due_s == 12.5
    way.leave(13.0)
    assert sent == [b"a", b"b"]


def test_a_link_holds_only_so_much() -> None:
    sent: list[bytes] = []
    way = LinkDirection(1.0, sent.append)
    for _ in range(WAITING_MAX + 5):
        way.enter(b"", 0.0)
    way.leave(1.0)
    assert len(sent) == WAITING_MAX
