"""Datagrams through the relay, by a short path.

The port of one side reads a datagram into one shared buffer, the side returns the destination, and the port of the
other side sends it. The machine's ``step`` processes commands only.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from wanderbus.machine import Address
from wanderbus.relay import Side
from wanderbus.runtime.net.driver import open_udp

_DATAGRAMS_A_TURN: Final = 64
"""Datagrams read from one port before other ports have their turn."""

_DATAGRAM_BYTES: Final = 65_536


class DatagramPort:
    """Socket of one side; sends what it receives through the socket of the other side."""

    buffer = bytearray(_DATAGRAM_BYTES)
    view = memoryview(buffer)

    def __init__(self, side: Side, address: Address) -> None:
        self._side = side
        self._loop = asyncio.get_running_loop()
        self._socket = open_udp(address)
        self._other: socket.socket | None = None
        self._loop.add_reader(self._socket, self._forward)

    def pair(self, other: DatagramPort) -> None:
        """Forward what each of the two ports receives through the other."""
        self._other, other._other = other._socket, self._socket

    def close(self) -> None:
        """Close the socket."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _forward(self) -> None:
        """Forward the datagrams that have arrived, up to the bound for one turn."""
        receive, send = self._socket.recvfrom_into, self._other.sendto if self._other is not None else None
        take, now, buffer, view = self._side.take, self._loop.time(), self.buffer, self.view
        for _ in range(_DATAGRAMS_A_TURN):
            try:
                size, source = receive(buffer)
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP error for an earlier datagram, which is lost
            datagram = view[:size]
            destination = take(source[:2], datagram, now)
            if destination is not None and send is not None:
                try:
                    send(datagram, destination)
                except OSError:
                    self._side.figures.unsent += 1
