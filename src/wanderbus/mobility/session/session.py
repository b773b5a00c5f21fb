"""One session between two user agents: its agreed and stored state, which survives a restart (SPEC C-11).

A session has two states with one table of transitions (SPEC C-12 to C-15). The communication state follows the
signalling. The remote media state belongs to the application, which observes with its own data channel whether the peer
is reachable; signalling only sets it when a session is established, updated or ended (SPEC C-14, E-08).
"""

from __future__ import annotations

import zlib
from enum import Enum
from typing import Final

import msgspec

from wanderbus.errors import LocalProtocolError
from wanderbus.machine import Address
from wanderbus.mobility.session.offer_answer import Lines
from wanderbus.mobility.session.session_timers import SessionTimer
from wanderbus.sip.message.dialog import Dialog
from wanderbus.sip.message.sdp import INACTIVE, MediaDescription, SessionDescription, agreed_direction, receives


class SIPCommunicationStatus(Enum):
    """Signalling state of a session (SPEC C-12)."""

    UNDEFINED = "UNDEFINED"
    DISCONNECTED = "DISCONNECTED"
    INVITING = "INVITING"
    RINGING_THERE = "RINGING_THERE"
    BUSY_THERE = "BUSY_THERE"
    RINGING_HERE = "RINGING_HERE"
    REINVITING = "REINVITING"
    CONNECTED = "CONNECTED"


class RemoteMediaStatus(Enum):
    """Reachability of the peer for data, as the application last reported it (SPEC C-13, C-14)."""

    DISCONNECTED = "DISCONNECTED"
    CONNECTED = "CONNECTED"


class SessionOccurrence(Enum):
    """Events that change the communication state (SPEC C-15)."""

    INVITE_SENT = "INVITE sent"
    RINGING_RECEIVED = "180 received"
    BUSY_RECEIVED = "486 received"
    INVITE_RECEIVED = "INVITE received"
    REINVITE_SENT = "re-INVITE sent"
    REINVITE_RECEIVED = "re-INVITE received"
    ESTABLISHED = "established or updated"
    ENDED = "ended"


_Status = SIPCommunicationStatus
_O = SessionOccurrence

TRANSITIONS: Final[dict[SIPCommunicationStatus, dict[SessionOccurrence, SIPCommunicationStatus]]] = {
    _Status.UNDEFINED: {
        _O.INVITE_SENT: _Status.INVITING,
        _O.INVITE_RECEIVED: _Status.RINGING_HERE,
    },
    _Status.INVITING: {
        _O.INVITE_SENT: _Status.INVITING,
        _O.RINGING_RECEIVED: _Status.RINGING_THERE,
        _O.BUSY_RECEIVED: _Status.BUSY_THERE,
        _O.ESTABLISHED: _Status.CONNECTED,
        _O.ENDED: _Status.DISCONNECTED,
    },
    _Status.RINGING_THERE: {
        _O.INVITE_SENT: _Status.INVITING,
        _O.RINGING_RECEIVED: _Status.RINGING_THERE,
        _O.BUSY_RECEIVED: _Status.BUSY_THERE,
        _O.ESTABLISHED: _Status.CONNECTED,
        _O.ENDED: _Status.DISCONNECTED,
    },
    _Status.BUSY_THERE: {
        _O.ENDED: _Status.DISCONNECTED,
    },
    _Status.RINGING_HERE: {
        _O.INVITE_RECEIVED: _Status.RINGING_HERE,
        _O.ESTABLISHED: _Status.CONNECTED,
        _O.ENDED: _Status.DISCONNECTED,
    },
    _Status.CONNECTED: {
        _O.REINVITE_SENT: _Status.REINVITING,
        _O.REINVITE_RECEIVED: _Status.CONNECTED,
        _O.ESTABLISHED: _Status.CONNECTED,
        _O.ENDED: _Status.DISCONNECTED,
    },
    _Status.REINVITING: {
        _O.REINVITE_SENT: _Status.REINVITING,
        _O.REINVITE_RECEIVED: _Status.REINVITING,
        _O.ESTABLISHED: _Status.CONNECTED,
        _O.ENDED: _Status.DISCONNECTED,
    },
    _Status.DISCONNECTED: {},
}
"""The allowed transitions of each state; any other is a fault of this program."""


def advanced(status: SIPCommunicationStatus, occurrence: SessionOccurrence) -> SIPCommunicationStatus:
    """Return the state after ``occurrence``.

    Raises LocalProtocolError if the table has no such transition: the machines filter remote input first, so only a
    local fault can cause this (SPEC C-15).
    """
    successor = TRANSITIONS[status].get(occurrence)
    if successor is None:
        raise LocalProtocolError(f"a session that is {status.value} has no transition for: {occurrence.value}")
    return successor


def advanced_media(media: RemoteMediaStatus, occurrence: SessionOccurrence) -> RemoteMediaStatus:
    """Return the remote media state after ``occurrence``: only establishing and ending change it (SPEC C-15, E-08)."""
    if occurrence is SessionOccurrence.ESTABLISHED:
        return RemoteMediaStatus.CONNECTED
    if occurrence is SessionOccurrence.ENDED:
        return RemoteMediaStatus.DISCONNECTED
    return media


RESTART_LEAP: Final = 1_000
"""Increase of CSeq and SDP version when a stored session is restored.

The store may be older than the last message sent, and neither number may decrease (RFC 3261 12.2.1.1, RFC 3264 8). A
thousand updates fit between two savings; the sequence space is 2**31.
"""


class SIPSession(msgspec.Struct, frozen=True):
    """A session from our side; the machine replaces the whole value at each change."""

    id: str
    """The Call-ID: constant when addresses change (SPEC X8, C-19)."""
    owner_uri: str
    """Address of record of this side."""
    remote_uri: str
    """Address of record of the other side."""
    created_here: bool
    """True if this side sent the first INVITE, and so owns the Call-ID (RFC 3261 14.1)."""
    local_tag: str
    """Our half of the dialog's identity, chosen before the dialog exists."""
    local_cseq: int
    """CSeq number of our last request before the dialog existed; afterwards the dialog has it."""
    sip_address: Address
    """Address of this side's signalling."""
    description_id: int
    """The id in our SDP origin: constant for the session (SPEC X8)."""
    description_version: int = 0
    """The version in our SDP origin: rises when our description changes (RFC 3264 8)."""
    local_media: MediaDescription | None = None
    """Address and media of this side, as last sent to the peer; None until then."""
    slots: Lines = ()
    """This side's lines as last sent, in their order, with those not in use (RFC 3264 8)."""
    remote_media: MediaDescription | None = None
    """Address and media of the peer; None until established."""
    remote_origin: tuple[int, int] = (0, 0)
    """Id and version in the peer's SDP origin, as last accepted (RFC 3264 8)."""
    remote_instance: str | None = None
    """The peer's device, if known (RFC 5626 4.1)."""
    dialog: Dialog | None = None
    communication: SIPCommunicationStatus = SIPCommunicationStatus.UNDEFINED
    media_status: RemoteMediaStatus = RemoteMediaStatus.DISCONNECTED
    sip_transport: str = "UDP"
    peer_updatable: bool = False
    """True if the peer allows UPDATE (RFC 3311 5.1)."""
    timer: SessionTimer | None = None
    """The session interval and its refresher; None means no expiry (RFC 4028)."""
    min_se_s: int = 0
    """Longest of the minimum intervals required by any element on the path, in seconds (RFC 4028 7.4)."""

    @property
    def direction(self) -> str:
        """Return the direction of the most important medium from our side: sendrecv, sendonly, recvonly or inactive."""
        if self.local_media is None or self.remote_media is None:
            return INACTIVE
        return agreed_direction(self.local_media, self.remote_media)

    @property
    def held(self) -> bool:
        """Return whether the peer has put us on hold: nothing must be sent to it (RFC 3264 8.4)."""
        return self.remote_media is not None and not receives(self.remote_media)

    def is_overtaken(self, description: SessionDescription | None) -> bool:
        """Return whether the peer has already sent a newer description than ``description`` (RFC 3264 8).

        An offer abandoned by its sender may wait in a proxy while a later answer of the same sender arrives.
        """
        known_id, known_version = self.remote_origin
        return description is not None and description.session_id == known_id and description.version < known_version

    def is_newer(self, description: SessionDescription | None) -> bool:
        """Return whether ``description`` is newer than the last one from the peer (RFC 3264 8)."""
        known_id, known_version = self.remote_origin
        return description is not None and description.session_id == known_id and description.version > known_version

    def snapshot(self) -> bytes:
        """Return this session as compressed JSON for a row of the state store, for :meth:`restore`.

        A broker stores one for each of its users; compression stores the common parts of both sides' lines once.
        """
        return zlib.compress(msgspec.json.encode(self))

    @classmethod
    def restore(cls, snapshot: bytes) -> SIPSession:
        """Return the session to continue with after a restart, with increased counters (DESIGN 6.3).

        Its data channel is unverified, hence media DISCONNECTED until it is updated. Raises LocalProtocolError if the
        bytes are not a snapshot of an established session. An uncompressed snapshot is accepted too.
        """
        try:
            text = snapshot if snapshot.startswith(b"{") else zlib.decompress(snapshot)
            session = msgspec.json.decode(text, type=cls)
        except (zlib.error, msgspec.DecodeError) as error:
            raise LocalProtocolError(f"not a snapshot of a session: {error}") from error
        if session.dialog is None:
            raise LocalProtocolError(f"session {session.id} was never established, so it cannot be restored")
        dialog = session.dialog
        return msgspec.structs.replace(
            session,
            dialog=msgspec.structs.replace(dialog, local_cseq=dialog.local_cseq + RESTART_LEAP),
            description_version=session.description_version + RESTART_LEAP,
            communication=SIPCommunicationStatus.CONNECTED,
            media_status=RemoteMediaStatus.DISCONNECTED,
        )
