"""``wanderbus explain``: reason why an event was or was not delivered, read from a server's log (SPEC U-01)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress

from wanderbus.broker.explained import Explained
from wanderbus.broker.explanation import Explanation
from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import log_to_stderr, print_json, print_line
from wanderbus.cli.pipeline.lake_options import existing_logs
from wanderbus.cli.pipeline.subject_parents import EventDomain, parents_given
from wanderbus.cli.sub import SESSION
from wanderbus.errors import ConfigurationError, EventError, StorageError
from wanderbus.event import EventId
from wanderbus.parameters.broker import FILTER_WORK_MAX
from wanderbus.records import AnyRecord, Published, Subscribed, Unsubscribed, decode_record
from wanderbus.runtime.files.domain_file import FILE_NAME
from wanderbus.runtime.log.log_reader import oldest_record, read_log
from wanderbus.runtime.segment_files import end_of_log, log_directory
from wanderbus.segments import Frame
from wanderbus.subscription import Subscription

_RECORDS_A_STEP: Final = 10_000
"""Records between two updates of the progress bar."""


def explain(
    event: Annotated[str, typer.Argument(help="Id of the event, as 'pub' prints it.", show_default=False)],
    subscription: Annotated[
        str,
        typer.Argument(
            help="Id of the subscription, as 'subscriptions' lists it; or the name of its session, or of 'sub --keep'.",
            show_default=False,
        ),
    ],
    data_dir: Annotated[Path, typer.Option(help="Data directory of the server, or directory of a domain here.")] = Path(
        "wanderbus-data"
    ),
    device: Annotated[str | None, typer.Option(help="Explain the delivery to this device.")] = None,
    work_max: Annotated[
        int,
        typer.Option(
            "--filter-work-max",
            min=1,
            help="Units of work beyond which a filter is not evaluated, as broker.filter_work_max.",
        ),
    ] = FILTER_WORK_MAX,
    event_domain: EventDomain = None,
    json: AsJson = False,
) -> None:
    """Explain why an event was, or was not, delivered for a subscription.

    Reads the log of a server, running or not, and changes nothing. In a domain on one machine it follows the event from
    the log of its server to that of the server with the subscription, and on to the next ones if the session moved
    while the event waited.

    Example: wanderbus explain wb1234-mibx2f9c-1042 wb1234-mibx2f9c-17 --data-dir wanderbus-data

    Example: wanderbus explain s1-mibx2f9c-1042 delays --data-dir wanderbus-domain
    """
    log_to_stderr(verbose=False)
    identity, logs = _event_id(event), _logs(data_dir)
    parents = parents_given(event_domain, logs) or {}
    explained = _explained(logs, identity, _submitted(logs, subscription), device, work_max, parents)
    if json:
        print_json(explained)
    else:
        print_line(f"{explained.outcome.replace('_', ' ')}: {explained.reason}")


def _logs(data_dir: Path) -> list[Path]:
    """Return the log of a server, or those of all servers for the directory of a domain."""
    return existing_logs([data_dir]) if (data_dir / FILE_NAME).is_file() else [log_directory(data_dir)]


def _explained(
    logs: Sequence[Path],
    event: EventId,
    wanted: Subscription,
    device: str | None,
    work_max: int,
    parents: Mapping[str, str],
) -> Explained:
    """Explain the pair from the log of the server that had the subscription when the event came there.

    The event may be from another server; the session may have moved, before the event or with its notification.
    """
    found = []
    for directory in logs:
        pair = Explanation(event, wanted, device, work_max, parents)
        _read(directory, pair)
        if pair.has_event and pair.has_subscription:
            _follow(logs, pair)
            return pair.explained()
        found.append(pair)
    at_origin = _published(logs, event)
    if at_origin is None:
        raise StorageError(f"the log has no event {event}; check the id (a refused event has none)")
    pair = next((pair for pair in found if pair.has_subscription), found[0])
    if not pair.has_event:
        pair.apply_elsewhere(at_origin)
    return pair.explained()


def _follow(logs: Sequence[Path], pair: Explanation) -> None:
    """Go on in the logs of the servers to which a notification went with its session, from one to the next."""
    last = None
    while pair.moved is not None and pair.moved is not last:
        last = pair.moved
        for directory in logs:
            _read(directory, pair)


def _read(directory: Path, pair: Explanation) -> None:
    """Apply the records of a log that concern ``pair``."""
    first, end = oldest_record(directory), end_of_log(directory)
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        reading = progress.add_task("reading the log", total=end - first)
        for frame in read_log(directory, first, end):
            if pair.concerns(frame.offset, frame.payload):
                pair.apply(_record(frame))
            if pair.settled:
                break
            if frame.offset % _RECORDS_A_STEP == 0:
                progress.update(reading, completed=frame.offset - first)


def _published(logs: Sequence[Path], event: EventId) -> Published | None:
    """Return the record of an event in the log of the server that accepted it; the id has its offset."""
    for directory in logs:
        for record in _at(directory, event.number):
            if isinstance(record, Published) and record.acceptance.id == event:
                return record
    return None


def _submitted(logs: Sequence[Path], wanted: str) -> Subscription:
    """Return a subscription as it was submitted, by its id, or by the name of its session or of ``sub --keep``."""
    try:
        offset = EventId.parse(wanted).number
    except EventError:
        return _named(logs, wanted)
    for directory in logs:
        for record in _at(directory, offset):
            if isinstance(record, Subscribed) and record.subscription.id == wanted:
                return record.subscription
    raise StorageError(f"the log has no subscription {wanted}; 'wanderbus subscriptions' lists the live ones")


def _named(logs: Sequence[Path], name: str) -> Subscription:
    """Return the subscription of a session: the live one, or else the only one that there was."""
    submitted, ended = dict[str, Subscription](), set[str]()
    for directory in logs:
        for frame in read_log(directory, oldest_record(directory), end_of_log(directory)):
            if b"subscribed" not in frame.payload:
                continue
            record = _record(frame)
            if isinstance(record, Subscribed) and record.subscription.session in (name, f"{SESSION}.{name}"):
                submitted[record.subscription.id] = record.subscription
            elif isinstance(record, Unsubscribed):
                ended.add(record.subscription)
    chosen = [each for each in submitted if each not in ended] or list(submitted)
    if not chosen:
        raise ConfigurationError(
            f"{name!r} is neither the id of a subscription nor the name of a session with one; "
            "'wanderbus subscriptions' lists them"
        )
    if len(chosen) > 1:
        raise ConfigurationError(f"{name!r} has several subscriptions; give the id of one: {', '.join(chosen)}")
    return submitted[chosen[0]]


def _at(directory: Path, offset: int) -> Iterator[AnyRecord]:
    """Yield the record at an offset, if the log has it."""
    end = end_of_log(directory)
    if oldest_record(directory) <= offset < end:
        yield from map(_record, read_log(directory, offset, offset + 1))


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
