"""An application's media as plain parameters, from which SDP lines are made (SPEC C-16, C-17).

The machine orders these lines along those of the peer (:mod:`wanderbus.mobility`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wanderbus.machine import Address
from wanderbus.mobility.session.offer_answer import joined, lines_of
from wanderbus.mobility.session.session import SIPSession
from wanderbus.sip.message.sdp import MediaDescription


class SDPMediaDescriptionData(msgspec.Struct, frozen=True):
    """Address, port and format of received data of one kind."""

    port: int
    """Port of the data; 0 means that the medium is not in use."""
    protocol: str = "UDP"
    """``UDP``, ``TCP``, or another SDP transport such as ``RTP/AVP``."""
    address: str | None = None
    """IP address; None means the present address of this device, also after a move."""
    media: str = "application"
    formats: tuple[str, ...] = ("x-wanderbus",)
    attributes: tuple[tuple[str, str | None], ...] = ()

    @property
    def destination(self) -> Address:
        """The destination of data; for the media of a peer, which always have an address."""
        return (self.address or "", self.port)


def local_media(session: SIPSession) -> tuple[SDPMediaDescriptionData, ...]:
    """Return the media of this side of ``session``, as last sent."""
    return _read(session.local_media)


def remote_media(session: SIPSession) -> tuple[SDPMediaDescriptionData, ...]:
    """Return the media of the peer of ``session`` that both use; empty until established."""
    return _read(session.remote_media)


def description_of(media: Sequence[SDPMediaDescriptionData], address: str) -> MediaDescription:
    """Return ``media``, at least one, in the stack's form, for a device at ``address``."""
    return joined(tuple(_line(data, address) for data in media))


def _line(data: SDPMediaDescriptionData, address: str) -> MediaDescription:
    return MediaDescription(
        media=data.media,
        address=data.address or address,
        port=data.port,
        protocol=data.protocol,
        formats=data.formats,
        attributes=data.attributes,
    )


def _read(media: MediaDescription | None) -> tuple[SDPMediaDescriptionData, ...]:
    lines = () if media is None else lines_of(media)
    return tuple(
        SDPMediaDescriptionData(line.port, line.protocol, line.address, line.media, line.formats, line.attributes)
        for line in lines
    )
