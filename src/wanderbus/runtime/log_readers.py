"""Registered readers of an event log: programs that need its records, such as jobs of the pipeline.

A reader registers the offset of the first record that it still needs, in ``readers/NAME.json`` of the log's directory,
after it has committed all records below. Retention keeps the records from there on, until the registration expires: a
reader that never returns must not keep the log forever. The server warns when that happens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.runtime.files.disk import SYSTEM, Disk, make_directory, replace_file, sync_directory
from wanderbus.segments import LogPlace

DIRECTORY: Final = "readers"
"""Subdirectory of the log with one file for each reader."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class LogReader(msgspec.Struct, frozen=True):
    """Registration of one reader.

    :param offset: first record that the reader still needs
    :param updated_us: time of this registration, in microseconds since the Unix epoch
    :param expires_s: time after which the reader counts as gone, unless it registers again
    :param checksum: checksum of the record before ``offset``, by which the log is recognised; None if it is unknown
    """

    name: str
    offset: int
    updated_us: int
    expires_s: float
    checksum: int | None = None

    @property
    def place(self) -> LogPlace:
        """Return the place that the reader has reached."""
        return LogPlace(self.offset, self.checksum)

    def is_expired(self, now_us: int) -> bool:
        """Return whether the registration counts no more."""
        return now_us - self.updated_us > self.expires_s * 1e6


def register_reader(log_dir: Path, reader: LogReader, disk: Disk = SYSTEM) -> None:
    """Store a registration, atomically and durably; it replaces the earlier one of the same name.

    Call it only after everything below ``reader.offset`` is committed: those records may be removed from now on. Check
    after the first registration that the log still begins at or before the offset.
    """
    if not _NAME.fullmatch(reader.name):
        raise ConfigurationError(f"reader name {reader.name!r}: use up to 100 letters, digits, - and _")
    try:
        make_directory(disk, log_dir / DIRECTORY, 0o700)
        replace_file(disk, reader_file(log_dir, reader.name), msgspec.json.encode(reader) + b"\n")
    except OSError as error:
        raise StorageError(f"the reader {reader.name} cannot register in {log_dir}: {error.strerror}") from None


def remove_reader(log_dir: Path, name: str, disk: Disk = SYSTEM) -> None:
    """End a registration; nothing happens if there is none."""
    try:
        disk.unlink(reader_file(log_dir, name))
        sync_directory(disk, log_dir / DIRECTORY)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"the reader {name} cannot be removed from {log_dir}: {error.strerror}") from None


def load_reader(path: Path) -> LogReader | None:
    """Return the registration in a file, None if it is damaged."""
    try:
        reader = msgspec.json.decode(path.read_bytes(), type=LogReader)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return reader if reader.name == path.stem else None


def reader_files(log_dir: Path) -> Sequence[Path]:
    """Return the files of all registrations, by name."""
    return sorted((log_dir / DIRECTORY).glob("*.json"))


def reader_file(log_dir: Path, name: str) -> Path:
    """Return the file of a registration, which may not exist."""
    return log_dir / DIRECTORY / f"{name}.json"
