"""Results of a grid as Parquet files in a directory; points in them need not run again (SPEC T-09).

A row is a part of a point's outcome. Its columns are the parameters, the seed, the figures, and:

========= ==================================================================
point     parameters and seed as JSON: the same text for the same point
part      number of the part within the point, from 0 on
parts     number of parts of the point
outcome   the whole part as JSON
taken_s   processor time of the point in seconds
version   version of wanderbus that ran it
========= ==================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import wanderbus
from wanderbus.errors import StorageError
from wanderbus.pipeline.grids.points import Point

_OWN: Final = ("point", "part", "parts", "outcome", "taken_s", "version")

Rows = Callable[[str, Sequence[str]], Iterable[Mapping[str, Any]]]
"""Function from a point and the parts of its outcome to a row of columns for each part."""


class GridResults:
    """Files ``part-NNNNN.parquet`` of one kind of grid; ``StorageError`` if they cannot be read or written."""

    def __init__(self, directory: Path, rows: Rows) -> None:
        self.directory = directory
        self._rows = rows

    def read(self) -> dict[str, list[str]]:
        """Return the parts of the outcomes of the points that this version of wanderbus has run whole."""
        paths = sorted(self.directory.glob("part-*.parquet"))
        if not paths:
            return {}
        try:
            table = ds.dataset(list(map(str, paths)), format="parquet").to_table(columns=list(_OWN))
        except (pa.ArrowException, OSError, KeyError) as error:
            raise self._unusable("read", error) from None
        found: dict[str, dict[int, str]] = {}
        for row in table.to_pylist():
            if row["version"] == _version():
                found.setdefault(row["point"], {})[row["part"]] = row["outcome"]
        counts = dict(zip(table["point"].to_pylist(), table["parts"].to_pylist(), strict=True))
        whole = {point: parts for point, parts in found.items() if len(parts) == counts[point]}
        return {point: [parts[number] for number in sorted(parts)] for point, parts in whole.items()}

    def append(self, points: Sequence[Point]) -> None:
        """Store the outcomes of points that ended without an error as one more file, or none."""
        rows = [row for each in points if each.error is None for row in self._of(each)]
        if not rows:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            numbers = [int(path.stem.removeprefix("part-")) for path in self.directory.glob("part-*.parquet")]
            path = self.directory / f"part-{max(numbers, default=-1) + 1:05}.parquet"
            unfinished = path.with_name(f".{path.name}")
            pq.write_table(_table(rows), unfinished)
            unfinished.replace(path)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unusable("written", error) from None

    def _of(self, point: Point) -> Iterator[dict[str, Any]]:
        for number, columns in enumerate(self._rows(point.point, point.parts)):
            own = (point.point, number, len(point.parts), point.parts[number], point.taken_s, _version())
            yield {**columns, **dict(zip(_OWN, own, strict=True))}

    def _unusable(self, done: str, error: Exception) -> StorageError:
        return StorageError(f"the results in {self.directory} cannot be {done}: {' '.join(str(error).split())}")


def _table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table, without the columns that have no value here: their type is that of other files."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    known = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    return pa.table(known)


def _version() -> str:
    return wanderbus.__version__
