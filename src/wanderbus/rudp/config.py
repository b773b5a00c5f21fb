"""The parameters of reliable UDP, each with its unit and where its value comes from (SPEC F-10).

Both ends of a connection should use the same ``datagram_bytes_max``, ``message_bytes_max`` and
``reorder_frames_max``: they bound what the other side may make us hold.
"""

from __future__ import annotations

import msgspec

from wanderbus import limits
from wanderbus.rudp.frames import DATA_HEADER_BYTES, PACKET_HEADER_BYTES

_UDP_PAYLOAD_BYTES_MAX = 65_507
"""The largest payload of one UDP datagram over IPv4."""


class RudpConfig(msgspec.Struct, frozen=True):
    """How patient, how eager and how big; ``ValueError`` names a value that cannot work.

    Without any answer a packet is sent ``1 + retries_max`` times; with the defaults and no measured round trip
    that takes 15.75 s (0.25 + 0.5 + 1 + 2 + 4 + 4 + 4).
    """

    initial_timeout_s: float = 0.25
    """ACK timeout before the first round trip is measured, seconds. RFC 9002 6.2.2 assumes 0.333 s of RTT and waits
    three of it; the peers here are nearer, and healing after a move waits for this."""

    timeout_min_s: float = 0.05
    """Least ACK timeout, seconds: a few turns of a busy event loop, so that a slow answer is not taken for a loss."""

    timeout_max_s: float = 4.0
    """Most that back-off may reach, seconds (as T2 of RFC 3261 17.1.2.1)."""

    rtt_gain: float = 0.125
    """Weight of a new sample in the smoothed round trip, 0 to 1 (alpha of RFC 6298 2.3)."""

    rtt_deviation_gain: float = 0.25
    """Weight of a new sample in the round trip's deviation, 0 to 1 (beta of RFC 6298 2.3)."""

    backoff_factor: float = 2.0
    """What the timeout is multiplied by at each retransmission, at least 1 (SPEC F-05, RFC 6298 5.5)."""

    retries_max: int = 6
    """Retransmissions of one packet before the connection is given up (SPEC F-06)."""

    packets_in_flight_max: int = 64
    """Unacknowledged packets of one connection; the rest waits in order. About 75 kB: it stands in for a congestion
    window, and is small enough for the receive buffer of a default socket."""

    datagram_bytes_max: int = limits.DATAGRAM_BYTES_MAX
    """Bytes of one datagram, sent or taken (RFC 9000 14)."""

    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    """Bytes of one message, sent or put together again."""

    reorder_frames_max: int = 1_024
    """How far a DATA frame may be ahead of the next one due: the sender never goes past it, and the receiver holds
    no more out of order."""

    def __post_init__(self) -> None:
        if not 0 < self.timeout_min_s <= self.initial_timeout_s <= self.timeout_max_s:
            raise ValueError("timeouts must satisfy 0 < timeout_min_s <= initial_timeout_s <= timeout_max_s")
        if not (0 < self.rtt_gain <= 1 and 0 < self.rtt_deviation_gain <= 1):
            raise ValueError("rtt_gain and rtt_deviation_gain must be above 0 and at most 1")
        if self.backoff_factor < 1:
            raise ValueError("backoff_factor must be at least 1")
        if self.retries_max < 0:
            raise ValueError("retries_max must not be negative")
        if min(self.packets_in_flight_max, self.message_bytes_max, self.reorder_frames_max) < 1:
            raise ValueError("packets_in_flight_max, message_bytes_max and reorder_frames_max must be at least 1")
        if not PACKET_HEADER_BYTES + DATA_HEADER_BYTES < self.datagram_bytes_max <= _UDP_PAYLOAD_BYTES_MAX:
            raise ValueError(f"datagram_bytes_max must be at most {_UDP_PAYLOAD_BYTES_MAX} and hold a frame")
