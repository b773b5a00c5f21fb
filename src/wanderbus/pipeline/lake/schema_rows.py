"""Versions of the schemas of subjects: rows of the lake, and the declared attributes that follow from them (SPEC T-03).

The lake keeps the versions itself, because the segments of the log with their records may be removed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from wanderbus.event import DeclaredAttribute
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.records import Decode, Payloads, Rows
from wanderbus.pipeline.tables import SCHEMAS
from wanderbus.pipeline.tables.declared import Declared
from wanderbus.records import SchemaDeclared, decode_record
from wanderbus.subject_schemas import SubjectSchema

SCHEMA_KINDS: Final = {"schema_declared": SCHEMAS.name}

_json: Final = msgspec.json.Encoder()
_attributes: Final = msgspec.json.Decoder(tuple[DeclaredAttribute, ...])


def schema_decoder() -> Decode:
    """Return a decoder of declarations."""

    def rows(payloads: Payloads) -> Rows:
        found = [_declaration(record) for record in payloads.records]
        columns = {
            "offset": payloads.offsets,
            "at_us": payloads.times,
            "subject": [each.subject for each in found],
            "version": [each.version for each in found],
            "by": [each.by for each in found],
            "attributes": [_json.encode(each.attributes).decode() for each in found],
        }
        return {SCHEMAS.name: columns}

    return rows


def newest_schemas(lake: Path) -> dict[str, SubjectSchema]:
    """Return the newest version of each subject's schema that the lake has, by subject.

    Subjects are in the order of their first declarations: the first one decides the type of a column.
    """
    target = LakeTable(lake, SCHEMAS)
    if not target.exists:
        return {}
    found: dict[str, SubjectSchema] = {}
    for row in pa.table(target.load().to_pyarrow_table()).sort_by("offset").to_pylist():
        known = found.get(row["subject"])
        if known is None or known.version < row["version"]:
            attributes = _attributes.decode(row["attributes"])
            found[row["subject"]] = SubjectSchema(
                row["subject"], row["version"], attributes, row["by"], row["at_us"], row["offset"]
            )
    return found


def declared_in(lake: Path) -> Declared:
    """Return the declared attributes of the newest schemas in the lake."""
    return {
        subject: {attribute.name: attribute.type for attribute in schema.attributes}
        for subject, schema in newest_schemas(lake).items()
    }


def _declaration(payload: bytes) -> SchemaDeclared:
    record = decode_record(payload)
    if not isinstance(record, SchemaDeclared):
        raise TypeError(f"a record of the kind {type(record).__name__} declares no schema")
    return record
