"""Places in an event log that recognise the log by its content: the checksum of the last record read.

A data directory may be restored from a copy, or replaced by another. Its log then reaches the offset of a reader again,
with other records. Whoever stores a place in a log therefore stores a :class:`~wanderbus.segments.LogPlace`, and checks
it before the next record is read.
"""

from __future__ import annotations

from pathlib import Path

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.runtime.log.log_reader import NotKept, RecordPlace, read_frames
from wanderbus.runtime.segment_files import durable_end
from wanderbus.segments import LogPlace, record_checksum

Known = tuple[Path, int]
"""Segment of a record, and its first byte there."""


class LogReplaced(StorageError):
    """A log does not have the records that a reader has read from it."""


def checksum_before(directory: Path, offset: int, known: Known | None = None) -> int | None:
    """Return the checksum of the record before ``offset``, which is not beyond the durable mark.

    None if there is no such record: ``offset`` is 0, or the record is damaged or no longer kept. With the ``known``
    place of that record its segment is not searched. Raises :class:`StorageError` if a file cannot be read.
    """
    if offset == 0:
        return None
    try:
        frame, _ = next(read_frames(directory, offset - 1, offset, None if known is None else RecordPlace(*known)))
    except (NotKept, LogCorrupt):
        return None
    return record_checksum(frame.offset, frame.at_us, frame.payload)


def place_at(directory: Path, offset: int, known: Known | None = None) -> LogPlace:
    """Return the place before the record ``offset``, which is not beyond the durable mark."""
    return LogPlace(offset, checksum_before(directory, offset, known))


def checked_place(
    directory: Path, place: LogPlace, *, reader: str, remedy: str, known: Known | None = None
) -> LogPlace:
    """Return ``place``, with its checksum if it was unknown, once the log is the one that it was stored for.

    A place without a checksum is only compared with the end of the log, and a damaged or removed record with nothing.
    Raises :class:`LogReplaced` if the log ends before the place, or has another record before it. The error says who
    the ``reader`` is, and its ``remedy``.
    """
    end = durable_end(directory)
    found = checksum_before(directory, place.offset, known) if place.offset <= end else None
    return compared_place(place, end, found, name=str(directory), reader=reader, remedy=remedy)


def compared_place(place: LogPlace, end: int, found: int | None, *, name: str, reader: str, remedy: str) -> LogPlace:
    """Return what :func:`checked_place` does, for the log or stream ``name`` that ends before the record ``end``.

    ``found`` is the checksum of its record before the place, None if that cannot be read.
    """
    if place.offset > end:
        reason = f"it ends before record {end}, and was read up to {place.offset}"
    elif found is None or place.checksum in (None, found):
        return place if found is None else LogPlace(place.offset, found)
    else:
        reason = f"record {place.offset - 1} is another one"
    raise LogReplaced(
        f"{name} is not the log that {reader} has read: {reason}; it was restored from a copy or replaced; {remedy}"
    )
