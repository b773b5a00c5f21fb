"""Places that a lake has reached in its logs, compared with a log before the lake is used beside it (SPEC T-03).

A log whose data directory was restored from a copy reaches the offset of a lake again, with other records.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from wanderbus.pipeline.lake.delta import LakeTable, application_of, place_of
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.pipeline.lake.logs import logs_in
from wanderbus.pipeline.source.log_files import LogFiles
from wanderbus.pipeline.tables import RECORDS, TABLES
from wanderbus.segments import LogPlace

REMEDY: Final = "begin a new lake in another directory, or restore the lake from a copy of the same time"


def checked_lake_place(lake: Path, files: LogFiles, place: LogPlace) -> LogPlace:
    """Return a place of a lake with its checksum, ``LogReplaced`` if the log has other records before it."""
    return files.checked(place, reader=f"the lake {lake}", remedy=REMEDY)


def require_same_log(lake: Path, log: Path) -> None:
    """Return if the log has the records up to which each table of a lake has come; ``LogReplaced`` otherwise.

    A lake that does not have this log yet has no place in it.
    """
    if not LakeTable(lake, RECORDS).exists or (identity := log_identity(log)) not in logs_in(lake).identities:
        return
    files = LogFiles(log)
    tables = [target for each in TABLES if (target := LakeTable(lake, each)).exists]
    places = {place_of(each.load(), application_of(identity, each.table)) for each in tables}
    for place in places - {None}:
        assert place is not None
        checked_lake_place(lake, files, place)


def adopt_checksums(lake: Path, files: LogFiles, identity: str, tables: Sequence[tuple[LakeTable, DeltaTable]]) -> None:
    """Check the place of each table, and store the checksums of places that have none, as those of earlier versions.

    Raises ``LogReplaced`` if the log is not the one that the lake has read.
    """
    for target, delta in tables:
        application = application_of(identity, target.table)
        place = place_of(delta, application)
        if place is not None and (checked := checked_lake_place(lake, files, place)) != place:
            target.commit(delta, [], ends={application: checked})
