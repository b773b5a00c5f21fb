"""Segments of a log directory with their sizes and times, for retention; reads only the beginnings of the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wanderbus.runtime.log.retention_policy import Segment
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.segments import FRAME_OVERHEAD_BYTES, HEADER, first_time_us, segment_name


def log_segments(directory: Path, end: int) -> Sequence[Segment]:
    """Return the segments of ``directory``; ``end`` is the offset after the last record.

    ``FileNotFoundError`` means that a segment was removed meanwhile; the call may be repeated.
    """
    found: list[Segment] = []
    for path in reversed(segment_paths(directory)):
        following = found[-1] if found else None
        ended_us = None if following is None else _begun_us(directory, following)
        first = int(path.stem)
        found.append(Segment(first, end if following is None else following.first, path.stat().st_size, ended_us))
    return found[::-1]


def _begun_us(directory: Path, segment: Segment) -> int | None:
    with (directory / segment_name(segment.first)).open("rb") as file:
        return first_time_us(file.read(len(HEADER) + FRAME_OVERHEAD_BYTES))
