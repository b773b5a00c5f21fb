"""Reliable UDP for programs: encrypted messages, delivered once and in order, between hosts that move (SPEC F-09).

::

    async with rudp.listen("0.0.0.0", 4000, secret=SECRET) as listener:
        async for channel in listener: ...

    async with rudp.connect("server.example", 4000, secret=SECRET) as channel:
        await channel.send(b"...")
        async for message in channel: ...

It uses neither SIP nor a broker. Both sides know a secret. The connecting side may change its address: it continues the
same channel from the new one, and the listening side follows after it has challenged the new path.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Final, Self

from wanderbus.api.rudp_socket import Channel, ChannelSocket
from wanderbus.detection import MakeDetector
from wanderbus.errors import ConfigurationError
from wanderbus.machine import Address
from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.openings import OpenFailed
from wanderbus.runtime.net.addresses import AddressMonitor

__all__ = ["Channel", "Listener", "RudpConfig", "connect", "listen"]

SECRET_BYTES_MIN: Final = 16
"""Least length of a secret: whoever captures the opening of a channel can try secrets against it offline."""

CONNECTIONS_MAX: Final = 1_024
"""Default number of channels of a listener at once."""


class Listener:
    """Accepts the channels of connecting sides; made by :func:`listen`. Iterate over it to get each channel once."""

    def __init__(self, address: Address, opened: asyncio.Queue[Channel | OpenFailed | None]) -> None:
        self.address = address
        """The listening address."""
        self._opened = opened

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Channel:
        channel = await self._opened.get()
        if isinstance(channel, Channel):
            return channel
        self._opened.put_nowait(None)
        raise StopAsyncIteration


@contextlib.asynccontextmanager
async def connect(
    host: str,
    port: int,
    *,
    secret: bytes | str | None,
    encryption: bool = True,
    config: RudpConfig | None = None,
    local_address: str | None = None,
    connect_s_max: float = 10.0,
    detector: MakeDetector | None = None,
) -> AsyncIterator[Channel]:
    """Open a channel to the listener at ``host``:``port``, for the length of the block.

    :param secret: the same secret as on the listening side, at least 16 bytes that nobody can guess
    :param encryption: False sends in clear text; the other side needs False too, and the secret may then be None
    :param config: timeouts, sizes and limits; ``datagram_bytes_max`` and ``message_bytes_max`` as on the other side.
        The default has a ``keepalive_s`` of 5 s. ``consume_at_once`` and ``ack_delay_s`` have no effect.
    :param local_address: send from this IP address only; by default a change of address is followed
    :param connect_s_max: timeout of the opening
    :param detector: returns the failure detector of each channel; see :mod:`wanderbus.api.detecting` (SPEC G-26)
    :raises NoResponse: no listener with the secret responded there
    :raises Refused: the other side has its maximum number of channels
    :raises ConfigurationError: a secret, a host or an address is unusable

    Leaving the block raises the errors of :meth:`Channel.close`.
    """
    remote = await _resolved(host, port)
    local = await _resolved(local_address, 0) if local_address else ("::" if ":" in remote[0] else "0.0.0.0", 0)
    with ChannelSocket(_checked(secret, encryption), encryption, config, make_detector=detector) as opened:
        opened.bind(local)
        channel = await opened.dial(remote, connect_s_max)
        monitor = None if local_address else AddressMonitor(remote, lambda _: opened.moved(channel))
        try:
            async with channel:
                yield channel
        finally:
            if monitor is not None:
                monitor.close()


@contextlib.asynccontextmanager
async def listen(
    host: str,
    port: int = 0,
    *,
    secret: bytes | str | None,
    encryption: bool = True,
    config: RudpConfig | None = None,
    connections_max: int = CONNECTIONS_MAX,
    detector: MakeDetector | None = None,
) -> AsyncIterator[Listener]:
    """Accept channels at ``host``:``port`` for the length of the block; port 0 selects a free one.

    Leaving the block drops open channels without notice to the other side.

    :param connections_max: largest number of channels at once; further ones are refused
    :raises ConfigurationError: a secret or an address is unusable

    The other parameters are those of :func:`connect`.
    """
    local = await _resolved(host, port)
    with ChannelSocket(_checked(secret, encryption), encryption, config, connections_max, detector) as opened:
        yield Listener(opened.bind(local), opened.opened)


def _checked(secret: bytes | str | None, encryption: bool) -> bytes | None:
    """Return the secret as bytes; :class:`ConfigurationError` for one that is missing or too short."""
    given = secret.encode() if isinstance(secret, str) else secret
    if given is None and encryption:
        raise ConfigurationError("no secret was given; give one to both sides, or set encryption=False on both")
    if given is not None and len(given) < SECRET_BYTES_MIN:
        raise ConfigurationError(f"the secret has {len(given)} bytes; give at least {SECRET_BYTES_MIN} random ones")
    return given


async def _resolved(host: str, port: int) -> Address:
    """Return the address of ``host``, IPv4 if it has both; :class:`ConfigurationError` if it has none."""
    if not 0 <= port < 65_536:
        raise ConfigurationError(f"{port} is not a port; give one below 65536")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise ConfigurationError(f"the host {host!r} cannot be found: {reason}") from None
    address = min(found, key=lambda entry: entry[0] != socket.AF_INET)[4]
    return str(address[0]), int(address[1])
