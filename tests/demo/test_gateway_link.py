"""The link of a gateway that can be cut, with real sockets on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from demo.gateway_link import Address, GatewayLink, address_in

SILENT_S = 0.1


@contextmanager
def party() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        own.setblocking(False)
        yield own


def free_address() -> Address:
    with party() as own:
        host, port = own.getsockname()
        return host, port


async def received(own: socket.socket) -> tuple[bytes, Address] | None:
    """The next datagram and its source; None if there is none."""
    try:
        async with asyncio.timeout(SILENT_S):
            data, (host, port) = await asyncio.get_running_loop().sock_recvfrom(own, 2_000)
    except TimeoutError:
        return None
    return data, (host, port)


def test_datagrams_pass_between_the_gateway_and_each_peer_until_the_link_is_cut() -> None:
    async def story() -> None:
        with party() as gateway, party() as one, party() as two, party() as stranger:
            outside, *locals_ = (free_address() for _ in range(3))
            peers = [peer.getsockname() for peer in (one, two)]
            link = GatewayLink(gateway.getsockname(), dict(zip(locals_, peers, strict=True)))
            await link.open(outside)
            for peer, local in zip((one, two), locals_, strict=True):
                peer.sendto(b"to the gateway", outside)
                assert await received(gateway) == (b"to the gateway", local)
                gateway.sendto(b"to the peer", local)
                assert await received(peer) == (b"to the peer", outside)
            stranger.sendto(b"from elsewhere", outside)
            stranger.sendto(b"from elsewhere", locals_[0])
            assert await received(gateway) is None
            assert await received(one) is None
            link.is_cut = True
            one.sendto(b"lost", outside)
            gateway.sendto(b"lost", locals_[0])
            assert await received(gateway) is None
            assert await received(one) is None
            assert link.dropped == 2
            link.is_cut = False
            two.sendto(b"again", outside)
            assert await received(gateway) == (b"again", locals_[1])
            link.close()

    asyncio.run(story())


def test_an_address_is_read_from_text() -> None:
    assert address_in("10.42.0.2:5900") == ("10.42.0.2", 5900)
