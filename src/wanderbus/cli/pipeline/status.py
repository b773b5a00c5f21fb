"""``wanderbus pipeline status``: state of a lake and its lag, without Spark (SPEC T-03)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.operator.listings import Columns, aligned
from wanderbus.cli.output import print_json, print_line
from wanderbus.cli.pipeline.lake_options import DataDirectories, Lake, existing_logs
from wanderbus.cli.pipeline.rejected import require_none_rejected
from wanderbus.cli.pipeline.spark_options import needing_packages
from wanderbus.server.log_status import ReaderStatus, log_status

if TYPE_CHECKING:
    from wanderbus.pipeline.operation.status import LakeStatus


def status(data_dir: DataDirectories, lake: Lake, json: AsJson = False) -> None:
    """Show how far a lake is, its files, its quarantine, the readers of the log, and the last run.

    It changes nothing, and does not start Spark. Misfits are values of declared attributes with another type. With
    several data directories, each log has a part of its own with the offsets in it; the other figures are of the lake.
    Exit status 1 if a log is not the one that the lake has read, as after it was restored from a copy, and 3 if tables
    of the lake rejected records of known kinds: rows are missing.

    Example: wanderbus pipeline status wanderbus-data --lake lake
    """
    with needing_packages("the pipeline"):
        from wanderbus.pipeline.lake.log_identity import log_identity
        from wanderbus.pipeline.lake.log_places import require_same_log
        from wanderbus.pipeline.operation.status import lake_status
    logs = existing_logs(data_dir)
    for directory in logs:
        log = log_status(directory.parent, time.time_ns() // 1_000)
        found = lake_status(lake, log.durable, log_identity(directory))
        if json:
            print_json({**msgspec.structs.asdict(found), "readers": log.readers})
            continue
        for line in _lines(found, log.readers):
            print_line(line)
    for directory in logs:
        require_same_log(lake, directory)
    require_none_rejected(lake)


def _lines(found: LakeStatus, readers: Sequence[ReaderStatus]) -> Iterator[str]:
    changing = "; a job changes it now" if found.is_changing else ""
    yield f"{found.directory}: lake of the log {found.log}, which has {found.durable} records{changing}"
    yield from aligned(found.tables, _COLUMNS)
    for reader in readers:
        expired = ", expired" if reader.expired else ""
        yield f"reader {reader.name}: at record {reader.offset}, {reader.lag} behind{expired}"
    if found.last_run is None:
        yield "no run is recorded"
    else:
        last = found.last_run
        error = f": {last.error}" if last.error else ""
        yield f"last run: {last.job}, began {last.began}, {last.state} at {last.changed}{error}"


_COLUMNS: Final[Columns] = {
    "table": lambda row: row.name,
    "offset": lambda row: row.offset,
    "behind": lambda row: row.lag,
    "rows": lambda row: row.rows,
    "files": lambda row: row.files,
    "small": lambda row: row.small_files,
    "bytes": lambda row: row.bytes,
    "quarantined": lambda row: row.quarantined,
    "misfits": lambda row: row.misfits,
}
