"""Session descriptions (RFC 4566; offer and answer RFC 3264).

Only the parts that a data channel needs are kept: origin, addresses, media lines and their attributes. Other lines are
ignored. The origin's version rises with each change; its session id stays (RFC 3264 8, SPEC X8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import msgspec

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.sip.message.uri import bracketed, parse_host_port, parse_number
from wanderbus.sip.message.words import shared

MEDIA_MAX: Final = 64
"""Largest number of media lines in one description."""

ATTRIBUTES_MAX: Final = 256
"""Largest number of attributes of one medium."""

ORIGIN_NUMBER_MAX: Final = 2**64 - 1
"""Largest session id and version: an NTP timestamp (RFC 4566 5.2)."""

DIRECTIONS: Final = ("sendrecv", "sendonly", "recvonly", "inactive")
"""Attributes that state the direction of data (RFC 4566 6)."""

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.0-9A-Z^_`a-z{|}~]++")
_WORD: Final = re.compile(r"[^\s\x00]++")
_ATTRIBUTE_VALUE: Final = re.compile(r"[^\x00\r\n]++")


class MediaDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One medium: ``m=``, the ``c=`` that applies to it, and its attributes (RFC 4566 5.14).

    ``port`` 0 means refused or not in use (RFC 3264 6). An attribute without a value has None.
    """

    media: str = "application"
    address: str
    port: int
    protocol: str = "UDP"
    formats: tuple[str, ...] = ("x-wanderbus",)
    attributes: tuple[tuple[str, str | None], ...] = ()
    beside: tuple[MediaDescription, ...] = ()
    """The media after this one, in order, where one value represents a whole description; not encoded."""

    def attribute(self, name: str) -> str | None:
        """Return the value of the first attribute of that name, "" for one without a value, None if absent."""
        return next((value or "" for key, value in self.attributes if key == name), None)


class SessionDescription(msgspec.Struct, frozen=True):
    """One description. ``address`` is that of the session; each medium also has its own."""

    username: str
    session_id: int
    version: int
    address: str
    media: tuple[MediaDescription, ...] = ()

    @property
    def origin(self) -> tuple[int, int]:
        """Return the id and the version of the origin line, which order descriptions by age (RFC 3264 8)."""
        return self.session_id, self.version

    @classmethod
    def parse(cls, data: bytes) -> SessionDescription:
        """Parse a description; SIPParseError (400)."""
        lines = _lines(data)
        if not lines or lines[0] != ("v", "0"):
            raise SIPParseError("SDP: it must begin with v=0")
        first_media = next((index for index, (kind, _) in enumerate(lines) if kind == "m"), len(lines))
        session, media = lines[:first_media], lines[first_media:]
        origins = [value for kind, value in session if kind == "o"]
        if len(origins) != 1:
            raise SIPParseError("SDP: exactly one o= line is required before any m=")
        username, session_id, version, origin_address = _parse_origin(origins[0])
        connection = _connection(session)
        direction = next((value for kind, value in session if kind == "a" and value in DIRECTIONS), None)
        described = tuple(_parse_media(block, connection, direction) for block in _blocks(media))
        return cls(username, session_id, version, connection or origin_address, described)

    def encode(self) -> bytes:
        """Encode the description; LocalProtocolError for a part that would break its line."""
        where = _address_words(self.address)
        lines = [
            "v=0",
            f"o={_checked(_WORD, self.username or '-')} {self.session_id} {self.version} {where}",
            "s=-",
            f"c={where}",
            "t=0 0",
        ]
        for medium in self.media:
            lines += _media_lines(medium, self.address)
        return "".join(f"{line}\r\n" for line in lines).encode()


def _lines(data: bytes) -> list[tuple[str, str]]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SIPParseError("SDP: not UTF-8") from None
    lines: list[tuple[str, str]] = []
    for line in text.replace("\r\n", "\n").rstrip("\n").split("\n"):
        if line[1:2] != "=" or not ("a" <= line[0] <= "z") or "\r" in line or "\x00" in line:
            raise SIPParseError("SDP: expected a lower-case letter, = and a value in each line")
        lines.append((line[0], line[2:]))
    return lines


def _blocks(lines: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Split the lines before each m=."""
    starts = [index for index, (kind, _) in enumerate(lines) if kind == "m"]
    if len(starts) > MEDIA_MAX:
        raise SIPParseError(f"SDP: more than {MEDIA_MAX} media")
    for start, end in pairwise([*starts, len(lines)]):
        yield lines[start:end]


def _parse_origin(value: str) -> tuple[str, int, int, str]:
    words = value.split(" ")
    if len(words) != 6 or not _WORD.fullmatch(words[0]):
        raise SIPParseError("SDP: o= must have six words")
    session_id = parse_number(words[1], ORIGIN_NUMBER_MAX, "SDP session id")
    version = parse_number(words[2], ORIGIN_NUMBER_MAX, "SDP version")
    return words[0], session_id, version, _parse_address(" ".join(words[3:]))


def _connection(lines: list[tuple[str, str]]) -> str | None:
    values = [value for kind, value in lines if kind == "c"]
    return _parse_address(values[0]) if values else None


def _parse_address(text: str) -> str:
    """Parse ``IN IP4 address`` or ``IN IP6 address``; the TTL and count of a multicast address are left out."""
    words = text.split(" ")
    if len(words) != 3 or words[0] != "IN" or words[1] not in ("IP4", "IP6"):
        raise SIPParseError("SDP: expected IN IP4 or IN IP6 and an address")
    literal = words[2].partition("/")[0]
    if ":" in literal and words[1] != "IP6":
        raise SIPParseError("SDP: an IPv6 address under IP4")
    return parse_host_port(bracketed(literal), "SDP address")[0]


def _parse_media(
    block: list[tuple[str, str]], session_address: str | None, session_direction: str | None
) -> MediaDescription:
    """Parse one medium; a missing address or direction is that of the session (RFC 4566 5.7, 6)."""
    words = block[0][1].split(" ")
    if len(words) < 4 or not all(_WORD.fullmatch(word) for word in words):
        raise SIPParseError("SDP: m= must have a medium, a port, a protocol and formats")
    address = _connection(block) or session_address
    if address is None:
        raise SIPParseError("SDP: no c= applies to a medium")
    attributes = tuple(_parse_attribute(value) for kind, value in block if kind == "a")
    if len(attributes) > ATTRIBUTES_MAX:
        raise SIPParseError(f"SDP: more than {ATTRIBUTES_MAX} attributes of one medium")
    if session_direction is not None and not any(name in DIRECTIONS for name, _ in attributes):
        attributes += ((session_direction, None),)
    return MediaDescription(
        media=words[0],
        address=address,
        port=parse_number(words[1].partition("/")[0], 65_535, "SDP port"),
        protocol=words[2],
        formats=tuple(words[3:]),
        attributes=attributes,
    )


def _parse_attribute(text: str) -> tuple[str, str | None]:
    name, colon, value = text.partition(":")
    if not _TOKEN.fullmatch(name) or (colon and not value):
        raise SIPParseError("SDP: a= must have a name, and a value after a colon")
    return shared(name), value if colon else None


def _media_lines(medium: MediaDescription, session_address: str) -> Iterator[str]:
    words = (medium.media, str(medium.port), medium.protocol, *medium.formats)
    yield "m=" + " ".join(_checked(_WORD, word) for word in words)
    if medium.address != session_address:
        yield f"c={_address_words(medium.address)}"
    for name, value in medium.attributes:
        colon_value = "" if value is None else ":" + _checked(_ATTRIBUTE_VALUE, value)
        yield f"a={_checked(_TOKEN, name)}{colon_value}"


def _address_words(address: str) -> str:
    return f"IN {'IP6' if ':' in address else 'IP4'} {_checked(_WORD, address)}"


def _checked(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise LocalProtocolError("SDP: a part is empty, or has a character that would break its line")
    return text


SENDRECV: Final = "sendrecv"
INACTIVE: Final = "inactive"

_BY_FLOWS: Final = {
    (True, True): SENDRECV,
    (True, False): "sendonly",
    (False, True): "recvonly",
    (False, False): INACTIVE,
}
"""Direction by (the side sends, the side receives)."""

_FLOWS: Final = {word: flows for flows, word in _BY_FLOWS.items()}

_UNSPECIFIED: Final = ("0.0.0.0", "::")
"""Addresses by which senders older than RFC 3264 state that they do not receive (8.4)."""


def direction_of(line: MediaDescription) -> str:
    """Return the direction that ``line`` states, from its own side; sendrecv by default."""
    sends, receives = _flows(line)
    return _BY_FLOWS[sends, receives]


def receives(line: MediaDescription) -> bool:
    """Return whether the side that ``line`` describes receives data."""
    return _flows(line)[1]


def agreed_direction(ours: MediaDescription, theirs: MediaDescription) -> str:
    """Return the direction in which data may flow between two lines, from our side."""
    (we_send, we_receive), (they_send, they_receive) = _flows(ours), _flows(theirs)
    return _BY_FLOWS[we_send and they_receive, we_receive and they_send]


def answering(ours: MediaDescription, offered: MediaDescription) -> MediaDescription:
    """Return our line as the answer to ``offered``, limited to the directions of the offer (RFC 3264 6.1)."""
    direction = agreed_direction(ours, offered)
    return ours if direction == direction_of(ours) else with_direction(ours, direction)


def with_direction(line: MediaDescription, direction: str) -> MediaDescription:
    """Return ``line`` with this direction; sendrecv is the default and is not written."""
    rest = tuple(pair for pair in line.attributes if pair[0] not in _FLOWS)
    stated = () if direction == SENDRECV else ((direction, None),)
    return msgspec.structs.replace(line, attributes=(*rest, *stated))


def _flows(line: MediaDescription) -> tuple[bool, bool]:
    stated = next((name for name, _ in line.attributes if name in _FLOWS), SENDRECV)
    sends, receives = _FLOWS[stated]
    return sends, receives and line.address not in _UNSPECIFIED
