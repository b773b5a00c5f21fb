"""One event that was forwarded to the server that leads its channel."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus import protocol

PublishId = tuple[str, int, int]
"""Publisher's own identifier of an event: the key of its row, the epoch, the number."""


class ForwardedPublish(NamedTuple):
    """A forwarded event: who waits for the answer, and under which number; its size counts until then."""

    id: PublishId
    link: int
    number: int
    is_outbox: bool
    device: str
    """Key of the device."""
    size: int
    """Bytes that it counts of the device's bound."""
    leader: str
    """Name of the server that leads its channel."""
    publish: protocol.PublishFor
    """The message for this server."""
    subject: str
