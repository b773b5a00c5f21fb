"""HEP3 packets, decoded back (SPEC U-06)."""

from __future__ import annotations

import struct

import msgspec
import pytest

from tests.sip.trace_world import BEGAN_US, moving_call, traced
from wanderbus.sip.trace.hep import PAYLOAD_BYTES_MAX, hep3
from wanderbus.sip.trace.trace_entry import TraceEntry
from wanderbus.sip.trace.trace_messages import TracedMessage, traced_messages


def decode(packet: bytes) -> dict[int, bytes]:
    """The chunks of a packet by type; AssertionError where it is not as it has to be."""
    assert packet[:4] == b"HEP3"
    assert struct.unpack_from("!H", packet, 4)[0] == len(packet)
    chunks: dict[int, bytes] = {}
    position = 6
    while position < len(packet):
        vendor, kind, length = struct.unpack_from("!HHH", packet, position)
        assert vendor == 0
        assert kind not in chunks
        chunks[kind] = packet[position + 6 : position + length]
        position += length
    assert position == len(packet)
    return chunks


@pytest.fixture(scope="module")
def found() -> list[TracedMessage]:
    return traced_messages(traced(moving_call()))


def test_a_message_over_udp_and_ipv4(found: list[TracedMessage]) -> None:
    each = next(each for each in reversed(found) if each.sketch.call_id == "call")
    second, microsecond = divmod(each.entry.at_us, 1_000_000)
    assert decode(hep3(each, agent_id=7)) == {
        0x01: bytes([2]),
        0x02: bytes([17]),
        0x03: bytes([10, 0, 9, 9]),
        0x04: bytes([10, 0, 1, 1]),
        0x07: struct.pack("!H", 5060),
        0x08: struct.pack("!H", 5060),
        0x09: struct.pack("!I", second),
        0x0A: struct.pack("!I", microsecond),
        0x0B: bytes([1]),
        0x0C: struct.pack("!I", 7),
        0x0F: each.entry.data,
        0x11: b"call",
    }


def test_a_message_over_tcp_and_ipv6(found: list[TracedMessage]) -> None:
    moved = msgspec.structs.replace(
        found[0].entry, source=("2001:db8::1", 40_000), destination=("::1", 5061), transport="TLS"
    )
    chunks = decode(hep3(msgspec.structs.replace(found[0], entry=moved), key="shared"))
    assert (chunks[0x01], chunks[0x02]) == (bytes([10]), bytes([6]))
    assert (chunks[0x05], chunks[0x06]) == (bytes.fromhex("20010db8" + "0" * 23 + "1"), bytes(15) + b"\x01")
    assert (chunks[0x07], chunks[0x08]) == (struct.pack("!H", 40_000), struct.pack("!H", 5061))
    assert chunks[0x0E] == b"shared"
    assert 0x03 not in chunks


def test_every_message_fits_a_datagram() -> None:
    """A too long message is truncated; a message without a Call-ID has no correlation id."""
    hostile = [b"x" * 70_000, b"OPTIONS sip:x SIP/2.0\r\nCall-ID: " + b"i" * 60_000 + b"\r\n\r\n" + b"x" * 5_000]
    entries = [TraceEntry(BEGAN_US, ("::1", 1), ("::1", 2), "TCP", "in", data) for data in hostile]
    for each in traced_messages(entries):
        packet = hep3(each, key="k" * 10_000)
        assert len(packet) < 65_507
        assert decode(packet)[0x0F] == each.entry.data[:PAYLOAD_BYTES_MAX]
    assert 0x11 not in decode(hep3(traced_messages(entries)[0]))
