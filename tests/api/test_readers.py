"""A subscription that ends while its reader is about to come (SPEC G-10, G-11)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from wanderbus.agent.messages import RequestSettled, SubscriptionOver
from wanderbus.api.agent import Agent
from wanderbus.api.notifications import Notifications
from wanderbus.api.readers import UNREAD_MAX, Readers
from wanderbus.broker import protocol
from wanderbus.errors import LocalProtocolError
from wanderbus.event import Event, EventId, Notification, Position
from wanderbus.subscription import Subscription


class Line:
    """An agent as its readers see it."""

    def __init__(self) -> None:
        self.acknowledged: list[Position] = []

    def begin(self, request: Any) -> asyncio.Future[RequestSettled]:
        raise NotImplementedError

    def next_request(self) -> int:
        raise NotImplementedError

    def acknowledge(self, position: Position) -> None:
        self.acknowledged.append(position)


def subscription(identity: str) -> Subscription:
    return Subscription(identity, "sip:alice@localhost", "default", "S", "")


def reader(readers: Readers) -> Notifications:
    request = protocol.Subscribe(1, "S", "", None, (), False)
    return Notifications(cast(Agent, None), readers, request, keep=True, gaps=False)


def over(lost: str, successor: str | None = None) -> SubscriptionOver:
    return SubscriptionOver(subscription(lost), "expired", subscription(successor) if successor else None)


def test_g10_the_reader_of_what_has_ended_by_then_ends() -> None:
    readers = Readers(Line())
    readers.over(over("a"))
    late = reader(readers)
    assert readers.claim(subscription("a"), late).id == "a"
    assert late.ended == "expired"


def test_g11_the_reader_of_what_has_a_successor_by_then_reads_that() -> None:
    line = Line()
    readers = Readers(line)
    readers.over(over("a", "b"))
    for number, identity in enumerate("ab", 1):
        item = Notification(Event("S", {}), (identity,), Position(1, number), EventId("wb", number))
        readers.dispatcher.arrived(item)
    late = reader(readers)
    assert readers.claim(subscription("a"), late).id == "b"
    assert [item.position.number for item in late._items] == [1, 2]
    assert late.ended is None
    readers.took("b", Position(1, 2))
    assert line.acknowledged == [Position(1, 2)]


def test_what_is_read_of_an_earlier_stream_acknowledges_nothing_of_the_present_one() -> None:
    line = Line()
    readers = Readers(line)
    readers.claim(subscription("a"), reader(readers))
    for epoch in (1, 2):
        item = Notification(Event("S", {}), ("a",), Position(epoch, 1), EventId("wb", 1))
        readers.dispatcher.arrived(item)
    readers.took("a", Position(1, 1))
    assert line.acknowledged == []
    readers.took("a", Position(2, 1))
    assert line.acknowledged == [Position(2, 1)]


def test_x21_the_reader_of_what_was_renewed_by_then_goes_on() -> None:
    readers = Readers(Line())
    readers.over(over("a"))
    readers.known([subscription("a")])
    late = reader(readers)
    readers.claim(subscription("a"), late)
    assert late.ended is None


def test_g11_where_another_reads_the_successor_the_reader_of_the_ended_one_ends() -> None:
    readers = Readers(Line())
    one, other = reader(readers), reader(readers)
    readers.claim(subscription("a"), one)
    readers.claim(subscription("b"), other)
    readers.over(over("a", "b"))
    assert (one.ended, other.ended) == ("expired", None)
    with pytest.raises(LocalProtocolError):
        readers.claim(subscription("b"), reader(readers))


def test_ends_that_nobody_reads_are_bounded() -> None:
    readers = Readers(Line())
    for number in range(UNREAD_MAX + 5):
        readers.over(over(str(number)))
    assert len(readers._unread) == UNREAD_MAX
