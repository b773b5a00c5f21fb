"""Comparison of the tables of the domain's file that two servers have (SPEC J-01)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_DIGEST_BYTES: Final = 8
_SHOWN_BYTES: Final = 4
_KEY: Final = "hash_key"


class TableComparison:
    """Compares the tables of this server with those of others.

    :param tables: a digest of 8 bytes for each table, by its name; the same names at all servers of one version
    """

    def __init__(self, tables: Mapping[str, bytes]) -> None:
        self._tables = {name: tables[name] for name in sorted(tables)}
        self.encoded = b"".join(self._tables.values())
        """Digests of all tables in the order of their names, as an offer has them."""

    def difference(self, theirs: bytes) -> str:
        """Return what differs at a server with the digests ``theirs``, with both views; "" if nothing does."""
        if theirs == self.encoded:
            return ""
        if len(theirs) != len(self.encoded):
            return "it has another version, which does not compare the domain files as this one does; update both"
        there = {
            name: theirs[place * _DIGEST_BYTES : (place + 1) * _DIGEST_BYTES] for place, name in enumerate(self._tables)
        }
        # All digests have the key, so they say nothing if that differs.
        differing = [_KEY] if there.get(_KEY) != self._tables.get(_KEY) else [*self._tables]
        views = [
            f"{name} ({self._tables[name][:_SHOWN_BYTES].hex()} here, {there[name][:_SHOWN_BYTES].hex()} there)"
            for name in differing
            if there[name] != self._tables[name]
        ]
        return f"its domain file differs in {', '.join(views)}; use the same file and restart"
