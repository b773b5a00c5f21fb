"""Status of an event log on disk: its size, and what keeps its oldest records; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import StorageError
from wanderbus.runtime.files.state_description import state_offsets
from wanderbus.runtime.log.log_segments import log_segments
from wanderbus.runtime.log.retention_policy import Hold, Segment, reasons
from wanderbus.runtime.log_readers import LogReader, load_reader, reader_files
from wanderbus.runtime.segment_files import end_of_log
from wanderbus.server.log_retention import POLICY_FILE, STATE, LogPolicy, reader_holds

_ATTEMPTS: Final = 20
"""Attempts to list the segments: a server may remove one meanwhile."""


class ReaderStatus(msgspec.Struct, frozen=True):
    """A registered reader: the first record that it needs, its distance to the end, and its age."""

    name: str
    offset: int
    lag: int
    age_s: float
    """Time since it registered."""
    expires_s: float
    expired: bool


class LogStatus(msgspec.Struct, frozen=True):
    """Status of one log."""

    directory: str
    segments: int
    bytes: int
    oldest: int
    """Offset of the oldest record."""
    durable: int
    """Offset behind the last durable record."""
    keep_s: float | None
    keep_bytes: int | None
    """Settings of the server that wrote the log last; nothing is removed if both are None."""
    state: Mapping[str, int | None]
    """Offset of each state file, None if it cannot be read."""
    readers: Sequence[ReaderStatus]
    held_by: Sequence[str]
    """Reasons why the oldest segment is kept: names of readers, ``subscriptions`` that read the past, the matching
    ``engine``, ``state``, ``age``, ``size``, ``written`` if it is the only one, ``not configured``; empty if the next
    pass removes it."""
    warnings: Sequence[str]


def log_status(data_dir: Path, now_us: int) -> LogStatus:
    """Return the status of the log in a data directory; :class:`StorageError` if there is none."""
    directory = data_dir / "log"
    durable = end_of_log(directory)
    segments = _segments(directory, durable)
    offsets = state_offsets(data_dir)
    holds, warnings = reader_holds(directory, now_us)
    state = Hold(STATE, max((offset for offset in offsets.values() if offset is not None), default=0))
    policy = _policy(directory)
    held = reasons(segments, [*holds, *policy.subscriptions, state], policy.keep, now_us) if segments else []
    return LogStatus(
        directory=str(directory),
        segments=len(segments),
        bytes=sum(segment.bytes for segment in segments),
        oldest=segments[0].first if segments else 0,
        durable=durable,
        keep_s=policy.keep.seconds,
        keep_bytes=policy.keep.bytes,
        state=offsets,
        readers=[_reader(reader, durable, now_us) for path in reader_files(directory) if (reader := load_reader(path))],
        held_by=list(dict.fromkeys(held)),
        warnings=warnings,
    )


def _segments(directory: Path, durable: int) -> Sequence[Segment]:
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            return log_segments(directory, durable)
    raise StorageError(f"the segments in {directory} change too fast; try again")


def _policy(directory: Path) -> LogPolicy:
    try:
        return msgspec.json.decode((directory / POLICY_FILE).read_bytes(), type=LogPolicy)
    except (OSError, msgspec.DecodeError):
        return LogPolicy()


def _reader(reader: LogReader, durable: int, now_us: int) -> ReaderStatus:
    return ReaderStatus(
        name=reader.name,
        offset=reader.offset,
        lag=durable - reader.offset,
        age_s=(now_us - reader.updated_us) / 1e6,
        expires_s=reader.expires_s,
        expired=reader.is_expired(now_us),
    )
