"""A subscription that ends while its reader is about to come (SPEC G-10, G-11)."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from wanderbus.client import readers as readers_module
from wanderbus.client.inbox import Inbox, InboxItems
from wanderbus.client.machine.messages import RequestSettled, SubscriptionOver
from wanderbus.client.readers import UNREAD_MAX, Readers
from wanderbus.errors import Closed, LocalProtocolError
from wanderbus.event import Event, EventId, Notification, Position
from wanderbus.subscription import Subscription


def looped(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a loop."""

    @functools.wraps(story)
    def run(**fixtures: Any) -> None:
        asyncio.run(story(**fixtures))

    return run


class Requests:
    """An agent as its readers see it."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[str, Position]] = []

    def begin(self, request: Any, *, reads: bool = False) -> asyncio.Future[RequestSettled]:
        raise NotImplementedError

    def next_request(self) -> int:
        raise NotImplementedError

    def read_together(self, subscriptions: tuple[str, ...]) -> None:
        raise NotImplementedError

    def stop_reading(self, subscription: str) -> None:
        raise NotImplementedError

    def acknowledge(self, subscription: str, position: Position) -> None:
        self.acknowledged.append((subscription, position))


def subscription(identity: str) -> Subscription:
    return Subscription(identity, "sip:alice@localhost", "default", "S", "")


def item(number: int) -> Notification:
    return Notification(Event("S", {}), ("a",), Position(1, number), EventId("wb", 1, number))


def reader() -> Inbox:
    async def close() -> None:
        raise NotImplementedError

    return Inbox(InboxItems(), close)


def numbers(reader: Inbox) -> list[int]:
    return [item.position.number for _, item in reader.arrivals.items]


def over(lost: str, successor: str | None = None) -> SubscriptionOver:
    return SubscriptionOver(subscription(lost), "expired", subscription(successor) if successor else None)


def test_g10_the_reader_of_what_has_ended_by_then_ends() -> None:
    readers = Readers(Requests())
    readers.over(over("a"))
    late = reader()
    assert readers.claim(subscription("a"), late).id == "a"
    assert late.ended == "expired"


@looped
async def test_g11_the_reader_of_what_has_a_successor_by_then_reads_that() -> None:
    requests = Requests()
    readers = Readers(requests)
    readers.arrived(item(1), ("a",))
    readers.over(over("a", "b"))
    readers.arrived(item(2), ("b",))
    late = reader()
    assert readers.claim(subscription("a"), late).id == "b"
    assert numbers(late) == [1, 2]
    assert late.ended is None
    readers.acknowledge("b", Position(1, 2))
    assert requests.acknowledged == [("b", Position(1, 2))]
    readers.close(Closed("the test is over"))


@looped
async def test_g25_each_reader_has_its_own_and_what_comes_before_one_is_there_waits_for_it() -> None:
    readers = Readers(Requests())
    one, other = reader(), reader()
    readers.claim(subscription("a"), one)
    readers.arrived(item(1), ("a", "b"))
    readers.arrived(item(2), ("b",))
    readers.claim(subscription("b"), other)
    readers.arrived(item(3), ("a",))
    assert [numbers(one), numbers(other)] == [[1, 3], [1, 2]]
    readers.close(Closed("the test is over"))


@looped
async def test_g25_a_reader_that_stands_still_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(readers_module, "PATIENCE_S", 0.01)
    caplog.set_level(logging.WARNING)
    readers = Readers(Requests())
    still, busy = reader(), reader()
    readers.claim(subscription("a"), still)
    readers.claim(subscription("b"), busy)
    readers.arrived(item(1), ("a", "b"))
    for _ in range(6):
        busy.arrivals.asked += 1
        await asyncio.sleep(0.01)
    assert [record.getMessage() for record in caplog.records] == [
        "1 notifications of subscription a wait to be read and none was read for 0.01 s; the broker sends no more "
        "of them: ask for the next one, or leave its block"
    ]
    readers.close(Closed("the test is over"))


def test_x21_the_reader_of_what_was_renewed_by_then_goes_on() -> None:
    readers = Readers(Requests())
    readers.over(over("a"))
    readers.known([subscription("a")])
    late = reader()
    readers.claim(subscription("a"), late)
    assert late.ended is None


def test_g11_a_reader_ends_if_another_already_reads_the_successor() -> None:
    readers = Readers(Requests())
    one, other = reader(), reader()
    readers.claim(subscription("a"), one)
    readers.claim(subscription("b"), other)
    readers.over(over("a", "b"))
    assert (one.ended, other.ended) == ("expired", None)
    with pytest.raises(LocalProtocolError):
        readers.claim(subscription("b"), reader())


def test_ends_that_nobody_reads_are_bounded() -> None:
    readers = Readers(Requests())
    for number in range(UNREAD_MAX + 5):
        readers.over(over(str(number)))
    assert len(readers._unread) == UNREAD_MAX
