"""A channel goes on when the way to its connecting side changes (RFC 9000 9.3), as behind a NAT that binds anew."""

from __future__ import annotations

import asyncio

from tests.api.test_rudp import SECRET, all_of, run
from wanderbus.api import rudp
from wanderbus.api.rudp import RudpConfig
from wanderbus.machine import Address


class Nat(asyncio.DatagramProtocol):
    """Forwards between one client and ``server``; :meth:`rebind` gives the client another outside port."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._client: Address | None = None
        self._inside: asyncio.DatagramTransport | None = None
        self.outside: asyncio.DatagramTransport | None = None

    @classmethod
    async def open(cls, server: Address) -> tuple[Nat, asyncio.DatagramTransport]:
        loop = asyncio.get_running_loop()
        inside, nat = await loop.create_datagram_endpoint(lambda: cls(server), local_addr=("127.0.0.1", 0))
        nat._inside = inside
        await nat.rebind()
        return nat, inside

    async def rebind(self) -> None:
        class Outside(asyncio.DatagramProtocol):
            def datagram_received(_, data: bytes, address: Address) -> None:  # noqa: N805
                assert self._inside is not None
                self._inside.sendto(data, self._client)

        loop = asyncio.get_running_loop()
        before = self.outside
        self.outside, _ = await loop.create_datagram_endpoint(Outside, local_addr=("127.0.0.1", 0))
        if before is not None:
            before.close()

    def datagram_received(self, data: bytes, address: Address) -> None:
        self._client = address
        assert self.outside is not None
        self.outside.sendto(data, self._server)

    @property
    def address(self) -> Address:
        assert self.outside is not None
        address: Address = self.outside.get_extra_info("sockname")
        return address


def test_the_listening_side_follows_a_path_that_changes() -> None:
    """Also if only a keepalive tells: then the listening side reaches the other again (RFC 9000 9.3)."""

    async def story() -> None:
        async with rudp.listen("127.0.0.1", secret=SECRET) as listener:
            nat, inside = await Nat.open(listener.address)
            port = inside.get_extra_info("sockname")[1]
            config = RudpConfig(keepalive_s=0.1)
            async with rudp.connect("127.0.0.1", port, secret=SECRET, config=config) as here:
                there = await anext(listener)
                for turn in range(3):
                    await nat.rebind()
                    for _ in range(100):
                        if there.remote == nat.address:
                            break
                        await asyncio.sleep(0.02)
                    assert there.remote == nat.address
                    await there.send(b"turn %d" % turn)
                    assert await anext(here) == b"turn %d" % turn
                await asyncio.gather(here.close(), there.close())
            inside.close()
            assert nat.outside is not None
            nat.outside.close()

    run(story())


def test_messages_survive_a_path_that_changes_in_their_midst() -> None:
    messages = [str(number).encode() for number in range(20_000)]

    async def story() -> None:
        async with rudp.listen("127.0.0.1", secret=SECRET) as listener:
            nat, inside = await Nat.open(listener.address)
            async with rudp.connect("127.0.0.1", inside.get_extra_info("sockname")[1], secret=SECRET) as here:
                there = await anext(listener)

                async def say() -> None:
                    for number, message in enumerate(messages):
                        if number % 5_000 == 2_500:
                            await nat.rebind()
                        await here.send(message)
                    await here.close()

                saying = asyncio.create_task(say())
                assert await all_of(there) == messages
                await there.close()
                await saying
            inside.close()
            assert nat.outside is not None
            nat.outside.close()

    run(story())
