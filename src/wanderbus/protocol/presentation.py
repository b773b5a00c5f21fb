"""Notifications in XML on the wire, for subscriptions that ask for it (SPEC O-03).

A :class:`~wanderbus.protocol.Notify` contains an event as msgpack, or instead the whole notification as XML text. Both
have the same content, so one message serves subscriptions of either format.
"""

from __future__ import annotations

import msgspec

from wanderbus import protocol
from wanderbus.errors import EventError, RemoteProtocolError
from wanderbus.event import Event, Notification, Position, check_content
from wanderbus.limits import MESSAGE_BYTES_MAX


def in_xml(notify: protocol.Notify, epoch: int) -> protocol.Notify:
    """Return ``notify`` with the text of its notification, or unchanged if the text does not fit a message.

    In that case the agent generates the same text itself.
    """
    event = protocol.decode_event(bytes(notify.event))
    try:
        text = _written(notification_of(notify, event, epoch))
        presented = msgspec.structs.replace(notify, event=msgspec.Raw(msgspec.msgpack.encode(text)))
    except (EventError, UnicodeEncodeError):
        return notify
    return presented if len(protocol.encode(presented)) <= MESSAGE_BYTES_MAX else notify


def notification_of(notify: protocol.Notify, event: Event, epoch: int) -> Notification:
    """Return the notification of ``event`` in ``notify``."""
    position = Position(epoch, notify.number)
    return Notification(
        event, notify.subscriptions, position, notify.id, notify.redelivered, is_history=notify.is_history
    )


def read(notify: protocol.Notify, epoch: int) -> Notification:
    """Return the notification of a message, with its text if it came in XML.

    :raises RemoteProtocolError: the message contains no valid event, or a text that differs from the message
    """
    data = bytes(notify.event)
    if not _is_text(data):
        return notification_of(notify, _checked(protocol.decode_event(data)), epoch)
    from wanderbus.filters import xml

    try:
        text = msgspec.msgpack.decode(data, type=str)
        notification = xml.read_notification(text)
    except (msgspec.DecodeError, UnicodeDecodeError, EventError) as error:
        raise RemoteProtocolError(f"not a notification in XML: {error}", None) from None
    if notification != notification_of(notify, notification.event, epoch):
        raise RemoteProtocolError("the notification in XML differs from its message", None)
    return msgspec.structs.replace(notification, xml=text)


def presented(notification: Notification, format: str) -> Notification:
    """Return a notification in the form for a subscription of this ``format``."""
    if format != "xml":
        return notification if notification.xml is None else msgspec.structs.replace(notification, xml=None)
    if notification.xml is not None:
        return notification
    try:
        return msgspec.structs.replace(notification, xml=_written(notification))
    except EventError:
        return notification


def _checked(event: Event) -> Event:
    """Return ``event`` if its content is valid, without its past, which is for servers.

    Its times are not checked, since old logs have times of any size.
    """
    try:
        check_content(event)
    except EventError as error:
        raise RemoteProtocolError(f"the broker sent an invalid event: {error}", None) from None
    return msgspec.structs.replace(event, past=msgspec.UNSET) if event.past else event


def _is_text(data: bytes) -> bool:
    """Return whether msgpack ``data`` is a string: fixstr, str 8, str 16 or str 32."""
    return bool(data) and (0xA0 <= data[0] <= 0xBF or 0xD9 <= data[0] <= 0xDB)


def _written(notification: Notification) -> str:
    from wanderbus.filters import xml

    return xml.write_notification(notification)
