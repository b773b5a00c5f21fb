"""Retention of the event log: removes segments that nobody needs, in an order that a crash cannot break (SPEC T-01).

The order of one pass: read the registrations of readers, decide, bring both generations of the state to one offset and
sync them, decide again with that offset, and remove the oldest segment first, each durably before the next.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import apsw
import msgspec

from wanderbus.errors import StorageError
from wanderbus.runtime.files.disk import SYSTEM, Disk, is_full, replace_file
from wanderbus.runtime.files.state_generations import StateGenerations
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.runtime.log.log_segments import log_segments
from wanderbus.runtime.log.retention_policy import Hold, Keep, Segment, removable
from wanderbus.runtime.log_place import LogReplaced, checked_place
from wanderbus.runtime.log_readers import LogReader, load_reader, reader_files

_log = logging.getLogger("wanderbus.server")

STATE: Final = "state"
"""Name of the hold of the server's state."""

POLICY_FILE: Final = "retention.json"
"""File in the log's directory with the :class:`LogPolicy` of the server that writes it."""

REMOVED_AT_ONCE: Final = 16
"""Largest number of segments that one pass removes: saves of the state wait meanwhile."""


READERS_SHOWN_MAX: Final = 64
"""Registered readers whose distance to the end the metrics show."""


class NeededRecords(NamedTuple):
    """First records that readers within the server still need, by name, as of the records below ``offset``.

    They are the ``subscriptions`` that begin in the past and have not caught up, and the matching ``engine``.
    """

    offset: int
    needed: Mapping[str, int]


NO_HISTORY: Final = NeededRecords(0, {})

_UNKNOWN: Final = NeededRecords(0, {"subscriptions": 0})
"""Before the first records of a run are durable, everything may be needed."""


class LogPolicy(msgspec.Struct, frozen=True):
    """Settings of retention, and the records that readers within the server need; for ``wanderbus log status``."""

    keep: Keep = Keep()
    subscriptions: Sequence[Hold] = ()


class LogRetention:
    """Retention of one log; :meth:`run` is one pass."""

    def __init__(self, log: EventLog, store: StateGenerations, keep: Keep, disk: Disk = SYSTEM) -> None:
        self._log = log
        self._store = store
        self._keep = keep
        self._disk = disk
        self._warned: set[str] = set()
        self._recognised: set[str] = set()
        """Readers that have read this log: while it is open, nothing replaces it."""
        self._published: LogPolicy | None = None
        self._history = _UNKNOWN
        self._durable_history: NeededRecords | None = None
        """Latest value of it that is durable, so that no crash can undo it."""
        self.log_bytes = 0
        """Size of the log at the last pass."""
        self.reader_offsets: Mapping[str, int] = {}
        """First record that each registered reader still needed then, but those that have expired."""
        self.fault: Exception | None = None
        """Error after which nothing more is removed."""

    def run(self, now_us: int, history: NeededRecords = NO_HISTORY) -> None:
        """Remove the segments that nobody needs; an error ends retention until the next start, with a line in the log.

        :param history: records that readers within the server need now
        """
        if self.fault is not None:
            return
        try:
            holds = self._history_holds(history)
            self._publish(LogPolicy(self._keep, holds))
            segments = log_segments(self._log.directory, self._log.durable_offset)
            self._note(segments, now_us)
            if not self._keep.everything:
                self._run(segments, now_us, holds)
        except (OSError, StorageError, apsw.Error) as error:
            if not is_full(error):
                self.fault = error
                _log.error("nothing more is removed from the log until the next start: %s", error)

    def _publish(self, policy: LogPolicy) -> None:
        """Store the policy for ``wanderbus log status``, if it has changed."""
        if policy == self._published:
            return
        path = self._log.directory / POLICY_FILE
        if path.exists() or not self._keep.everything:
            replace_file(self._disk, path, msgspec.json.encode(policy) + b"\n")
        self._published = policy

    def _history_holds(self, history: NeededRecords) -> Sequence[Hold]:
        """Return the holds for readers within the server: a crash may set them back to the last durable offsets."""
        if self._history.offset <= self._log.durable_offset:
            self._durable_history = self._history
        if history.offset <= self._log.durable_offset:
            self._durable_history = history
        self._history = history
        known = [history, self._durable_history or _UNKNOWN]
        return [Hold(name, offset) for each in known for name, offset in each.needed.items()]

    def _note(self, segments: Sequence[Segment], now_us: int) -> None:
        """Note the size of the log, and how far its readers are, for the metrics."""
        self.log_bytes = sum(each.bytes for each in segments)
        readers = filter(None, map(load_reader, reader_files(self._log.directory)))
        present = [each for each in readers if not each.is_expired(now_us)]
        self.reader_offsets = {each.name: each.offset for each in present[:READERS_SHOWN_MAX]}

    def _run(self, segments: Sequence[Segment], now_us: int, history: Sequence[Hold]) -> None:
        readers = [*history, *self._reader_holds(now_us)]
        if not removable(segments, [*readers, Hold(STATE, self._store.offset)], self._keep, now_us):
            return
        if (secured := self._store.secure()) is None:
            return
        going = removable(segments, [*readers, Hold(STATE, secured)], self._keep, now_us)[:REMOVED_AT_ONCE]
        for _ in going:
            self._log.remove_oldest()
        if going:
            size = sum(segment.bytes for segment in going)
            _log.info("removed records before %s from the log: %s segments, %s bytes", going[-1].end, len(going), size)

    def _reader_holds(self, now_us: int) -> Sequence[Hold]:
        holds, warnings = reader_holds(self._log.directory, now_us, self._recognised)
        for warning in warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                _log.warning("%s", warning)
        return holds


def reader_holds(
    log_dir: Path, now_us: int, recognised: set[str] | None = None
) -> tuple[Sequence[Hold], Sequence[str]]:
    """Return the holds of registered readers, and a warning for each one that is expired or cannot be read.

    A registration that cannot be read, or was made for other records, holds every record. Another one also holds the
    record before its offset, by which its reader recognises the log. The names ``recognised`` need no comparison; those
    that have passed it are added.
    """
    holds: list[Hold] = []
    warnings: list[str] = []
    for path in reader_files(log_dir):
        reader = load_reader(path)
        if reader is None:
            holds.append(Hold(path.stem, -1))
            warnings.append(f"{path} is damaged, so no record is removed from the log; delete it, or register again")
        elif reader.is_expired(now_us):
            warnings.append(
                f"the log's reader {reader.name} has not registered for {reader.expires_s:g} s and counts as gone: "
                f"the records from {reader.offset} on may be removed before it has read them; start it again"
            )
        elif warning := _of_another_log(log_dir, reader, set() if recognised is None else recognised):
            holds.append(Hold(reader.name, -1))
            warnings.append(warning)
        else:
            holds.append(Hold(reader.name, reader.offset if reader.checksum is None else reader.offset - 1))
    return holds, warnings


def _of_another_log(log_dir: Path, reader: LogReader, recognised: set[str]) -> str:
    """Return a warning if a reader has read other records than those of this log; empty if it has read these."""
    if reader.name in recognised:
        return ""
    try:
        remedy = "its records stay until that reader registers again, or its registration expires"
        checked_place(log_dir, reader.place, reader=f"its reader {reader.name}", remedy=remedy)
    except LogReplaced as error:
        return str(error)
    recognised.add(reader.name)
    return ""
