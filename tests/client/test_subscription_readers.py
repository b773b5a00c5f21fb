"""Readings of subscriptions: what a replaced stream may send again is recognised, also by a successor (SPEC U-10)."""

from __future__ import annotations

from wanderbus.client.machine.subscription_readers import SubscriptionReaders
from wanderbus.event import EventId


def test_a_successor_that_is_read_already_recognises_what_its_predecessor_has_had() -> None:
    readers = SubscriptionReaders()
    former = readers.start("s1-1", 1)
    for number in (1, 2, 3):
        former.notified(number, EventId("s2", 1, number))
    readers.keep(lambda received: min(received, 1))
    present = readers.start("s1-9", 2)
    assert readers.succeed("s1-1", "s1-9") is None
    assert [present.has_had(EventId("s2", 1, number)) for number in (1, 2, 3)] == [False, True, True]


def test_a_successor_is_read_by_the_same_reading_otherwise() -> None:
    readers = SubscriptionReaders()
    former = readers.start("s1-1", 1)
    assert readers.succeed("s1-1", "s1-9") is former
    assert readers.succeed("s1-1", "s1-9") is None, "it was replaced before"
    assert readers.get("s1-1") is readers.get("s1-9") is former
