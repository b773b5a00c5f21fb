"""Cost of a restoration: records of the present data directory that the backup lacks, and who knows of them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from wanderbus.errors import StorageError
from wanderbus.records import (
    Acknowledged,
    AnyRecord,
    Arrived,
    Delivery,
    Detected,
    Matched,
    Published,
    Replayed,
    SchemaDeclared,
    Subscribed,
    decode_record,
)
from wanderbus.runtime.log.log_reader import oldest_record, read_log
from wanderbus.runtime.log_place import checksum_before
from wanderbus.runtime.log_readers import load_reader, reader_files
from wanderbus.runtime.segment_files import end_of_log
from wanderbus.server.backup.manifest import Manifest


class SessionCost(msgspec.Struct, frozen=True):
    """Notifications of a session that only the present directory has: ``taken`` were acknowledged by its devices."""

    user: str
    session: str
    notifications: int
    taken: int


class RestoreCost(msgspec.Struct, frozen=True):
    """Records of the present data directory that a restored one will lack."""

    records: int = 0
    """Records behind the backup that could be read."""
    until_us: int | None = None
    """Time of the last of them."""
    accepted: int = 0
    """Events that were acknowledged to publishers here."""
    arrived: int = 0
    """Events that arrived from other servers."""
    subjects: Mapping[str, int] = {}
    """Events by subject, the most frequent first."""
    sessions: Sequence[SessionCost] = ()
    subscriptions: int = 0
    """Subscriptions that were made."""
    schemas: int = 0
    """Schemas that were declared."""
    readers: Sequence[str] = ()
    """Registered readers, such as lakes, that have read records which the backup lacks."""
    is_other_history: bool = False
    """True if the present log has another record at the end of the backup: it was restored or replaced since."""
    unknown: str = ""
    """Reason why records are not counted, or not all."""


def cost_of(manifest: Manifest, data_dir: Path) -> RestoreCost:
    """Compare a backup with the present data directory, which is not changed; damage in it ends the count."""
    directory = data_dir / "log"
    found = _Found()
    unknown = ""
    is_other = False
    try:
        end = end_of_log(directory)
        is_other = _is_other_history(manifest, directory, end)
        first = max(oldest_record(directory), 0 if is_other else manifest.next)
        if first > manifest.next:
            unknown = f"records {manifest.next} to {first - 1} are no longer in the present log"
        for frame in read_log(directory, first, end):
            found.records += 1
            found.until_us = frame.at_us
            found.apply(decode_record(frame.payload))
    except (StorageError, msgspec.DecodeError) as error:
        unknown = f"the present log cannot be read: {error}"
    readers = [reader for path in reader_files(directory) if (reader := load_reader(path)) is not None]
    return found.cost(sorted(reader.name for reader in readers if reader.offset > manifest.next), is_other, unknown)


def _is_other_history(manifest: Manifest, directory: Path, end: int) -> bool:
    """Return whether the present log has another record where the backup has its last one."""
    if end < manifest.next:
        return True
    return checksum_before(directory, manifest.next) not in (None, manifest.last_checksum)


class _Found:
    """Counts while the records are read."""

    def __init__(self) -> None:
        self.records = 0
        self.until_us: int | None = None
        self._accepted = self._arrived = self._subscriptions = self._schemas = 0
        self._subjects: Counter[str] = Counter()
        self._notified: dict[tuple[str, str], array[int]] = {}
        self._taken: dict[tuple[str, str], int] = {}

    def apply(self, record: AnyRecord) -> None:
        """Count one record."""
        match record:
            case Published():
                self._accepted += 1
                self._subjects[record.event.subject] += 1
                self._deliver(record.delivery)
            case Arrived():
                self._arrived += 1
                self._subjects[record.event.subject] += 1
                self._deliver(record.delivery)
            case Matched(events=events) | Detected(events=events):
                for event in events:
                    self._deliver(Delivery(notified=event.notified))
            case Replayed(user=user, session=session, first=first, events=replayed):
                self._numbers(user, session).extend(range(first, first + len(replayed)))
            case Acknowledged(user=user, session=session, number=number):
                self._taken[user, session] = max(number, self._taken.get((user, session), 0))
            case Subscribed():
                self._subscriptions += 1
            case SchemaDeclared():
                self._schemas += 1

    def _deliver(self, delivery: Delivery) -> None:
        for each in delivery.notified:
            self._numbers(each.user, each.session).append(each.number)

    def _numbers(self, user: str, session: str) -> array[int]:
        """Return the numbers of the notifications of a session."""
        return self._notified.setdefault((user, session), array("q"))

    def cost(self, readers: Sequence[str], is_other_history: bool, unknown: str) -> RestoreCost:
        """Return the sum."""
        sessions = [
            SessionCost(
                user, session, len(numbers), sum(each <= self._taken.get((user, session), 0) for each in numbers)
            )
            for (user, session), numbers in sorted(self._notified.items())
        ]
        return RestoreCost(
            records=self.records,
            until_us=self.until_us,
            accepted=self._accepted,
            arrived=self._arrived,
            subjects=dict(self._subjects.most_common()),
            sessions=sessions,
            subscriptions=self._subscriptions,
            schemas=self._schemas,
            readers=readers,
            is_other_history=is_other_history,
            unknown=unknown,
        )
