"""What an endpoint of reliable UDP may be told and reports beyond the words of every transport, and its counters.

The shared words are in :mod:`wanderbus.transport` and can be imported from here too.
"""

from __future__ import annotations

import msgspec

from wanderbus.machine import Address, Input, Output
from wanderbus.rudp.keys import Secrets
from wanderbus.transport import (
    ChangePath,
    CloseConnection,
    ConnectionFailed,
    ConnectionReset,
    Consumed,
    FinishSending,
    MessageReceived,
    MovedHere,
    PeerFinished,
    Probe,
    ProbeAnswered,
    SendMessage,
)

__all__ = [
    "ChangePath",
    "CloseConnection",
    "ConnectionFailed",
    "ConnectionReset",
    "Consumed",
    "Counters",
    "FinishSending",
    "GapDetected",
    "MessageReceived",
    "MovedHere",
    "OpenConnection",
    "PathChanged",
    "PeerFinished",
    "Probe",
    "ProbeAnswered",
    "SendMessage",
]


class OpenConnection(Input, frozen=True):
    """Start the connection (``local_id``, ``remote_id``) towards ``remote``; replaces what had this local id.

    ``generation`` is that of the peer's path; our own is 0 until :class:`MovedHere` says otherwise. With ``secrets``
    every packet is sealed, without them none is (plain mode), and the other kind is not taken. A pair must not be used
    again: numbers start anew, and late packets of the old one would be believed.
    """

    local_id: int
    remote_id: int
    remote: Address
    generation: int
    secrets: Secrets | None = None


class GapDetected(Output, frozen=True):
    """Packets ``first`` to ``last`` were lost, or are late (SPEC F-02)."""

    local_id: int
    first: int
    last: int


class PathChanged(Output, frozen=True):
    """The peer is reached at ``remote`` now: its NAT binding changed, and it answered a challenge from there."""

    local_id: int
    remote: Address


class Counters(msgspec.Struct):
    """What an endpoint did since it was made; all rise only."""

    sent: int = 0
    """Packets sent, retransmissions and those of ACKs alone included."""

    received: int = 0
    """Packets taken from the peer of a connection."""

    retransmitted: int = 0
    """Packets sent that repeat an earlier one, after a timeout, a loss or a change of path."""

    timeouts: int = 0
    """Packets whose ACK did not come in time (SPEC F-05)."""

    lost: int = 0
    """Packets that later ones overtook by too much (RFC 9002 6.1)."""

    spurious: int = 0
    """Packets that were given up by either of the two and whose ACK came after all."""

    acks: int = 0
    """Fresh marks sent: one for each ack-eliciting packet received (SPEC F-03)."""

    ack_frames: int = 0
    """ACK frames sent; the marks of a batch share them."""

    gaps: int = 0
    """Times that packet numbers were seen missing (SPEC F-02)."""

    duplicates: int = 0
    """DATA frames that had been taken before (SPEC F-08)."""

    resets: int = 0
    """RESETs sent."""

    challenges: int = 0
    """Path challenges sent (RFC 9000 8.2)."""

    paths: int = 0
    """Times that the peer was found at another address by a challenge."""

    malformed: int = 0
    """Dropped: not a datagram of this protocol, or too long."""

    unknown: int = 0
    """Dropped: a packet for an id that is not open here."""

    unsolicited: int = 0
    """Dropped: a RESET for an id that is not open here."""

    early: int = 0
    """Dropped: for an id that is allocated and not open yet; the peer repeats it."""

    wrong_pair: int = 0
    """Dropped: the local id is open with another peer, so this is from an older connection or forged."""

    forged: int = 0
    """Dropped: not sealed by the peer, of the other mode, or a RESET without the token that the peer announced."""

    replayed: int = 0
    """Dropped: a packet number that was taken before, or is too old to know."""

    refused: int = 0
    """Dropped: DATA that was not granted, or comes after FINISH."""

    failed: int = 0
    """Dropped: for a connection that has failed, and no answer to a probe."""

    unsent: int = 0
    """ACK frames passed over because they name a packet that was never sent."""

    oversized: int = 0
    """Messages passed over because they exceed ``message_bytes_max``, or FINISH cut them short."""

    @property
    def dropped(self) -> int:
        """Datagrams that had no effect on any connection."""
        unfit = self.malformed + self.unknown + self.unsolicited + self.early + self.wrong_pair
        return unfit + self.forged + self.replayed + self.refused + self.failed
