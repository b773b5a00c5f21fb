"""From ``host:port`` as people write it to an address."""

from __future__ import annotations

import socket

from wanderbus.errors import ConfigurationError
from wanderbus.hosts import is_ip_address
from wanderbus.machine import Address


def name_in(server: str) -> str | None:
    """Return the host name in ``server``, None where that is an IP address: what its certificate has to name."""
    host = server.partition(":")[0] if server.count(":") == 1 else server
    return None if is_ip_address(host) or server.startswith("[") else host.lower()


def resolve(server: str, *, default_port: int = 5060) -> Address:
    """Return the address of ``host``, ``host:port`` or ``[v6]:port``; :class:`ConfigurationError` if there is none."""
    host, port_text = server, ""
    if server.startswith("["):
        host, _, port_text = server[1:].partition("]")
        port_text = port_text.removeprefix(":")
    elif server.count(":") == 1:
        host, _, port_text = server.partition(":")
    try:
        port = int(port_text) if port_text else default_port
        if not 0 < port < 65_536:
            raise ValueError
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except ValueError:
        raise ConfigurationError(f"{server!r} is not host:port") from None
    except OSError as error:
        raise ConfigurationError(f"the host of {server!r} cannot be found: {error.strerror}") from None
    # A server listens on one address, and a name such as localhost often stands for one of either family.
    address = min(found, key=lambda entry: entry[0] != socket.AF_INET)[4]
    return str(address[0]), int(address[1])
