"""Identity of a log: the server that writes it, and the incarnation that distinguishes it from the server's others."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import StorageError
from wanderbus.pipeline.source.log_files import LogFiles, read_slice
from wanderbus.records import Acceptance, Published, Started, decode_record
from wanderbus.runtime.segment_files import durable_end, read_log_name

_RECORDS_AT_ONCE: Final = 4_096


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
        record = decode_record(payload)
    except msgspec.DecodeError:
        return None
    match record:
        case Started():
            return f"{record.server}-{record.incarnation}"
        case Published(acceptance=Acceptance(id=id)):
            return f"{id.origin}-{id.incarnation}"
    return None
