"""XML notifications for subscriptions that request them (SPEC O-03)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from tests.broker.desk import BOB, SUBJECT, Desk
from tests.filters.xml_schema import is_valid
from wanderbus import protocol
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Event, Notification
from wanderbus.filters import xml
from wanderbus.limits import EVENT_BYTES_MAX
from wanderbus.protocol import Notify, Publish, presentation

EVENTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "every type": {"s": "a", "i": -(2**63), "d": 0.1, "b": False, "t": datetime(2026, 11, 21, 10, tzinfo=UTC)},
    "lists": {"l": [1, "x", 2.5, True, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3)))], "e": [], "o": [1]},
    "infinities": {"d": math.inf, "l": [-math.inf, 1e300, 5e-324]},
    "characters": {"a<b>&\"'": "\x00\x1b[31m\r\n\t]]>\ufffe\U0010ffff\\u0041", "\x07": " blank "},
    "dates": {"first": datetime.min.replace(tzinfo=UTC), "last": datetime.max.replace(tzinfo=UTC)},
}


def received(desk: Desk, link: int) -> list[Notification]:
    return [presentation.read(notify, desk.epoch()) for notify in desk.received(link, Notify)]


def publish(desk: Desk, *events: dict[str, Any]) -> None:
    bob = desk.attach(BOB)
    desk.send(bob, *[Publish(n, Event(SUBJECT, attributes, 5)) for n, attributes in enumerate(events, 1)])
    assert desk.accepted(bob) == list(range(1, len(events) + 1))


@pytest.mark.parametrize("attributes", EVENTS.values(), ids=EVENTS)
def test_o03_a_subscription_for_xml_receives_equal_xml(desk: Desk, attributes: dict[str, Any]) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link, format="xml")
    assert subscription.format == "xml"
    publish(desk, attributes)
    (notification,) = received(desk, link)
    assert notification.xml is not None
    assert is_valid(notification.xml)
    assert xml.read_notification(notification.xml) == msgspec.structs.replace(notification, xml=None)
    assert notification.event == Event(SUBJECT, attributes, 5)
    assert notification.subscriptions == (subscription.id,)


def test_o03_only_those_who_ask_get_it_and_one_message_serves_both(desk: Desk) -> None:
    link, plain = desk.attach(), desk.attach("sip:carol@example.org")
    in_xml = desk.subscribed(link, "N > 1", format="xml")
    other = desk.subscribed(link, "N > 0")
    desk.subscribed(plain)
    assert other.id != in_xml.id
    publish(desk, {"N": 1}, {"N": 2})
    assert [(n.xml is not None, len(n.subscriptions)) for n in received(desk, link)] == [(False, 1), (True, 2)]
    assert [n.xml for n in received(desk, plain)] == [None, None]
    for notification in received(desk, link):
        assert presentation.presented(notification, "event").xml is None
        text = presentation.presented(notification, "xml").xml
        assert text == xml.write_notification(msgspec.structs.replace(notification, xml=None))


def test_o03_the_format_makes_it_another_subscription_that_is_kept_over_a_restart(desk: Desk) -> None:
    link = desk.attach()
    first, second = desk.subscribed(link), desk.subscribed(link, format="xml")
    assert first.id != second.id
    assert desk.subscribed(link, format="xml") == second
    desk.close(link)
    publish(desk, {"N": 1})
    desk.restart()
    (notification,) = received(desk, desk.attach(epoch=2))
    assert notification.xml is not None


def test_o03_the_agent_writes_xml_that_does_not_fit_into_a_message(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, format="xml")
    large = {f"n{n}": [1] * 1000 for n in range(30)}
    assert protocol.size_of(Event(SUBJECT, large)) < EVENT_BYTES_MAX
    publish(desk, large)
    (notification,) = received(desk, link)
    assert notification.xml is None
    text = presentation.presented(notification, "xml").xml
    assert text is not None
    assert is_valid(text)
    assert xml.read_notification(text) == notification


def test_o03_a_differing_xml_text_closes_the_connection(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, format="xml")
    publish(desk, {"N": 1})
    (notify,) = desk.received(link, Notify)
    for other in (
        msgspec.structs.replace(notify, number=notify.number + 1),
        msgspec.structs.replace(notify, subscriptions=("wb-99",)),
        msgspec.structs.replace(notify, redelivered=True),
        msgspec.structs.replace(notify, event=msgspec.Raw(msgspec.msgpack.encode("<event/>"))),
        msgspec.structs.replace(notify, event=msgspec.Raw(b"\xa2\xff\xff")),
        msgspec.structs.replace(notify, event=msgspec.Raw(b"\xda")),
    ):
        with pytest.raises(RemoteProtocolError, match="XML"):
            presentation.read(other, desk.epoch())
    with pytest.raises(RemoteProtocolError, match="differs from its message"):
        presentation.read(notify, desk.epoch() + 1)
