"""``wanderbus channel``: the events of an ordered channel by number, listed or delivered again (SPEC K-03)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import msgspec
import typer

from wanderbus import cloudevents, event_text
from wanderbus.channel_events import ChannelEvent, NumbersGone, Place
from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting
from wanderbus.cli.event_output import Format, print_notification
from wanderbus.cli.output import print_json, print_line, print_progress, run_async
from wanderbus.errors import ConfigurationError
from wanderbus.event import Notification, Position
from wanderbus.subscription import instant_shown

app = typer.Typer(help="List and replay the events of an ordered channel by number.", no_args_is_help=True)

_CONTENT_MAX: Final = 120
"""Characters of the content of an event in a line of text."""

Subject = Annotated[str, typer.Argument(help="Subject of the channel; subjects below it are included.")]
_PLACE: Final = "NUMBER|EPOCH:NUMBER"
From = Annotated[
    str | None,
    typer.Option("--from", metavar=_PLACE, help="Lowest number.", show_default="the first that is kept"),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar=_PLACE, help="Highest number, included.", show_default="the newest"),
]
Last = Annotated[int | None, typer.Option("--last", min=1, help="Only so many of these events, the newest ones.")]


class _Wanted(NamedTuple):
    """The events that the command line asks for."""

    subject: str
    first: Place
    last: Place
    newest: int | None

    @classmethod
    def read(cls, subject: str, first: str | None, last: str | None, newest: int | None) -> _Wanted:
        """Return what options ask for."""
        return cls(subject, _place("--from", first), _place("--to", last), newest)


def _place(option: str, text: str | None) -> Place:
    """Return the place that an option names, None without one."""
    if text is None:
        return None
    epoch, separator, number = text.rpartition(":")
    if not (number.isdecimal() and (epoch.isdecimal() or not separator)):
        raise ConfigurationError(
            f"{option}: invalid place {text!r} (expected a number, or an epoch and a number as in 2:1042)"
        )
    return Position(int(epoch), int(number)) if separator else int(number)


@app.callback()
def _options() -> None:
    """List and replay the events of an ordered channel by number."""


@app.command()
@visiting
def history(
    subject: Subject,
    *,
    connection: ConnectionOptions,
    first: From = None,
    last: To = None,
    newest: Last = None,
    json: AsJson = False,
) -> None:
    """List the events of an ordered channel: number, time, publisher, size, subject and attributes.

    Any server of the domain can be asked; the server that leads the channel has the numbers. Whoever may subscribe to
    the subject may list its events. Subject and attributes are cut after 120 characters; JSON has all of them, and the
    epoch of the leader.

    Example: wanderbus channel history Departure --last 20 --user sip:alice@localhost

    Example: wanderbus channel history Departure --from 1042 --to 1100 --user sip:alice@localhost

    Example: wanderbus channel history Departure --from 2:1042 --user sip:alice@localhost

    If the channel has had several leaders, the events of earlier epochs come first. Each leader has its own numbers; a
    number without an epoch is one of the present leader.
    """
    wanted = _Wanted.read(subject, first, last, newest)
    run_async(_print(connection, wanted, _print_listed_json if json else _print_listed, _said(json, print_line)))


@app.command()
@visiting
def replay(
    subject: Subject,
    *,
    connection: ConnectionOptions,
    first: From = None,
    last: To = None,
    newest: Last = None,
    format: Annotated[Format, typer.Option("--format", help="Output format, one event per line.")] = Format.text,
    json: AsJson = False,
) -> None:
    """Print the events of an ordered channel again, in order, as 'wanderbus sub' prints them.

    The numbers are those of the channel, not those of a session. 'wanderbus pub SUBJECT - --format text' can publish
    the lines of text again.

    Example: wanderbus channel replay Departure --from 1042 --to 1100 --json --user sip:alice@localhost
    """
    format = Format.json if json else format
    if format is Format.xml:
        raise ConfigurationError("--format: XML is a format of notifications; use text, json or cloudevents")
    wanted = _Wanted.read(subject, first, last, newest)

    def print_event(event: ChannelEvent) -> None:
        position = Position(event.epoch, event.number)
        print_notification(Notification(event.event, (), position, event.id, is_history=True), format)

    run_async(_print(connection, wanted, print_event, _said(format is Format.json, print_progress)))


async def _print(
    connection: ConnectionOptions,
    wanted: _Wanted,
    print_event: Callable[[ChannelEvent], None],
    print_gone: Callable[[NumbersGone], None],
) -> None:
    if connection.is_eci:
        raise ConfigurationError("the original ECI knows no history; give --user sip:NAME@DOMAIN")
    subject, first, last, newest = wanted
    async with connection.visitor() as agent:
        async for item in agent.history(subject, first=first, last=last, newest=newest):
            if isinstance(item, NumbersGone):
                print_gone(item)
            else:
                print_event(item)


def _said(json: bool, print_text: Callable[[str], None]) -> Callable[[NumbersGone], None]:
    """Return the function that says that numbers are gone."""

    def say(gone: NumbersGone) -> None:
        if json:
            print_json({key: value for key, value in msgspec.structs.asdict(gone).items() if value})
        elif gone.left_out:
            print_text(f"events of {gone.led_before}, which led the channel before, are left out: {gone.left_out}")
        elif gone.led_before:
            print_text(
                f"events before number {gone.kept_from} are in the log of {gone.led_before}, which led it before"
            )
        else:
            print_text(f"numbers below {gone.kept_from} are no longer kept")

    return say


def _shown(item: ChannelEvent) -> str:
    """Return the number of an event, with the epoch of the leader in a domain."""
    return f"{item.epoch}:{item.number}" if item.epoch else str(item.number)


def _print_listed(item: ChannelEvent) -> None:
    content = event_text.write(item.event)
    shown = content if len(content) <= _CONTENT_MAX else f"{content[:_CONTENT_MAX]}..."
    print_line(f"{_shown(item)} {instant_shown(item.at_us)} {item.user} {item.size_bytes} bytes: {shown}")


def _print_listed_json(item: ChannelEvent) -> None:
    print_json(
        {
            "number": item.number,
            "epoch": item.epoch,
            "id": str(item.id),
            "user": item.user,
            "at_us": item.at_us,
            "published_us": item.event.published_us,
            "size_bytes": item.size_bytes,
            "subject": item.event.subject,
            "attributes": cloudevents.to_json(item.event.attributes),
        }
    )
