"""Session descriptions as a relay reads and changes them: only addresses and ports (SPEC I-04).

:mod:`wanderbus.sip.message.sdp` parses the description; the text is changed line by line. Attributes that the two
parties exchange, such as ids, keys and MACs of a data channel, thus arrive unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from wanderbus.datachannel.description import CONNECTION, DISCARD_PORT, GENERATION
from wanderbus.machine import Address
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription

Transport = Literal["UDP", "TCP"]

_ID: Final = re.compile(r"[0-9A-Fa-f]{1,16}")
_GENERATION: Final = re.compile(r"[0-9]{1,10}")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_AROUND_THE_RELAY: Final = re.compile(
    r"a=(?:candidate|remote-candidates|end-of-candidates|ice-[a-z0-9-]+|rtcp)(?=:|$)", re.IGNORECASE
)
"""Attributes that name other paths, or other ports, than those of the relay."""


class Medium(msgspec.Struct, frozen=True):
    """The relevant content of one ``m=`` line; ``wanted`` is false if it is refused or not in use (port 0)."""

    transport: Transport
    address: Address
    wanted: bool
    connects: bool
    """True if its side opens the TCP connection (RFC 4145 4); nobody can connect to that side."""
    sealed: bool
    """True if the TCP connection uses TLS, which hides its content."""
    connection_id: bytes | None
    """First 8 bytes of each datagram sent to its side; None if the description does not name them."""
    generation: int
    """Number of moves of its side."""


class Description(msgspec.Struct, frozen=True):
    """One description: its text and its media."""

    text: str
    media: tuple[Medium, ...]


def read(text: str, source_ip: str = "") -> Description:
    """Parse ``text``; ``source_ip``, if given, replaces its addresses.

    :raises SIPParseError: it cannot be parsed
    """
    described = SessionDescription.parse(text.encode(errors="surrogateescape"))
    return Description(text, tuple(_medium(media, source_ip) for media in described.media))


def rewritten(text: str, address: str, ports: Sequence[int], *, origin: bool) -> str:
    """Return ``text`` with ``ports`` in its ``m=`` lines and ``address`` in ``c=``; with ``origin`` also in ``o=``."""
    where = f"IN {'IP6' if ':' in address else 'IP4'} {address}"
    return "".join(_rewritten_lines(_LINE.findall(text), where, iter(ports), origin))


def _medium(media: MediaDescription, source_ip: str) -> Medium:
    protocol, setup = media.protocol.upper(), media.attribute("setup")
    named, generation = media.attribute(CONNECTION) or "", media.attribute(GENERATION) or ""
    transport: Transport = "TCP" if protocol.partition("/")[0] == "TCP" else "UDP"
    return Medium(
        transport=transport,
        address=(source_ip or media.address, media.port),
        wanted=media.port != 0,
        connects=transport == "TCP" and (setup == "active" or media.port == DISCARD_PORT),
        sealed=protocol.startswith("TCP/TLS"),
        connection_id=int(named, 16).to_bytes(8, "big") if _ID.fullmatch(named) else None,
        generation=int(generation) if _GENERATION.fullmatch(generation) else 0,
    )


def _rewritten_lines(lines: Sequence[str], where: str, ports: Iterator[int], origin: bool) -> Iterator[str]:
    for line in lines:
        kind, bare = line[:2], line.rstrip("\r\n")
        ending = line[len(bare) :]
        if kind == "m=":
            words = bare.split(" ")
            yield f"{words[0]} {next(ports)} {' '.join(words[2:])}{ending}"
        elif kind == "c=":
            yield f"c={where}{ending}"
        elif kind == "o=" and origin:
            yield f"{' '.join(bare.split(' ')[:3])} {where}{ending}"
        elif not _AROUND_THE_RELAY.match(bare):
            yield line
