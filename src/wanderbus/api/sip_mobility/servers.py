"""SIP servers for SIPMobility: registrar, location service and proxy of one domain (SPEC C-20).

They include no broker; :class:`wanderbus.Server` has both. Any other SIP server can be used as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from wanderbus.api.sip_mobility.ports import take_ports
from wanderbus.errors import ConfigurationError
from wanderbus.machine import Address, shown
from wanderbus.runtime.net.driver import Driver, Unmade
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.sip.proxy.sip_server import SOCKET, SIPServer

_KEY_BYTES = 32


class SIPServers:
    """Registrar, location service and proxy in this process; an async context manager.

    :param domain: users are ``sip:name@domain``
    :param users: names and passwords
    :param host: the IP address to listen on, one that user agents can reach
    :param port: for UDP and TCP; 0 takes a free one
    """

    def __init__(self, domain: str, users: Mapping[str, str], *, host: str = "127.0.0.1", port: int = 5060) -> None:
        self._domain = domain
        self._users = dict(users)
        self._driver: Driver | None = None
        self.address: Address = (host, port)
        """The listening address, once started."""

    @property
    def place(self) -> str:
        """The address as ``host:port``, for properties."""
        return shown(self.address)

    async def __aenter__(self) -> Self:
        random = SystemRandom()
        driver = Driver(Unmade(), lambda report: None)
        try:
            self.address = take_ports(driver, SOCKET, self.address, "TCP")
        except ConfigurationError:
            driver.close()
            raise
        key = random.token(_KEY_BYTES)
        streams = {"TCP": self.address}
        driver.machine = SIPServer(self._domain, self.address, self._users.get, random, key, streams=streams)
        self._driver = driver
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None
