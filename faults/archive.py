"""Reader of a log whose old records are removed: it keeps every record, and registers how far it has read."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wanderbus.runtime.log.log_reader import read_log
from wanderbus.runtime.log_readers import LogReader, register_reader
from wanderbus.runtime.segment_files import durable_end, segment_paths

NAME: Final = "archive"
EXPIRES_S: Final = 86_400.0


class Archive:
    """The payloads of a log from its first record on, in order.

    ``needed`` returns the first record that others still need: it is registered if it is behind.
    """

    def __init__(self, directory: Path, needed: Callable[[], int]) -> None:
        self.payloads: list[bytes] = []
        self._directory = directory
        self._needed = needed

    def register(self) -> None:
        """Register before the server starts, so that no record is removed before it is read."""
        now_us = time.time_ns() // 1_000
        offset = min(len(self.payloads), self._needed())
        register_reader(self._directory, LogReader(NAME, offset, now_us, EXPIRES_S))

    def read(self) -> None:
        """Read all durable records, then register; :class:`StorageError` if a record was removed too early."""
        if not segment_paths(self._directory):
            return  # the server has not opened its log yet
        end = durable_end(self._directory)
        self.payloads += [frame.payload for frame in read_log(self._directory, len(self.payloads), end)]
        self.register()
