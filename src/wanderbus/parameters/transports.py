"""Parameters of transports, each with its unit and the origin of its value (SPEC F-10).

Both ends of a data channel should use the same ``datagram_bytes_max`` and ``message_bytes_max``, which bound the memory
that the peer can use: a longer message closes a TCP connection. The other parameters may differ between the two sides.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeVar

import msgspec

from wanderbus import limits

INITIAL_WINDOW_FRAMES: Final = 1_024
"""DATA frames that may be sent before the first WINDOW arrives; a constant of the protocol (as initial_max_data of
RFC 9000 4.1, which is negotiated there)."""

_UDP_PAYLOAD_BYTES_MAX: Final = 65_507
"""The largest payload of one UDP datagram over IPv4."""

DATAGRAM_BYTES_MIN: Final = 69
"""Space for any frame of reliable UDP in a sealed packet, including a DATA frame with one byte."""

_REKEY_PACKETS_MAX: Final = 2**23
"""Maximum number of packets that AES-GCM may seal under one key (RFC 9001 6.6)."""


class RudpConfig(msgspec.Struct, frozen=True):
    """Reliable UDP: timeouts, retries and sizes; ``ValueError`` names an invalid value.

    Without any answer a packet is sent ``1 + retries_max`` times; with the defaults and no measured round trip
    that takes 15.75 s (0.25 + 0.5 + 1 + 2 + 4 + 4 + 4).
    """

    initial_timeout_s: float = 0.25
    """ACK timeout before the first round trip is measured, seconds. RFC 9002 6.2.2 assumes an RTT of 0.333 s and three
    times that as the timeout; peers here are nearer, and recovery after a move waits for this."""

    timeout_min_s: float = 0.04
    """Minimum ACK timeout, seconds: some turns of a busy event loop, so that a slow answer does not count as a loss.
    The back-off starts from it, so on a short path it also determines the time until failure: 127 times as long."""

    timeout_max_s: float = 4.0
    """Maximum of the back-off, seconds (as T2 of RFC 3261 17.1.2.1)."""

    rtt_gain: float = 0.125
    """Weight of a new sample in the smoothed round trip, 0 to 1 (alpha of RFC 6298 2.3)."""

    rtt_deviation_gain: float = 0.25
    """Weight of a new sample in the round trip's deviation, 0 to 1 (beta of RFC 6298 2.3)."""

    backoff_factor: float = 2.0
    """Factor of the timeout at each retry, at least 1 (SPEC F-05, RFC 6298 5.5)."""

    retries_max: int = 6
    """Retries of one packet to a silent peer before the connection fails (SPEC F-06)."""

    packets_in_flight_max: int = 512
    """Maximum of the congestion window, packets, at least 2. The window exceeds 128 packets, about 150 kB, only by what
    a long path holds, 128 packets for each 10 ms of its round trip: a receive buffer with default limits holds 128."""

    datagram_bytes_max: int = limits.DATAGRAM_BYTES_MAX
    """Maximum bytes of one datagram, sent or received (RFC 9000 14)."""

    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    """Maximum bytes of one message, sent or reassembled."""

    receive_window_frames: int = INITIAL_WINDOW_FRAMES
    """DATA frames that the peer may send beyond the consumed ones, at least ``INITIAL_WINDOW_FRAMES`` (RFC 9000 4.1).
    This bounds the datagrams that are held out of order, or received and not consumed."""

    send_queue_bytes_max: int = 2**24
    """Bytes of DATA frames that may wait to be sent or acknowledged, at least ``message_bytes_max``. More fail the
    connection, which bounds the memory for a peer that never acknowledges."""

    messages_per_datagram_max: int = 1_000
    """Messages that may share a datagram; 1 sends each in its own. The default is more than fit."""

    consume_at_once: bool = True
    """True if a message counts as consumed when it is reported; otherwise ``Consumed`` reports it."""

    ack_delay_s: float | None = None
    """Delay of the ACK of a single packet, so that it can share a datagram with the owner's answer, seconds; 0 waits
    for the next turn, None does not wait. The ACK of a second packet is never delayed (RFC 9000 13.2.2)."""

    keepalive_s: float | None = None
    """Time without own packets after which a PING is sent, seconds, to keep NAT bindings alive; None for never. RFC
    4787 REQ-5 permits a binding to end after 120 s, many end after 30 s."""

    rekey_packets: int = 2**20
    """Packets sealed under one key before it is replaced, at most 2**23 (RFC 9001 6.6)."""

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
        if not DATAGRAM_BYTES_MIN <= self.datagram_bytes_max <= _UDP_PAYLOAD_BYTES_MAX:
            raise ValueError(f"datagram_bytes_max must be {DATAGRAM_BYTES_MIN} to {_UDP_PAYLOAD_BYTES_MAX}")

    def _check_times(self) -> None:
        if not 0 < self.timeout_min_s <= self.initial_timeout_s <= self.timeout_max_s:
            raise ValueError("timeouts must satisfy 0 < timeout_min_s <= initial_timeout_s <= timeout_max_s")
        if not self.backoff_factor >= 1:
            raise ValueError("backoff_factor must be at least 1")
        if self.keepalive_s is not None and not self.keepalive_s > 0:
            raise ValueError("keepalive_s must be above 0, or None")
        if self.ack_delay_s is not None and not self.ack_delay_s >= 0:
            raise ValueError("ack_delay_s must not be negative")


class TcpConfig(msgspec.Struct, frozen=True):
    """Data channels over TCP: timeouts, pauses and sizes; ``ValueError`` names an invalid value."""

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


_Config = TypeVar("_Config", RudpConfig, TcpConfig)


def carrying(config: _Config, event_bytes_max: int) -> _Config:
    """Return ``config`` with room for messages with events of ``event_bytes_max`` bytes."""
    most = max(config.message_bytes_max, event_bytes_max + limits.MESSAGE_BYTES_MAX - limits.EVENT_BYTES_MAX)
    return msgspec.structs.replace(
        config, message_bytes_max=most, send_queue_bytes_max=max(config.send_queue_bytes_max, most)
    )


class StreamLimits(msgspec.Struct, frozen=True):
    """Bounds on the TCP connections of one socket.

    The idle time is above a third of the longest registration (1,200 s), so that a registered device, which refreshes
    by then, keeps its connection. ``ValueError`` names a value that cannot work.
    """

    section: ClassVar[str] = "sip_connections"
    """The table of the settings that contains them."""

    connections_max: int = 4_096
    """Connections at once; fewer if the process may not open as many files."""

    connections_per_host_max: int = 256
    """Accepted connections from one IPv4 address or /64 of IPv6."""

    connections_per_s: float = 50.0
    """Sustained rate of connections from one IPv4 address or /64 of IPv6, per second; a TLS handshake takes a
    millisecond or two. A further connection is closed unread."""

    burst_connections: float = 512.0
    """Burst of connections above that rate: many users behind one address may reconnect after a restart."""

    unsent_bytes_max: int = 2**20
    """Bytes that wait to be sent to one peer."""

    idle_s_max: float | None = 1_800.0
    """Idle time in both directions after which a connection is closed; None for never."""

    silent_s_max: float = 30.0
    """Time after which an accepted connection is closed if nothing was answered on it."""

    connect_s_max: float = 5.0
    """Timeout for opening a connection, including TLS."""

    segment_bytes_max: int | None = 900
    """Largest TCP segment of a connection that is opened here, bytes, in both directions; None for what the interface
    allows. Some paths drop longer packets silently, and a SIP message is hardly longer (RFC 2923 2.1)."""

    handshake_s_max: float = 5.0
    """Timeout for the TLS handshake of an accepted connection, and for the wait before it begins."""

    handshakes_max: int = 128
    """TLS handshakes of accepted connections at once: each takes 55 KB. A further one waits; a handshake of another
    source replaces the oldest of the source that has the most."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0")


class PageLimits(StreamLimits, frozen=True):
    """Bounds on the connections to the pages of ``http``, which few programs ask for."""

    section: ClassVar[str] = "http_connections"
    """The table of the settings that contains them."""

    connections_max: int = 64
    """Connections at once."""

    connections_per_host_max: int = 16
    """Accepted connections from one IPv4 address or /64 of IPv6."""

    connections_per_s: float = 20.0
    """Sustained rate of connections from one IPv4 address or /64 of IPv6, per second."""

    burst_connections: float = 64.0
    """Burst of connections above that rate."""

    idle_s_max: float | None = 15.0
    """Time for each request on a connection: until it has come as a whole and is answered, or the next one has."""

    silent_s_max: float = 10.0
    """Time after which an accepted connection is closed if nothing was answered on it."""

    handshakes_max: int = 16
    """TLS handshakes of accepted connections at once."""


class DataStreamLimits(StreamLimits, frozen=True):
    """Bounds on the connections of data channels, which may be idle, since subscribers wait.

    A lost SYN is repeated three times within the time to connect (after 1, 3 and 7 s: RFC 6298 2), which is similar to
    the timeouts of the channels.
    """

    section: ClassVar[str] = "data_connections"
    segment_bytes_max: int | None = None
    idle_s_max: float | None = None
    connect_s_max: float = 15.0
    handshake_s_max: float = 15.0


DATA_STREAM_LIMITS: Final = DataStreamLimits()


class LightLimits(StreamLimits, frozen=True):
    """Bounds on the connections of lightweight clients, which may be idle between two PINGs."""

    section: ClassVar[str] = "light_connections"
    segment_bytes_max: int | None = None
    idle_s_max: float | None = None
    connections_max: int = 4_096

    logins_max: int = 256
    """Connections at once that have not logged in; a further one replaces the oldest of them."""

    login_s_max: float = 10.0
    """Time to log in, from the first byte on."""

    heard_s_max: float = 120.0
    """Silence of a client after which its connection is closed, seconds; clients send something in half of it."""

    window_bytes: int = 2**16
    """Bytes of messages that a client may send ahead of the broker."""

    held_bytes_max: int = 2**22
    """Bytes of notifications that wait for one client to read; above it the connection is closed."""


LIGHT_LIMITS: Final = LightLimits()
