"""Delayed link: ``python -m wanderbus.testbed.delayed_link HOST DEVICE HOST DEVICE SECONDS [BYTES]``.

Each end is a TUN device in the namespace of its host; each packet from one end enters the other after the delay. With
``BYTES``, longer packets are dropped silently: a black hole of path MTU discovery (RFC 2923 2.1). It prints ``ready``
when both devices exist, and ends on a signal. Many kernels lack netem, which would do the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wanderbus.testbed.launch import python
from wanderbus.testbed.namespaces import inside

TUN: Final = Path("/dev/net/tun")

WAITING_MAX: Final = 10_000
"""Largest number of packets in flight in one direction; more are dropped, as on a real link."""

PACKET_BYTES_MAX: Final = 65_536
"""Longest packet of all."""

_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_NO_PI: Final = 0x1001


def delayed_link(
    one: str,
    device_of_one: str,
    other: str,
    device_of_other: str,
    delay_s: float,
    packet_bytes_max: int = PACKET_BYTES_MAX,
) -> list[str]:
    """Return the command line of a link between devices in two namespaces, with this delay each way."""
    ends = one, device_of_one, other, device_of_other
    return python("wanderbus.testbed.delayed_link", *ends, str(delay_s), str(packet_bytes_max))


class LinkDirection:
    """Packets from one end to the other, each with the same delay."""

    def __init__(self, delay_s: float, send: Callable[[bytes], None], packet_bytes_max: int = PACKET_BYTES_MAX) -> None:
        self._delay_s = delay_s
        self._packet_bytes_max = packet_bytes_max
        self._send = send
        self._waiting: deque[tuple[float, bytes]] = deque()

    @property
    def due_s(self) -> float | None:
        """Return when the next packet leaves, None if none is in flight."""
        return self._waiting[0][0] if self._waiting else None

    def enter(self, packet: bytes, now_s: float) -> None:
        """Enqueue a packet, or drop it if it is too long or too many are in flight."""
        if len(packet) <= self._packet_bytes_max and len(self._waiting) < WAITING_MAX:
            self._waiting.append((now_s + self._delay_s, packet))

    def leave(self, now_s: float) -> None:
        """Send the packets that are due."""
        while self._waiting and self._waiting[0][0] <= now_s:
            self._send(self._waiting.popleft()[1])


def device(namespace: str, name: str) -> int:
    """Create a TUN device in a namespace and return its descriptor; closing it removes the device."""

    def make() -> int:
        descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN_NO_PI))
        return descriptor

    return inside(namespace, make)


def carry(one: int, other: int, delay_s: float, packet_bytes_max: int) -> None:
    """Forward packets between two devices for ever."""
    ways = {one: LinkDirection(delay_s, lambda packet: _write(other, packet), packet_bytes_max)}
    ways[other] = LinkDirection(delay_s, lambda packet: _write(one, packet), packet_bytes_max)
    while True:
        dues_s = [way.due_s for way in ways.values() if way.due_s is not None]
        wait_s = max(0.0, min(dues_s) - time.monotonic()) if dues_s else None
        ready, _, _ = select.select(list(ways), (), (), wait_s)
        for end in ready:
            with contextlib.suppress(BlockingIOError):
                while True:
                    ways[end].enter(os.read(end, PACKET_BYTES_MAX), time.monotonic())
        for way in ways.values():
            way.leave(time.monotonic())


def _write(end: int, packet: bytes) -> None:
    # A device that is down, or full, loses the packet.
    with contextlib.suppress(OSError):
        os.write(end, packet)


def main(
    one: str,
    device_of_one: str,
    other: str,
    device_of_other: str,
    delay_s: str,
    packet_bytes_max: str = str(PACKET_BYTES_MAX),
) -> None:
    """Create both ends and forward between them."""
    ends = device(one, device_of_one), device(other, device_of_other)
    print("ready", flush=True)
    carry(*ends, float(delay_s), int(packet_bytes_max))


if __name__ == "__main__":
    main(*sys.argv[1:])
