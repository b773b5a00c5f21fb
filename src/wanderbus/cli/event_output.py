"""Printing of notifications: each is one line of text, JSON or XML, or a CloudEvent."""

from __future__ import annotations

import enum

from msgspec.structs import asdict

from wanderbus import cloudevents, event_text
from wanderbus.cli.output import print_error, print_json, print_line
from wanderbus.errors import EventError
from wanderbus.event import Gap, Notification


class Format(enum.StrEnum):
    """Output format of a notification, one per line."""

    text = "text"
    json = "json"
    cloudevents = "cloudevents"
    xml = "xml"


def print_notification(notification: Notification, format: Format) -> None:
    """Print a notification: as text its number, subject and attributes; in the other formats all of it."""
    match format:
        case Format.text:
            print_line(f"{notification.position.number} {event_text.write(notification.event)}")
        case Format.json:
            _print_json(notification)
        case Format.cloudevents:
            _print_cloudevent(notification)
        case Format.xml:
            _print_xml(notification)


def print_gap(gap: Gap) -> None:
    """Print a gap as a line of JSON; it has ``missing``, which a notification has not."""
    lost = [asdict(loss) for loss in gap.lost]
    print_json({"position": asdict(gap.position), "missing": gap.count, "reason": gap.reason, "lost": lost})


def _print_json(notification: Notification) -> None:
    event = notification.event
    origin = {"origin": str(event.origin)} if event.origin else {}
    print_json(
        {
            "id": str(notification.id),
            "position": {"epoch": notification.position.epoch, "number": notification.position.number},
            "subscriptions": notification.subscriptions,
            "redelivered": notification.redelivered,
            "history": notification.is_history,
            "subject": event.subject,
            "attributes": cloudevents.to_json(event.attributes),
            "published_us": event.published_us,
            **origin,
        }
    )


def _print_cloudevent(notification: Notification) -> None:
    """Print the event of a notification as a CloudEvent, with the event's id unless the event has an attribute ``id``.

    Skip an event that CloudEvents cannot represent, with an error line: unacknowledged, it would be redelivered for
    ever.
    """
    identity = notification.id
    try:
        text = cloudevents.write(notification.event, id=str(identity), source=f"wanderbus:{identity.origin}")
    except EventError as error:
        print_error(f"{identity} is skipped: it cannot be written as a CloudEvent: {error}")
    else:
        print_line(text)


def _print_xml(notification: Notification) -> None:
    """Print the XML text of a notification; skip one that XML cannot represent.

    Unprintable characters are written as character references, so that an XML parser reads the same text.
    """
    if notification.xml is None:
        print_error(f"{notification.id} is skipped: it cannot be written as XML")
    else:
        print_line("".join(each if each.isprintable() else f"&#x{ord(each):x};" for each in notification.xml))
