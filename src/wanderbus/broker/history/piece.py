"""One piece of history: the events in a range of the log that a subscription matches. The caller reads the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from wanderbus import filters
from wanderbus.broker.messages import HistoryRead, HistoryWanted, PastEvent
from wanderbus.filters.work import Sizes, work_of
from wanderbus.records import AnyRecord, Arrived, Detected, Matched, Published, Replayed, decode_record
from wanderbus.segments import Frame
from wanderbus.subscription import EVERY_SUBJECT, Since, Subscription

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
    tests = [_Test(wanted, wanted.subscription, wanted.subjects)]
    tests += [_Test(wanted, each.subscription, each.subjects) for each in wanted.others]
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
    return msgspec.structs.replace(event, subscriptions=tuple(found), unsure=unsure)


class _Test:
    """The test of one subscription, which counts the ``units`` of its work."""

    def __init__(self, wanted: HistoryWanted, subscription: Subscription, subjects: Sequence[str]) -> None:
        self.identity = subscription.id
        self.units = 0
        self._subjects = frozenset(subjects or (subscription.subject,))
        self._has_every_subject = EVERY_SUBJECT in self._subjects
        # Most records of other subjects are recognised without decoding them.
        is_searched = not self._has_every_subject and len(self._subjects) <= _TEXTS_MAX
        self._texts = [each.encode() for each in self._subjects] if is_searched else [b""]
        since = subscription.since or Since()
        self._since_us = since.at_us
        self._filter = filters.parse(subscription.expression, subscription.language)
        self._work = work_of(self._filter.root)
        self._work_max = wanted.filter_work_max

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
        event = record.event
        if not self._has_every_subject and event.subject not in self._subjects:
            return None
        units = self._work.units(Sizes(event.attributes))
        undecided = ""
        if units > self._work_max:
            undecided = "filter_work_max"
        else:
            self.units += units
            if not self._filter.matches(event):
                return None
        return past_event(frame.offset, record, undecided)


def past_event(offset: int, record: Published | Arrived, undecided: str = "") -> PastEvent:
    """Return the event of the record at ``offset``; ``undecided`` names the bound if a filter is too costly."""
    if isinstance(record, Published):
        accepted, user = record.acceptance, record.acceptance.user
        source = accepted.id, record.at_us, record.received_us, bytes(accepted.event)
    else:
        source = record.arrival.id, record.at_us, record.received_us, bytes(record.arrival.event)
        user = ""
    return PastEvent(offset, *source, undecided, user, is_decentralised=bool(record.causal))


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
