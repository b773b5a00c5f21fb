"""Inputs and outputs specific to an endpoint of reliable UDP, and its counters.

Those that all transports share are in :mod:`wanderbus.transport` and can be imported from here too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from wanderbus.machine import Address
from wanderbus.transport import (
    ChangePath,
    CloseConnection,
    ConnectionFailed,
    ConnectionReport,
    ConnectionRequest,
    ConnectionReset,
    Consumed,
    FinishSending,
    MessageReceived,
    MovedHere,
    PeerFinished,
    Probe,
    ProbeAnswered,
    SendMessage,
    ValidatePath,
)

__all__ = [
    "ChangePath",
    "CloseConnection",
    "ConnectionFailed",
    "ConnectionReport",
    "ConnectionRequest",
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
    "ValidatePath",
]


class OpenConnection(ConnectionRequest, frozen=True):
    """Start the connection (``local_id``, ``remote_id``) to ``remote``; it replaces one with the same local id.

    ``generation`` is that of the peer's path; our own is 0 until :class:`MovedHere` changes it. With ``secrets`` every
    packet is sealed, without them none is (plain mode), and packets of the other mode are dropped. A pair must not be
    reused: packet numbers start again at 0, and late packets of the old connection would be accepted.
    """

    remote_id: int
    remote: Address
    generation: int
    secrets: Secrets | None = None


class GapDetected(ConnectionReport, frozen=True):
    """Packets ``first`` to ``last`` are lost or late (SPEC F-02)."""

    first: int
    last: int


class PathChanged(ConnectionReport, frozen=True):
    """The peer is now at ``remote``: its NAT binding changed, and it answered a challenge from there."""

    remote: Address


class Counters(msgspec.Struct):
    """Counters of an endpoint since its creation; they never decrease."""

    sent: int = 0
    """Packets sent, including retransmissions and packets with only ACKs."""

    received: int = 0
    """Packets accepted from the peers of connections."""

    retransmitted: int = 0
    """Packets sent that repeat an earlier one after a timeout, a loss or a change of path."""

    timeouts: int = 0
    """Packets whose ACK timed out (SPEC F-05)."""

    lost: int = 0
    """Packets declared lost because later ones were acknowledged (RFC 9002 6.1)."""

    spurious: int = 0
    """Packets declared lost, by timeout or overtaking, whose ACK arrived later."""

    black_holes: int = 0
    """Number of times that only short packets arrived, so that the size of packets was halved (RFC 8899 4.3)."""

    acks: int = 0
    """Fresh marks sent: one for each ack-eliciting packet received (SPEC F-03)."""

    ack_frames: int = 0
    """ACK frames sent; one frame has the marks of a batch."""

    gaps: int = 0
    """Gaps in received packet numbers (SPEC F-02)."""

    duplicates: int = 0
    """Repeated DATA frames, discarded (SPEC F-08)."""

    resets: int = 0
    """RESETs sent."""

    challenges: int = 0
    """Path challenges sent (RFC 9000 8.2)."""

    paths: int = 0
    """Number of times that a challenge found the peer at another address."""

    malformed: int = 0
    """Dropped: invalid or too long datagrams."""

    unknown: int = 0
    """Dropped: packets for an id that is not open here."""

    unsolicited: int = 0
    """Dropped: RESETs for an id that is not open here."""

    early: int = 0
    """Dropped: packets for an id that is allocated and not open yet; the peer repeats them."""

    wrong_pair: int = 0
    """Dropped: packets for a local id that is open with another peer: from an older connection, or forged."""

    forged: int = 0
    """Dropped: not sealed by the peer, of the other mode, or a RESET without the announced token."""

    replayed: int = 0
    """Dropped: packet numbers that were received before, or are too old to check."""

    refused: int = 0
    """Dropped: DATA that exceeds the grant, or follows FINISH."""

    failed: int = 0
    """Dropped: packets for a failed connection that do not answer a probe."""

    unsent: int = 0
    """ACK frames ignored because they name a packet that was never sent."""

    oversized: int = 0
    """Messages discarded because they exceed ``message_bytes_max``, or FINISH cut them short."""

    @property
    def dropped(self) -> int:
        """Return the number of datagrams that had no effect on any connection."""
        unfit = self.malformed + self.unknown + self.unsolicited + self.early + self.wrong_pair
        return unfit + self.forged + self.replayed + self.refused + self.failed


class Secrets(msgspec.Struct, frozen=True):
    """Secrets of the two directions of one connection; our send secret is the peer's receive secret.

    Its representation hides the content from logs and tracebacks.
    """

    sending: bytes
    receiving: bytes

    def __repr__(self) -> str:
        return "Secrets()"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []
