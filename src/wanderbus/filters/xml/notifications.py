"""Notifications in XML: the event with its typed attributes, and what makes it one session's (SPEC A-13, J-04, O-01).

::

    <notification xmlns="urn:wanderbus:1" id="wb1-mibx2f9c-17" epoch="1" number="4">
      <event subject="StockExchange" published_us="1795255200000000">
        <String name="Stock">PETR4</String><Double name="Price">24.5</Double>
        <list name="Scores"><Integer>5</Integer><String>high</String></list>
      </event>
      <subscription id="wb1-mibx2f9c-3"/>
    </notification>

A name that comes more than once has the list of its values in order, which is written as ``<list>``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from wanderbus import limits
from wanderbus.errors import EventError, FilterError
from wanderbus.event import Event, EventId, Notification, Position, check_event, merge_repeated
from wanderbus.filters.xml.elements import NAMESPACE, SPACE, Element, ElementBounds, ElementReader, escaped, shown
from wanderbus.filters.xml.literals import TYPES, read_literal, read_literals, write_literal
from wanderbus.literals import from_text

BOUNDS: Final = ElementBounds(limits.XML_NOTIFICATION_BYTES_MAX, 4, limits.XML_NOTIFICATION_ELEMENTS_MAX)
"""Bounds of one notification."""

_PLACE: Final = frozenset({"id", "epoch", "number"})
_NAME: Final = frozenset({"name"})


def write_notification(notification: Notification) -> str:
    """Return ``notification`` as XML, which :func:`read_notification` reads back as the same.

    Raises :class:`EventError` if the event may not be published or contains half a character.
    """
    event = check_event(notification.event)
    place = {
        "xmlns": NAMESPACE,
        "id": notification.id,
        "epoch": notification.position.epoch,
        "number": notification.position.number,
        "redelivered": "true" if notification.redelivered else None,
        "history": "true" if notification.is_history else None,
    }
    about = {
        "subject": event.subject,
        "published_us": event.published_us,
        "arrived_us": event.arrived_us,
        "origin": event.origin or None,
    }
    try:
        attributes = "".join(_attribute_text(name, value) for name, value in event.attributes.items())
        subscriptions = "".join(f"<subscription{_tag(id=identity)}/>" for identity in notification.subscriptions)
        return f"<notification{_tag(**place)}><event{_tag(**about)}>{attributes}</event>{subscriptions}</notification>"
    except ValueError as error:
        raise EventError(f"the notification cannot be written as XML: {error}") from None


def read_notification(text: str) -> Notification:
    """Return the notification in ``text``; raise :class:`EventError` with the position of the fault."""
    reader = ElementReader(_notification, BOUNDS)
    try:
        reader.feed(text.encode())
        reader.close()
    except UnicodeEncodeError as error:
        raise EventError(f"half a character (a lone surrogate) at character {error.start + 1}") from None
    except FilterError as error:
        raise EventError(str(error)) from None
    (notification,) = reader.take()
    check_event(notification.event)
    return notification


def _tag(**attributes: object) -> str:
    return "".join(f' {name}="{escaped(str(value))}"' for name, value in attributes.items() if value is not None)


def _attribute_text(name: str, value: Any) -> str:
    tag = _tag(name=name)
    if isinstance(value, list):
        return f"<list{tag}>{''.join(write_literal(item) for item in value)}</list>"
    return write_literal(value, tag)


def _notification(element: Element) -> Notification:
    _expect(element, "notification")
    element.check(_PLACE, frozenset({"redelivered", "history"}))
    if not element.children:
        element.fail("<notification> must begin with <event>")
    first, *others = element.children
    event = _event(first)
    subscriptions = tuple(map(_subscription, others))
    return Notification(
        event,
        subscriptions,
        Position(_count(element, "epoch"), _count(element, "number")),
        _event_id(element, "id"),
        _flag(element, "redelivered"),
        is_history=_flag(element, "history"),
    )


def _event_id(element: Element, name: str) -> EventId:
    try:
        return EventId.parse(element.attributes[name])
    except EventError as error:
        element.fail(str(error))


def _event(element: Element) -> Event:
    _expect(element, "event")
    element.check(frozenset({"subject"}), frozenset({"published_us", "arrived_us", "origin"}))
    return Event(
        element.attributes["subject"],
        merge_repeated([_attribute(child) for child in element.children]),
        _integer(element, "published_us"),
        _integer(element, "arrived_us"),
        _event_id(element, "origin") if "origin" in element.attributes else msgspec.UNSET,
    )


def _attribute(element: Element) -> tuple[str, Any]:
    if element.name in TYPES:
        element.check_attributes(_NAME)
        return element.attributes["name"], read_literal(element)
    _expect(element, "list")
    element.check(_NAME)
    return element.attributes["name"], read_literals(element)


def _subscription(element: Element) -> str:
    _expect(element, "subscription")
    element.check(frozenset({"id"}))
    _expect_nothing_in(element)
    return element.attributes["id"]


def _expect(element: Element, name: str) -> None:
    if element.name != name:
        element.fail(f"expected <{name}>, found <{shown(element.name)}>")


def _expect_nothing_in(element: Element) -> None:
    if element.children:
        element.fail(f"<{element.name}> must be empty")


def _integer(element: Element, name: str) -> int | None:
    text = element.attributes.get(name)
    if text is None:
        return None
    try:
        value = from_text("Integer", text.strip(SPACE))
    except ValueError as error:
        element.fail(f"{name}: {error}")
    assert isinstance(value, int)
    return value


def _count(element: Element, name: str) -> int:
    value = _integer(element, name)
    if value is None or value < 0:
        element.fail(f"{name} must not be negative")
    return value


def _flag(element: Element, name: str) -> bool:
    text = element.attributes.get(name, "false").strip(SPACE)
    if text not in ("true", "false"):
        element.fail(f"{name} must be 'true' or 'false'")
    return text == "true"
