"""The two states of a SIP session and the one table of their transitions (SPEC C-12 to C-15).

The communication state follows the signalling. The remote media state belongs to the application, which observes with
its own data channel whether the peer is reachable; signalling only sets it when a session is established, updated or
ended (SPEC C-14, E-08).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from wanderbus.errors import LocalProtocolError


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


class Occurrence(Enum):
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
_O = Occurrence

TRANSITIONS: Final[dict[SIPCommunicationStatus, dict[Occurrence, SIPCommunicationStatus]]] = {
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


def advanced(status: SIPCommunicationStatus, occurrence: Occurrence) -> SIPCommunicationStatus:
    """Return the state after ``occurrence``.

    Raises LocalProtocolError if the table has no such transition: the machines filter remote input first, so only a
    local fault can cause this (SPEC C-15).
    """
    successor = TRANSITIONS[status].get(occurrence)
    if successor is None:
        raise LocalProtocolError(f"a session that is {status.value} has no transition for: {occurrence.value}")
    return successor


def advanced_media(media: RemoteMediaStatus, occurrence: Occurrence) -> RemoteMediaStatus:
    """Return the remote media state after ``occurrence``: only establishing and ending change it (SPEC C-15, E-08)."""
    if occurrence is Occurrence.ESTABLISHED:
        return RemoteMediaStatus.CONNECTED
    if occurrence is Occurrence.ENDED:
        return RemoteMediaStatus.DISCONNECTED
    return media
