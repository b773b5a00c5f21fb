"""One piece of history: the events in a range of the log that a subscription matches. The caller reads the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from wanderbus.broker.interest.index_entries import IndexEntry, entries_of
from wanderbus.broker.messages import HistoryRead, HistoryWanted, PastEvent, PastReader
from wanderbus.filters.work import Sizes
from wanderbus.records import AnyRecord, Arrived, Detected, Matched, Published, Replayed, decode_record
from wanderbus.segments import Frame
from wanderbus.subscription import EVERY_SUBJECT, Since

PIECE_WORK_MAX: Final = 2_000_000
"""Units of work of the filters in one piece, about 10 ns each; then others have their turn."""

_RECORD_UNITS: Final = 100

_TEXTS_MAX: Final = 8
"""Subjects that are searched in a record before it is decoded; more would cost more than they save."""

_WITH_EVENT: Final = (b"\xa4kind\xa9published", b"\xa4kind\xa7arrived")
"""Beginnings of encoded records of events, accepted here or elsewhere, after the byte that counts the fields."""


def read_piece(wanted: HistoryWanted, frames: Iterable[Frame]) -> HistoryRead:
    """Return the piece; ``frames`` are the records from ``wanted.first`` on, at least up to ``wanted.end``.

    :raises FilterError: the stored expression can no longer be parsed
    :raises msgspec.DecodeError: a record was written by another version
    """
    tests = [_Test(reader, wanted.filter_work_max) for reader in wanted.readers]
    found: list[PastEvent] = []
    size, end = 0, wanted.first
    for frame in frames:
        if frame.offset >= wanted.end or sum(each.units for each in tests) >= PIECE_WORK_MAX:
            break
        if (event := _matched(tests, frame)) is not None:
            if found and size + len(event.event) > wanted.bytes_max:
                break
            found.append(event)
            size += len(event.event)
        end = frame.offset + 1
        if len(found) >= wanted.events_max:
            break
    return HistoryRead(wanted.piece, end, tuple(found))


def _matched(tests: Sequence[_Test], frame: Frame) -> PastEvent | None:
    """Return the event of a record if one of several subscriptions matches it, None for any other record."""
    if len(tests) == 1:
        return tests[0].matched(frame)
    found = {test.identity: event for test in tests if (event := test.matched(frame)) is not None}
    if not found:
        return None
    unsure = tuple(identity for identity, event in found.items() if event.undecided)
    event = found[unsure[0]] if unsure else next(iter(found.values()))
    steps = tuple(step for each in found.values() for step in each.steps)
    return msgspec.structs.replace(event, subscriptions=tuple(found), unsure=unsure, steps=steps)


class _Entry:
    """A filter of a subscription, or of a step of a pattern, with the subject and those below it."""

    def __init__(self, entry: IndexEntry, below: Sequence[str]) -> None:
        self.subjects = frozenset(below or (entry.subject,))
        self.filter, self.work, self.step = entry.interest.filter, entry.interest.work, entry.step

    def concerns(self, subject: str) -> bool:
        """Return whether events of ``subject`` can match."""
        return subject in self.subjects or EVERY_SUBJECT in self.subjects


class _Test:
    """The test of one subscription, which counts the ``units`` of its work."""

    def __init__(self, reader: PastReader, work_max: int) -> None:
        subscription = reader.subscription
        self.identity = subscription.id
        self.units = 0
        self._work_max = work_max
        subjects = reader.steps or (reader.subjects,)
        self._entries = [_Entry(*each) for each in zip(entries_of(subscription), subjects, strict=True)]
        # Most records of other subjects are recognised without decoding them.
        wanted = {subject for entry in self._entries for subject in entry.subjects}
        is_searched = EVERY_SUBJECT not in wanted and len(wanted) <= _TEXTS_MAX
        self._texts = [each.encode() for each in wanted] if is_searched else [b""]
        self._since_us = (subscription.since or Since()).at_us

    def matched(self, frame: Frame) -> PastEvent | None:
        """Return the event of a record if the subscription matches it, None for any other record."""
        self.units += _RECORD_UNITS
        payload = frame.payload
        if not has_event(payload) or not any(text in payload for text in self._texts):
            return None
        if self._since_us is not None and frame.at_us < self._since_us:
            return None
        record = decode_record(payload)
        assert isinstance(record, Published | Arrived)
        event, leaves, is_matched = record.event, 0, False
        for entry in self._entries:
            if not entry.concerns(event.subject):
                continue
            units = entry.work.units(Sizes(event.attributes))
            if units > self._work_max:
                return past_event(frame.offset, record, "filter_work_max")
            self.units += units
            if entry.filter.matches(event):
                is_matched = True
                leaves |= 0 if entry.step is None else 1 << entry.step
        if not is_matched:
            return None
        return past_event(frame.offset, record, steps=((self.identity, leaves),) if leaves else ())


def past_event(
    offset: int, record: Published | Arrived, undecided: str = "", steps: tuple[tuple[str, int], ...] = ()
) -> PastEvent:
    """Return the event of the record at ``offset``; ``undecided`` names the bound if a filter is too costly."""
    if isinstance(record, Published):
        accepted, user = record.acceptance, record.acceptance.user
        source = accepted.id, record.at_us, record.received_us, bytes(accepted.event)
    else:
        source = record.arrival.id, record.at_us, record.received_us, bytes(record.arrival.event)
        user = ""
    return PastEvent(offset, *source, undecided, user, is_decentralised=bool(record.causal), steps=steps)


def has_event(payload: bytes) -> bool:
    """Return whether a record is that of an event, accepted here or elsewhere, without decoding it."""
    return payload.startswith(_WITH_EVENT, 1)


def offset_after(record: AnyRecord, offset: int, user: str, session: str, number: int) -> int | None:
    """Return the offset behind the event of a notification, None if the record at ``offset`` did not generate it."""
    match record:
        case Published() | Arrived():
            generated = ((each.user, each.session, each.number) for each in record.delivery.notified)
            return offset + 1 if (user, session, number) in generated else None
        case Matched() | Detected():
            for each in record.events:
                if any((one.user, one.session, one.number) == (user, session, number) for one in each.notified):
                    return each.offset + 1
        case Replayed():
            place = number - record.first
            if (record.user, record.session) == (user, session) and 0 <= place < len(record.events):
                return offset + 1 if record.log is not None else record.events[place].id.number + 1
    return None


def find_position(frames: Iterable[Frame], user: str, session: str, number: int) -> int | None:
    """Return the offset behind the event of a notification that one of these records generated, else None."""
    text = user.encode()
    for frame in frames:
        if text in frame.payload:
            try:
                record = decode_record(frame.payload)
            except msgspec.DecodeError:
                continue
            if (found := offset_after(record, frame.offset, user, session, number)) is not None:
                return found
    return None
