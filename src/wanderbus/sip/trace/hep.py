"""Encoding of a traced message as a HEP3 packet, for HOMER and other collectors (SPEC U-06; "HEP/EEP", revision 12).

A packet is ``HEP3``, its length, and chunks: vendor, type, length including these six bytes, and the value, every
number in network order. All chunks here are generic ones, of vendor 0.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from ipaddress import IPv4Address
from typing import Final

from wanderbus.sip.trace.packet_addresses import address_pair
from wanderbus.sip.trace.trace_messages import TracedMessage

HEP_PORT: Final = 9_060
"""Usual port of a collector."""

AGENT_ID: Final = 2_001
"""Default id of the capture agent."""

PAYLOAD_BYTES_MAX: Final = 64_000
"""Largest payload of a packet with the other chunks; the rest of a message is cut off."""

TEXT_BYTES_MAX: Final = 512
"""Bytes of an authentication key or correlation id; the rest is cut off."""

_HEADER = struct.Struct("!4sH")
_CHUNK = struct.Struct("!HHH")
_GENERIC: Final = 0
_FAMILY_IPV4, _FAMILY_IPV6 = 2, 10
_PROTOCOL_TCP, _PROTOCOL_UDP = 6, 17
_KIND_SIP: Final = 1


class Chunk(IntEnum):
    """Types of the generic chunks that we write."""

    IP_FAMILY = 0x01
    IP_PROTOCOL = 0x02
    IPV4_SOURCE = 0x03
    IPV4_DESTINATION = 0x04
    IPV6_SOURCE = 0x05
    IPV6_DESTINATION = 0x06
    SOURCE_PORT = 0x07
    DESTINATION_PORT = 0x08
    SECONDS = 0x09
    MICROSECONDS = 0x0A
    KIND_OF_PAYLOAD = 0x0B
    AGENT_ID = 0x0C
    AUTHENTICATION_KEY = 0x0E
    PAYLOAD = 0x0F
    CORRELATION_ID = 0x11


def hep3(traced_message: TracedMessage, *, agent_id: int = AGENT_ID, key: str | None = None) -> bytes:
    """Return the packet of one message; its correlation id is the Call-ID.

    ``key`` authenticates us to the collector, if it requires one; it is sent in clear text.
    """
    entry = traced_message.entry
    source, destination = address_pair(entry)
    is_v4 = isinstance(source, IPv4Address)
    second, microsecond = divmod(entry.at_us, 1_000_000)
    chunks = [
        _number(Chunk.IP_FAMILY, "!B", _FAMILY_IPV4 if is_v4 else _FAMILY_IPV6),
        _number(Chunk.IP_PROTOCOL, "!B", _PROTOCOL_UDP if entry.transport == "UDP" else _PROTOCOL_TCP),
        _chunk(Chunk.IPV4_SOURCE if is_v4 else Chunk.IPV6_SOURCE, source.packed),
        _chunk(Chunk.IPV4_DESTINATION if is_v4 else Chunk.IPV6_DESTINATION, destination.packed),
        _number(Chunk.SOURCE_PORT, "!H", entry.source[1]),
        _number(Chunk.DESTINATION_PORT, "!H", entry.destination[1]),
        _number(Chunk.SECONDS, "!I", second),
        _number(Chunk.MICROSECONDS, "!I", microsecond),
        _number(Chunk.KIND_OF_PAYLOAD, "!B", _KIND_SIP),
        _number(Chunk.AGENT_ID, "!I", agent_id),
    ]
    if key is not None:
        chunks.append(_chunk(Chunk.AUTHENTICATION_KEY, key.encode()[:TEXT_BYTES_MAX]))
    if traced_message.sketch.call_id is not None:
        chunks.append(_chunk(Chunk.CORRELATION_ID, traced_message.sketch.call_id.encode()[:TEXT_BYTES_MAX]))
    chunks.append(_chunk(Chunk.PAYLOAD, entry.data[:PAYLOAD_BYTES_MAX]))
    body = b"".join(chunks)
    return _HEADER.pack(b"HEP3", _HEADER.size + len(body)) + body


def _number(kind: Chunk, form: str, value: int) -> bytes:
    return _chunk(kind, struct.pack(form, value))


def _chunk(kind: Chunk, value: bytes) -> bytes:
    return _CHUNK.pack(_GENERIC, kind, _CHUNK.size + len(value)) + value
