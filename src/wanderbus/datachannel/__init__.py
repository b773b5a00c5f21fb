"""Data channel: its description in SDP, the trust in its keys, and its transports (SPEC F-01, U-05)."""

from wanderbus.datachannel.channel import DataChannel
from wanderbus.datachannel.description import (
    DATA_SOCKET,
    DISCARD_PORT,
    RELAY,
    STREAM_SOCKET,
    ChannelEnd,
    Protocol,
    describe_end,
    protocol_over,
    read_end,
)
from wanderbus.datachannel.transports import Transports
from wanderbus.datachannel.trust import Parties, channel_secret

__all__ = [
    "DATA_SOCKET",
    "DISCARD_PORT",
    "RELAY",
    "STREAM_SOCKET",
    "ChannelEnd",
    "DataChannel",
    "Parties",
    "Protocol",
    "Transports",
    "channel_secret",
    "describe_end",
    "protocol_over",
    "read_end",
]
