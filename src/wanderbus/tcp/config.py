"""The parameters of the data channel over TCP, each with its unit and where its value comes from (SPEC F-10).

Both ends of a connection should use the same ``message_bytes_max``: a longer message ends the TCP connection.
"""

from __future__ import annotations

import msgspec

from wanderbus import limits


class TcpConfig(msgspec.Struct, frozen=True):
    """How patient, how eager and how big; ``ValueError`` names a value that cannot work."""

    ack_timeout_s: float = 15.75
    """How long the other side may acknowledge nothing before the connection fails, seconds. As reliable UDP's retries
    with its defaults take (0.25 + 0.5 + 1 + 2 + 4 + 4 + 4), so that failures are noticed alike (SPEC F-01)."""

    hello_s_max: float = 15.0
    """How long a TCP connection that others opened may take to prove whose it is, seconds: a lost segment is repeated
    thrice within it (RFC 6298 2). An end before fails the other side, if it has something to send (SPEC F-07)."""

    probe_s_max: float = 5.0
    """How long a probe of a failed connection keeps the next one from trying another TCP connection, seconds."""

    reconnect_min_s: float = 0.25
    """Pause before the second attempt to connect in a row, seconds; it doubles with each further one."""

    reconnect_max_s: float = 4.0
    """Most that this pause may reach, seconds (as T2 of RFC 3261 17.1.2.1)."""

    rtt_gain: float = 0.125
    """Weight of a new sample in the smoothed round trip, 0 to 1 (alpha of RFC 6298 2.3)."""

    unacknowledged_bytes_max: int = 2**19
    """Bytes that may be under way before the first message that waits; half of what a stream holds back by default
    before it takes the other side for dead."""

    receive_window_bytes: int = 2**20
    """Bytes of messages that the owner may leave unconsumed before the peer has to wait."""

    send_queue_bytes_max: int = 2**24
    """Bytes that may wait to be sent or acknowledged, at least ``unacknowledged_bytes_max``; with more the connection
    fails."""

    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    """Bytes of one message, sent or taken."""

    consume_at_once: bool = True
    """Whether a message counts as consumed when it is reported; otherwise ``Consumed`` says so."""

    keepalive_s: float | None = None
    """A PING leaves when nothing that is answered has been sent for so long, seconds; never when None."""

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
