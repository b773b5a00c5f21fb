"""``python -m faults.archive_service DATA-DIR ARCHIVE JOURNAL``: the service ``history`` over a copy of a server's log.

So the requests of a server, the restarts of both sides and the seam between two sources are tested in each crash run,
without Spark. The journal has a line for each piece with events.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.broker.messages import HistoryRead, HistoryWanted
from wanderbus.errors import StorageError
from wanderbus.records import Started, decode_record
from wanderbus.runtime.log.history_source import LogHistory
from wanderbus.runtime.log.log_reader import read_log
from wanderbus.runtime.segment_files import durable_end
from wanderbus.runtime.services.history import NAME, OffsetAsked, handlers_of
from wanderbus.runtime.services.service import Service

READY: Final = "ready"


class CopiedLog:
    """A growing copy of a log from its first record on."""

    def __init__(self, directory: Path, journal: Path) -> None:
        self._directory = directory
        self._source = LogHistory(directory, self._identity)
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def offset(self, asked: OffsetAsked) -> int:
        """Return the first offset of a subscription."""
        if (end := durable_end(self._directory)) < asked.log_begins:
            raise StorageError(f"the records {end} to {asked.log_begins - 1} were removed before they were copied")
        return self._source.offset(asked.wanted)

    def read(self, wanted: HistoryWanted) -> HistoryRead:
        """Return a piece, which ends where the copy ends."""
        end = min(wanted.end, durable_end(self._directory))
        if wanted.first >= end:
            raise StorageError(f"record {wanted.first} is not in the copy, which ends at record {end}")
        piece = self._source.read(msgspec.structs.replace(wanted, end=end))
        if piece.events:
            os.write(self._journal, f"{wanted.first} {piece.end} {len(piece.events)}\n".encode())
        return piece

    def _identity(self) -> tuple[str, int]:
        record = decode_record(next(read_log(self._directory, 0, 1)).payload)
        assert isinstance(record, Started)
        assert record.server is not None
        return record.server, record.incarnation


if __name__ == "__main__":
    data, archive, journal = map(Path, sys.argv[1:])
    with Service(data, NAME, handlers_of(CopiedLog(archive, journal))):
        print(READY, flush=True)
        threading.Event().wait()
