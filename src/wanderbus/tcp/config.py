"""Parameters of the data channel over TCP, each with its unit and the origin of its value (SPEC F-10).

Both ends of a connection should use the same ``message_bytes_max``: a longer message closes the TCP connection.
"""

from __future__ import annotations

import msgspec

from wanderbus import limits


class TcpConfig(msgspec.Struct, frozen=True):
    """Timeouts, pauses and sizes; ``ValueError`` names an invalid value."""

    ack_timeout_s: float = 15.75
    """Time without an acknowledgement after which the connection fails, seconds. It equals the default retries of
    reliable UDP (0.25 + 0.5 + 1 + 2 + 4 + 4 + 4), so that failures are detected equally fast (SPEC F-01)."""

    hello_s_max: float = 15.0
    """Timeout for the proof of an accepted TCP connection, seconds: a lost segment is repeated three times within it
    (RFC 6298 2). A connection that ends earlier fails the peer if it has something to send (SPEC F-07)."""

    probe_s_max: float = 5.0
    """Time that a probe of a failed connection keeps the next probe from opening another TCP connection, seconds."""

    reconnect_min_s: float = 0.25
    """Pause before the second attempt to connect in a row, seconds; it doubles with each further one."""

    reconnect_max_s: float = 4.0
    """Maximum of this pause, seconds (as T2 of RFC 3261 17.1.2.1)."""

    rtt_gain: float = 0.125
    """Weight of a new sample in the smoothed round trip, 0 to 1 (alpha of RFC 6298 2.3)."""

    unacknowledged_bytes_max: int = 2**19
    """Unacknowledged bytes at which further messages wait; half of the default number of unsent bytes at which a stream
    is closed."""

    receive_window_bytes: int = 2**20
    """Bytes of unconsumed messages after which the peer must wait."""

    send_queue_bytes_max: int = 2**24
    """Bytes that may wait to be sent or acknowledged, at least ``unacknowledged_bytes_max``; above it the connection
    fails."""

    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    """Maximum bytes of one message, sent or received."""

    consume_at_once: bool = True
    """True if a message counts as consumed when it is reported; otherwise ``Consumed`` reports it."""

    keepalive_s: float | None = None
    """Interval without sent data that is acknowledged after which a PING is sent, seconds; None for never."""

    def __post_init__(self) -> None:
        if min(self.ack_timeout_s, self.hello_s_max, self.probe_s_max) <= 0:
            raise ValueError("ack_timeout_s, hello_s_max and probe_s_max must be above 0")
        if not 0 < self.reconnect_min_s <= self.reconnect_max_s:
            raise ValueError("pauses must satisfy 0 < reconnect_min_s <= reconnect_max_s")
        if not 0 < self.rtt_gain <= 1:
            raise ValueError("rtt_gain must be above 0 and at most 1")
        if min(self.unacknowledged_bytes_max, self.receive_window_bytes, self.message_bytes_max) < 1:
            raise ValueError("unacknowledged_bytes_max, receive_window_bytes and message_bytes_max must be at least 1")
        if self.send_queue_bytes_max < self.unacknowledged_bytes_max:
            raise ValueError("send_queue_bytes_max must be at least unacknowledged_bytes_max")
        if self.keepalive_s is not None and self.keepalive_s <= 0:
            raise ValueError("keepalive_s must be above 0, or None")
