"""A SIP trace in a file of bounded size (SPEC U-06).

The file consists of JSON lines: the first names the format, each further one is a message, with its text readable if
it is text. At its maximum size the file is renamed to ``NAME.1``, replacing the previous one, and a new file is begun.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.file_modes import lock_file
from wanderbus.sip.message.targets import Transport
from wanderbus.sip.trace.trace import Trace
from wanderbus.sip.trace.trace_entry import Direction, Microseconds, Port, TraceEntry

FILE_BYTES_MAX: Final = 64 * 2**20
"""Size at which a trace file is renamed; both files together take at most twice as much."""

READ_ENTRIES_MAX: Final = 200_000
"""Maximum number of messages read from files; of more, the last are kept."""

READ_BYTES_MAX: Final = 4 * FILE_BYTES_MAX
"""Maximum bytes of messages read from files."""

GROWTH_BYTES_MAX: Final = 4 * 2**20
"""Most bytes that are read from a growing file at a time."""

_LINE_BYTES_MAX: Final = 2**20


class _Heading(msgspec.Struct, frozen=True):
    """The first line of a trace file."""

    format: str = "wanderbus-sip-trace"
    version: int = 1


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message in the file: in ``text`` if it is text, else in ``data`` as base64."""

    at_us: Microseconds
    source: tuple[str, Port]
    destination: tuple[str, Port]
    transport: Transport
    direction: Direction
    text: str | None = None
    data: bytes = b""


_HEADING_LINE: Final = msgspec.json.encode(_Heading()) + b"\n"
_decode_line: Final = msgspec.json.Decoder(_Line).decode


class TraceFile:
    """A trace file that is being written; made by :meth:`open`."""

    def __init__(self, path: Path, descriptor: int, bytes_max: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._bytes_max = bytes_max
        self._bytes = os.fstat(descriptor).st_size

    @classmethod
    def open(cls, path: Path, *, bytes_max: int = FILE_BYTES_MAX) -> TraceFile:
        """Create a trace file or continue one; :class:`ConfigurationError` if it is another kind of file or in use."""
        try:
            descriptor = lock_file(path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise ConfigurationError(f"the SIP trace {path} cannot be written: {error.strerror}") from None
        if descriptor is None:
            raise ConfigurationError(f"the SIP trace {path} is in use by another process; name another file")
        try:
            _make_ready(path, descriptor)
        except OSError as error:
            os.close(descriptor)
            raise ConfigurationError(f"the SIP trace {path} cannot be written: {error.strerror}") from None
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, bytes_max)

    def write(self, entry: TraceEntry) -> None:
        """Write one message; OSError if the disk refuses it."""
        line = _encode(entry)
        if self._bytes + len(line) > self._bytes_max and self._bytes > len(_HEADING_LINE):
            self._put_aside()
        _write(self._descriptor, line)
        self._bytes += len(line)

    def close(self) -> None:
        """Stop writing."""
        os.close(self._descriptor)

    def _put_aside(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.replace(f"{self.path}.1")
        fresh = TraceFile.open(self.path, bytes_max=self._bytes_max)
        os.close(self._descriptor)
        self._descriptor, self._bytes = fresh._descriptor, fresh._bytes


def read_trace(paths: Iterable[Path]) -> Trace:
    """Return the messages in trace files, the last ones if there are too many; secrets in them are removed.

    :class:`ConfigurationError` names file and line if a file is not a trace. A last line that is still being written is
    skipped.
    """
    trace = Trace(entries_max=READ_ENTRIES_MAX, bytes_max=READ_BYTES_MAX)
    for path in paths:
        try:
            for entry in _entries(path):
                trace.add(entry)
        except OSError as error:
            raise ConfigurationError(f"the SIP trace {path} cannot be read: {error.strerror}") from None
    return trace


class GrowingTrace:
    """A trace file that another process writes, read from its present end on, also into the file that replaces it.

    :raises ConfigurationError: the file cannot be read, or is not a trace
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._redacting = Trace(entries_max=1)
        self._unread = b""
        self._file = self._opened()
        self._file.seek(0, os.SEEK_END)

    def read(self) -> list[TraceEntry]:
        """Return the messages since the last call, from at most :data:`GROWTH_BYTES_MAX`, without their secrets.

        :raises ConfigurationError: a line is not a message, or the file cannot be read any more
        """
        try:
            found = self._read()
            if not found and self._has_continuation():
                found = self._read()
        except OSError as error:
            raise ConfigurationError(f"the SIP trace {self._path} cannot be read: {error.strerror}") from None
        return found

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _opened(self) -> BinaryIO:
        path = self._path
        try:
            file = path.open("rb")
        except OSError as error:
            raise ConfigurationError(f"the SIP trace {self._path} cannot be read: {error.strerror}") from None
        if file.readline(_LINE_BYTES_MAX) != _HEADING_LINE:
            file.close()
            raise ConfigurationError(f"{self._path} is not a SIP trace; 'wanderbus up --sip-trace FILE' writes one")
        return file

    def _read(self) -> list[TraceEntry]:
        *lines, self._unread = (self._unread + self._file.read(GROWTH_BYTES_MAX)).split(b"\n")
        try:
            return [self._redacting.add(_decode(line)) for line in lines]
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise ConfigurationError(f"{self._path}: a line is not a message of a SIP trace: {error}") from None

    def _has_continuation(self) -> bool:
        """Go on with the file that has taken the place of this one; return whether there is one."""
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False  # between two files
        own = os.fstat(self._file.fileno())
        if (now.st_dev, now.st_ino) == (own.st_dev, own.st_ino):
            if own.st_size < self._file.tell():  # the next start of the writer has cut off an incomplete line
                self._file.seek(0, os.SEEK_END)
                self._unread = b""
            return False
        if now.st_size < len(_HEADING_LINE):
            return False  # it is just being made
        self._file.close()
        self._file, self._unread = self._opened(), b""
        return True


def _make_ready(path: Path, descriptor: int) -> None:
    """Write the heading of an empty file; check that of another file, and cut off an incomplete last line."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        try:
            _write(descriptor, _HEADING_LINE)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)  # a part of a heading would make it another kind of file
            raise
        return
    if os.pread(descriptor, len(_HEADING_LINE), 0) != _HEADING_LINE:
        raise ConfigurationError(f"{path} exists and is not a SIP trace; name another file")
    tail = os.pread(descriptor, _LINE_BYTES_MAX, max(0, size - _LINE_BYTES_MAX))
    os.ftruncate(descriptor, size - len(tail) + tail.rfind(b"\n") + 1)


def _write(descriptor: int, line: bytes) -> None:
    if os.write(descriptor, line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _entries(path: Path) -> Iterator[TraceEntry]:
    with path.open("rb") as file:
        if file.readline(_LINE_BYTES_MAX) != _HEADING_LINE:
            raise ConfigurationError(f"{path} is not a SIP trace; 'wanderbus up --sip-trace FILE' writes one")
        number = 1
        while line := file.readline(_LINE_BYTES_MAX):
            number += 1
            try:
                yield _decode(line)
            except (msgspec.DecodeError, UnicodeEncodeError) as error:
                if len(line) < _LINE_BYTES_MAX and not line.endswith(b"\n"):
                    return
                raise ConfigurationError(f"{path}, line {number}: not a message of a SIP trace: {error}") from None


def _encode(entry: TraceEntry) -> bytes:
    try:
        text, data = entry.data.decode(), b""
    except UnicodeDecodeError:
        text, data = None, entry.data
    ends = entry.source, entry.destination
    return msgspec.json.encode(_Line(entry.at_us, *ends, entry.transport, entry.direction, text, data)) + b"\n"


def _decode(line: bytes) -> TraceEntry:
    read = _decode_line(line)
    data = read.data if read.text is None else read.text.encode()
    return TraceEntry(read.at_us, read.source, read.destination, read.transport, read.direction, data)
