"""The process of a gateway's link: it passes datagrams between one gateway and those of other domains, until it is cut.

``python -m demo.gateway_link HOST GATEWAY_PORT LINK_PORT PORT=PEER:PEER_PORT...``: peers reach the gateway at
HOST:LINK_PORT, and the gateway reaches each peer at a port of HOST. A gateway answers only the address that its file
has for the other one, so both sides need an address here. Orders: ``{"do": "cut"}``, after which every datagram is
dropped in both directions, and ``{"do": "mend"}``. Reports: ``{"ready": true}``, then ``{"cut": ..., "dropped": n}``
after each order.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from demo.json_lines import orders, report

Address = tuple[str, int]


class GatewayLink:
    """The link of the gateway at ``gateway``, whose peers are by the address of the link that stands for each."""

    def __init__(self, gateway: Address, peers: Mapping[Address, Address]) -> None:
        self.is_cut = False
        self.dropped = 0
        self._gateway = gateway
        self._peers = peers
        self._inside: dict[Address, asyncio.DatagramTransport] = {}
        """Sockets towards the gateway, by peer."""

    async def open(self, address: Address) -> None:
        """Listen at the address where peers reach the gateway, and where it reaches them."""
        loop = asyncio.get_running_loop()
        outside, _ = await loop.create_datagram_endpoint(partial(_Side, self._to_gateway), local_addr=address)
        for local, peer in self._peers.items():

            def to_peer(data: bytes, source: Address, peer: Address = peer) -> None:
                if source == self._gateway and self._passes():
                    outside.sendto(data, peer)

            inside, _ = await loop.create_datagram_endpoint(partial(_Side, to_peer), local_addr=local)
            self._inside[peer] = inside

    def close(self) -> None:
        """Close the sockets towards the gateway."""
        for inside in self._inside.values():
            inside.close()

    def _to_gateway(self, data: bytes, source: Address) -> None:
        if (inside := self._inside.get(source)) is not None and self._passes():
            inside.sendto(data, self._gateway)

    def _passes(self) -> bool:
        self.dropped += self.is_cut
        return not self.is_cut


class _Side(asyncio.DatagramProtocol):
    """One side of the link; it passes each datagram to ``take`` with its source."""

    def __init__(self, take: Callable[[bytes, Address], None]) -> None:
        self._take = take

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._take(data, (addr[0], addr[1]))

    def error_received(self, exc: Exception) -> None:
        """Ignore that a gateway is down: those who call it try again."""


def address_in(text: str) -> Address:
    """Return the address in ``HOST:PORT``."""
    host, _, port = text.rpartition(":")
    return host, int(port)


async def main(host: str, gateway_port: str, link_port: str, *peers: str) -> None:
    """Pass datagrams on, and follow orders until there are no more."""
    found = {(host, int(port)): address_in(peer) for port, _, peer in (each.partition("=") for each in peers)}
    link = GatewayLink((host, int(gateway_port)), found)
    await link.open((host, int(link_port)))
    report(ready=True)
    async for order in orders():
        link.is_cut = order.get("do") == "cut"
        report(cut=link.is_cut, dropped=link.dropped)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
