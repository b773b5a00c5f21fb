"""gzip of one filter, and of a stream of filters that can each be used on arrival (SPEC O-02).

The bytes depend only on the text: no time and no name is written. Input may consist of several members, one after
another (RFC 1952 2.2). Decompression stops at a bound, whatever the compression ratio.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from wanderbus import limits
from wanderbus.errors import FilterError, LimitExceeded
from wanderbus.filters.ast import Node, Rooted
from wanderbus.filters.xml.nodes import read, write_filter

_GZIP: Final = 16 + zlib.MAX_WBITS
_LEVEL: Final = 9
_STEP_BYTES: Final = 65_536


def compressed(filter: Rooted) -> bytes:
    """Return ``filter`` as XML in one gzip member."""
    compressor = _compressor()
    return compressor.compress(write_filter(filter)) + compressor.flush()


def decompressed(data: bytes) -> Node:
    """Return the tree of a filter that :func:`compressed` wrote.

    Raises :class:`FilterError` if ``data`` is anything else, :class:`LimitExceeded` if it is too large.
    """
    pieces = decompress([data], bytes_max=limits.XML_FILTER_BYTES_MAX, limit="XML_FILTER_BYTES_MAX")
    text = b"".join(pieces)
    try:
        return read(text.decode())
    except UnicodeDecodeError as error:
        shown = text.decode("utf-8", "replace")
        raise FilterError("not UTF-8", shown, len(text[: error.start].decode())) from None


def compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield, for each piece of a stream, bytes from which all of it can be decompressed at once; then the end."""
    compressor = _compressor()
    for piece in pieces:
        yield compressor.compress(piece) + compressor.flush(zlib.Z_SYNC_FLUSH)
    yield compressor.flush()


def decompress(
    pieces: Iterable[bytes],
    *,
    bytes_max: int = limits.XML_STREAM_BYTES_MAX,
    limit: str = "XML_STREAM_BYTES_MAX",
) -> Iterator[bytes]:
    """Yield the decompressed ``pieces``, which may be cut anywhere, at most 64 KiB at a time.

    Raises :class:`FilterError` if they are not gzip or end too early, and :class:`LimitExceeded` with the name
    ``limit`` if there are more than ``bytes_max`` bytes.
    """
    inflating = _Inflating()
    count = 0
    for piece in pieces:
        for start in range(0, len(piece), _STEP_BYTES):
            for data in inflating.feed(piece[start : start + _STEP_BYTES]):
                count += len(data)
                if count > bytes_max:
                    raise LimitExceeded(f"more than {bytes_max} bytes once decompressed ({limit})", limit)
                yield data
    inflating.close()


class _Inflating:
    """Decompressor of one gzip member after another."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed ``data``, step by step."""
        inflated = b""
        # A full step may leave a rest of the output even if no input is left.
        while data or (len(inflated) == _STEP_BYTES and not self._member.eof):
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP)
            try:
                inflated = self._member.decompress(data, _STEP_BYTES)
            except zlib.error as error:
                raise FilterError(f"not gzip data: {error}", "", None) from None
            if inflated:
                yield inflated
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    def close(self) -> None:
        """Check that the data ended at the end of a member."""
        if not self._member.eof:
            raise FilterError("incomplete gzip data", "", None)


def _compressor() -> zlib._Compress:
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
