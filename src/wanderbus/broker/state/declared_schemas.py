"""Table of the schemas of subjects: every version, in the order of the log (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from wanderbus import records
from wanderbus.broker.state.tables import RowTable
from wanderbus.subject_schemas import SubjectSchema


class DeclaredSchemas(RowTable[SubjectSchema]):
    """One row for each version; rows are never removed."""

    def __init__(self) -> None:
        super().__init__("schemas", SubjectSchema)
        self._all: list[SubjectSchema] = []
        self._of_subject: dict[str, list[SubjectSchema]] = {}

    def declare(self, offset: int, record: records.SchemaDeclared) -> None:
        """Add the version that the record at ``offset`` declares."""
        schema = SubjectSchema(record.subject, record.version, record.attributes, record.by, record.at_us, offset)
        # Subjects may contain a slash; the last one separates the version.
        self.put(f"{schema.subject}/{schema.version}", schema)
        self._index(schema)

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take over rows as the store holds them; ``msgspec.DecodeError`` if one is not of this table."""
        super().load(rows)
        for schema in sorted(self.values(), key=attrgetter("offset")):
            self._index(schema)

    def newest(self, subject: str) -> SubjectSchema | None:
        """Return the newest version of the schema of ``subject``, or None."""
        versions = self._of_subject.get(subject)
        return versions[-1] if versions else None

    def versions(self, subject: str | None = None) -> Sequence[SubjectSchema]:
        """Return every version of one subject, or of all, in the order of the log; a place stays valid."""
        return self._all if subject is None else self._of_subject.get(subject, ())

    def _index(self, schema: SubjectSchema) -> None:
        self._all.append(schema)
        self._of_subject.setdefault(schema.subject, []).append(schema)
