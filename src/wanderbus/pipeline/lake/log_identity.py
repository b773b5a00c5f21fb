"""Identity of a log: the server that writes it, and the incarnation that distinguishes it from the server's others."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import StorageError
from wanderbus.event import EventId
from wanderbus.pipeline.source.log_files import LogFiles, read_slice
from wanderbus.runtime.segment_files import durable_end, read_log_name

_RECORDS_AT_ONCE: Final = 4_096


class _Acceptance(msgspec.Struct):
    id: EventId


class _Identifying(msgspec.Struct):
    """The fields of records that identify the log: its start, or an event that its server accepted."""

    kind: str
    server: str | None = None
    incarnation: int | None = None
    acceptance: _Acceptance | None = None


_decoder: Final = msgspec.msgpack.Decoder(_Identifying)


def log_identity(log: Path) -> str:
    """Return the identity of the log in a directory; ``StorageError`` if none of its records has it."""
    if (name := read_log_name(log)) is not None:
        return name
    files, end = LogFiles(log), durable_end(log)
    for first in range(files.oldest(), end, _RECORDS_AT_ONCE):  # in steps: not a walk over the whole log
        for part in files.slices(first, min(first + _RECORDS_AT_ONCE, end), _RECORDS_AT_ONCE):
            for group in read_slice(part):
                for payload in group.payloads:
                    if payload and (identity := _identity(payload)):
                        return identity
    raise StorageError(f"{log} has no record that names its server; a job needs one with a start or an event")


def _identity(payload: bytes) -> str | None:
    try:
        record = _decoder.decode(payload)
    except msgspec.DecodeError:
        return None
    if record.kind == "started" and record.server is not None:
        return f"{record.server}-{record.incarnation}"
    if record.kind == "published" and record.acceptance is not None:
        return f"{record.acceptance.id.origin}-{record.acceptance.id.incarnation}"
    return None
