"""Many filters as one XML document, each of use as soon as it has arrived (SPEC O-01, O-02).

A stream is ``<filters>`` with one ``<filter>`` a line. With :func:`~wanderbus.filters.xml.compression.compress` and
:func:`~wanderbus.filters.xml.compression.decompress` it is::

    sent = compress(write_stream(filters))
    for filter in read_stream(decompress(arriving)): ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from wanderbus.errors import FilterError
from wanderbus.filters.ast import Node
from wanderbus.filters.xml.elements import NAMESPACE, ElementReader
from wanderbus.filters.xml.nodes import BOUNDS, read_element, write_content

_OPEN: Final = f'<filters xmlns="{NAMESPACE}">\n'.encode()
_CLOSE: Final = b"</filters>\n"


def write_stream(nodes: Iterable[Node]) -> Iterator[bytes]:
    """Yield the document in pieces: its beginning, one for each filter, its end.

    Raises :class:`FilterError` as :func:`~wanderbus.filters.xml.write` does.
    """
    yield _OPEN
    for node in nodes:
        yield f"<filter>{write_content(node)}</filter>\n".encode()
    yield _CLOSE


def read_stream(pieces: Iterable[bytes]) -> Iterator[Node]:
    """Yield each filter of a stream as soon as the last of its pieces, cut anywhere, has arrived.

    Raises :class:`FilterError` at the first fault, after the filters before it; its text is that of the faulty filter.
    Keeps one filter at a time.
    """
    reader = ElementReader(read_element, BOUNDS, within="filters")
    for piece in pieces:
        yield from _of_piece(reader, piece)
    reader.close()


def _of_piece(reader: ElementReader[Node], piece: bytes) -> Iterator[Node]:
    try:
        reader.feed(piece)
    except FilterError:
        yield from reader.take()
        raise
    yield from reader.take()
