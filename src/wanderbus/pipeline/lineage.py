"""Lineage of the lake: OpenLineage run events of every job, as JSON lines in the lake (SPEC T-03).

A run begins with ``START`` and ends with ``COMPLETE``, ``FAIL`` or ``ABORT``. Its events name the log or the table that
it reads, with offsets, and the tables that it writes, with version, columns, sizes and quality. What a run wrote is
read from the logs of the Delta tables, so an event states what was committed.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from wanderbus.errors import StorageError
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.quality import TableCounts
from wanderbus.pipeline.tables import TABLES, TableSpecification
from wanderbus.pipeline.tables.schemas import columns_in

_log = logging.getLogger("wanderbus.pipeline")

State = Literal["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]

LINEAGE_FILE: Final = Path("_lineage", "events.jsonl")
"""File within a lake with the events of all runs; Spark passes over names that begin with an underscore."""

NAMESPACE: Final = "wanderbus"
"""Namespace of the jobs."""

_SPEC: Final = "https://openlineage.io/spec"
_CORE: Final = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs"


class JobRun(msgspec.Struct, frozen=True):
    """One run of a job as its last event describes it; times are in ISO 8601."""

    id: str
    job: str
    state: str
    began: str
    changed: str
    """Time of the last event."""
    error: str | None


class _Written(NamedTuple):
    """Rows, bytes and files that some versions of a table added."""

    rows: int = 0
    size: int = 0
    files: int = 0


class LineageRun:
    """The run of ``job`` that writes ``tables`` of a lake; set ``spans``, and ``counts`` as it proceeds.

    It reads ``logs`` if they are given, and otherwise the tables ``inputs``. ``spans`` returns from which record and up
    to which one it has read each log.
    """

    def __init__(
        self,
        lake: Path,
        job: str,
        *,
        tables: Sequence[TableSpecification] = TABLES,
        logs: Sequence[Path] = (),
        inputs: Sequence[TableSpecification] = (),
        copy: Path | None = None,
    ) -> None:
        self._lake = lake.resolve()
        self._job = job
        self._tables = tables
        self._logs = [each.resolve() for each in logs]
        self._inputs = inputs
        self._files = [self._lake / LINEAGE_FILE, *([copy] if copy else [])]
        self._id = str(uuid.uuid4())
        self._versions = {table.name: _version(self._lake, table) for table in tables}
        self.spans: Callable[[], Sequence[tuple[int, int]]] = tuple
        self.counts: Mapping[str, TableCounts] = {}
        self.is_aborted = False

    def emit(self, state: State, error: BaseException | None = None) -> None:
        """Append an event; ``StorageError`` if the file cannot be written."""
        run: dict[str, Any] = {"runId": self._id}
        if error is not None:
            message = {"message": str(error) or type(error).__name__, "programmingLanguage": "python"}
            run["facets"] = {"errorMessage": _facet("1-0-1/ErrorMessageRunFacet", **message)}
        event = {
            "eventType": state,
            "eventTime": datetime.now(UTC).isoformat(),
            "run": run,
            "job": {"namespace": NAMESPACE, "name": self._job},
            "inputs": self._read(),
            "outputs": [] if state == "START" else [each for table in self._tables if (each := self._wrote(table))],
            "producer": _producer(),
            "schemaURL": f"{_CORE}/RunEvent",
        }
        line = msgspec.json.encode(event) + b"\n"
        for path in self._files:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                _append(path, line)
            except OSError as failure:
                raise StorageError(f"{path} cannot be written: {failure.strerror}; lineage needs it") from None

    def _read(self) -> list[dict[str, Any]]:
        if self._logs:
            return [_log_read(*each) for each in zip(self._logs, self.spans(), strict=True)]
        found = [(table, _version(self._lake, table)) for table in self._inputs]
        return [
            {**_dataset(self._lake, table), "facets": {"version": _version_facet(number)}} for table, number in found
        ]

    def _wrote(self, table: TableSpecification) -> dict[str, Any] | None:
        """Return the dataset of a table if the run has changed it."""
        before, now = self._versions[table.name], _version(self._lake, table)
        if now == before:
            return None
        target = LakeTable(self._lake, table)
        specified = {column.name: column.meaning for column in table.columns}
        fields = [
            {"name": each.name, "type": each.type, "description": specified.get(each.name, each.meaning)}
            for each in columns_in(target.load().schema())
        ]
        written = _written(target.directory, before, now)
        statistics = {"rowCount": written.rows, "size": written.size, "fileCount": written.files}
        facets = {
            "version": _version_facet(now),
            "schema": _facet("1-2-0/SchemaDatasetFacet", fields=fields),
        }
        if (counts := self.counts.get(table.name)) is not None:
            facets["wanderbus_quality"] = _quality(table, counts)
        facet = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", **statistics)
        return {**_dataset(self._lake, table), "facets": facets, "outputFacets": {"outputStatistics": facet}}


@contextmanager
def recorded(run: LineageRun) -> Iterator[LineageRun]:
    """Emit the begin and the end of a run: ``FAIL`` after an error, ``ABORT`` if interrupted or ``is_aborted``."""
    run.emit("START")
    try:
        yield run
    except Exception as error:
        _emit_end(run, "FAIL", error)
        raise
    except BaseException as ended:
        _emit_end(run, "ABORT", ended)
        raise
    run.emit("ABORT" if run.is_aborted else "COMPLETE")


def _emit_end(run: LineageRun, state: State, error: BaseException) -> None:
    """Emit the end of a run that has failed; what prevents that must not hide the error of the run."""
    try:
        run.emit(state, error)
    except (StorageError, OSError, DeltaError) as failure:
        _log.warning("lineage lacks the end of the run: %s", failure)


def _append(path: Path, line: bytes) -> None:
    """Append a line durably, or nothing; an incomplete last line, of a full disk or a power cut, ends before it."""
    with path.open("ab+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n":
            line = b"\n" + line
        try:
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.ftruncate(file.fileno(), size)
            raise


def runs(lake: Path) -> list[JobRun]:
    """Return the runs of a lake in the order in which they began; an incomplete last line is passed over."""
    try:
        lines = (lake / LINEAGE_FILE).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found: dict[str, JobRun] = {}
    for line in lines:
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        identifier, at = event["run"]["runId"], event["eventTime"]
        error = event["run"].get("facets", {}).get("errorMessage", {}).get("message")
        began = found[identifier].began if identifier in found else at
        found[identifier] = JobRun(identifier, event["job"]["name"], event["eventType"], began, at, error)
    return list(found.values())


def _quality(table: TableSpecification, counts: TableCounts) -> dict[str, Any]:
    """Return the facet of the checks; those of all checks that drop rows are one.

    It is no standard facet: OpenLineage has assertions for the inputs of a run alone.
    """
    warned = [check for check in table.all_checks if check.action != "drop"]
    assertions = [{"assertion": each.name, "success": not counts.unmet.get(each.name)} for each in warned]
    assertions.append({"assertion": "no_rows_rejected", "success": not counts.rejected})
    own = {"rejected": counts.rejected, "misfits": counts.misfits, "unmet": dict(counts.unmet)}
    return {"_producer": _producer(), "_schemaURL": f"{_CORE}/DatasetFacet", "assertions": assertions, **own}


def _written(directory: Path, before: int, now: int) -> _Written:
    """Return what the versions behind ``before`` up to ``now`` added, by the table's log."""
    rows = size = files = 0
    for number in range(before + 1, now + 1):
        try:
            lines = (directory / "_delta_log" / f"{number:020d}.json").read_bytes().splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            if (added := json.loads(line).get("add")) is not None:
                rows += json.loads(added.get("stats") or "{}").get("numRecords", 0)
                size += added["size"]
                files += 1
    return _Written(rows, size, files)


def _version(lake: Path, table: TableSpecification) -> int:
    """Return the newest version of a table, -1 if it does not exist yet."""
    target = LakeTable(lake, table)
    return DeltaTable(target.directory).version() if target.exists else -1


def _log_read(log: Path, span: tuple[int, int]) -> dict[str, Any]:
    """Return a log as input, with the records that were read."""
    offsets = dict(zip(("first", "end"), span, strict=True))
    facet = {"_producer": _producer(), "_schemaURL": f"{_CORE}/InputDatasetFacet", **offsets}
    return {"namespace": "file", "name": str(log), "inputFacets": {"wanderbus_offsets": facet}}


def _dataset(lake: Path, table: TableSpecification) -> dict[str, str]:
    return {"namespace": "file", "name": str(lake / table.directory)}


def _version_facet(number: int) -> dict[str, Any]:
    return _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=str(number))


def _facet(schema: str, **values: Any) -> dict[str, Any]:
    """Return a standard facet, by the version and name of its schema."""
    pointer = f"{_SPEC}/facets/{schema}.json#/$defs/{schema.partition('/')[2]}"
    return {"_producer": _producer(), "_schemaURL": pointer, **values}


def _producer() -> str:
    return f"urn:wanderbus:{version('wanderbus')}"
