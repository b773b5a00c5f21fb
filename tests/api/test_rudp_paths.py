"""A channel continues when the path to its connecting side changes (RFC 9000 9.3), as behind a NAT that rebinds."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from tests.api.test_rudp import SECRET, all_of, run
from wanderbus.api import rudp, rudp_socket
from wanderbus.api.rudp import RudpConfig
from wanderbus.machine import Address


class Nat(asyncio.DatagramProtocol):
    """Forwards between one client and ``server``; :meth:`rebind` gives the client another outside port.

    ``loss`` is the part of all datagrams, both ways, that it drops; ``pace_s`` the time that each takes to the server.
    """

    def __init__(self, server: Address, seed: int = 0) -> None:
        self._server = server
        self._random = random.Random(seed)
        self.loss = self.pace_s = 0.0
        self._free_at = 0.0
        self._client: Address | None = None
        self._inside: asyncio.DatagramTransport | None = None
        self.outside: asyncio.DatagramTransport | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def before(cls, server: Address, seed: int = 0) -> AsyncIterator[tuple[Nat, int]]:
        """Have one for the block, and the port that its client sends to."""
        loop = asyncio.get_running_loop()
        inside, nat = await loop.create_datagram_endpoint(lambda: cls(server, seed), local_addr=("127.0.0.1", 0))
        nat._inside = inside
        await nat.rebind()
        try:
            yield nat, inside.get_extra_info("sockname")[1]
        finally:
            inside.close()
            assert nat.outside is not None
            nat.outside.close()

    async def rebind(self) -> None:
        class Outside(asyncio.DatagramProtocol):
            def datagram_received(_, data: bytes, address: Address) -> None:  # noqa: N805
                assert self._inside is not None
                if self._random.random() >= self.loss:
                    self._inside.sendto(data, self._client)

        loop = asyncio.get_running_loop()
        before = self.outside
        self.outside, _ = await loop.create_datagram_endpoint(Outside, local_addr=("127.0.0.1", 0))
        if before is not None:
            before.close()

    def datagram_received(self, data: bytes, address: Address) -> None:
        self._client = address
        if self._random.random() >= self.loss:
            loop = asyncio.get_running_loop()
            self._free_at = max(self._free_at, loop.time()) + self.pace_s
            loop.call_at(self._free_at, self._forward, data)

    def _forward(self, data: bytes) -> None:
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
        config = RudpConfig(keepalive_s=0.1)
        async with (
            rudp.listen("127.0.0.1", secret=SECRET) as listener,
            Nat.before(listener.address) as (nat, port),
            rudp.connect("127.0.0.1", port, secret=SECRET, config=config) as here,
        ):
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

    run(story())


def test_messages_survive_a_path_that_changes_in_their_midst() -> None:
    messages = [str(number).encode() for number in range(20_000)]

    async def story() -> None:
        async with (
            rudp.listen("127.0.0.1", secret=SECRET) as listener,
            Nat.before(listener.address) as (nat, port),
            rudp.connect("127.0.0.1", port, secret=SECRET) as here,
        ):
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

    run(story())


def test_closing_waits_as_long_as_more_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow path is no reason to give up data that is still arriving."""
    monkeypatch.setattr(rudp_socket, "CLOSE_S_MAX", 0.4)
    messages = [bytes(1_000)] * 250

    async def story() -> None:
        async with (
            rudp.listen("127.0.0.1", secret=SECRET) as listener,
            Nat.before(listener.address) as (nat, port),
            rudp.connect("127.0.0.1", port, secret=SECRET) as here,
        ):
            there = await anext(listener)
            nat.pace_s = 0.005
            for message in messages:
                await here.send(message)
            hearing = asyncio.create_task(all_of(there))
            before = asyncio.get_running_loop().time()
            await here.close()
            assert asyncio.get_running_loop().time() - before > 2 * rudp_socket.CLOSE_S_MAX
            assert await hearing == messages

    run(story())


@pytest.mark.parametrize("seed", range(25))
def test_nobody_is_left_in_doubt_on_a_line_that_loses_packets(seed: int) -> None:
    """Either side may leave first: by then it has the ACK of the other's FIN."""
    config = RudpConfig(timeout_min_s=0.01, initial_timeout_s=0.02, timeout_max_s=0.1, retries_max=20)

    async def story() -> None:
        listening: asyncio.Future[Address] = asyncio.get_running_loop().create_future()

        async def listen() -> list[bytes]:
            async with rudp.listen("127.0.0.1", secret=SECRET, config=config) as listener:
                listening.set_result(listener.address)
                async with await anext(listener) as there:
                    await there.send(b"opened")
                    return await all_of(there)

        hearing = asyncio.create_task(listen())
        async with (
            Nat.before(await listening, seed) as (nat, port),
            rudp.connect("127.0.0.1", port, secret=SECRET, config=config) as here,
        ):
            assert await anext(here) == b"opened"
            nat.loss = 0.2
            await here.send(b"last word")
        assert await hearing == [b"last word"]

    run(story())
