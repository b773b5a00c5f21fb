"""Sender of HEP packets to a collector (SPEC U-06)."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from typing import Final

from wanderbus.machine import Address

BURST_PACKETS: Final = 32
"""Packets sent without a pause: fewer than fit the receive buffer of the collector's socket."""

PAUSE_S: Final = 0.002
"""Pause after each burst."""


def send_hep(packets: Iterable[bytes], collector: Address) -> int:
    """Send HEP packets over UDP and return their number; OSError when there is no route to the collector.

    Packets are not acknowledged: a collector that does not listen is noticed only if its host reports that in time.
    """
    family = socket.AF_INET6 if ":" in collector[0] else socket.AF_INET
    count = 0
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.connect(collector)
        for count, packet in enumerate(packets, 1):
            sender.send(packet)
            if count % BURST_PACKETS == 0:
                time.sleep(PAUSE_S)
    return count
