"""The capture file of a trace, read by a small reader of our own and by tshark (SPEC U-06)."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sip.trace_world import ALICE, BEGAN_US, entry, moving_call, traced
from wanderbus.machine import Address
from wanderbus.sip.message.targets import Transport
from wanderbus.sip.trace.pcap import pcap
from wanderbus.sip.trace.trace_entry import TraceEntry
from wanderbus.sip.trace.trace_messages import traced_messages

SYN, ACK, PUSH = 0x02, 0x10, 0x08
TRANSPORTS: tuple[Transport, ...] = ("UDP", "TCP", "TLS")


class Packet(NamedTuple):
    """One packet of a capture file, its checksums found right."""

    at_us: int
    source: Address
    destination: Address
    data: bytes
    sequence: int = 0
    acknowledged: int = 0
    flags: int = 0


def read(capture: bytes) -> Iterator[Packet]:
    """Every packet of a capture file; AssertionError where it is not as it has to be."""
    magic, major, minor, _, _, _, link = struct.unpack_from("<IHHiIII", capture)
    assert (magic, major, minor, link) == (0xA1B2C3D4, 2, 4, 101)
    position = 24
    while position < len(capture):
        second, microsecond, length, original = struct.unpack_from("<IIII", capture, position)
        assert length == original
        yield read_packet(second * 1_000_000 + microsecond, capture[position + 16 : position + 16 + length])
        position += 16 + length
    assert position == len(capture)


def read_packet(at_us: int, packet: bytes) -> Packet:
    if packet[0] >> 4 == 4:
        assert packet[0] & 15 == 5
        assert ones_sum(packet[:20]) == 0xFFFF
        assert struct.unpack_from("!H", packet, 2)[0] == len(packet)
        protocol, ends, payload = packet[9], (packet[12:16], packet[16:20]), packet[20:]
    else:
        assert packet[0] >> 4 == 6
        assert struct.unpack_from("!H", packet, 4)[0] == len(packet) - 40
        protocol, ends, payload = packet[6], (packet[8:24], packet[24:40]), packet[40:]
    assert ones_sum(b"".join(ends) + struct.pack("!II", len(payload), protocol) + payload) == 0xFFFF
    ports = struct.unpack_from("!HH", payload)
    hosts = [str(ip_address(end)) for end in ends]
    where = (hosts[0], ports[0]), (hosts[1], ports[1])
    if protocol == 17:
        assert struct.unpack_from("!H", payload, 4)[0] == len(payload)
        assert payload[6:8] != b"\0\0"
        return Packet(at_us, *where, payload[8:])
    assert protocol == 6
    sequence, acknowledged, offset, flags = struct.unpack_from("!IIBB", payload, 4)
    assert offset >> 4 == 5
    return Packet(at_us, *where, payload[20:], sequence, acknowledged, flags)


def ones_sum(data: bytes) -> int:
    """The ones' complement sum of 16-bit words, which is all ones over data with a correct checksum (RFC 1071)."""
    total = sum(int.from_bytes(data[index : index + 2].ljust(2, b"\0"), "big") for index in range(0, len(data), 2))
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return total


def moved(entries: list[TraceEntry], transport: Transport, prefix: str = "") -> list[TraceEntry]:
    """The same messages over another transport, between IPv6 addresses if there is a prefix."""

    def at(address: Address) -> Address:
        return (prefix + address[0].replace(".", ":") if prefix else address[0]), address[1]

    return [
        msgspec.structs.replace(each, transport=transport, source=at(each.source), destination=at(each.destination))
        for each in entries
    ]


@pytest.fixture(scope="module")
def call() -> list[TraceEntry]:
    return [each.entry for each in traced_messages(traced(moving_call()))]


@pytest.mark.parametrize("prefix", ["", "2001:db8::"])
def test_datagrams(call: list[TraceEntry], prefix: str) -> None:
    sent = moved(call, "UDP", prefix)
    packets = list(read(pcap(sent)))
    assert [(p.at_us, p.source, p.destination, p.data) for p in packets] == [
        (each.at_us, each.source, each.destination, each.data) for each in sent
    ]


@pytest.mark.parametrize("transport", ["TCP", "TLS"])
def test_a_connection_goes_on_from_message_to_message(call: list[TraceEntry], transport: Transport) -> None:
    """Each begins with a handshake; then every byte follows the last one of its direction, and acknowledges."""
    sent = moved(call, transport)
    packets = list(read(pcap(sent)))
    assert [p.data for p in packets if p.data] == [each.data for each in sent]
    following: dict[tuple[Address, Address], int] = {}
    handshakes: dict[frozenset[Address], list[int]] = {}
    for p in packets:
        way, back = (p.source, p.destination), (p.destination, p.source)
        assert p.sequence == following.get(way, p.sequence)
        following[way] = p.sequence + len(p.data) + (p.flags & SYN != 0)
        assert p.acknowledged == (following[back] if p.flags & ACK else 0)
        if not p.data:
            handshakes.setdefault(frozenset(way), []).append(p.flags)
    assert all(flags == [SYN, SYN | ACK, ACK] for flags in handshakes.values())
    assert len(handshakes) == len({frozenset((each.source, each.destination)) for each in sent})


@given(st.binary(max_size=200), st.sampled_from(TRANSPORTS), st.ip_addresses(), st.ip_addresses())
def test_any_bytes_between_any_addresses(
    data: bytes, transport: Transport, source: object, destination: object
) -> None:
    one = TraceEntry(BEGAN_US, (str(source), 1), (str(destination), 65_535), transport, "in", data)
    packets = list(read(pcap([one])))
    assert b"".join(p.data for p in packets) == data


def test_messages_that_no_packet_can_carry() -> None:
    """A host by name gets an address of its own; too long a datagram is cut off, a stream is not."""
    named = TraceEntry(0, ("sip.example.org", 5060), ("fe80::1%eth0", 5060), "UDP", "out", b"x" * 70_000)
    (packet,) = read(pcap([named]))
    assert ip_address(packet.source[0]).ipv4_mapped in ip_network_of_examples()  # type: ignore[union-attr]
    assert packet.destination == ("fe80::1", 5060)
    assert len(packet.data) == 65_507
    streamed = msgspec.structs.replace(named, transport="TCP")
    assert sum(len(p.data) for p in read(pcap([streamed]))) == 70_000


def ip_network_of_examples() -> set[object]:
    return {ip_address(f"192.0.2.{last}") for last in range(1, 255)}


def test_a_checksum_of_zero_is_written_as_all_ones() -> None:
    """RFC 768: zero means no checksum. One of all values of the last two bytes gives it."""
    for number in range(65_536):
        capture = pcap([entry(b"ab" + number.to_bytes(2, "big"))])
        if capture[24 + 16 + 20 + 6 :][:2] == b"\xff\xff":
            break
    else:
        pytest.fail("no message with that sum")
    assert next(read(capture)).source == ALICE


@pytest.mark.integration
@pytest.mark.parametrize("prefix", ["", "2001:db8::"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tshark_reads_it(call: list[TraceEntry], transport: Transport, prefix: str, tmp_path: Path) -> None:
    """Wireshark finds every message and every checksum correct, and reports no warning."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed: apt-get install tshark")
    file = tmp_path / "call.pcap"
    file.write_bytes(pcap(moved(call, transport, prefix)))
    checks = [part for layer in ("ip", "udp", "tcp") for part in ("-o", f"{layer}.check_checksum:TRUE")]
    fields = ["sip.CSeq", "sip.Method", "sip.Status-Code", "_ws.expert.message", "_ws.malformed"]
    fields += ["ip.checksum.status", "udp.checksum.status", "tcp.checksum.status"]
    asked = [part for field in fields for part in ("-e", field)]
    command = ["tshark", "-r", str(file), *checks, "-Y", "sip", "-T", "fields", "-E", "separator=|", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("|") for line in done.stdout.splitlines()]
    seen = traced_messages(call)
    assert [row[0] for row in rows] == [str(each.sketch.cseq) for each in seen]
    assert [row[1] or int(row[2]) for row in rows] == [each.sketch.method or each.sketch.status for each in seen]
    assert {(row[3], row[4]) for row in rows} == {("", "")}
    assert {status for row in rows for status in row[5:] if status} == {"1"}
