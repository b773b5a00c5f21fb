"""Sending HEP packets to a collector (SPEC U-06)."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from typing import Final

from wanderbus.machine import Address

BURST_PACKETS: Final = 32
"""Packets sent without a pause: less than what the collector's socket holds."""

PAUSE_S: Final = 0.002
"""The pause after each burst."""


def send_hep(packets: Iterable[bytes], collector: Address) -> int:
    """Send HEP packets over UDP and return how many; OSError when there is no way to the collector.

    Nobody acknowledges them: a collector that does not listen is noticed only if its host says so in time.
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
