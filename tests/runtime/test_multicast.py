"""Sockets of a multicast group on loopback (RFC 1112)."""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
import time
from collections.abc import Callable, Iterable

import pytest

from wanderbus.machine import Address, DatagramReceived, Input, Output, SendDatagram
from wanderbus.runtime.net.driver import Driver
from wanderbus.runtime.net.free_port import free_port
from wanderbus.runtime.net.multicast import open_multicast

HOST = "127.0.0.1"


@pytest.fixture
def group() -> Address:
    """A group of this test alone: every test on the machine gets what is sent to it."""
    return f"239.255.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}", free_port(HOST)


class Listener:
    """A machine that keeps what it receives."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        self.received += [each.data for each in inputs if isinstance(each, DatagramReceived)]
        return []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def test_every_driver_in_the_group_gets_a_datagram_and_closes_its_socket(group: Address) -> None:
    async def story() -> None:
        listeners = [Listener() for _ in range(3)]
        drivers = [Driver(each, lambda output: None) for each in listeners]
        for number, driver in enumerate(drivers, 1):
            host = f"127.0.0.{number}"
            assert driver.bind_multicast("m", group, host=host, interface=None, ttl=1) == group
        drivers[0].perform([SendDatagram("m", group, b"one")])
        await until(lambda: all(each.received == [b"one"] for each in listeners))
        sockets = [driver._sockets["m"] for driver in drivers]
        drivers[2].close()
        drivers[1].perform([SendDatagram("m", group, b"two")])
        await until(lambda: all(each.received == [b"one", b"two"] for each in listeners[:2]))
        assert listeners[2].received == [b"one"]
        for driver in drivers:
            driver.close()
        assert [each.fileno() for each in sockets] == [-1] * 3

    asyncio.run(story())


def test_a_datagram_to_the_host_does_not_reach_the_group(group: Address) -> None:
    with open_multicast(group, host=HOST) as joined, socket.socket(type=socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"one", (HOST, group[1]))
        joined.sendto(b"two", group)
        until_s = time.monotonic() + 5
        while True:
            try:
                assert joined.recv(100) == b"two"
                break
            except BlockingIOError:
                assert time.monotonic() < until_s
                time.sleep(0.005)


def test_a_named_interface_is_used(group: Address) -> None:
    name = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    with open_multicast(group, host="192.0.2.1", interface=name, ttl=0) as joined:
        assert joined.getsockname() == group
        assert joined.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 0


@pytest.mark.parametrize(
    ("host", "interface", "address", "number"),
    [
        (HOST, "none7", "239.255.7.1", errno.ENODEV),
        ("192.0.2.1", None, "239.255.7.1", errno.ENODEV),
        (HOST, None, "192.0.2.1", errno.EADDRNOTAVAIL),
        (HOST, None, HOST, errno.EINVAL),
    ],
)
def test_an_unusable_group_or_interface_is_an_error_and_leaves_no_socket(
    group: Address, monkeypatch: pytest.MonkeyPatch, host: str, interface: str | None, address: str, number: int
) -> None:
    opened: list[socket.socket] = []

    class Kept(socket.socket):
        def __init__(self, *arguments: int) -> None:
            super().__init__(*arguments)
            opened.append(self)

    monkeypatch.setattr(socket, "socket", Kept)
    with pytest.raises(OSError, match=r"\S") as found:
        open_multicast((address, group[1]), host=host, interface=interface)
    assert found.value.errno == number
    assert [each.fileno() for each in opened] == [-1]
