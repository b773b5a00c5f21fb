"""Taking the ports of a SIP server: UDP, TCP at the same port, and TLS where there is a certificate (RFC 3261 18.2)."""

from __future__ import annotations

import errno
import ssl
from typing import Final

from wanderbus.machine import Address, shown
from wanderbus.parameters.streams import StreamLimits
from wanderbus.runtime.net.driver import Driver

_TRIES: Final = 32
"""How many free UDP ports are tried until one is free for TCP too."""

DATAGRAMS_A_TURN: Final = 4
"""Datagrams that are taken before other sockets have their turn: to challenge a stranger takes half a millisecond."""


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
    """Let the socket ``name`` of ``driver`` be reached at ``address``; return that, and where streams are accepted.

    Port 0 takes a free one. TLS is served when ``server_tls`` is given, at ``tls_port``: a free port for 0, and the
    one above that of ``address`` for None. ``client_tls`` is for TLS connections that the server opens,
    ``peer_tls`` for those to servers of other domains; ``limits`` bound them all.

    Raises ``OSError`` if a port cannot be had, with transport and address as its ``filename``.
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
        return driver.bind({name: address}, datagrams_a_turn=DATAGRAMS_A_TURN)[name]
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"UDP port {shown(address)}") from None
    except OverflowError as error:
        raise OSError(errno.EINVAL, str(error), f"UDP port {shown(address)}") from None
