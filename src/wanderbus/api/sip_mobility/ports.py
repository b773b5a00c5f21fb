"""Binds the SIP ports of a user agent or a server: UDP, and TCP under the same number (RFC 3261 18.1.1)."""

from __future__ import annotations

from typing import Final, Literal

from wanderbus.errors import ConfigurationError
from wanderbus.machine import Address
from wanderbus.runtime.net.driver import Driver

Transport = Literal["UDP", "TCP"]

TRIES_MAX: Final = 16
"""Number of attempts to find a free UDP port whose number is free for TCP too."""


def take_ports(driver: Driver, socket: str, local: Address, transport: Transport) -> Address:
    """Listen at ``local`` (port 0: any), over UDP alone or both; return the address.

    Requests of more than 1,300 bytes use TCP if there is TCP. Raises ConfigurationError if a port is not available.
    """
    for last in range(TRIES_MAX, 0, -1):
        try:
            bound = driver.bind({socket: local})[socket]
            if transport == "TCP":
                driver.bind_streams(socket, {"TCP": bound}, local_host=bound[0])
            return bound
        except (OSError, OverflowError) as error:
            if local[1] == 0 and transport == "TCP" and last > 1:
                continue
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigurationError(f"SIP port {local[0]}:{local[1]} cannot be used: {reason}") from None
    raise AssertionError("the last try returns or raises")
