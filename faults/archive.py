"""Reader of a log whose old records are removed: it keeps every record, and registers how far it has read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from wanderbus.runtime.log.log_reader import read_log
from wanderbus.runtime.log_readers import LogReader, register_reader
from wanderbus.runtime.segment_files import durable_end, segment_paths
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name

NAME: Final = "archive"
EXPIRES_S: Final = 86_400.0


class Archive:
    """The payloads of the log in ``directory`` from its first record on, in order; ``copy`` has them as a log too."""

    def __init__(self, directory: Path, copy: Path) -> None:
        self.payloads: list[bytes] = []
        self._directory = directory
        self._copy = copy
        copy.mkdir()
        (copy / segment_name(0)).write_bytes(HEADER)
        self._mark(0)

    def register(self) -> None:
        """Register before the server starts, so that no record is removed before it is read."""
        now_us = time.time_ns() // 1_000
        register_reader(self._directory, LogReader(NAME, len(self.payloads), now_us, EXPIRES_S))

    def read(self) -> None:
        """Read all durable records, then register; :class:`StorageError` if a record was removed too early."""
        if not segment_paths(self._directory):
            return  # the server has not opened its log yet
        end = durable_end(self._directory)
        found = list(read_log(self._directory, len(self.payloads), end))
        with (self._copy / segment_name(0)).open("ab") as segment:
            segment.write(b"".join(pack_frame(each.offset, each.at_us, each.payload) for each in found))
        self.payloads += [frame.payload for frame in found]
        self._mark(len(self.payloads))
        self.register()

    def _mark(self, end: int) -> None:
        fresh = self._copy / "mark.new"
        fresh.write_bytes(pack_mark(end))
        os.replace(fresh, self._copy / HIGH_WATER)
