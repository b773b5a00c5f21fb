"""``wanderbus pub``: publishing of events from the shell."""

from __future__ import annotations

import enum
import functools
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from wanderbus import cloudevents, event_text
from wanderbus.cli.connection_options import AsJson, ConnectionOptions, connected
from wanderbus.cli.devices import free_place
from wanderbus.cli.output import run_async
from wanderbus.cli.pub_publisher import (
    PublishResults,
    events_given,
    events_of_input,
    publish_directly,
    publish_through_outbox,
)
from wanderbus.errors import ConfigurationError, EventError
from wanderbus.event import Event, Value, check_event, merge_repeated
from wanderbus.literals import json_object

_SESSION: Final = "pub"
"""Session without subscriptions: in any other session the broker would queue for a device that only publishes."""

_OUTBOX_SESSION: Final = "outbox"


class EventFormat(enum.StrEnum):
    """Input format of an event, one per line."""

    text = "text"
    json = "json"
    cloudevents = "cloudevents"


OutboxFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Store events in this file until the broker acknowledges them. The next command with the same file "
        "publishes the rest, each event once. The file is a separate device, independent of --state-dir.",
    ),
]
InFormat = Annotated[
    EventFormat | None,
    typer.Option(
        "--format",
        help="Format of events: JSON objects of attributes, text as 'sub' prints it, or CloudEvents of the type "
        "SUBJECT. An event as text or CloudEvent may also be the only argument.",
        show_default="NAME=VALUE; json with -",
    ),
]
Advertise = Annotated[
    bool,
    typer.Option(
        "--advertise",
        help="Advertise the events of SUBJECT before the first one, until the command ends; channels of a domain "
        "of servers can require it.",
    ),
]
FilterAtPublisher = Annotated[
    bool,
    typer.Option(
        "--filter-at-publisher",
        help="Do not send events that no subscription matches. Such an event is in no log, so a later subscription "
        "to the past does not get it.",
    ),
]
Ids = Annotated[
    bool,
    typer.Option(
        "--ids",
        help="Print a line for each event of standard input, not only a summary: its id, or its number in the outbox.",
    ),
]


@connected
def pub(
    subject: Annotated[
        str | None, typer.Argument(help="Subject of the event; without it, the events in the outbox are published.")
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Argument(
            help="Attributes as NAME=VALUE; a repeated NAME makes a list. - reads events from standard input, one per "
            "line.",
            show_default=False,
        ),
    ] = None,
    *,
    connection: ConnectionOptions,
    outbox: OutboxFile = None,
    format: InFormat = None,
    advertise: Advertise = False,
    filter_at_publisher: FilterAtPublisher = False,
    ids: Ids = False,
    json: AsJson = False,
) -> None:
    """Publish one event, or one for each line of standard input; ends when all are durable.

    Prints the id of one event, and how many events were published from standard input.

    A value is a number, true or false, a JSON list, a date like 2013-01-01T05:15:00Z, or else text; write text that
    looks like one of these as a JSON string. In JSON a date is {"Date": "2013-01-01T05:15:00Z"}.

    Example: wanderbus pub Departure Dest=IAH DepDelay=42.0 --user sip:alice@localhost

    Example: wanderbus pub Departure - --outbox departures.db --user sip:alice@localhost < departures.jsonl
    """
    events = events_given() if subject is None else _events(subject, attributes or [], format)
    if advertise and subject is None:
        raise ConfigurationError("--advertise: give the subject of the events, too")
    advertised = subject if advertise else None
    filtering = _filtering(filter_at_publisher)
    result = PublishResults(as_json=json, is_for_each=ids or attributes != ["-"])
    if outbox is not None:
        run_async(_store(connection, outbox, None if subject is None else events, advertised, result, **filtering))
    elif subject is not None:
        run_async(_publish(connection, events, advertised, result, **filtering))
    else:
        raise ConfigurationError("give the subject of an event, or --outbox FILE to publish the events in it")


async def _store(
    connection: ConnectionOptions,
    outbox: Path,
    events: AsyncIterator[Event] | None,
    advertised: str | None,
    result: PublishResults,
    **filtering: bool,
) -> None:
    agent = connection.agent(outbox_file=outbox, session=_OUTBOX_SESSION, offline=True, **filtering)
    patience_s = connection.settings().connect_s_max
    limit_s = connection.connect_s_max
    await publish_through_outbox(
        agent, outbox, events, result, patience_s=patience_s, advertised=advertised, limit_s=limit_s
    )


async def _publish(
    connection: ConnectionOptions,
    events: AsyncIterator[Event],
    advertised: str | None,
    result: PublishResults,
    **filtering: bool,
) -> None:
    if connection.is_eci:
        await publish_directly(connection.agent(**filtering), events, result, advertised=advertised)
        return
    # A separate device: with a program's device it would take over that program's notifications.
    with free_place(connection.device_directory() / _SESSION) as place:
        agent = connection.agent(state_dir=place.directory, session=_SESSION, **filtering)
        limit_s = connection.connect_s_max
        await publish_directly(agent, events, result, advertised=advertised, limit_s=limit_s)


def _filtering(is_wanted: bool) -> dict[str, bool]:
    """Return the setting of the agent; a file of settings may turn it on without the option."""
    return {"publisher_filtering": True} if is_wanted else {}


def _events(subject: str, given: list[str], format: EventFormat | None) -> AsyncIterator[Event]:
    read = functools.partial(_READERS[format or EventFormat.json], subject)
    if given == ["-"]:
        return events_of_input(read)
    if format is None:
        return events_given(Event(subject, merge_repeated([attribute(text) for text in given])))
    if len(given) != 1:
        raise ConfigurationError(f"give one event as {format}, or - to read events from standard input, one per line")
    return events_given(read(given[0]))


def _event_in_json(subject: str, line: bytes | str) -> Event:
    try:
        attributes = json_object(line)
    except ValueError as error:
        raise EventError(str(error)) from None
    return check_event(Event(subject, cloudevents.from_json(attributes)))


def _event_in_text(subject: str, line: bytes | str) -> Event:
    try:
        event = event_text.read(line if isinstance(line, str) else line.decode())
    except UnicodeDecodeError:
        raise EventError("not UTF-8 text") from None
    return _of_subject(subject, event)


def _cloudevent(subject: str, line: bytes | str) -> Event:
    return _of_subject(subject, cloudevents.read(line))


def _of_subject(subject: str, event: Event) -> Event:
    if event.subject != subject:
        raise EventError(f"the event has the subject {event.subject!r}, not {subject!r}")
    return event


def attribute(text: str) -> tuple[str, Value]:
    """Return an attribute given as NAME=VALUE; :class:`ConfigurationError` if it is not."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ConfigurationError(f"{text!r} is not NAME=VALUE")
    return name, event_text.read_value(value)


_READERS: Final[Mapping[EventFormat, Callable[[str, bytes | str], Event]]] = {
    EventFormat.json: _event_in_json,
    EventFormat.text: _event_in_text,
    EventFormat.cloudevents: _cloudevent,
}
