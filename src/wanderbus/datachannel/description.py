"""One end of a data channel, and its description in SDP (DESIGN 6.1, 6.7; RFC 3264, RFC 4145, RFC 8122).

Each side names its end of the connection and numbers its own moves, so that an old path cannot override a new one.
Reliable UDP carries a public key, or an attribute for plain mode. TCP carries the side that connects, and the
fingerprint of the other side's certificate. ``a=wanderbus-relay`` asks the proxies for a relay, and
``a=wanderbus-session`` names the session that an agent wants to join, and ``a=wanderbus-former`` the server of a domain
at which it has subscriptions. ``a=wanderbus-place`` is the address of another device of the user: the id and generation
of its connection, host, port, and the device's MAC. Older brokers ignore it (SPEC D-14)::

    m=application 40000 UDP x-wanderbus                 m=application 5072 TCP/TLS x-wanderbus
    a=wanderbus-connection:1f00c3a8d2b94e61             a=wanderbus-connection:1f00c3a8d2b94e61
    a=wanderbus-generation:3                            a=wanderbus-generation:0
    a=wanderbus-key:x25519-aes128gcm hSDwCY...=         a=setup:passive
    a=wanderbus-mac:Qk1z...=                            a=connection:new
                                                        a=fingerprint:sha-256 4A:AD:B9:...
                                                        a=wanderbus-mac:8nGf...=
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from typing import Final, Literal, cast

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import Address
from wanderbus.sip.message.sdp import MediaDescription

Protocol = Literal["UDP", "TCP", "TCP/TLS"]
"""Protocol in the ``m=`` line: reliable UDP, sealed or plain; plain TCP; TCP with TLS."""

CONNECTION: Final = "wanderbus-connection"
GENERATION: Final = "wanderbus-generation"
KEY: Final = "wanderbus-key"
PLAIN: Final = "wanderbus-plain"
MAC: Final = "wanderbus-mac"
RELAY: Final = "wanderbus-relay"
SESSION: Final = "wanderbus-session"
FORMER: Final = "wanderbus-former"
PLACE: Final = "wanderbus-place"
SUITE: Final = "x25519-aes128gcm"

DATA_SOCKET: Final = "data"
STREAM_SOCKET: Final = "data-stream"
"""Sockets of reliable UDP and of TCP."""

DISCARD_PORT: Final = 9
"""Port in the description of the side that opens the TCP connection (RFC 4145 4.1)."""

PLACES_MAX: Final = 8
"""Most places of other devices in one description."""

_PLACE: Final = re.compile(r"([0-9a-f]{16}) ([0-9]{1,10}) ([0-9A-Fa-f.:]{2,45}) ([0-9]{1,5}) ([A-Za-z0-9+/]{43}=|-)")
_PROTOCOLS: Final = ("UDP", "TCP", "TCP/TLS")
_HEXADECIMAL: Final = re.compile(r"[0-9A-Fa-f]{1,16}")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DECIMAL: Final = re.compile(r"[0-9]{1,10}")
_FINGERPRINT_HASH: Final = "sha-256"
_BYTES: Final = 32
"""Length of a public key, of a SHA-256, and of a MAC."""


def protocol_over(transport: str, *, encryption: bool) -> Protocol:
    """Return the protocol of a data channel over ``UDP`` or TCP, encrypted or not."""
    if transport == "UDP":
        return "UDP"
    return "TCP/TLS" if encryption else "TCP"


class ChannelEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One side's end: its address, its connection id, its number of moves, and its key or certificate."""

    address: Address
    connection: int
    generation: int
    protocol: Protocol = "UDP"
    key: bytes = b""
    """Its X25519 public key, for sealed reliable UDP."""
    setup: str = ""
    """Role over TCP: ``active``, ``passive`` or ``actpass`` (RFC 4145 4)."""
    existing: bool = False
    """True if the TCP connection already exists (RFC 4145 5)."""
    fingerprint: bytes = b""
    """SHA-256 of its certificate, if the peer connects to it with TLS (RFC 8122 5)."""
    relayed: bool = False
    """True if its side asks proxies for a relay, because a firewall blocks direct traffic (SPEC I-08)."""
    mac: bytes = b""
    """MAC that authenticates the end (:mod:`.trust`); empty if there is none."""

    @property
    def sealed(self) -> bool:
        """Return whether the traffic is encrypted."""
        return bool(self.key) or self.protocol == "TCP/TLS"


class Place(msgspec.Struct, frozen=True):
    """Address of a device's end of its connection, after its ``generation``-th move, and the device's MAC of these."""

    connection: int
    generation: int
    address: Address
    mac: bytes = b""

    @property
    def words(self) -> tuple[str, ...]:
        """Return what the MAC covers."""
        host, port = self.address
        return f"{self.connection:016x}", str(self.generation), host, str(port)

    @property
    def text(self) -> str:
        """Return the value of the attribute."""
        return " ".join((*self.words, b64encode(self.mac).decode() or "-"))


def read_place(text: str) -> Place:
    """Return the place in the value of an attribute; :class:`SIPParseError` with status 488 if it is none."""
    found = _PLACE.fullmatch(text)
    if found is None or not 0 < int(found[4]) < 65_536 or int(found[2]) >= 2**32:
        raise _unacceptable(f"{PLACE} needs an id, a generation, an address and a signature")
    mac = b"" if found[5] == "-" else _decoded(found[5], PLACE)
    return Place(int(found[1], 16), int(found[2]), (found[3], int(found[4])), mac)


def with_places(media: MediaDescription, places: tuple[str, ...]) -> MediaDescription:
    """Return the description of a device that sends the places of others, up to :data:`PLACES_MAX`."""
    if not places:
        return media
    added = [(PLACE, text) for text in places[:PLACES_MAX]]
    return msgspec.structs.replace(media, attributes=(*media.attributes, *added))


def places_of(media: MediaDescription) -> list[str]:
    """Return the values of the first :data:`PLACES_MAX` places in a description, unread."""
    return [value or "" for name, value in media.attributes if name == PLACE][:PLACES_MAX]


def describe_end(end: ChannelEnd) -> MediaDescription:
    """Return the SDP media description of ``end``."""
    attributes: list[tuple[str, str | None]] = [
        (CONNECTION, f"{end.connection:016x}"),
        (GENERATION, str(end.generation)),
    ]
    if end.protocol != "UDP":
        attributes += [("setup", end.setup), ("connection", "existing" if end.existing else "new")]
    elif end.key:
        attributes.append((KEY, f"{SUITE} {b64encode(end.key).decode()}"))
    else:
        attributes.append((PLAIN, None))
    if end.fingerprint:
        attributes.append(("fingerprint", f"{_FINGERPRINT_HASH} {end.fingerprint.hex(':').upper()}"))
    if end.relayed:
        attributes.append((RELAY, None))
    if end.mac:
        attributes.append((MAC, b64encode(end.mac).decode()))
    host, port = end.address
    return MediaDescription(address=host, port=port, protocol=end.protocol, attributes=tuple(attributes))


def with_session(media: MediaDescription, name: str, former: str = "") -> MediaDescription:
    """Return the description of an agent that wants to join the session ``name``.

    It has subscriptions at the server ``former`` of a domain, "" if it has none.
    """
    added = ((SESSION, name), (FORMER, former)) if former else ((SESSION, name),)
    return msgspec.structs.replace(media, attributes=(*media.attributes, *added))


def session_of(media: MediaDescription) -> str:
    """Return the name of the session that an agent wants to join, "" if it gives none."""
    return _name(media, SESSION)


def former_of(media: MediaDescription) -> str:
    """Return the name of the server at which an agent has subscriptions, "" if it gives none."""
    return _name(media, FORMER)


def _name(media: MediaDescription, attribute: str) -> str:
    name = media.attribute(attribute) or ""
    return name if _NAME.fullmatch(name) else ""


def read_end(media: MediaDescription) -> ChannelEnd:
    """Return the end that ``media`` describes; :class:`SIPParseError` with status 488 if it describes none.

    Nothing is assumed by default: a description of reliable UDP must have a key or the attribute for plain mode.
    """
    protocol = media.protocol.upper()
    if protocol not in _PROTOCOLS:
        raise _unacceptable(f"a data channel must use one of {', '.join(_PROTOCOLS)}")
    connection = _number(media, CONNECTION, _HEXADECIMAL, 16, 2**64 - 1)
    if not connection:
        raise _unacceptable(f"{CONNECTION} is out of range")
    return ChannelEnd(
        address=(media.address, media.port),
        connection=connection,
        generation=_number(media, GENERATION, _DECIMAL, 10, 2**32 - 1),
        protocol=cast(Protocol, protocol),
        key=_key(media) if protocol == "UDP" else b"",
        setup=media.attribute("setup") or "" if protocol != "UDP" else "",
        existing=protocol != "UDP" and media.attribute("connection") == "existing",
        fingerprint=_fingerprint(media) if protocol == "TCP/TLS" else b"",
        relayed=media.attribute(RELAY) is not None,
        mac=_decoded(text, MAC) if (text := media.attribute(MAC)) is not None else b"",
    )


def _number(media: MediaDescription, name: str, digits: re.Pattern[str], base: int, high: int) -> int:
    text = media.attribute(name) or ""
    if not digits.fullmatch(text):
        raise _unacceptable(f"the media description needs {name}, a number")
    number = int(text, base)
    if number > high:
        raise _unacceptable(f"{name} is out of range")
    return number


def _key(media: MediaDescription) -> bytes:
    text, plain = media.attribute(KEY), media.attribute(PLAIN) is not None
    if (text is None) != plain:
        raise _unacceptable(f"the media description needs either {KEY} or {PLAIN}")
    if text is None:
        return b""
    suite, _, key = text.partition(" ")
    if suite != SUITE:
        raise _unacceptable(f"{KEY}: only {SUITE} is supported")
    return _decoded(key, KEY)


def _decoded(text: str, name: str) -> bytes:
    try:
        value = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if len(value) != _BYTES:
        raise _unacceptable(f"{name} needs {_BYTES} bytes in base64")
    return value


def _fingerprint(media: MediaDescription) -> bytes:
    """Return the first SHA-256 among the fingerprints, b"" if there is none (RFC 8122 5)."""
    for name, value in media.attributes:
        algorithm, _, digits = (value or "").partition(" ")
        if name == "fingerprint" and algorithm.lower() == _FINGERPRINT_HASH:
            try:
                fingerprint = binascii.unhexlify(digits.replace(":", ""))
            except (binascii.Error, ValueError):
                fingerprint = b""
            if len(fingerprint) != _BYTES:
                raise _unacceptable(f"fingerprint: a {_FINGERPRINT_HASH} must have {_BYTES} bytes")
            return fingerprint
    return b""


def _unacceptable(message: str) -> SIPParseError:
    return SIPParseError(message, 488)
