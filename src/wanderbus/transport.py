"""Inputs and outputs that all reliable transports of the data channel share: RUDP and TCP (SPEC F-01, F-09).

An owner needs only these to send, to receive, and to detect a failure. Requests name a connection by its local id;
requests for an id that is not open are ignored, since the connection may just have failed.

::

    OPEN ──retries ran out──▶ FAILED ──Probe, answered──▶ FAILED (ProbeAnswered: the path works again)
      │                         │
      └────CloseConnection──────┴──────▶ gone      a reset by the peer: gone at once
"""

from __future__ import annotations

from wanderbus.detection import DetectorFailed
from wanderbus.machine import (
    Address,
    CancelTimer,
    CloseStream,
    DatagramReceived,
    Input,
    Output,
    SendDatagram,
    SendOnStream,
    SetTimer,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.refusals import Limited


class ConnectionRequest(Input, frozen=True):
    """Base of all requests about a connection."""

    local_id: int


class ConnectionReport(Output, frozen=True):
    """Base of all reports on a connection."""

    local_id: int


class SendMessage(ConnectionRequest, frozen=True):
    """Deliver ``payload`` once, after all payloads sent before it (X16)."""

    payload: bytes


class Consumed(ConnectionRequest, frozen=True):
    """Report that the owner has consumed the next ``messages`` received messages; the peer may send as many again.

    It is needed only if the endpoint is configured so; otherwise a message counts as consumed when it is reported.
    """

    messages: int


class FinishSending(ConnectionRequest, frozen=True):
    """End sending: after the last message the peer reports :class:`PeerFinished`."""


class ChangePath(ConnectionRequest, frozen=True):
    """Send to ``remote`` from now on, and repeat all unacknowledged data there at once, with fresh timeout and retries.

    Ignored if ``generation`` is below that of the path in use, so that an old path cannot override a new one.
    """

    remote: Address
    generation: int


class ValidatePath(ConnectionRequest, frozen=True):
    """Challenge the peer at ``remote``, and send there once it has answered: another party has reported its move.

    Ignored if ``generation`` is below that of the path in use. Over TCP the peer connects itself, and it has no effect.
    """

    remote: Address
    generation: int


class MovedHere(ConnectionRequest, frozen=True):
    """Report that this side has a new address; its packets carry ``generation`` from now on (DESIGN 6.1)."""

    generation: int


class Probe(ConnectionRequest, frozen=True):
    """Check whether the peer answers; on a failed connection an answer is reported as :class:`ProbeAnswered` (D-10)."""


class CloseConnection(ConnectionRequest, frozen=True):
    """Discard the connection, or an id that was allocated and never opened, without notifying the peer."""


class MessageReceived(ConnectionReport, frozen=True):
    """The next complete message of the peer; each is reported once, in the order of sending."""

    payload: bytes


class PeerFinished(ConnectionReport, frozen=True):
    """The peer has sent its last message, and all of them were received."""


class ConnectionFailed(ConnectionReport, frozen=True):
    """Sending failed permanently (SPEC F-06, F-07); ``reason`` is for people.

    Nothing is sent or received any more. The id can still be probed until it is closed.
    """

    reason: str = "the other side does not answer"


class ConnectionReset(ConnectionReport, frozen=True):
    """The peer does not know the connection, for example after its restart (DESIGN 6.3); the connection is gone."""


class ProbeAnswered(ConnectionReport, frozen=True):
    """The peer of a failed connection answered a :class:`Probe`: it can be reached again."""


TransportInput = ConnectionRequest | DatagramReceived | StreamReceived | StreamClosed | TimerFired
"""Inputs of a transport."""

TransportOutput = (
    ConnectionReport | SendDatagram | SendOnStream | CloseStream | SetTimer | CancelTimer | Limited | DetectorFailed
)
"""Outputs of a transport."""

Outputs = list[TransportOutput]
