"""Offers and answers: which line of an SDP is our data channel, and what we say about ours (RFC 3264, SPEC C-16, C-17).

One ``m=application <port> UDP x-wanderbus`` line carries the data channel (DESIGN 6.7). Other lines that a stranger
offers are declined with port 0, as an answer must have as many lines as its offer (RFC 3264 6).
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.sip.message import Message
from wanderbus.sip.sdp import MediaDescription, SessionDescription

SDP_TYPE: Final = "application/sdp"
DATA_FORMAT: Final = "x-wanderbus"


def is_data_channel(media: MediaDescription) -> bool:
    """Tell whether ``media`` is a line that our data channel can use."""
    return (
        media.media == "application"
        and media.protocol.upper() == "UDP"
        and DATA_FORMAT in media.formats
        and media.port > 0
    )


def description_in(message: Message) -> SessionDescription:
    """Return the SDP body of ``message``.

    Raises SIPParseError: 415 for another type of body, 488 for none, 400 for one that cannot be read.
    """
    if not message.body:
        raise SIPParseError("no offer in the request", 488)
    content_type = message.header("Content-Type") or ""
    if content_type.partition(";")[0].strip().lower() != SDP_TYPE:
        raise SIPParseError(f"the body is {content_type!r}, not {SDP_TYPE}", 415)
    return SessionDescription.parse(message.body)


def data_channel_in(description: SessionDescription) -> MediaDescription:
    """Return the first line our data channel can use; SIPParseError 488 if there is none (RFC 3261 13.3.1.3)."""
    for media in description.media:
        if is_data_channel(media):
            return media
    raise SIPParseError("no data channel is offered", 488)


def describe(user: str, description_id: int, version: int, media: MediaDescription) -> SessionDescription:
    """Return our own description, with one data channel."""
    return SessionDescription(user, description_id, version, media.address, (media,))


def answer_to(offer: SessionDescription, ours: SessionDescription) -> SessionDescription:
    """Return ``ours`` laid out line by line as ``offer``, every line declined but the first data channel."""
    (channel,) = ours.media
    lines: list[MediaDescription] = []
    taken = False
    for media in offer.media:
        if not taken and is_data_channel(media):
            lines.append(channel)
            taken = True
        else:
            lines.append(msgspec.structs.replace(media, address=ours.address, port=0, attributes=()))
    return msgspec.structs.replace(ours, media=tuple(lines))
