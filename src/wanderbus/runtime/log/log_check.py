"""Checker of a whole event log: reports damage and changes nothing; a server may be writing the log meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import zip_longest
from pathlib import Path

import msgspec

from wanderbus.errors import StorageError
from wanderbus.records import decode_record
from wanderbus.runtime.files.disk import mapped
from wanderbus.runtime.segment_files import read_mark, segment_paths, unreadable
from wanderbus.segments import HEADER, HIGH_WATER, frames


class LogReport(msgspec.Struct):
    """Contents of a log; ``damage`` has one line for each fault."""

    directory: str
    segments: int = 0
    records: int = 0
    bytes: int = 0
    first: int = 0
    next: int = 0
    durable: int | None = None
    unfinished_bytes: int = 0
    """Bytes after the acknowledged records: a write in progress, or a torn one that the next start cuts off."""
    damage: list[str] = []


def check_log(directory: Path, progress: Callable[[LogReport], None] = lambda report: None) -> LogReport:
    """Read every record in ``directory``; call ``progress`` after each segment.

    Raises :class:`StorageError` if there is no log.
    """
    paths = segment_paths(directory)
    if not paths:
        raise StorageError(f"{directory} holds no event log; give a server's data directory, or the log in it")
    report = LogReport(str(directory), first=int(paths[0].stem), next=int(paths[0].stem))
    _check_mark(directory, report)
    is_read = True
    for path, following in zip_longest(paths, paths[1:]):
        try:
            _check_segment(path, report, last=following is None)
            is_read = True
        except OSError as error:
            report.damage.append(str(unreadable(path, error)))
            is_read = False
            if following is not None:
                report.next = int(following.stem)
        progress(report)
    if is_read and report.next < (report.durable or 0):
        report.damage.append(f"records below {report.durable} were durable, but record {report.next} is missing")
    return report


def _check_mark(directory: Path, report: LogReport) -> None:
    try:
        report.durable = read_mark(directory)
    except OSError as error:
        report.damage.append(f"{directory / HIGH_WATER} cannot be read: {error.strerror}; move it away")
    else:
        if report.durable is None:
            report.damage.append(f"{directory} has no durable mark; the next start creates it")


def _check_segment(path: Path, report: LogReport, *, last: bool) -> None:
    """Read one segment; ``OSError`` if it cannot be read, and the report is then unchanged."""
    # A server that runs out of room truncates the last segment, and truncated pages must not be mapped.
    with nullcontext(path.read_bytes()) if last else mapped(path) as data:
        if int(path.stem) != report.next:
            report.damage.append(f"{path} does not begin at record {report.next}: a segment is missing")
        report.segments += 1
        report.next = int(path.stem)
        report.bytes += len(data)
        end = 0
        if data[: len(HEADER)] == HEADER:
            end = len(HEADER)
            for frame in frames(data, end):
                if frame.offset != report.next:
                    break
                try:
                    decode_record(frame.payload)
                except msgspec.DecodeError as error:
                    report.damage.append(f"{path}, byte {end}: record {frame.offset} has another format: {error}")
                end, report.next = frame.end, frame.offset + 1
                report.records += 1
        if end < len(data):
            if last and report.next >= (report.durable or 0):
                report.unfinished_bytes = len(data) - end
            else:
                report.damage.append(f"{path} is damaged at byte {end}: record {report.next} cannot be read")
