"""Bronze tables: the records of the log, and the rows that no table could take (SPEC T-03)."""

from __future__ import annotations

from typing import Final

from wanderbus.pipeline.tables.conditions import column
from wanderbus.pipeline.tables.specification import MICROSECONDS, Check, Column, TableSpecification

OFFSET: Final = Column("offset", "bigint", "offset of the record: in the log, or in the lake of several logs")
AT_US: Final = Column("at_us", "bigint", "time of the record by the server's clock", MICROSECONDS)
DATE: Final = Column("date", "date", "day of `at_us` in UTC")
KIND: Final = Column("kind", "string", "kind of the record")
USER: Final = Column("user", "string", "user of the session, as `sip:name@domain`")
SESSION: Final = Column("session", "string", "name of the user's session")
SUBJECT: Final = Column("subject", "string", "subject of the event")
OFFSET_VALID: Final = Check("offset_valid", column("offset") >= 0, "fail", "offsets begin at 0")

RECORDS: Final = TableSpecification(
    name="records",
    layer="bronze",
    meaning="Records of the event log as they are, one row each. Those that cannot be read are in the quarantine.",
    columns=(
        OFFSET,
        AT_US,
        KIND,
        Column("user", "string", "user that the record names", nullable=True),
        Column("session", "string", "session that the record names", nullable=True),
        Column("device", "string", "device that the record names", nullable=True),
        Column("subject", "string", "subject of the event or subscription", nullable=True),
        Column("record", "binary", "bytes of the record, in msgpack"),
        DATE,
    ),
    partitioned_by=("date",),
    checks=(OFFSET_VALID,),
)

QUARANTINE: Final = TableSpecification(
    name="quarantine",
    layer="bronze",
    meaning="Rows that a table could not take: unreadable records, and rows that do not meet a check that drops.",
    columns=(
        Column("table", "string", "table that did not take the row"),
        OFFSET,
        Column("path", "string", "segment of the log with the record", nullable=True),
        Column("byte", "bigint", "byte of the segment at which the record, or the damage, begins", nullable=True),
        Column("reason", "string", "error of the record, or the check that is not met"),
        Column("record", "binary", "bytes of the record, if its frame is whole", nullable=True),
    ),
    partitioned_by=("table",),
)
