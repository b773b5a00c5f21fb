"""``wanderbus pub`` and ``wanderbus sub``: events from and to the shell."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
import typer

from wanderbus.api.agent import Agent
from wanderbus.cli.connection import AsJson, Connection, connected
from wanderbus.cli.input import numbered_lines
from wanderbus.cli.output import log_to_stderr, run_async, say, say_json
from wanderbus.errors import ConfigurationError, EventError, WanderbusError
from wanderbus.event import Event, EventId, Notification, Value, check_event

_PUBLISHES_MAX: Final = 256
"""Lines of standard input under way at once."""


@connected
def pub(
    subject: Annotated[str, typer.Argument(help="Subject of the event.")],
    attributes: Annotated[
        list[str] | None, typer.Argument(help="NAME=VALUE each; - reads JSON objects, one a line.", show_default=False)
    ] = None,
    *,
    connection: Connection,
    json: AsJson = False,
) -> None:
    """Publish one event, or one for each line of standard input; done when all are durable.

    A value is read as JSON (42, 4.5, true, ["a", "b"]) where it is JSON, else as text.

    Example: wanderbus pub Departure Dest=IAH DepDelay=42.0 --user sip:alice@localhost --password secret
    """
    log_to_stderr(verbose=False)
    agent = connection.agent()
    if attributes == ["-"]:
        run_async(_publish_lines(agent, subject, json))
    else:
        run_async(_publish_one(agent, subject, dict(_attribute(text) for text in attributes or []), json))


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


async def _publish_one(agent: Agent, subject: str, attributes: Mapping[str, Value], json: bool) -> None:
    async with agent:
        _say_published(await agent.publish(subject, attributes), json)


async def _publish_lines(agent: Agent, subject: str, json: bool) -> None:
    """Publish while reading; ids are printed in the order of the lines."""
    async with agent:
        unsettled: asyncio.Queue[asyncio.Task[EventId] | None] = asyncio.Queue(_PUBLISHES_MAX)
        publishing = asyncio.create_task(_publish_each(agent, subject, unsettled))
        try:
            while (task := await unsettled.get()) is not None:
                _say_published(await task, json)
            await publishing
        finally:
            publishing.cancel()


async def _publish_each(agent: Agent, subject: str, unsettled: asyncio.Queue[asyncio.Task[EventId] | None]) -> None:
    """Begin a publish for each line; one that is at fault ends it, when those before have been begun."""
    try:
        async for number, line in numbered_lines():
            try:
                attributes = msgspec.json.decode(line, type=dict[str, Any])
                check_event(Event(subject, attributes))
            except (msgspec.DecodeError, EventError) as error:
                raise ConfigurationError(f"standard input, line {number}: {error}") from None
            await unsettled.put(asyncio.create_task(agent.publish(subject, attributes)))
    except WanderbusError:
        await unsettled.put(None)
        raise
    await unsettled.put(None)


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


def _say_published(identity: EventId, json: bool) -> None:
    if json:
        say_json({"id": str(identity)})
    else:
        say(f"published {identity}")


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
