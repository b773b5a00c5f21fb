"""``wanderbus pub`` and ``wanderbus sub``: events from and to the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from wanderbus.api.agent import Agent
from wanderbus.cli.connection import AsJson, Connection, connected
from wanderbus.cli.output import log_to_stderr, run_async, say, say_json
from wanderbus.cli.publishing import events_given, events_of_input, publish_directly, publish_through_outbox
from wanderbus.errors import ConfigurationError
from wanderbus.event import Notification, Value

_OUTBOX_SESSION: Final = "outbox"
"""Where nothing is subscribed to: in another session its queue would be kept for a device that only publishes."""


@connected
def pub(
    subject: Annotated[
        str | None, typer.Argument(help="Subject of the event; none publishes what is in the outbox.")
    ] = None,
    attributes: Annotated[
        list[str] | None, typer.Argument(help="NAME=VALUE each; - reads JSON objects, one a line.", show_default=False)
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
    json: AsJson = False,
) -> None:
    """Publish one event, or one for each line of standard input; done when all are durable.

    A value is read as JSON (42, 4.5, true, ["a", "b"]) where it is JSON, else as text.

    Example: wanderbus pub Departure Dest=IAH DepDelay=42.0 --user sip:alice@localhost --password secret

    Example: wanderbus pub Departure - --outbox departures.db --user sip:alice@localhost < departures.jsonl
    """
    log_to_stderr(verbose=False)
    if subject is None and outbox is None:
        raise ConfigurationError("name the subject of the event, or an outbox to publish what it holds")
    if subject is None:
        events = events_given()
    elif attributes == ["-"]:
        events = events_of_input(subject)
    else:
        events = events_given(dict(_attribute(text) for text in attributes or []))
    if outbox is None:
        publishing = publish_directly(connection.agent(), subject or "", events, json=json)
    else:
        agent = connection.agent(outbox_file=outbox, session=_OUTBOX_SESSION)
        publishing = publish_through_outbox(agent, outbox, subject or "", events, json=json)
    run_async(publishing)


@connected
def sub(
    subject: Annotated[str, typer.Argument(help="Subject to hear of.")],
    expression: Annotated[str, typer.Argument(help="Expression of interest; empty for every event.")] = "",
    *,
    connection: Connection,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many notifications.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Let the subscription outlive this command.")] = False,
    json: AsJson = False,
) -> None:
    """Subscribe and print notifications as they come; each is acknowledged when it has been printed.

    With --keep the subscription lives on: what it matches meanwhile is printed by the same command later.

    Example: wanderbus sub Departure "(Dest == IAH) and (DepDelay > 30)" --user sip:alice@localhost
    """
    log_to_stderr(verbose=False)
    agent = connection.agent()
    run_async(_print_notifications(agent, subject, expression, count, keep, json))


async def _print_notifications(
    agent: Agent, subject: str, expression: str, count: int | None, keep: bool, json: bool
) -> None:
    async with agent, agent.subscribe(subject, expression, keep=keep) as notifications:
        printed = 0
        async for notification in notifications:
            say_notification(notification, json)
            notifications.ack()
            printed += 1
            if printed == count:
                return


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
