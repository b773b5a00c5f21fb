"""Remaining part of a failed connection: it can be probed, and answers probes (SPEC D-10).

A probe is one PING that is not repeated; the owner may probe again.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from wanderbus.machine import Address
from wanderbus.rudp.frames import MARKS, PING, PING_FRAME, AckFrame, Frames
from wanderbus.rudp.interface import Counters, ProbeAnswered
from wanderbus.rudp.packets import Packets
from wanderbus.transport import Outputs

PROBES_MAX: Final = 16
"""Number of latest probes whose answer is still recognized."""


class Probing:
    """Sends only probes and ACKs of probes, and delivers nothing."""

    def __init__(self, local_id: int, packets: Packets, counters: Counters) -> None:
        self._local_id = local_id
        self._packets = packets
        self._counters = counters
        self._probes: deque[int] = deque(maxlen=PROBES_MAX)
        self._wanted = False
        packets.arrivals.take_acks()

    def probe(self) -> None:
        """Send a PING at the end of this batch."""
        self._wanted = True

    def receive(self, number: int, frames: Frames, outputs: Outputs) -> None:
        """Process answers to probes, and probes; other frames are ignored and not acknowledged."""
        data, acks, controls = frames
        answered = [probe for probe in self._probes if any(_marks(ack, probe) for ack in acks)]
        pinged = not data and any(kind == PING for kind, _ in controls)
        if not answered and not pinged:
            self._counters.failed += 1
            return
        self._counters.received += 1
        self._packets.arrivals.take(number)
        for probe in answered:
            self._probes.remove(probe)
            outputs.append(ProbeAnswered(self._local_id))
        if pinged:
            self._packets.arrivals.acknowledge(number)

    def flush(self, remote: Address, outputs: Outputs) -> None:
        """Send the due packets to ``remote``."""
        self._packets.send_acks(self._packets.take_acks(), remote, outputs)
        if self._wanted:
            self._wanted = False
            self._probes.append(self._packets.next_number)
            self._packets.send(PING_FRAME, remote, outputs)


def _marks(ack: AckFrame, number: int) -> bool:
    """Return whether an ACK frame names packet ``number``."""
    newest, fresh, again = ack
    behind = newest - number
    return behind == 0 or (0 < behind <= MARKS and (fresh | again) >> behind - 1 & 1 == 1)
