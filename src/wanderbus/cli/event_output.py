"""Notifications on standard output: as a line of text, of JSON, or as a CloudEvent."""

from __future__ import annotations

import enum

from wanderbus import cloudevents, event_text
from wanderbus.cli.output import complain, say, say_json
from wanderbus.errors import EventError
from wanderbus.event import Notification


class Format(enum.StrEnum):
    """The form of an event, one a line."""

    text = "text"
    json = "json"
    cloudevents = "cloudevents"


def say_notification(notification: Notification, format: Format) -> None:
    """Print a notification: its number, subject and attributes, or as JSON all of it."""
    match format:
        case Format.text:
            say(f"{notification.position.number} {event_text.write(notification.event)}")
        case Format.json:
            _say_json(notification)
        case Format.cloudevents:
            _say_cloudevent(notification)


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
