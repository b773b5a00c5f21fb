"""``wanderbus explain``: reason why an event was or was not delivered, read from a server's log (SPEC U-01)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress

from wanderbus.broker.explained import Explained
from wanderbus.broker.explanation import Explanation
from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.log_directory import log_directory
from wanderbus.cli.output import log_to_stderr, print_json, print_line
from wanderbus.errors import ConfigurationError, EventError, StorageError
from wanderbus.event import EventId
from wanderbus.records import AnyRecord, Subscribed, decode_record
from wanderbus.runtime.log.log_reader import end_of_log, oldest_record, read_log
from wanderbus.segments import Frame
from wanderbus.subscription import Subscription

_RECORDS_A_STEP: Final = 10_000
"""Records between two updates of the progress bar."""


def explain(
    event: Annotated[str, typer.Argument(help="Id of the event, as 'pub' prints it.", show_default=False)],
    subscription: Annotated[
        str, typer.Argument(help="Id of the subscription, as 'subscriptions' lists it.", show_default=False)
    ],
    data_dir: Annotated[Path, typer.Option(help="Data directory of the server.")] = Path("wanderbus-data"),
    device: Annotated[str | None, typer.Option(help="Explain the delivery to this device.")] = None,
    json: AsJson = False,
) -> None:
    """Explain why an event was, or was not, delivered for a subscription.

    Reads the log of a server, running or not, and changes nothing.

    Example: wanderbus explain wb1234-mibx2f9c-1042 wb1234-mibx2f9c-17 --data-dir wanderbus-data
    """
    log_to_stderr(verbose=False)
    explained = _explained(log_directory(data_dir), _event_id(event), subscription, device)
    if json:
        print_json(explained)
    else:
        print_line(f"{explained.outcome.replace('_', ' ')}: {explained.reason}")


def _explained(directory: Path, event: EventId, identity: str, device: str | None) -> Explained:
    end = end_of_log(directory)
    pair = Explanation(event, _submitted(directory, identity, end), device)
    submitted = _event_id(identity)
    is_here = event.origin.partition("#")[0] == submitted.origin and event.incarnation == submitted.incarnation
    if not is_here or event.number >= end:
        raise StorageError(f"the log has no event {event}; check the id (a refused event has none)")
    first = oldest_record(directory)
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        reading = progress.add_task("reading the log", total=end - first)
        for frame in read_log(directory, first, end):
            if pair.concerns(frame.offset, frame.payload):
                pair.apply(_record(frame))
            if pair.settled:
                break
            if frame.offset % _RECORDS_A_STEP == 0:
                progress.update(reading, completed=frame.offset - first)
    return pair.explained()


def _submitted(directory: Path, identity: str, end: int) -> Subscription:
    """Return a subscription as it was submitted; the number in its id is the offset of its record."""
    offset = _event_id(identity).number
    for frame in read_log(directory, offset, min(offset + 1, end)):
        record = _record(frame)
        if isinstance(record, Subscribed) and record.subscription.id == identity:
            return record.subscription
    raise StorageError(f"the log has no subscription {identity}; 'wanderbus subscriptions' lists the live ones")


def _record(frame: Frame) -> AnyRecord:
    try:
        return decode_record(frame.payload)
    except msgspec.DecodeError as error:
        raise StorageError(f"record {frame.offset} was written by another version: {error}") from None


def _event_id(text: str) -> EventId:
    try:
        return EventId.parse(text)
    except EventError as error:
        raise ConfigurationError(str(error)) from None
