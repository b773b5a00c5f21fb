"""Commits of files to the Delta tables of a lake, each exactly once (decision 0061).

The workers write Parquet files into a directory of its own for each attempt, within the table's; they are not part of
the table until delta-rs commits them. A commit has the job's application id and the offset up to which the table then
has the log, and the checksum of the record before it, by which the log is recognised (decision 0107). Delta refuses a
second commit of one application on the same version of a table, so an attempt that is killed or overtaken leaves files
that nothing refers to, and ``vacuum`` removes them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from wanderbus.errors import StorageError
from wanderbus.pipeline.lake.lake_paths import check_lake_path, file_rows
from wanderbus.pipeline.lake.table_files import LakeFile, new_attempt, partition_text, sync
from wanderbus.pipeline.lake.writing import WrittenFiles, collected, writing_rows
from wanderbus.pipeline.tables import TableSpecification
from wanderbus.pipeline.tables.schemas import columns_in, delta_schema
from wanderbus.runtime.files.file_modes import make_private_directory
from wanderbus.segments import LogPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG_PROPERTY: Final = "wanderbus.log"
"""Property of a table with the identity of the log, the first one if there are several, that its lake is made of."""

_MISFITS: Final = "wanderbus.misfits"
"""Application id under which commits record the misfits in the rows that the table then has."""

_CHECKSUM: Final = "/checksum"
"""End of the application ids under which commits record the checksums of the records before the ends of a log."""

_CHECKSUM_BITS: Final = 32
_OFFSET_MASK: Final = (1 << 31) - 1

_MILLISECONDS: Final = 1_000

Conditions = Sequence[tuple[str, str, str | int | list[str]]]
"""Conditions on columns, as ``("subject", "=", "Departure")`` or ``("offset", ">=", 1_000)``; all of them hold."""


class LakeTable:
    """A table of the lake in ``directory``, which may not exist yet.

    Raises ``StorageError`` if delta-rs would take the path of the lake for another one.
    """

    def __init__(self, lake: Path, table: TableSpecification) -> None:
        check_lake_path(lake)
        self.lake = lake.absolute()  # Spark's Java may run in another directory
        self.table = table
        self.directory = self.lake / table.directory

    @property
    def exists(self) -> bool:
        """True once the table has been created."""
        return DeltaTable.is_deltatable(str(self.directory))

    def create(self, log: str) -> DeltaTable:
        """Create the table if it does not exist, add the columns that it lacks, and return it.

        Raises ``StorageError`` if the table is of a lake with another first log than ``log``.
        """
        make_private_directory(self.lake)
        self.directory.mkdir(parents=True, exist_ok=True)
        delta = DeltaTable.create(
            self.directory,
            schema=delta_schema(self.table),
            mode="ignore",
            partition_by=list(self.table.partitioned_by),
            name=self.table.name,
            description=self.table.meaning,
            configuration={_LOG_PROPERTY: log},
            raise_if_key_not_exists=False,
        )
        owner = log_of(delta)
        if owner != log:
            raise StorageError(f"{self.directory} has the log {owner}, not {log}; use another directory for this log")
        existing = {column.name for column in columns_in(delta.schema())}
        added = [field for field in delta_schema(self.table).fields if field.name not in existing]
        if added:
            delta.alter.add_columns(added)
            delta = self.load()
        return delta

    def load(self) -> DeltaTable:
        """Return the newest version; ``StorageError`` if there is no such table."""
        try:
            return DeltaTable(self.directory)
        except TableNotFoundError:
            raise StorageError(f"{self.directory} has no table {self.table.name!r}; run the pipeline first") from None
        except DeltaError as error:
            raise StorageError(f"{self.directory} cannot be read: {_line(error)}") from None

    def as_it_is(self) -> LakeTable:
        """Return the table with the columns that it has by now, those of declared attributes included."""
        specified = {column.name: column for column in self.table.columns}
        columns = tuple(specified.get(column.name, column) for column in columns_in(self.load().schema()))
        return LakeTable(self.lake, msgspec.structs.replace(self.table, columns=columns))

    def write(self, rows: DataFrame) -> WrittenFiles:
        """Write rows that meet the checks into new files, which are not part of the table yet."""
        return collected(self.writing(rows)).get(self.table.name, WrittenFiles())

    def writing(self, rows: DataFrame) -> DataFrame:
        """Return the tasks of :meth:`write`, for ``collected``: those of several tables can be one union."""
        return writing_rows(rows, self.table, self.directory, new_attempt())

    def discard(self, files: Iterable[LakeFile]) -> None:
        """Remove files that will not be committed."""
        for attempt in {file.path.partition("/")[0] for file in files}:
            shutil.rmtree(self.directory / attempt, ignore_errors=True)

    def commit(
        self,
        delta: DeltaTable,
        added: Sequence[LakeFile],
        *,
        removed: Sequence[LakeFile] = (),
        ends: Mapping[str, LogPlace] | None = None,
        misfits: int = 0,
        replaces: bool = False,
    ) -> None:
        """Make ``added`` part of the table and take ``removed`` out of it, in one version.

        If it ``replaces``, ``added`` are all files of the table from then on, with the columns of ``self.table``.

        ``delta`` is the version on which the choice of files is based. With ``ends`` the commit records up to which
        place the table has a log, by application id; without, the rows stay the same, as after a compaction.
        ``misfits`` are those in the rows of ``added``.
        """
        changes = ends is not None or replaces
        transactions = [each for application, end in (ends or {}).items() for each in _transactions(application, end)]
        before = misfits_in(delta)
        after = misfits if replaces else before + misfits
        if after != before:
            transactions.append(Transaction(_MISFITS, after))
        for attempt in {(self.directory / file.path).parent for file in added}:
            sync(attempt)
        sync(self.directory)
        try:
            delta.create_write_transaction(
                _actions(added, removed, changes),
                mode="overwrite" if replaces else "append",
                schema=delta_schema(self.table) if replaces else delta.schema(),
                partition_by=list(self.table.partitioned_by),
                commit_properties=CommitProperties(app_transactions=transactions),
            )
        except CommitFailedError as error:
            raise StorageError(
                f"{self.directory} was changed by another job meanwhile: {_line(error)}; run only one pipeline on it"
            ) from None
        self.sync_commit(self.load())

    def sync_commit(self, delta: DeltaTable) -> None:
        """Make a version durable; a job that was killed between a commit and its sync has left that to the next one."""
        log = self.directory / "_delta_log"
        sync(log / f"{delta.version():020d}.json")
        sync(log)

    def files(self, delta: DeltaTable) -> list[LakeFile]:
        """Return the data files of a version."""
        found = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
        return [
            LakeFile(
                each["path"],
                each["size_bytes"],
                each["num_records"],
                {name: partition_text(each[f"partition.{name}"]) for name in self.table.partitioned_by},
            )
            for each in found
        ]

    def size(self) -> int:
        """Return the bytes of the data files of the newest version."""
        return sum(file.size for file in self.files(self.load()))

    def paths(self, delta: DeltaTable, conditions: Conditions = ()) -> list[Path]:
        """Return where the data files of a version are, without those in which no row meets the ``conditions``."""
        # An address begins with that of the table, which is percent-encoded, unlike the rest.
        begin = len(delta.table_uri.removeprefix("file://"))
        addresses = delta.file_uris(file_pruning_predicate=list(conditions) or None)
        return [self.directory / address[begin:] for address in addresses]

    def rows(self, spark: SparkSession, files: Iterable[LakeFile]) -> DataFrame:
        """Return the rows of some files."""
        return file_rows(spark, self.table.columns, [self.directory / file.path for file in files])


def application_of(log: str, table: TableSpecification) -> str:
    """Return the application id of the commits to a table that bring it up to an offset of the log ``log``."""
    return f"{log}/{table.name}"


def log_of(delta: DeltaTable) -> str | None:
    """Return the identity of the first log of a table's lake; None if it is no table of a lake."""
    return delta.metadata().configuration.get(_LOG_PROPERTY)


def committed(delta: DeltaTable, application: str) -> int | None:
    """Return the offset up to which a table has its log; None if it has nothing yet."""
    return delta.transaction_version(application)


def place_of(delta: DeltaTable, application: str) -> LogPlace | None:
    """Return the place up to which a table has its log; None if it has nothing yet.

    It has no checksum if the version that brought the table there stored none.
    """
    offset = committed(delta, application)
    if offset is None:
        return None
    stored = delta.transaction_version(application + _CHECKSUM)
    if stored is None or stored >> _CHECKSUM_BITS != offset & _OFFSET_MASK:
        return LogPlace(offset)
    return LogPlace(offset, stored & (1 << _CHECKSUM_BITS) - 1)


def _transactions(application: str, place: LogPlace) -> Iterator[Transaction]:
    """Yield what records a place: its offset, and the checksum together with bits of the offset that it belongs to.

    A version that does not know of checksums leaves that of an earlier offset, which is then recognised.
    """
    yield Transaction(application, place.offset)
    if place.checksum is not None:
        bits = (place.offset & _OFFSET_MASK) << _CHECKSUM_BITS
        yield Transaction(application + _CHECKSUM, bits | place.checksum)


def misfits_in(delta: DeltaTable) -> int:
    """Return the number of values of declared attributes in the rows of a table that have another type."""
    return delta.transaction_version(_MISFITS) or 0


def _actions(added: Iterable[LakeFile], removed: Iterable[LakeFile], changes: bool) -> list[AddAction | RemoveAction]:
    """Return the actions of a commit; it ``changes`` rows, or only the files that they are in."""
    now_ms = int(time.time() * _MILLISECONDS)
    return [
        *(AddAction(each.path, each.size, each.partition, now_ms, changes, each.statistics) for each in added),
        *(
            RemoveAction(each.path, changes, now_ms, size=each.size, partition_values=each.partition)
            for each in removed
        ),
    ]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
