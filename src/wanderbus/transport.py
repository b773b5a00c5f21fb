"""What every reliable transport of the data channel may be told and reports: RUDP and TCP alike (SPEC F-01, F-09).

An owner that knows these words needs no other to send, to receive, and to learn of a failure. Requests name a
connection by its local id; those for an id that is not open are ignored, since the connection may just have failed.

::

    OPEN ──retries ran out──▶ FAILED ──Probe, answered──▶ FAILED (ProbeAnswered: the way works again)
      │                         │
      └────CloseConnection──────┴──────▶ gone            a reset by the peer: gone at once
"""

from __future__ import annotations

from wanderbus.machine import Address, Input, Output


class SendMessage(Input, frozen=True):
    """Deliver ``payload`` once and after everything given before it (X16)."""

    local_id: int
    payload: bytes


class Consumed(Input, frozen=True):
    """The owner is done with the next ``messages`` received messages: the peer may send as much again.

    Only where the endpoint was told to wait for it; otherwise what is reported counts as consumed.
    """

    local_id: int
    messages: int


class FinishSending(Input, frozen=True):
    """Nothing more will be sent; the peer learns it after the last message (:class:`PeerFinished`)."""

    local_id: int


class ChangePath(Input, frozen=True):
    """Send to ``remote`` from now on and repeat there at once what is in flight, with fresh timeout and retries.

    Ignored if ``generation`` is below that of the path in use, so that an old path cannot override a new one.
    """

    local_id: int
    remote: Address
    generation: int


class MovedHere(Input, frozen=True):
    """This side is at a new address: what it sends from now on is of ``generation`` (DESIGN 6.1)."""

    local_id: int
    generation: int


class Probe(Input, frozen=True):
    """Find out whether the peer answers; a failed connection reports :class:`ProbeAnswered` when it does (D-10)."""

    local_id: int


class CloseConnection(Input, frozen=True):
    """Forget the connection, or an id that was allocated and never opened, without a word to anybody."""

    local_id: int


class MessageReceived(Output, frozen=True):
    """The next message of the peer is whole; each is reported once, in the order of sending."""

    local_id: int
    payload: bytes


class PeerFinished(Output, frozen=True):
    """The peer has sent its last message, and all of them were received."""

    local_id: int


class ConnectionFailed(Output, frozen=True):
    """Sending failed for good (SPEC F-06, F-07), ``reason`` is for people.

    Nothing is sent or received any more; the id stays, to be probed, until it is closed.
    """

    local_id: int
    reason: str = "the other side does not answer"


class ConnectionReset(Output, frozen=True):
    """The peer does not know the connection, as after its restart (DESIGN 6.3); the connection is gone."""

    local_id: int


class ProbeAnswered(Output, frozen=True):
    """The peer of a failed connection answered a :class:`Probe`: it can be reached again."""

    local_id: int
