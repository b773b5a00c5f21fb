"""Compact form of causal headers: numbers relative to those before on the same link, in codes of bits.

The encoder and decoder of a link begin empty with each new link; a header that is encoded by a fresh encoder stands for
itself. Both sides keep the same account of what the headers before have named (:class:`_Named`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from wanderbus.channels.causal.bit_codes import BitReader, BitWriter
from wanderbus.channels.causal.header import Dot, Header, HeaderEntry, Origin, bitmap, members
from wanderbus.errors import RemoteProtocolError

SERVERS_MAX: Final = 256
"""Numbers of servers are below this."""

SETS_KEPT: Final = 4096
"""Sets of servers whose codes are kept: few different ones are common."""

_DISTANCE_ORDER: Final = 2
"""Order of the code of the distance between two events of one origin: most are a few events apart."""


class _Named:
    """Account of what the headers before have named on a link."""

    def __init__(self) -> None:
        self.origin: Origin = (0, 0)
        """Origin of the last header."""
        self.number = 0
        """Number of the last header."""
        self.first: dict[int, tuple[int, int]] = {}
        """Incarnation of each server, and its first number in the last header with an entry of it."""


class HeaderEncoder:
    """Encoder of the headers that are sent on one link, whose numbers rise."""

    def __init__(self) -> None:
        self._named = _Named()

    def encode(self, header: Header) -> bytes:
        """Return the bytes of ``header``; no server is a destination of its own events."""
        out, named = BitWriter(), self._named
        is_new = header.origin != named.origin
        out.put(is_new, 1)
        if is_new:
            out.put_number(header.origin[0])
            out.put_number(header.origin[1])
            named.origin, named.number = header.origin, 0
        out.put_number(header.number - named.number - 1, 1)
        named.number = header.number
        _put_servers(out, header.servers)
        for _, before in header.befores:
            out.put_number(header.number - before - 1)
        out.put_number(header.number - header.settled, 1)
        _put_servers(out, header.lagging)
        self._put_entries(out, sorted(header.entries, key=_dot), header.servers)
        return out.data()

    def _put_entries(self, out: BitWriter, entries: list[HeaderEntry], destinations: int) -> None:
        """Append ``entries``, which are in order."""
        first = self._named.first
        has_incarnations = any(first.get(entry.origin[0], (0, 0))[0] != entry.origin[1] for entry in entries)
        out.put(has_incarnations, 1)
        out.put_number(len(entries), _DISTANCE_ORDER)
        server, last, origin = 0, 0, None
        for entry in entries:
            out.put_number(entry.origin[0] - server)
            server, incarnation = entry.origin
            if has_incarnations:
                out.put_number(incarnation)
            if entry.origin == origin:
                out.put_number(entry.number - last, _DISTANCE_ORDER)
            else:
                known, number = first.get(server, (0, 0))
                out.put_signed(entry.number - (number if known == incarnation else 0), _DISTANCE_ORDER)
                first[server] = incarnation, entry.number
            origin, last = entry.origin, entry.number
            possible = destinations & ~(1 << server)
            out.put(_gathered(entry.servers, possible), possible.bit_count())
            _put_servers(out, entry.servers & ~destinations, destinations | 1 << server)


class HeaderDecoder:
    """Decoder of the headers that arrive on one link."""

    def __init__(self) -> None:
        self._named = _Named()

    def decode(self, data: bytes) -> Header:
        """Return the header, with its entries in order.

        Raises:
            RemoteProtocolError: the bytes are no header.
        """
        reader, named = BitReader(data), self._named
        if reader.take(1):
            named.origin, named.number = (_server(reader.take_number()), reader.take_number()), 0
        number = named.number = named.number + 1 + reader.take_number(1)
        destinations = _take_servers(reader)
        befores = tuple((each, number - 1 - reader.take_number()) for each in members(destinations))
        settled = number - reader.take_number(1)
        lagging = _take_servers(reader)
        entries = self._take_entries(reader, destinations)
        if settled < 0 or any(before < 0 for _, before in befores) or any(entry.number < 1 for entry in entries):
            raise RemoteProtocolError("causal header: a number is out of range")
        if not reader.is_at_end():
            raise RemoteProtocolError("causal header: it does not end where it should")
        return Header(named.origin, number, befores, entries, settled, lagging)

    def _take_entries(self, reader: BitReader, destinations: int) -> tuple[HeaderEntry, ...]:
        first = self._named.first
        has_incarnations = reader.take(1)
        entries: list[HeaderEntry] = []
        server, number, origin = 0, 0, None
        for _ in range(reader.take_number(_DISTANCE_ORDER)):
            server = _server(server + reader.take_number())
            known, before = first.get(server, (0, 0))
            incarnation = reader.take_number() if has_incarnations else known
            if (server, incarnation) == origin:
                number += reader.take_number(_DISTANCE_ORDER)
            else:
                number = reader.take_signed(_DISTANCE_ORDER) + (before if known == incarnation else 0)
                first[server] = incarnation, number
            origin = server, incarnation
            possible = destinations & ~(1 << server)
            servers = _scattered(reader.take(possible.bit_count()), possible)
            entries.append(HeaderEntry(origin, number, servers | _take_servers(reader, destinations | 1 << server)))
        return tuple(entries)


@lru_cache(SETS_KEPT)
def _gathered(servers: int, possible: int) -> int:
    """Return a bit for each of the ``possible`` servers, from the lowest on: whether it is one of ``servers``."""
    bits = 0
    for each in members(possible):
        bits = bits << 1 | servers >> each & 1
    return bits


@lru_cache(SETS_KEPT)
def _scattered(bits: int, possible: int) -> int:
    """Return the servers that :func:`_gathered` has given these bits."""
    last = possible.bit_count() - 1
    return bitmap(each for place, each in enumerate(members(possible)) if bits >> last - place & 1)


def _put_servers(out: BitWriter, servers: int, others: int = 0) -> None:
    """Append a set of servers; ``others`` are surely not among them."""
    out.put(*_set_code(servers, others))


@lru_cache(SETS_KEPT)
def _set_code(servers: int, others: int) -> tuple[int, int]:
    """Return a set as bits, with their count: a one and the gap before each server, then a zero."""
    out, following = BitWriter(), 0
    for server in members(servers):
        out.put(1, 1)
        out.put_number(server - following - (others >> following & (1 << server - following) - 1).bit_count())
        following = server + 1
    out.put(0, 1)
    return out.bits()


def _take_servers(reader: BitReader, others: int = 0) -> int:
    """Return the set of servers that comes next."""
    servers = following = 0
    while reader.take(1):
        gap = reader.take_number()
        while gap or others >> following & 1:
            gap -= not others >> following & 1
            following = _server(following + 1)
        servers |= 1 << _server(following)
        following += 1
    return servers


def _server(number: int) -> int:
    """Return ``number`` if a server can have it."""
    if number >= SERVERS_MAX:
        raise RemoteProtocolError(f"causal header: {number} is no number of a server")
    return number


def _dot(entry: HeaderEntry) -> Dot:
    return entry.origin, entry.number
