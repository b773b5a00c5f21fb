"""The parameters of reliable UDP, each with its unit and where its value comes from (SPEC F-10).

Both ends of a connection should use the same ``datagram_bytes_max`` and ``message_bytes_max``: they bound what the
other side may make us hold. The rest is each side's own affair.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus import limits
from wanderbus.rudp.frames import ACK_BYTES, DATA_HEADER_BYTES, HEADER_BYTES, TOKEN_BYTES
from wanderbus.rudp.sealing import SEAL_BYTES

INITIAL_WINDOW_FRAMES: Final = 1_024
"""DATA frames that may be sent before the first WINDOW arrives; both sides of the protocol know it (as
initial_max_data of RFC 9000 4.1, which is negotiated there)."""

_UDP_PAYLOAD_BYTES_MAX: Final = 65_507
"""The largest payload of one UDP datagram over IPv4."""

_DATAGRAM_BYTES_MIN: Final = HEADER_BYTES + SEAL_BYTES + max(DATA_HEADER_BYTES + 1, ACK_BYTES, 1 + TOKEN_BYTES)
"""Room for any frame, with one byte of a message."""

_REKEY_PACKETS_MAX: Final = 2**23
"""Packets that AES-GCM may seal under one key (RFC 9001 6.6)."""


class RudpConfig(msgspec.Struct, frozen=True):
    """How patient, how eager and how big; ``ValueError`` names a value that cannot work.

    Without any answer a packet is sent ``1 + retries_max`` times; with the defaults and no measured round trip
    that takes 15.75 s (0.25 + 0.5 + 1 + 2 + 4 + 4 + 4).
    """

    initial_timeout_s: float = 0.25
    """ACK timeout before the first round trip is measured, seconds. RFC 9002 6.2.2 assumes 0.333 s of RTT and waits
    three of it; the peers here are nearer, and healing after a move waits for this."""

    timeout_min_s: float = 0.04
    """Least ACK timeout, seconds: some turns of a busy event loop, so that a slow answer is not taken for a loss. The
    back-off starts from it, so on a near path it also says how long a silence is borne: 127 times as long."""

    timeout_max_s: float = 4.0
    """Most that back-off may reach, seconds (as T2 of RFC 3261 17.1.2.1)."""

    rtt_gain: float = 0.125
    """Weight of a new sample in the smoothed round trip, 0 to 1 (alpha of RFC 6298 2.3)."""

    rtt_deviation_gain: float = 0.25
    """Weight of a new sample in the round trip's deviation, 0 to 1 (beta of RFC 6298 2.3)."""

    backoff_factor: float = 2.0
    """What the timeout is multiplied by at each retry, at least 1 (SPEC F-05, RFC 6298 5.5)."""

    retries_max: int = 6
    """Retries of one packet, the peer being silent, before the connection is given up (SPEC F-06)."""

    packets_in_flight_max: int = 128
    """Most that the congestion window may grow to, packets, at least 2. About 150 kB: more would only fill the
    receive buffer of a socket with default limits, which holds about 200 kB on Linux."""

    datagram_bytes_max: int = limits.DATAGRAM_BYTES_MAX
    """Bytes of one datagram, sent or taken (RFC 9000 14)."""

    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    """Bytes of one message, sent or put together again."""

    receive_window_frames: int = INITIAL_WINDOW_FRAMES
    """DATA frames that the peer may send beyond what was consumed, at least ``INITIAL_WINDOW_FRAMES`` (RFC 9000 4.1).
    So many datagrams are held out of order, or received and not consumed, at the most."""

    send_queue_bytes_max: int = 2**24
    """Bytes of DATA frames that may wait to be sent or confirmed, at least ``message_bytes_max``. One more fails the
    connection, so that a peer that never acknowledges costs no more than that."""

    messages_per_datagram_max: int = 1_000
    """Messages that may share a datagram; 1 to send each in one of its own. The default is more than fit."""

    consume_at_once: bool = True
    """Whether a message counts as consumed when it is reported; otherwise when ``Consumed`` says so."""

    ack_delay_s: float | None = None
    """How long the ACK of a single packet waits for the owner's answer, to share its datagram, seconds; 0 until the
    next turn, None does not wait. The ACK of a second packet never does (RFC 9000 13.2.2)."""

    keepalive_s: float | None = None
    """After how much silence of our own to send a PING, seconds, so that NAT bindings last; None for never. RFC 4787
    REQ-5 lets a binding end after 120 s, many end after 30 s."""

    rekey_packets: int = 2**20
    """Packets sealed under one key before the next is used, at most 2**23 (RFC 9001 6.6)."""

    def __post_init__(self) -> None:
        self._check_times()
        if not (0 < self.rtt_gain <= 1 and 0 < self.rtt_deviation_gain <= 1):
            raise ValueError("rtt_gain and rtt_deviation_gain must be above 0 and at most 1")
        if self.retries_max < 0:
            raise ValueError("retries_max must not be negative")
        if self.packets_in_flight_max < 2:
            raise ValueError("packets_in_flight_max must be at least 2 (RFC 9002 7.2)")
        if min(self.message_bytes_max, self.messages_per_datagram_max) < 1:
            raise ValueError("message_bytes_max and messages_per_datagram_max must be at least 1")
        if self.receive_window_frames < INITIAL_WINDOW_FRAMES:
            raise ValueError(f"receive_window_frames must be at least {INITIAL_WINDOW_FRAMES}, which the peer assumes")
        if self.send_queue_bytes_max < self.message_bytes_max:
            raise ValueError("send_queue_bytes_max must be at least message_bytes_max")
        if not 1 <= self.rekey_packets <= _REKEY_PACKETS_MAX:
            raise ValueError(f"rekey_packets must be 1 to {_REKEY_PACKETS_MAX}")
        if not _DATAGRAM_BYTES_MIN <= self.datagram_bytes_max <= _UDP_PAYLOAD_BYTES_MAX:
            raise ValueError(f"datagram_bytes_max must be {_DATAGRAM_BYTES_MIN} to {_UDP_PAYLOAD_BYTES_MAX}")

    def _check_times(self) -> None:
        if not 0 < self.timeout_min_s <= self.initial_timeout_s <= self.timeout_max_s:
            raise ValueError("timeouts must satisfy 0 < timeout_min_s <= initial_timeout_s <= timeout_max_s")
        if not self.backoff_factor >= 1:
            raise ValueError("backoff_factor must be at least 1")
        if self.keepalive_s is not None and not self.keepalive_s > 0:
            raise ValueError("keepalive_s must be above 0, or None")
        if self.ack_delay_s is not None and not self.ack_delay_s >= 0:
            raise ValueError("ack_delay_s must not be negative")
