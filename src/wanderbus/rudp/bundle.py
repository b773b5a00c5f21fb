"""Frames that are first sent in one packet, the unit of retransmission."""

from __future__ import annotations


class Bundle:
    """Ack-eliciting frames that are sent together, and the packet that carries them now.

    ``data_bytes`` is the size of the DATA frames in ``payload``. ``retries`` counts the timeouts during which the peer
    was silent. ``earlier`` are its packets that were declared lost; their ACK confirms the bundle as well. ``lost_at``
    is when the first one of the present path was sent. A probe of the path's MTU is never repeated, and its loss is no
    congestion (RFC 8899 3).
    """

    __slots__ = ("confirmed", "data_bytes", "earlier", "is_probe", "lost_at", "number", "payload", "retries", "sent_at")

    def __init__(self, payload: bytes, data_bytes: int, *, is_probe: bool = False) -> None:
        self.payload = payload
        self.is_probe = is_probe
        self.data_bytes = data_bytes
        self.confirmed = False
        self.retries = 0
        self.earlier: tuple[int, ...] = ()
        self.lost_at: float | None = None
        self.number = -1
        self.sent_at = 0.0
