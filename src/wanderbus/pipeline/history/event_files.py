"""Events in Parquet files that Spark's workers, or a process without Spark, read column by column.

Spark makes rows of the columns of its files, and columns of the rows again for Python: that costs about as much as
matching. The files have the columns of :mod:`wanderbus.pipeline.history.event_columns`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from wanderbus.errors import StorageError
from wanderbus.pipeline.history.event_columns import columns_in_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS: Final = 10_000

PARTS_A_CORE: Final = 4
"""Least tasks for each core, so that all cores end at about the same time."""

_COMPARED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "in": lambda column, values: column.isin(values),
    ">=": operator.ge,
    "<": operator.lt,
}
_FORMAT: Final = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))


class Selection(NamedTuple):
    """The events that are meant: of one subject, from a bound up to another; None is no bound."""

    subject: str | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    from_us: int | None = None
    to_us: int | None = None

    offsets: frozenset[int] | None = None
    """Offsets of the only events that are meant."""

    children: tuple[str, ...] = ()
    """Subjects below ``subject``, whose events are meant too."""

    without: frozenset[int] = frozenset()
    """Offsets of rows that are not meant, because another lake has the event as well."""

    def bounds(self) -> list[tuple[str, str, list[str] | int]]:
        """Return the bounds as conditions on columns, such as ``("offset", ">=", 7)``; ``offsets`` give none."""
        given: tuple[tuple[str, str, list[str] | int | None], ...] = (
            ("subject", "in", None if self.subject is None else [self.subject, *self.children]),
            ("offset", ">=", self.from_offset),
            ("offset", "<", self.to_offset),
            ("at_us", ">=", self.from_us),
            ("at_us", "<", self.to_us),
        )
        return [(column, sign, value) for column, sign, value in given if value is not None]

    def condition(self) -> pc.Expression | None:
        """Return the condition on a row; None if all are meant."""
        conditions = [_COMPARED[sign](pc.field(column), value) for column, sign, value in self.bounds()]
        if self.offsets is not None:
            conditions.append(pc.field("offset").isin(sorted(self.offsets)))
        if self.without:
            conditions.append(~pc.field("offset").isin(sorted(self.without)))
        return reduce(operator.and_, conditions) if conditions else None

    def of_rows(self, events: DataFrame) -> DataFrame:
        """Return the rows within the bounds."""
        for column, sign, value in self.bounds():
            events = events.where(_COMPARED[sign](events[column], value))
        return events


EVERY_EVENT: Final = Selection()


class RowGroups(NamedTuple):
    """Every ``of``-th row group of a file, from number ``number`` on."""

    path: str
    number: int
    of: int


class EventFiles(NamedTuple):
    """Files of events; ``paths`` are paths or addresses that the workers can read."""

    spark: SparkSession
    paths: Sequence[str]
    selection: Selection = EVERY_EVENT

    def parts(self, cores: int) -> list[RowGroups]:
        """Return the parts that the tasks read: whole files, or parts of them if the files are few."""
        of = max(1, -(-PARTS_A_CORE * cores // max(1, len(self.paths))))
        return [RowGroups(path, number, of) for path in self.paths for number in range(of)]


def batches_of(
    part: RowGroups, selection: Selection, asked: Set[str] | None, further: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the selected events of a part, with the columns for filters on the ``asked`` attributes."""
    return rows_of(part, lambda names: columns_in_file(names, asked, further), selection.condition())


def rows_of(
    part: RowGroups, columns: Callable[[Sequence[str]], list[str]], condition: pc.Expression | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part that meet a condition, with the ``columns`` that are chosen of those of the file."""
    try:
        files = ds.dataset(part.path, format=_FORMAT)
        for fragment in files.get_fragments():
            groups = range(part.number, fragment.num_row_groups, part.of)
            if not groups:
                continue
            scanner = ds.Scanner.from_fragment(
                fragment.subset(row_group_ids=list(groups)),
                columns=columns(files.schema.names),
                filter=condition,
                batch_size=BATCH_ROWS,
                use_threads=False,
            )
            yield from (batch for batch in scanner.to_batches() if len(batch))
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"{part.path} cannot be read: {' '.join(str(error).split())}") from None
