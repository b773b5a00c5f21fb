"""Conversion of ``host:port`` into an address, with name lookup."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

from wanderbus.errors import ConfigurationError, NoResponse
from wanderbus.hosts import as_received, is_ip_address
from wanderbus.machine import Address, shown


def name_in(server: str) -> str | None:
    """Return the host name in ``server``, which its certificate must name; None for an IP address."""
    host = server.partition(":")[0] if server.count(":") == 1 else server
    return None if is_ip_address(host) or server.startswith("[") else host.lower()


def target_in(server: str, *, default_port: int = 5060) -> Address:
    """Return host and port of ``host``, ``host:port`` or ``[v6]:port``, without looking a name up.

    An IP address is returned in the form in which responses from it show it.

    :raises ConfigurationError: it is none of these
    """
    host, port_text = server, ""
    if server.startswith("["):
        host, _, port_text = server[1:].partition("]")
        port_text = port_text.removeprefix(":")
    elif server.count(":") == 1:
        host, _, port_text = server.partition(":")
    try:
        port = int(port_text) if port_text else default_port
        if not 0 < port < 65_536 or not host or any(each.isspace() for each in host) or not host.isprintable():
            raise ValueError
    except ValueError:
        raise ConfigurationError(f"{server!r} is not host:port") from None
    return as_received(host), port


def resolve(server: str, *, default_port: int = 5060) -> Address:
    """Return the address of ``host``, ``host:port`` or ``[v6]:port``; :class:`ConfigurationError` if there is none.

    A name lookup blocks; within an event loop, use :func:`resolved`.
    """
    return _look_up(target_in(server, default_port=default_port), server)


async def resolved(target: Address, wait_s: float) -> Address:
    """Return the address of ``target``, whose host may be a name, without blocking the loop.

    The lookup runs in a thread of its own that is never joined: without a name server it takes minutes.

    :raises ConfigurationError: there is no such host
    :raises NoResponse: no name server answered within ``wait_s``
    """
    if is_ip_address(target[0]):
        return target
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Address] = loop.create_future()

    def settle(address: Address | None, error: ConfigurationError | None) -> None:
        if found.done():
            return
        if error is not None:
            found.set_exception(error)
        elif address is not None:
            found.set_result(address)

    def look_up() -> None:
        address = fault = None
        try:
            address = _look_up(target, shown(target))
        except ConfigurationError as error:
            fault = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, address, fault)

    threading.Thread(target=look_up, name="wanderbus-names", daemon=True).start()
    try:
        async with asyncio.timeout(wait_s):
            return await found
    except TimeoutError:
        raise NoResponse(
            f"the host of {shown(target)!r} was not found in {wait_s:g} s: no name server answers; check the network"
        ) from None


def _look_up(target: Address, text: str) -> Address:
    try:
        found = socket.getaddrinfo(*target, type=socket.SOCK_DGRAM)
    except ValueError:
        raise ConfigurationError(f"{text!r} is not host:port") from None
    except OSError as error:
        raise ConfigurationError(f"the host of {text!r} cannot be found: {error.strerror}") from None
    # A server listens on one address, and a name such as localhost often has one of each IP version.
    address = min(found, key=lambda entry: entry[0] != socket.AF_INET)[4]
    return str(address[0]), int(address[1])
