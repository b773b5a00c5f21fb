"""Filters and notifications in XML, exactly both ways, and compressed (SPEC O-01, O-02).

The schema is the file ``wanderbus.xsd`` beside this one: ``importlib.resources.files("wanderbus.filters.xml")``.
"""

from __future__ import annotations

from wanderbus.filters.xml.compression import compress, compressed, decompress, decompressed
from wanderbus.filters.xml.elements import NAMESPACE
from wanderbus.filters.xml.nodes import read, write, write_filter
from wanderbus.filters.xml.notifications import read_notification, write_notification
from wanderbus.filters.xml.streams import read_stream, write_stream

__all__ = [
    "NAMESPACE",
    "compress",
    "compressed",
    "decompress",
    "decompressed",
    "read",
    "read_notification",
    "read_stream",
    "write",
    "write_filter",
    "write_notification",
    "write_stream",
]
