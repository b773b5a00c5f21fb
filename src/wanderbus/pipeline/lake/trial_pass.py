"""Trial of a log without Spark and without a lake: the records that tables of a lake would reject (SPEC T-03)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from wanderbus.pipeline.lake.decoding import PassPlan, PassTarget, write_parts
from wanderbus.pipeline.lake.event_rows import EVENT_KINDS, event_decoder
from wanderbus.pipeline.lake.jobs import DECODINGS
from wanderbus.pipeline.lake.lifetimes import CHANGES
from wanderbus.pipeline.lake.records import Decoding
from wanderbus.pipeline.lake.schema_rows import SCHEMA_KINDS, schema_decoder
from wanderbus.pipeline.lake.table_files import new_attempt
from wanderbus.pipeline.source.log_files import LogFiles
from wanderbus.pipeline.source.options import ROWS_PER_PARTITION
from wanderbus.pipeline.tables import RECORDS, SCHEMAS, named
from wanderbus.pipeline.tables.silver import EVENTS
from wanderbus.runtime.segment_files import durable_end

_TABLES: Final = (RECORDS, EVENTS, CHANGES, SCHEMAS, *map(named, ("notifications", "deliveries", "sessions")))
_DECODINGS: Final = (
    Decoding(EVENT_KINDS, event_decoder({}, EVENTS)),
    Decoding(SCHEMA_KINDS, schema_decoder),
    *DECODINGS,
)


def rejected_on_trial(log: Path) -> dict[str, int]:
    """Return how many readable records of known kinds each table would reject, without those that reject none.

    Raises ``StorageError`` if the log cannot be read.
    """
    files = LogFiles(log)
    parts = files.slices(files.oldest(), durable_end(log), ROWS_PER_PARTITION)
    with TemporaryDirectory(prefix="wanderbus-rejections-") as directory:
        targets = {table.name: PassTarget(table, 0, 0) for table in _TABLES}
        written = write_parts(PassPlan(Path(directory), new_attempt(), targets, _DECODINGS), parts)
    return {name: own.counts.rejected for name, own in written.items() if own.counts.rejected and name != RECORDS.name}
