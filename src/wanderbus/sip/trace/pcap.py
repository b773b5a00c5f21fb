"""Export of a trace as a capture file for SIP tools (SPEC U-06; pcap 2.4; RFC 768, 791, 8200, 9293).

The file is a classic pcap of raw IP packets. A trace has messages, not packets, so packet headers are synthesized: over
UDP one datagram for each message; over TCP, and for messages inside TLS, one connection for each pair of addresses that
opens with a handshake and has continuous sequence numbers. A message larger than a datagram (possible after redaction)
is cut off.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address
from typing import Final

from wanderbus.machine import Address
from wanderbus.sip.trace.packet_addresses import Pair, address_pair
from wanderbus.sip.trace.trace_entry import TraceEntry

LINKTYPE_RAW: Final = 101
"""Packets begin with their IP header, of either version."""

_FILE_HEADER: Final = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, LINKTYPE_RAW)
_RECORD = struct.Struct("<IIII")

_TCP, _UDP = 6, 17
_HOP_LIMIT: Final = 64
_IP_PAYLOAD_BYTES_MAX: Final = 65_535 - 20
_UDP_DATA_BYTES_MAX: Final = _IP_PAYLOAD_BYTES_MAX - 8
_SEGMENT_BYTES_MAX: Final = 65_000
_WINDOW: Final = 65_535
_ACK, _PUSH_ACK, _SYN, _SYN_ACK = 0x10, 0x18, 0x02, 0x12
_FIRST_SEQUENCE: Final = 1_000


def pcap(entries: Iterable[TraceEntry]) -> bytes:
    """Return the capture file of ``entries``, which must be sorted by time."""
    parts = [_FILE_HEADER]
    streams: dict[tuple[Pair, int, int], _Sending] = {}
    for entry in entries:
        pair = address_pair(entry)
        packets = [_udp(entry, pair)] if entry.transport == "UDP" else _tcp(entry, pair, streams)
        for packet in packets:
            second, microsecond = divmod(entry.at_us, 1_000_000)
            parts.append(_RECORD.pack(second, microsecond, len(packet), len(packet)) + packet)
    return b"".join(parts)


class _Sending:
    """One direction of a TCP connection: the number of the next byte, and the other direction."""

    def __init__(self) -> None:
        self.next = _FIRST_SEQUENCE
        self.other = self

    def segment(self, pair: Pair, ports: Address | tuple[int, int], flags: int, data: bytes = b"") -> bytes:
        """Return a packet, and advance the number by its data."""
        acknowledged = self.other.next if flags & _ACK else 0
        header = struct.pack("!HHIIBBHHH", *ports, self.next, acknowledged, 5 << 4, flags, _WINDOW, 0, 0)
        self.next = (self.next + len(data) + (flags & _SYN != 0)) % 2**32
        return _ip(pair, _TCP, _with_checksum(pair, _TCP, header + data, 16))


def _tcp(entry: TraceEntry, pair: Pair, streams: dict[tuple[Pair, int, int], _Sending]) -> Iterator[bytes]:
    """Yield the segments of one message, with the handshake before the first of a connection."""
    ports = entry.source[1], entry.destination[1]
    back: Pair = (pair[1], pair[0])  # type: ignore[assignment]
    sending = streams.get((pair, *ports))
    if sending is None:
        sending, receiving = _Sending(), _Sending()
        sending.other, receiving.other = receiving, sending
        streams[pair, *ports] = sending
        streams[back, ports[1], ports[0]] = receiving
        yield sending.segment(pair, ports, _SYN)
        yield receiving.segment(back, (ports[1], ports[0]), _SYN_ACK)
        yield sending.segment(pair, ports, _ACK)
    for start in range(0, len(entry.data), _SEGMENT_BYTES_MAX):
        yield sending.segment(pair, ports, _PUSH_ACK, entry.data[start : start + _SEGMENT_BYTES_MAX])


def _udp(entry: TraceEntry, pair: Pair) -> bytes:
    data = entry.data[:_UDP_DATA_BYTES_MAX]
    header = struct.pack("!HHHH", entry.source[1], entry.destination[1], 8 + len(data), 0)
    return _ip(pair, _UDP, _with_checksum(pair, _UDP, header + data, 6))


def _ip(pair: Pair, protocol: int, payload: bytes) -> bytes:
    source, destination = pair[0].packed, pair[1].packed
    if isinstance(pair[0], IPv4Address):
        length = 20 + len(payload)
        header = struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0, _HOP_LIMIT, protocol, 0) + source + destination
        return header[:10] + struct.pack("!H", _checksum(header)) + header[12:] + payload
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, _HOP_LIMIT) + source + destination + payload


def _with_checksum(pair: Pair, protocol: int, datagram: bytes, at: int) -> bytes:
    """Return ``datagram`` with the checksum of it and its pseudo header at byte ``at``, which must be zero."""
    pseudo = pair[0].packed + pair[1].packed + struct.pack("!II", len(datagram), protocol)
    # Zero means no checksum (RFC 768); 0xFFFF is the same sum.
    checksum = _checksum(pseudo + datagram) or 0xFFFF
    return datagram[:at] + struct.pack("!H", checksum) + datagram[at + 2 :]


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
