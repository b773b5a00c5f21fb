"""Chunks: the matches of consecutive records, encoded by the worker as the server gets them (SPEC T-06)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from wanderbus.errors import LogCorrupt
from wanderbus.event import Event
from wanderbus.pipeline.engine.worker_index import WorkerIndex
from wanderbus.pipeline.source.log_files import Slice, corrupt, read_slice
from wanderbus.pipeline.source.partial_records import EventRecord
from wanderbus.records import SPARK
from wanderbus.runtime.services.engine import EventMatches

EVENTS_MAX: Final = 1_024
"""Events that are matched at once."""

CHUNK_BYTES_MAX: Final = 256 * 2**10
"""Bytes of matches in one chunk; one more event is always allowed."""

_encoder: Final = msgspec.msgpack.Encoder()


class MatchChunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The matches of the records from offset ``first`` up to ``end``: ``matches`` has ``count`` :class:`EventMatches`.

    ``events`` is the number of events that were matched, ``oldest_us`` the time of the first one's record, 0 without
    any.
    """

    first: int
    end: int
    events: int
    oldest_us: int
    count: int
    matches: bytes


_records: Final = msgspec.msgpack.Decoder(EventRecord[msgspec.Raw])
_events: Final = msgspec.msgpack.Decoder(Event)


def engine_event(payload: bytes) -> Event | None:
    """Return the event of a record if the engine has to match it; ``msgspec.DecodeError`` if it cannot be decoded."""
    record = _records.decode(payload)
    return _events.decode(record.receipt.event) if record.engine == SPARK else None


def chunks_of(index: WorkerIndex, parts: Iterable[Slice]) -> Iterator[MatchChunk]:
    """Yield the matches of consecutive parts of a log; :class:`LogCorrupt` for a record that cannot be read."""
    for part in parts:
        yield from _chunks(index, part)


def _chunks(index: WorkerIndex, part: Slice) -> Iterator[MatchChunk]:
    """Yield chunks that have all records of a part."""
    offsets: list[int] = []
    events: list[Event] = []
    first, oldest_us, end = part.first, 0, part.first
    for offset, at_us, payload in _payloads(part):
        end = offset + 1
        event = _event(part, offset, payload)
        if event is None:
            continue
        if not events:
            oldest_us = at_us
        offsets.append(offset)
        events.append(event)
        if len(events) == EVENTS_MAX:
            yield from _cut(first, end, oldest_us, offsets, index.match(offsets, events))
            offsets, events, first = [], [], end
    if first < end:
        yield from _cut(first, end, oldest_us, offsets, index.match(offsets, events) if events else [])


def _payloads(part: Slice) -> Iterator[tuple[int, int, bytes]]:
    for group in read_slice(part):
        columns = zip(group.times, group.payloads, group.places, strict=True)
        for offset, (at_us, payload, place) in enumerate(columns, group.first):
            if payload is None or at_us is None:
                raise corrupt(part.path, part.first_byte + place, offset)
            yield offset, at_us, payload


def _event(part: Slice, offset: int, payload: bytes) -> Event | None:
    try:
        return engine_event(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogCorrupt(f"{part.path}: record {offset} is unknown to this version ({error})") from None


def _cut(
    first: int, end: int, oldest_us: int, offsets: Sequence[int], found: Iterable[EventMatches]
) -> Iterator[MatchChunk]:
    """Yield chunks of a bounded size that have the records ``first..end-1``, of which ``offsets`` are events."""
    encoded: list[bytes] = []
    size, events = 0, len(offsets)
    for each in found:
        if size > CHUNK_BYTES_MAX:
            before = sum(1 for offset in offsets if first <= offset < each.offset)
            yield MatchChunk(first, each.offset, before, oldest_us, len(encoded), b"".join(encoded))
            first, events, encoded, size = each.offset, events - before, [], 0
        encoded.append(_encoder.encode(each))
        size += len(encoded[-1])
    yield MatchChunk(first, end, events, oldest_us, len(encoded), b"".join(encoded))
