"""Logs of a lake: that of one server, or those of all servers of a domain (decision 0095).

They are numbered in the order in which the lake got them. The columns of offsets have lake offsets
(:mod:`wanderbus.pipeline.lake_offsets`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from deltalake import DeltaTable

from wanderbus.errors import StorageError
from wanderbus.pipeline.lake.delta import LakeTable, log_of
from wanderbus.pipeline.lake_offsets import LOGS_MAX, NUMBER_SHIFT, OFFSETS_A_LOG, base_of
from wanderbus.pipeline.tables import RECORDS

_PROPERTY: Final = "wanderbus.logs"
"""Property of the table of records with the identities of several logs, in the order of their numbers."""

_identities: Final = msgspec.json.Decoder(tuple[str, ...])


class LakeLogs(NamedTuple):
    """The logs of the lake ``lake``, by their identities in the order of their numbers."""

    lake: Path
    identities: tuple[str, ...]

    @property
    def first(self) -> str:
        """Return the identity of the log that all tables of the lake name."""
        return self.identities[0]

    @property
    def servers(self) -> list[str]:
        """Return the name of each log for people: that of its server, or its identity if the server has several."""
        names = [server_of(each) for each in self.identities]
        return [
            name if names.count(name) == 1 else identity for name, identity in zip(names, self.identities, strict=True)
        ]

    @property
    def bases(self) -> dict[str, int]:
        """Return the base of each log, by identity."""
        return {identity: base_of(number) for number, identity in enumerate(self.identities)}

    def base(self, identity: str) -> int:
        """Return the base of a log; ``StorageError`` if it is none of the lake."""
        if (found := self.bases.get(identity)) is None:
            raise StorageError(f"{self.lake} has {self._shown()}, not the log {identity}")
        return found

    def name(self, identity: str) -> str:
        """Return the name of a log for people."""
        return self.servers[self.identities.index(identity)]

    def base_of_server(self, server: str) -> int:
        """Return the base of the log of a server; ``StorageError`` if the lake has none."""
        if server not in self.servers:
            raise StorageError(f"{self.lake} has no log of the server {server!r}, but {self._shown()}")
        return base_of(self.servers.index(server))

    def found(self, lake_offset: int) -> tuple[str, int]:
        """Return the server that wrote the record at a lake offset, and its offset in the log."""
        return self.servers[lake_offset >> NUMBER_SHIFT], lake_offset % OFFSETS_A_LOG

    def shown(self, lake_offset: int) -> str:
        """Return a lake offset in words: ``17``, or ``s2:17`` if the lake has several logs."""
        server, offset = self.found(lake_offset)
        return str(offset) if len(self.identities) == 1 else f"{server}:{offset}"

    def lake_offset(self, text: str) -> int:
        """Return the lake offset that :meth:`shown` shows as ``text``; ``StorageError`` if it is none of the lake."""
        server, separator, digits = text.rpartition(":")
        if not (digits.isascii() and digits.isdigit() and int(digits) < OFFSETS_A_LOG):
            raise StorageError(f"invalid offset {text!r} (expected a number, or SERVER:NUMBER)")
        if separator:
            return self.base_of_server(server) + int(digits)
        if len(self.identities) > 1:
            raise StorageError(
                f"{self.lake} has {self._shown()}; give the offset with its server, as {self.servers[0]}:{digits}"
            )
        return int(digits)

    def _shown(self) -> str:
        if len(self.identities) == 1:
            return f"the log {self.first}"
        return f"the logs of {', '.join(self.servers)}"


def server_of(identity: str) -> str:
    """Return the name of the server that wrote a log, as event ids have it."""
    return identity.rpartition("-")[0]


def logs_in(lake: Path) -> LakeLogs:
    """Return the logs of a lake; ``StorageError`` if there is no lake."""
    return logs_of(lake, LakeTable(lake, RECORDS).load())


def logs_of(lake: Path, records: DeltaTable) -> LakeLogs:
    """Return the logs that a version of the table of records names."""
    first = log_of(records)
    if first is None:
        raise StorageError(f"{lake / RECORDS.directory} does not name its log; it is not a table of a lake")
    text = records.metadata().configuration.get(_PROPERTY)
    return LakeLogs(lake, (first,) if text is None else _identities.decode(text))


def add_logs(lake: Path, identities: Sequence[str]) -> LakeLogs:
    """Let a lake have some logs from now on, make it if there is none, and return all its logs.

    Raises ``StorageError`` if the lake has others and none of these: it is that of other servers then.
    """
    target = LakeTable(lake, RECORDS)
    delta = target.load() if target.exists else target.create(identities[0])
    known = logs_of(lake, delta)
    added = [each for each in dict.fromkeys(identities) if each not in known.identities]
    if not added:
        return known
    if not set(identities) & set(known.identities):
        raise StorageError(
            f"{target.directory} has the log {', '.join(known.identities)}, not {', '.join(added)}; use another "
            "directory for this log, or name all data directories of the domain together"
        )
    every = LakeLogs(lake, (*known.identities, *added))
    if len(every.identities) > LOGS_MAX:
        raise StorageError(f"{lake} would have {len(every.identities)} logs; a lake has at most {LOGS_MAX}")
    text = msgspec.json.encode(every.identities).decode()
    delta.alter.set_table_properties({_PROPERTY: text}, raise_if_not_exists=False)
    target.sync_commit(target.load())
    return every
