"""Tables of rows that track their changes, so that the state store writes only the changed rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

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


class RowTable(dict[str, Row], Generic[Row]):
    """Rows by text key, read as a dictionary and changed by :meth:`put` and :meth:`drop` alone.

    The caller changes a row in place and puts it again, which marks it as changed.
    """

    if TYPE_CHECKING:
        __setitem__ = None  # type: ignore[assignment]  # it would not mark the row as changed

    def __init__(self, name: str, kind: type[Row]) -> None:
        super().__init__()
        self.name = name
        self._changed: dict[str, None] = {}
        """Keys in the order of their change; the order of a set would differ between processes."""
        self._decoder = msgspec.msgpack.Decoder(kind)

    def put(self, key: str, row: Row) -> None:
        """Store ``row`` at ``key``."""
        self[key] = row  # type: ignore[misc]
        self._changed[key] = None

    def drop(self, key: str) -> None:
        """Remove the row at ``key``; does nothing if there is none."""
        if self.pop(key, None) is not None:
            self._changed[key] = None

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take over rows as the store holds them; ``msgspec.DecodeError`` if one is not of this table."""
        for key, data in rows:
            self[key] = self._decoder.decode(data)  # type: ignore[misc]

    def changes(self) -> Mapping[str, bytes | None]:
        """Return the rows changed since the last call, encoded; None for a row that is gone."""
        changed = {key: msgspec.msgpack.encode(self[key]) if key in self else None for key in self._changed}
        self._changed.clear()
        return changed
