"""The local address that leads to the server, and reports of its change (SPEC D-05)."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

import pytest

from wanderbus.runtime.net import addresses
from wanderbus.runtime.net.addresses import POLL_S, AddressMonitor, address_towards

SERVER = ("192.0.2.1", 5060)


class Route:
    """The address that leads to the server, as the test sets it; None while there is no route."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
        self.address = address
        self.reported: list[str] = []
        self.usable = True
        monkeypatch.setattr(addresses, "address_towards", lambda server: self.address)

    def changed(self, address: str) -> bool:
        self.reported.append(address)
        return self.usable


class NoTimer:
    """A timer that does not run by itself."""

    def cancel(self) -> None:
        """Do nothing."""


def watch(route: Route, story: Callable[[AddressMonitor], None], looks: int = 1) -> list[str]:
    """Run ``story``, then let the monitor check several times."""

    async def main() -> None:
        monitor = AddressMonitor(SERVER, route.changed, poll_s=60.0)
        story(monitor)
        for _ in range(looks):
            monitor._look()
        monitor.close()

    asyncio.run(main())
    return route.reported


def test_the_route_to_loopback_begins_at_loopback() -> None:
    assert address_towards(("127.0.0.1", 5060)) == "127.0.0.1"


def test_no_route_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse, raising=False)
    assert address_towards(SERVER) is None


def test_a_change_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    route = Route(monkeypatch, "10.0.0.1")
    assert watch(route, lambda _: setattr(route, "address", "10.0.0.2"), looks=3) == ["10.0.0.2"]


def test_an_unchanged_address_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(Route(monkeypatch, "10.0.0.1"), lambda _: None, looks=3) == []


def test_the_same_address_after_an_outage_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    route = Route(monkeypatch, "10.0.0.1")

    def outage(monitor: AddressMonitor) -> None:
        route.address = None
        monitor._look()
        route.address = "10.0.0.1"

    assert watch(route, outage) == ["10.0.0.1"]


def test_an_address_that_could_not_be_used_yet_is_offered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh IPv6 address is tentative for a second: the route has it, a socket cannot be bound to it."""
    route = Route(monkeypatch, "2001:db8::1")

    def tentative(monitor: AddressMonitor) -> None:
        route.address, route.usable = "2001:db8::2", False
        monitor._look()
        route.usable = True

    assert watch(route, tentative, looks=3) == ["2001:db8::2"] * 2


def test_d05_without_netlink_a_change_is_found_within_one_poll_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's clock is the test's: each period passes at once."""
    route = Route(monkeypatch, "10.0.0.1")
    monkeypatch.setattr(addresses, "_open_netlink", lambda: None)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        timers: list[tuple[float, Callable[[], None]]] = []

        def call_later(delay_s: float, call: Callable[[], None]) -> NoTimer:
            timers.append((delay_s, call))
            return NoTimer()

        monkeypatch.setattr(loop, "call_later", call_later)
        monitor = AddressMonitor(SERVER, route.changed)
        for period in range(3):
            route.address = f"10.0.0.{period + 2}"
            ((delay_s, call),) = timers
            assert delay_s == POLL_S
            timers.clear()
            call()
            assert route.reported[period:] == [route.address]
        monitor.close()

    asyncio.run(main())


def test_d05_the_kernel_reports_a_change_of_links_addresses_and_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket is a real one, of all groups about links, addresses and routes, and it is read."""
    opened = addresses._open_netlink()
    if opened is None:
        pytest.skip("this system has no netlink")
    groups = opened.getsockname()[1]
    opened.close()
    assert groups == 0x551
    route = Route(monkeypatch, "10.0.0.1")

    async def main() -> None:
        monitor = AddressMonitor(SERVER, route.changed, poll_s=60.0)
        assert monitor._netlink is not None
        assert asyncio.get_running_loop().remove_reader(monitor._netlink), "nobody reads what the kernel reports"
        monitor.close()

    asyncio.run(main())


@pytest.mark.parametrize("netlink", [True, False])
def test_polling_finds_a_change_with_and_without_netlink(monkeypatch: pytest.MonkeyPatch, netlink: bool) -> None:
    route = Route(monkeypatch, "10.0.0.1")
    if not netlink:
        monkeypatch.setattr(addresses, "_open_netlink", lambda: None)

    async def main() -> None:
        monitor = AddressMonitor(SERVER, route.changed, poll_s=0.005)
        route.address = "10.0.0.2"
        async with asyncio.timeout(5):
            while not route.reported:
                await asyncio.sleep(0.002)
        monitor.close()
        route.address = "10.0.0.3"
        await asyncio.sleep(0.02)

    asyncio.run(main())
    assert route.reported == ["10.0.0.2"], "a closed monitor says nothing"


def test_the_kernels_word_is_followed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    route = Route(monkeypatch, "10.0.0.1")
    kernel, netlink = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    netlink.setblocking(False)
    monkeypatch.setattr(addresses, "_open_netlink", lambda: netlink)

    async def main() -> None:
        monitor = AddressMonitor(SERVER, route.changed, poll_s=60.0)
        route.address = "10.0.0.2"
        kernel.send(b"something about addresses")
        kernel.send(b"something about routes")
        async with asyncio.timeout(5):
            while not route.reported:
                await asyncio.sleep(0)
        monitor.close()

    asyncio.run(main())
    kernel.close()
    assert route.reported == ["10.0.0.2"]
    assert netlink.fileno() == -1, "closing the monitor closes its socket"
