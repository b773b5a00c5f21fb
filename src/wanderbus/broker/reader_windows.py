"""Send windows of readers (DESIGN 5.4)."""

from __future__ import annotations

from wanderbus.broker.readers import Link, OpenReader
from wanderbus.parameters.broker import BrokerConfig


class ReaderWindows:
    """Send windows: the bounds on unacknowledged items of a reader and a device."""

    def __init__(self, config: BrokerConfig) -> None:
        self._notifications = config.unacknowledged_max
        self._bytes = config.unacknowledged_bytes_max
        self._device_bytes = config.device_unacknowledged_bytes_max

    def has_room(self, link: Link, reader: OpenReader) -> bool:
        """Return whether another item may be sent to a reader; the first one always may."""
        waiting = reader.unacknowledged
        if waiting is None:
            return True
        if len(waiting) >= self._notifications:
            return False
        size = reader.unacknowledged_bytes
        return size < self._bytes and size < self._device_bytes // (link.reading or 1)
