"""Progress of a streaming query over a log: the batches that have ended, each reported once (SPEC T-03)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql.streaming.query import StreamingQuery

from wanderbus.runtime.segment_files import durable_end


class RunProgress(msgspec.Struct, frozen=True):
    """Progress after one batch: the log is processed up to ``offset``, ``lag`` records before its durable end.

    ``server`` is the name of the log in a lake of several logs, "" if the lake has one.
    """

    offset: int
    lag: int
    records: int
    records_per_s: float
    server: str = ""


class QueryProgress:
    """Reader of the reports of one query, on the log of ``server``; its first batch begins at the offset ``first``."""

    def __init__(self, log: Path, first: int, server: str = "") -> None:
        self._log = log
        self._server = server
        self._first = first
        self._shown = -1

    def ended(self, query: StreamingQuery) -> Iterator[RunProgress]:
        """Yield the progress of the batches with records that have ended since the last call."""
        reports: list[Any] = [each for each in query.recentProgress if each["batchId"] > self._shown]
        for report in reports:
            self._shown = report["batchId"]
            source = report["sources"][0]
            first, end = (_offset(source[name]) for name in ("startOffset", "endOffset"))
            first = self._first if first is None else first
            if end is None or end <= first:
                continue
            duration_s = report["durationMs"].get("triggerExecution", 0) / 1_000
            rate = (end - first) / duration_s if duration_s else 0.0
            yield RunProgress(end, durable_end(self._log) - end, end - first, rate, self._server)


def _offset(text: Any) -> int | None:
    """Return the offset in the JSON of a progress report."""
    value = json.loads(text) if isinstance(text, str) else text
    return value["offset"] if value else None
