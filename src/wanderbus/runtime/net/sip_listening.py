"""Ports of a SIP server: UDP, TCP at the same port, and TLS if it has a certificate (RFC 3261 18.2)."""

from __future__ import annotations

import errno
import ssl
from typing import Final

from wanderbus.machine import Address, shown
from wanderbus.parameters.transports import StreamLimits
from wanderbus.runtime.net.driver import Driver

_TRIES: Final = 32
"""UDP ports to try until one is free for TCP too."""

DATAGRAMS_A_TURN: Final = 4
"""Datagrams to read before other sockets have their turn: a challenge to a stranger takes half a millisecond."""

WAITED_S_MAX: Final = 1.0
"""Age from which on a message is discarded unread: its sender has sent it again after 0.5 s (T1 of RFC 3261), and an
agent gives up a call after 4 s."""


def listen_for_sip(
    driver: Driver,
    name: str,
    address: Address,
    *,
    tcp: bool,
    tls_port: int | None = None,
    server_tls: ssl.SSLContext | None = None,
    client_tls: ssl.SSLContext | None = None,
    peer_tls: ssl.SSLContext | None = None,
    limits: StreamLimits | None = None,
) -> tuple[Address, dict[str, Address]]:
    """Bind the socket ``name`` of ``driver`` to ``address``; return that, and the addresses that accept streams.

    Port 0 binds a free port. TLS is served when ``server_tls`` is given, at ``tls_port``: 0 is a free port, None the
    port above that of ``address``. ``client_tls`` is for TLS connections that the server opens, ``peer_tls`` for those
    to servers of other domains; ``limits`` apply to all connections.

    Raises ``OSError`` if a port cannot be bound, with transport and address as its ``filename``.
    """
    for remaining in reversed(range(_TRIES)):
        bound = _bind_udp(driver, name, address)
        wanted = {"TCP": bound} if tcp else {}
        if server_tls is not None:
            above = 0 if address[1] == 0 else bound[1] + 1
            wanted["TLS"] = (bound[0], above if tls_port is None else tls_port)
        try:
            streams = driver.bind_streams(
                name,
                wanted,
                server_tls=server_tls,
                client_tls=client_tls,
                peer_tls=peer_tls,
                local_host=bound[0],
                limits=limits,
            )
        except OSError as error:
            by_chance = address[1] == 0 and error.errno == errno.EADDRINUSE
            if by_chance and remaining:
                continue
            raise
        except OverflowError as error:
            raise OSError(errno.EINVAL, str(error), f"TLS port {tls_port}") from None
        return bound, streams
    raise AssertionError("the last try returns or raises")


def _bind_udp(driver: Driver, name: str, address: Address) -> Address:
    try:
        return driver.bind({name: address}, datagrams_a_turn=DATAGRAMS_A_TURN, waited_s_max=WAITED_S_MAX)[name]
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"UDP port {shown(address)}") from None
    except OverflowError as error:
        raise OSError(errno.EINVAL, str(error), f"UDP port {shown(address)}") from None
