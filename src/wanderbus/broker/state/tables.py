"""Tables of rows that track their changes, so that the state store writes only the changed rows."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Mapping, ValuesView
from typing import Any, Generic, Protocol, TypeVar

import msgspec

Row = TypeVar("Row", bound=msgspec.Struct)


class Stored(Protocol):
    """Interface of a table for the state store and for checks of a state."""

    @property
    def name(self) -> str:
        """Return the name of the table."""
        ...

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return all keys and rows."""
        ...

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take over rows as the store holds them; ``msgspec.DecodeError`` if one is not of this table."""
        ...

    def changes(self) -> Mapping[str, bytes | None]:
        """Return the rows changed since the last call, encoded; None for a row that is gone."""
        ...


class Table(Generic[Row]):
    """Rows by text key. The caller changes a row in place and puts it again, which marks it as changed."""

    def __init__(self, name: str, kind: type[Row]) -> None:
        self.name = name
        self._rows: dict[str, Row] = {}
        self._changed: dict[str, None] = {}
        """Keys in the order of their change; the order of a set would differ between processes."""
        self._decoder = msgspec.msgpack.Decoder(kind)

    def get(self, key: str) -> Row | None:
        """Return the row at ``key``, or None."""
        return self._rows.get(key)

    def __getitem__(self, key: str) -> Row:
        return self._rows[key]

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def values(self) -> ValuesView[Row]:
        """Return a view of all rows."""
        return self._rows.values()

    def items(self) -> ItemsView[str, Row]:
        """Return a view of all keys and rows."""
        return self._rows.items()

    def put(self, key: str, row: Row) -> None:
        """Store ``row`` at ``key``."""
        self._rows[key] = row
        self._changed[key] = None

    def drop(self, key: str) -> None:
        """Remove the row at ``key``; does nothing if there is none."""
        if self._rows.pop(key, None) is not None:
            self._changed[key] = None

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take over rows as the store holds them; ``msgspec.DecodeError`` if one is not of this table."""
        for key, data in rows:
            self._rows[key] = self._decoder.decode(data)

    def changes(self) -> Mapping[str, bytes | None]:
        """Return the rows changed since the last call, encoded; None for a row that is gone."""
        rows = self._rows
        changed = {key: msgspec.msgpack.encode(rows[key]) if key in rows else None for key in self._changed}
        self._changed.clear()
        return changed
