"""Tables of the causal order for the state store: small rows by comparison, rows of events by what has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from wanderbus.broker.state.tables import Stored
from wanderbus.channels.causal import rows
from wanderbus.channels.causal.state import CausalState

Row = TypeVar("Row", bound=msgspec.Struct)


class SmallTable(Generic[Row]):
    """A few rows, which are made at each save; those that differ from the saved ones are written.

    :param make: returns the present rows of the state
    :param take: restores the state from rows
    """

    def __init__(
        self, name: str, kind: type[Row], make: Callable[[], dict[str, Row]], take: Callable[[dict[str, Row]], None]
    ) -> None:
        self.name = name
        self._make = make
        self._take = take
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._saved: dict[str, bytes] = {}

    def items(self) -> Iterable[tuple[str, Row]]:
        """Return all keys and rows."""
        return self._make().items()

    def load(self, stored: Iterable[tuple[str, bytes]]) -> None:
        """Take over rows as the store holds them; ``msgspec.DecodeError`` if one is not of this table."""
        self._saved = dict(stored)
        self._take({key: self._decoder.decode(data) for key, data in self._saved.items()})

    def changes(self) -> Mapping[str, bytes | None]:
        """Return the rows changed since the last call, encoded; None for a row that is gone."""
        present = {key: msgspec.msgpack.encode(row) for key, row in self._make().items()}
        changed: dict[str, bytes | None] = {key: row for key, row in present.items() if self._saved.get(key) != row}
        changed |= dict.fromkeys(key for key in self._saved if key not in present)
        self._saved = present
        return changed


class ChangingTable(Generic[Row]):
    """Many rows, of which the state knows those that have changed.

    :param changed: keys that have changed since they were cleared
    :param find: returns the present row of a key
    :param keys: returns all keys
    :param take: restores the state from rows
    """

    def __init__(
        self,
        name: str,
        kind: type[Row],
        changed: dict[Any, None],
        find: Callable[[Any], Row | None],
        keys: Callable[[], Iterable[Any]],
        take: Callable[[dict[str, Row]], None],
    ) -> None:
        self.name = name
        self._changed = changed
        self._find = find
        self._keys = keys
        self._take = take
        self._decoder = msgspec.msgpack.Decoder(kind)

    def items(self) -> Iterable[tuple[str, Row]]:
        """Return all keys and rows."""
        return [(_text(key), row) for key in self._keys() if (row := self._find(key)) is not None]

    def load(self, stored: Iterable[tuple[str, bytes]]) -> None:
        """Take over rows as the store holds them; ``msgspec.DecodeError`` if one is not of this table."""
        self._take({key: self._decoder.decode(data) for key, data in stored})

    def changes(self) -> Mapping[str, bytes | None]:
        """Return the rows changed since the last call, encoded; None for a row that is gone."""
        found = {_text(key): self._find(key) for key in self._changed}
        self._changed.clear()
        return {key: None if row is None else msgspec.msgpack.encode(row) for key, row in found.items()}


def causal_tables(state: CausalState) -> tuple[Stored, ...]:
    """Return the tables of a causal order, in the order in which they must be loaded."""
    retained, kept = state.outgoing.retained, state.kept
    return (
        SmallTable(
            "causal_counters",
            rows.CountersRow,
            lambda: rows.counters(state),
            lambda stored: rows.load_counters(state, stored),
        ),
        SmallTable("causal_peers", rows.PeerRow, lambda: rows.peers(state), lambda s: rows.load_peers(state, s)),
        SmallTable(
            "causal_origins", rows.OriginRow, lambda: rows.origins(state), lambda s: rows.load_origins(state, s)
        ),
        SmallTable(
            "causal_columns", rows.ColumnRow, lambda: rows.columns(state), lambda s: rows.load_columns(state, s)
        ),
        ChangingTable(
            "causal_retained",
            rows.RetainedRow,
            retained.changed,
            lambda number: rows.retained(state, number),
            lambda: list(retained),
            lambda stored: rows.load_retained(state, stored),
        ),
        ChangingTable(
            "causal_kept",
            rows.KeptRow,
            kept.changed,
            lambda dot: rows.kept(state, dot),
            lambda: list(kept),
            lambda stored: rows.load_kept(state, stored),
        ),
    )


def _text(key: Any) -> str:
    """Return the key of a row: the number of an event, or a dot as ``server/incarnation/number``."""
    if isinstance(key, int):
        return str(key)
    (server, incarnation), number = key
    return f"{server}/{incarnation}/{number}"
