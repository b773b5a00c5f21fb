"""Batches of past events of several lakes that this process reads itself, each event once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from wanderbus.pipeline.history.answers import AnswerTooLarge
from wanderbus.pipeline.history.domain_lakes import KEY_SOURCES, DomainLake, keys_in, repeated_offsets
from wanderbus.pipeline.history.event_files import RowGroups, Selection, rows_of
from wanderbus.pipeline.history.local_batches import LAKE_BYTES_MAX, LakeBatches
from wanderbus.pipeline.lake_offsets import OFFSETS_A_LAKE

KEYS_BYTES_MAX: Final = 128 * 2**20
"""Bytes of the keys of all events that are in memory at once; Spark compares more."""


class LakesBatches:
    """Reader of the events of several lakes; of those it needs those of the ``selection`` or fewer.

    With ``every_row`` an event has all its rows: whoever asks for one row has chosen it.
    """

    def __init__(self, lakes: Sequence[DomainLake], selection: Selection, *, every_row: bool = False) -> None:
        self._lakes = lakes
        self._selection = selection
        self._every_row = every_row
        self._batches = [LakeBatches(lake.path, within(lake, selection)) for lake in lakes]

    def is_small(self, *, has_records: bool) -> bool:
        """Return whether the files of all lakes together have at most :data:`LAKE_BYTES_MAX`."""
        return sum(each.size(has_records=has_records) for each in self._batches) <= LAKE_BYTES_MAX

    def events(self, selection: Selection, asked: Set[str] | None, further: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the selected events, with offsets above the bases of the lakes."""
        for lake, batches in zip(self._lakes, self._batches, strict=True):
            without = frozenset() if self._every_row else self._repeated
            own = within(lake, selection._replace(without=selection.without | without))
            yield from above(lake.base, batches.events(own, asked, further))

    def records(self, kinds: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of some kinds, with offsets above the bases of the lakes."""
        for lake, batches in zip(self._lakes, self._batches, strict=True):
            yield from above(lake.base, batches.records(kinds))

    @cached_property
    def _repeated(self) -> frozenset[int]:
        """Return the offsets of rows that do not count; an event keeps its subject, and nothing else is the same."""
        keys, size = [], 0
        of_subject = Selection(self._selection.subject, children=self._selection.children)
        for lake in self._lakes:
            for path in LakeBatches(lake.path, of_subject).paths:
                part = RowGroups(path, 0, 1)
                for batch in rows_of(part, lambda _: list(KEY_SOURCES), of_subject.condition()):
                    keys.append(keys_in(batch, lake))
                    size += keys[-1].nbytes
                    if size > KEYS_BYTES_MAX:
                        raise AnswerTooLarge(f"the lakes have more than {KEYS_BYTES_MAX >> 20} MiB of ids; use --spark")
        return repeated_offsets(keys)


def within(lake: DomainLake, selection: Selection) -> Selection:
    """Return the selection in one of several lakes: its offsets are those of the lake."""
    first, end = selection.from_offset, selection.to_offset
    return selection._replace(
        from_offset=None if first is None else max(0, first - lake.base),
        to_offset=None if end is None else max(0, end - lake.base),
        offsets=None if selection.offsets is None else _own(lake, selection.offsets),
        without=_own(lake, selection.without),
    )


def _own(lake: DomainLake, offsets: Iterable[int]) -> frozenset[int]:
    return frozenset(each - lake.base for each in offsets if 0 <= each - lake.base < OFFSETS_A_LAKE)


def above(base: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches with their offsets above a base."""
    for batch in batches:
        place = batch.schema.get_field_index("offset")
        yield batch.set_column(place, "offset", pc.add(batch.column(place), pa.scalar(base, pa.int64())))
