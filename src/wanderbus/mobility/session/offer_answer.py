"""Offer and answer: the lines of an SDP, which of them we can use, and their order (RFC 3264, SPEC C-16, C-17).

A description has any number of lines. The owner passes them as one value: the most important line, with the further
ones in ``beside``. An answer has as many lines as its offer, in the same order, and a later offer of either side keeps
that order (RFC 3264 6, 8): unwanted lines remain with port 0. So each side stores the *slots* of its session, its own
lines as last sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.hosts import is_ip_address
from wanderbus.machine import Address
from wanderbus.sip.message.message import Message
from wanderbus.sip.message.sdp import SENDRECV, MediaDescription, SessionDescription, answering, with_direction

SDP_TYPE: Final = "application/sdp"
DATA_FORMAT: Final = "x-wanderbus"
_DATA_PROTOCOLS: Final = ("UDP", "TCP", "TCP/TLS")

Lines = tuple[MediaDescription, ...]
"""Media lines of one side, each with an empty ``beside``."""


def media_at(
    address: Address, protocol: str = "UDP", *, media: str = "application", media_format: str = DATA_FORMAT
) -> MediaDescription:
    """Return the line for media received at ``address`` by ``protocol``: SDP from plain parameters (SPEC C-17).

    Raises LocalProtocolError if the port is invalid or a word is empty.
    """
    host, port = address
    if not 0 < port < 65_536:
        raise LocalProtocolError(f"{port} is not a valid port: use 1 to 65535")
    if not host or not protocol or not media or not media_format:
        raise LocalProtocolError("a media description needs an address, a protocol, a medium and a format")
    return MediaDescription(media=media, address=host, port=port, protocol=protocol, formats=(media_format,))


def lines_of(media: MediaDescription) -> Lines:
    """Return ``media`` and the lines in its ``beside``, one by one."""
    return (msgspec.structs.replace(media, beside=()), *media.beside)


def joined(lines: Lines) -> MediaDescription:
    """Return ``lines``, at least one, as one value: the reverse of :func:`lines_of`."""
    return msgspec.structs.replace(lines[0], beside=lines[1:])


def relocated(media: MediaDescription, former: str, host: str) -> MediaDescription:
    """Return ``media`` with every line at the address ``former`` moved to ``host``."""
    moved = [msgspec.structs.replace(m, address=host) if m.address == former else m for m in lines_of(media)]
    return joined(tuple(moved))


def is_data_channel(media: MediaDescription) -> bool:
    """Return whether our data channel can use the line ``media``: ``UDP x-wanderbus``, or TCP (DESIGN 6.7)."""
    return (
        media.media == "application"
        and media.protocol.upper() in _DATA_PROTOCOLS
        and DATA_FORMAT in media.formats
        and media.port > 0
    )


def fits(ours: MediaDescription, theirs: MediaDescription) -> bool:
    """Return whether two lines are of the same kind: medium, protocol and one format in common."""
    return (
        ours.media == theirs.media
        and ours.protocol.upper() == theirs.protocol.upper()
        and not set(ours.formats).isdisjoint(theirs.formats)
    )


def description_in(message: Message) -> SessionDescription:
    """Return the SDP body of ``message``.

    Raises SIPParseError: 415 for another type of body, 488 for none and for media at a host name, 400 for an unreadable
    one. RFC 4566 5.7 allows names, but a lookup would delay everybody else.
    """
    if not message.body:
        raise SIPParseError("no description in the message", 488)
    content_type = message.header("Content-Type") or ""
    if content_type.partition(";")[0].strip().lower() != SDP_TYPE:
        raise SIPParseError(f"the body is {content_type!r}, not {SDP_TYPE}", 415)
    description = SessionDescription.parse(message.body)
    for media in description.media:
        if media.port and not is_ip_address(media.address):
            raise SIPParseError(f"cannot send to {media.address!r}: not an IP address", 488)
    return description


def data_channel_in(description: SessionDescription) -> MediaDescription:
    """Return the first line that our data channel can use; SIPParseError 488 if there is none (RFC 3261 13.3.1.3)."""
    for media in description.media:
        if is_data_channel(media):
            return media
    raise SIPParseError("no data channel is offered", 488)


def all_media_in(description: SessionDescription) -> MediaDescription:
    """Return every line in use, in order; SIPParseError 488 if there is none (SPEC C-16)."""
    used = tuple(media for media in description.media if media.port > 0)
    if not used:
        raise SIPParseError("no media are offered", 488)
    return joined(used)


def laid_out(slots: Iterable[MediaDescription], wanted: MediaDescription) -> Lines:
    """Return our offer: ``wanted`` in the order of ``slots``, with new lines behind (RFC 3264 8.1, 8.2)."""
    filled, left = _fill(slots, wanted)
    return (*filled, *left)


def answer_to(offer: SessionDescription, wanted: MediaDescription) -> Lines:
    """Return our answer to ``offer``, line by line; lines that either side does not want are declined.

    Raises SIPParseError 488 if nothing remains.
    """
    filled, _ = _fill(offer.media, wanted)
    pairs = zip(offer.media, filled, strict=True)
    answer = tuple(_answered(offered, ours) for offered, ours in pairs)
    if not any(line.port for line in answer):
        raise SIPParseError("none of our media is offered", 488)
    return answer


def agreed_media(slots: Lines, theirs: Lines, wanted: MediaDescription) -> MediaDescription:
    """Return the lines of the peer that both sides use, in the order of our ``wanted`` ones.

    ``slots`` is our side of the exchange, ``theirs`` the peer's. Raises SIPParseError 488 if there is none.
    """
    pairs = [(ours, other) for ours, other in zip(slots, theirs, strict=False) if ours.port and other.port]
    agreed = [(ours, other) for ours, other in pairs if fits(ours, other)]
    if not agreed:
        raise SIPParseError("no common media line", 488)
    order = [with_direction(line, SENDRECV) for line in lines_of(wanted)]

    def place(pair: tuple[MediaDescription, MediaDescription]) -> int:
        ours = with_direction(pair[0], SENDRECV)
        return order.index(ours) if ours in order else len(order)

    return joined(tuple(other for _, other in sorted(agreed, key=place)))


def _answered(offered: MediaDescription, ours: MediaDescription) -> MediaDescription:
    """Return our line as the answer to an offered one, limited to the directions of the offer."""
    if not offered.port:
        return _declined(ours, ours.address)
    return answering(ours, offered) if ours.port else ours


def _declined(line: MediaDescription, address: str) -> MediaDescription:
    """Return ``line`` refused or no longer in use (RFC 3264 6); with our own address it needs no c= line."""
    return msgspec.structs.replace(line, address=address, port=0, attributes=())


def _fill(slots: Iterable[MediaDescription], wanted: MediaDescription) -> tuple[Lines, Lines]:
    """Return each slot with the first line that fits, or declined, and the lines without a slot.

    A slot in use is filled before an unused one, so that an answer does not use a line that is not offered.
    """
    left = list(lines_of(wanted))
    slots = list(slots)
    filled = [_declined(slot, wanted.address) for slot in slots]
    for index in sorted(range(len(slots)), key=lambda index: slots[index].port == 0):
        line = next((line for line in left if fits(line, slots[index])), None)
        if line is not None:
            left.remove(line)
            filled[index] = line
    return tuple(filled), tuple(left)
