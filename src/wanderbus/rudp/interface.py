"""What an endpoint may be told and what it reports, and its counters (SPEC F).

Requests name a connection by its local id; those for an id that is not open are ignored, since the connection may
just have failed.
"""

from __future__ import annotations

import msgspec

from wanderbus.machine import Address, Input, Output


class OpenConnection(Input, frozen=True):
    """Start the connection (``local_id``, ``remote_id``) towards ``remote``; replaces what had this local id.

    A pair must not be used again: numbers start anew, and late packets of the old one would be believed.
    """

    local_id: int
    remote_id: int
    remote: Address
    generation: int


class SendMessage(Input, frozen=True):
    """Deliver ``payload`` once and after everything given before it (X16)."""

    local_id: int
    payload: bytes


class ChangePath(Input, frozen=True):
    """Send to ``remote`` from now on and repeat there at once what is in flight, with fresh timeout and retries.

    Ignored if ``generation`` is below that of the path in use, so that an old path cannot override a new one.
    """

    local_id: int
    remote: Address
    generation: int


class Probe(Input, frozen=True):
    """Find out whether the peer answers: an ack-eliciting packet leaves now, unless enough wait for their ACK."""

    local_id: int


class CloseConnection(Input, frozen=True):
    """Forget the connection, or an id that was allocated and never opened, without a word to anybody."""

    local_id: int


class MessageReceived(Output, frozen=True):
    """The next message of the peer is whole; each is reported once, in the order of sending."""

    local_id: int
    payload: bytes


class ConnectionFailed(Output, frozen=True):
    """A packet's retries ran out (SPEC F-06); the connection is gone."""

    local_id: int


class ConnectionReset(Output, frozen=True):
    """The peer does not know the connection, as after its restart (DESIGN 6.3); the connection is gone."""

    local_id: int


class GapDetected(Output, frozen=True):
    """Packets ``first`` to ``last`` were lost, or are late (SPEC F-02)."""

    local_id: int
    first: int
    last: int


class Counters(msgspec.Struct):
    """What an endpoint did since it was made; all rise only."""

    sent: int = 0
    """Packets sent, retransmissions and ACK-only ones included."""

    received: int = 0
    """Packets taken from the peer of a connection."""

    retransmitted: int = 0
    """Packets sent that repeat an earlier one."""

    acks: int = 0
    """ACK frames sent: one per ack-eliciting packet received (SPEC F-03)."""

    gaps: int = 0
    """Times that packet numbers were seen missing (SPEC F-02)."""

    duplicates: int = 0
    """DATA frames that had been taken before (SPEC F-08)."""

    resets: int = 0
    """RESETs sent."""

    malformed: int = 0
    """Dropped: not a datagram of this protocol, or too long."""

    unknown: int = 0
    """Dropped: for an id that is not open here."""

    early: int = 0
    """Dropped: for an id that is allocated and not open yet; the peer repeats it."""

    wrong_pair: int = 0
    """Dropped: the local id is open with another peer, so this is from an older connection or forged."""

    refused: int = 0
    """Dropped: DATA too far ahead to be held."""

    oversized: int = 0
    """Messages passed over because they exceed ``message_bytes_max``, which a peer of the same limits never sends."""

    @property
    def dropped(self) -> int:
        """Datagrams that had no effect on any connection."""
        return self.malformed + self.unknown + self.early + self.wrong_pair + self.refused
