"""One session between two user agents: what is agreed, what is stored, what survives a restart (SPEC C-11)."""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from wanderbus.errors import LocalProtocolError
from wanderbus.machine import Address
from wanderbus.mobility.session.offer_answer import Lines
from wanderbus.mobility.session.session_timers import SessionTimer
from wanderbus.mobility.session.status import RemoteMediaStatus, SIPCommunicationStatus
from wanderbus.sip.message.dialog import Dialog
from wanderbus.sip.message.media_direction import INACTIVE, agreed_direction, receives
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription

RESTART_LEAP: Final = 1_000
"""How far CSeq and SDP version jump when a stored session is taken up again.

The store may be older than the last message sent, and neither number may go backwards (RFC 3261 12.2.1.1,
RFC 3264 8). A thousand updates fit between two savings; the sequence space is 2**31.
"""


class SIPSession(msgspec.Struct, frozen=True):
    """A session as seen from this side; the machine replaces the whole value at each change."""

    id: str
    """The Call-ID: it stays when addresses change (SPEC X8, C-19)."""
    owner_uri: str
    """Address of record of this side."""
    remote_uri: str
    """Address of record of the other side."""
    created_here: bool
    """Whether this side sent the first INVITE, and so owns the Call-ID (RFC 3261 14.1)."""
    local_tag: str
    """Our half of the dialog's identity, chosen before there is a dialog."""
    local_cseq: int
    """Number of our last request before there was a dialog; afterwards the dialog counts."""
    sip_address: Address
    """Where this side's signalling is reached."""
    description_id: int
    """The id in our SDP origin: fixed for the session (SPEC X8)."""
    description_version: int = 0
    """The version in our SDP origin: rises when our description changes (RFC 3264 8)."""
    local_media: MediaDescription | None = None
    """Where this side receives data, as last told to the other side; None until then."""
    slots: Lines = ()
    """This side's lines as last told, in their order, with those not in use (RFC 3264 8)."""
    remote_media: MediaDescription | None = None
    """Where the other side receives data; None until established."""
    remote_origin: tuple[int, int] = (0, 0)
    """Id and version in the other side's SDP origin, as last accepted (RFC 3264 8)."""
    remote_instance: str | None = None
    """The other side's device, if it said (RFC 5626 4.1)."""
    dialog: Dialog | None = None
    communication: SIPCommunicationStatus = SIPCommunicationStatus.UNDEFINED
    media_status: RemoteMediaStatus = RemoteMediaStatus.DISCONNECTED
    sip_transport: str = "UDP"
    peer_updatable: bool = False
    """Whether the other side said that it takes UPDATE (RFC 3311 5.1)."""
    timer: SessionTimer | None = None
    """The session interval and who refreshes it; None runs for ever (RFC 4028)."""
    min_se_s: int = 0
    """The longest of the least intervals that anybody on the path asked for, in seconds (RFC 4028 7.4)."""

    @property
    def direction(self) -> str:
        """Return how data may flow here, of the medium that matters most: sendrecv, sendonly, recvonly or inactive."""
        if self.local_media is None or self.remote_media is None:
            return INACTIVE
        return agreed_direction(self.local_media, self.remote_media)

    @property
    def held(self) -> bool:
        """Return whether the other side has put us on hold: nothing is to be sent to it (RFC 3264 8.4)."""
        return self.remote_media is not None and not receives(self.remote_media)

    def is_overtaken(self, description: SessionDescription | None) -> bool:
        """Return whether the other side has said something newer than ``description`` already (RFC 3264 8).

        An offer that its sender gave up may wait in a proxy while a later answer of the same sender gets through.
        """
        known_id, known_version = self.remote_origin
        return description is not None and description.session_id == known_id and description.version < known_version

    def has_not_heard(self, description: SessionDescription | None) -> bool:
        """Return whether ``description`` is newer than what the other side has said so far (RFC 3264 8)."""
        known_id, known_version = self.remote_origin
        return description is not None and description.session_id == known_id and description.version > known_version

    def snapshot(self) -> bytes:
        """Return this session as compressed JSON, fit for a row of the state store, for :meth:`restore`.

        A broker keeps one for each of its users; what the lines of both sides have in common then counts once.
        """
        return zlib.compress(msgspec.json.encode(self))

    @classmethod
    def restore(cls, snapshot: bytes) -> SIPSession:
        """Return the session to go on with after a restart, with its counters leapt ahead (DESIGN 6.3).

        Its data channel is not known to work, hence media DISCONNECTED until it is updated. Raises
        LocalProtocolError when the bytes are no snapshot of an established session. One that was not compressed is
        taken as well.
        """
        try:
            text = snapshot if snapshot.startswith(b"{") else zlib.decompress(snapshot)
            session = msgspec.json.decode(text, type=cls)
        except (zlib.error, msgspec.DecodeError) as error:
            raise LocalProtocolError(f"not a snapshot of a session: {error}") from error
        if session.dialog is None:
            raise LocalProtocolError(f"session {session.id} was never established: there is nothing to go on with")
        dialog = session.dialog
        return msgspec.structs.replace(
            session,
            dialog=msgspec.structs.replace(dialog, local_cseq=dialog.local_cseq + RESTART_LEAP),
            description_version=session.description_version + RESTART_LEAP,
            communication=SIPCommunicationStatus.CONNECTED,
            media_status=RemoteMediaStatus.DISCONNECTED,
        )
