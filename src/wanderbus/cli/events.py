"""``wanderbus pub`` and ``wanderbus sub``: events from and to the shell."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from wanderbus.api.agent import Agent
from wanderbus.api.notifications import Notifications
from wanderbus.cli.connection import AsJson, Connection, connected
from wanderbus.cli.output import complain, log_to_stderr, run_async, say, say_json
from wanderbus.cli.publishing import events_given, events_of_input, publish_directly, publish_through_outbox
from wanderbus.cloudevents import read as read_cloudevent
from wanderbus.cloudevents import write as write_cloudevent
from wanderbus.errors import ConfigurationError, EventError
from wanderbus.event import Event, Notification, Value, check_event, gathered
from wanderbus.filters import LANGUAGES
from wanderbus.literals import json_object

_OUTBOX_SESSION: Final = "outbox"
"""Where nothing is subscribed to: in another session its queue would be kept for a device that only publishes."""


@connected
def pub(
    subject: Annotated[
        str | None, typer.Argument(help="Subject of the event; none publishes what is in the outbox.")
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Argument(
            help="NAME=VALUE each, a repeated NAME makes a list; - reads JSON objects, one a line.", show_default=False
        ),
    ] = None,
    *,
    connection: Connection,
    outbox: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Store events in this file until the broker has them. What is in it when the command is ended, the "
            "next one publishes, each event once. The file is a device of its own, beside --state-dir.",
        ),
    ] = None,
    cloudevents: Annotated[
        bool, typer.Option("--cloudevents", help="In place of attributes, CloudEvents of which SUBJECT is the type.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Publish one event, or one for each line of standard input; done when all are durable.

    A value is read as JSON (42, 4.5, true, ["a", "b"]) where it is JSON, else as text.

    Example: wanderbus pub Departure Dest=IAH DepDelay=42.0 --user sip:alice@localhost --password secret

    Example: wanderbus pub Departure - --outbox departures.db --user sip:alice@localhost < departures.jsonl
    """
    log_to_stderr(verbose=False)
    events = events_given() if subject is None else _events(subject, attributes or [], cloudevents)
    if outbox is not None:
        agent = connection.agent(outbox_file=outbox, session=_OUTBOX_SESSION)
        publishing = publish_through_outbox(agent, outbox, events, json=json)
    elif subject is not None:
        publishing = publish_directly(connection.agent(), events, json=json)
    else:
        raise ConfigurationError("name the subject of the event, or an outbox to publish what it holds")
    run_async(publishing)


@connected
def sub(
    subject: Annotated[str, typer.Argument(help="Subject to hear of.")],
    expression: Annotated[str, typer.Argument(help="Expression of interest; empty for every event.")] = "",
    *,
    connection: Connection,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many notifications.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Let the subscription outlive this command.")] = False,
    language: Annotated[str, typer.Option(help=f"Of the expression: {', '.join(LANGUAGES)}.")] = "eci",
    cloudevents: Annotated[bool, typer.Option("--cloudevents", help="Print CloudEvents, one a line.")] = False,
    json: AsJson = False,
) -> None:
    """Subscribe and print notifications as they come; each is acknowledged when it has been printed.

    With --keep the subscription lives on: what it matches meanwhile is printed by the same command later.

    Example: wanderbus sub Departure "(Dest == IAH) and (DepDelay > 30)" --user sip:alice@localhost
    """
    log_to_stderr(verbose=False)
    agent = connection.agent()
    reading = agent.subscribe(subject, expression, keep=keep, language=language)
    say_one = say_cloudevent if cloudevents else functools.partial(say_notification, json=json)
    run_async(_print_notifications(agent, reading, count, say_one))


async def _print_notifications(
    agent: Agent, reading: Notifications, count: int | None, say_one: Callable[[Notification], None]
) -> None:
    async with agent, reading as notifications:
        printed = 0
        async for notification in notifications:
            say_one(notification)
            notifications.ack()
            printed += 1
            if printed == count:
                return


def _events(subject: str, given: list[str], cloudevents: bool) -> AsyncIterator[Event]:
    read = functools.partial(_cloudevent if cloudevents else _event, subject)
    if given == ["-"]:
        return events_of_input(read)
    if not cloudevents:
        return events_given(Event(subject, gathered([_attribute(text) for text in given])))
    if len(given) != 1:
        raise ConfigurationError("give one CloudEvent, or - to read them, one a line")
    return events_given(read(given[0]))


def _event(subject: str, line: bytes | str) -> Event:
    try:
        return check_event(Event(subject, json_object(line)))
    except ValueError as error:
        raise EventError(str(error)) from None


def _cloudevent(subject: str, line: bytes | str) -> Event:
    event = read_cloudevent(line)
    if event.subject != subject:
        raise EventError(f"the type of this CloudEvent is {event.subject!r}, not {subject!r}")
    return event


def _attribute(text: str) -> tuple[str, Value]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ConfigurationError(f"{text!r} is not NAME=VALUE")
    try:
        return name, msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return name, value


def say_notification(notification: Notification, json: bool) -> None:
    """Print a notification: its number, subject and attributes, or as JSON all of it."""
    event = notification.event
    if json:
        say_json(
            {
                "id": str(notification.id),
                "position": {"epoch": notification.position.epoch, "number": notification.position.number},
                "subscriptions": notification.subscriptions,
                "redelivered": notification.redelivered,
                "subject": event.subject,
                "attributes": event.attributes,
                "published_us": event.published_us,
            }
        )
    else:
        values = " ".join(f"{name}={value}" for name, value in event.attributes.items())
        say(f"{notification.position.number} {event.subject} {values}")


def say_cloudevent(notification: Notification) -> None:
    """Print the event of a notification as a CloudEvent, which has the id of the event unless it brings its own.

    One that CloudEvents cannot hold is complained of and passed over: left unacknowledged, it would come for ever.
    """
    identity = notification.id
    try:
        text = write_cloudevent(notification.event, id=str(identity), source=f"wanderbus:{identity.origin}")
    except EventError as error:
        complain(f"{identity} is passed over, it cannot be printed as a CloudEvent: {error}")
    else:
        say(text)
