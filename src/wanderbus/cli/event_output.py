"""Notifications on standard output: as a line of text, of JSON, of XML, or as a CloudEvent."""

from __future__ import annotations

import enum

from wanderbus import cloudevents, event_text
from wanderbus.cli.output import complain, say, say_json
from wanderbus.errors import EventError
from wanderbus.event import Notification


class Format(enum.StrEnum):
    """The form of a notification, one a line."""

    text = "text"
    json = "json"
    cloudevents = "cloudevents"
    xml = "xml"


def say_notification(notification: Notification, format: Format) -> None:
    """Print a notification: its number, subject and attributes, or as JSON or XML all of it."""
    match format:
        case Format.text:
            say(f"{notification.position.number} {event_text.write(notification.event)}")
        case Format.json:
            _say_json(notification)
        case Format.cloudevents:
            _say_cloudevent(notification)
        case Format.xml:
            _say_xml(notification)


def _say_json(notification: Notification) -> None:
    event = notification.event
    say_json(
        {
            "id": str(notification.id),
            "position": {"epoch": notification.position.epoch, "number": notification.position.number},
            "subscriptions": notification.subscriptions,
            "redelivered": notification.redelivered,
            "subject": event.subject,
            "attributes": cloudevents.to_json(event.attributes),
            "published_us": event.published_us,
        }
    )


def _say_cloudevent(notification: Notification) -> None:
    """Print the event of a notification as a CloudEvent, which has the id of the event unless it brings its own.

    One that CloudEvents cannot hold is complained of and passed over: left unacknowledged, it would come for ever.
    """
    identity = notification.id
    try:
        text = cloudevents.write(notification.event, id=str(identity), source=f"wanderbus:{identity.origin}")
    except EventError as error:
        complain(f"{identity} is passed over, it cannot be printed as a CloudEvent: {error}")
    else:
        say(text)


def _say_xml(notification: Notification) -> None:
    """Print the XML text of a notification; one that XML cannot hold is passed over, as a CloudEvent is.

    What cannot be printed is there as a character reference, so that any reader of XML finds the same text.
    """
    if notification.xml is None:
        complain(f"{notification.id} is passed over, it cannot be printed as XML")
    else:
        say("".join(each if each.isprintable() else f"&#x{ord(each):x};" for each in notification.xml))
