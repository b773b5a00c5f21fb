"""The SIP stack of the helper: the user agent machine on a real socket (the JAIN SIP role, SPEC C-08)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final

from wanderbus.api.sip_mobility.ports import Transport, take_ports
from wanderbus.errors import Closed, LocalProtocolError
from wanderbus.machine import Address, Input, Output
from wanderbus.mobility.messages import StopUserAgent, Unregistered
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.request_handlers import RequestHandlers
from wanderbus.mobility.session.session import SIPSession
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.runtime.net.driver import Driver, Unmade
from wanderbus.runtime.system_random import SystemRandom

SOCKET: Final = "sip"

_log = logging.getLogger("wanderbus.sip_mobility")


class SIPStack:
    """One user agent with its socket and timers; its reports are passed to ``on_report`` in order."""

    def __init__(self, on_report: Callable[[Output], None]) -> None:
        self.replies = RequestHandlers(_failed)
        """The handlers that alter messages, kept from one opening to the next."""
        self._on_report = on_report
        self._driver: Driver | None = None
        self._agent: UserAgent | None = None
        self._contact: Address = ("", 0)
        self._transport: Transport = "UDP"
        self._farewell: asyncio.Event | None = None
        self._unregistered = False

    @property
    def sessions(self) -> Mapping[str, SIPSession]:
        """Every session by id; a live view."""
        return {} if self._agent is None else self._agent.sessions

    @property
    def contact(self) -> Address:
        """Our SIP address; :class:`Closed` while the stack is not open."""
        if self._agent is None:
            raise Closed("SIPMobility is not initialised; use it inside its async with block")
        return self._contact

    def open(self, properties: Properties, local: Address) -> None:
        """Bind the ports at ``local`` (port 0: any) and start.

        Raises ConfigurationError if they are not available, LocalProtocolError if the stack is open.
        """
        if self._driver is not None:
            raise LocalProtocolError("SIPMobility is initialised already")
        # The machine needs its address, so the socket is bound first; nothing is received before the loop runs.
        driver = Driver(Unmade(), self._report)
        transport: Transport = "TCP" if properties.transport == "TCP" else "UDP"
        contact = take_ports(driver, SOCKET, local, transport)
        agent = UserAgent(properties, SystemRandom(), socket=SOCKET, contact=contact)
        agent.replies = self.replies
        driver.machine = agent
        self._driver, self._agent = driver, agent
        self._contact, self._transport = contact, transport
        self._farewell = None
        self._unregistered = False

    def feed(self, *inputs: Input) -> None:
        """Pass ``inputs`` to the user agent; :class:`Closed` while the stack is not open."""
        if self._driver is None:
            raise Closed("SIPMobility is not initialised; use it inside its async with block")
        self._driver.feed(*inputs)

    def rebind(self, local: Address) -> Address:
        """Bind a socket at ``local`` to replace the present one; return our new address.

        ConfigurationError if that fails; the present one then remains. No peer or server is informed.
        """
        if self._driver is None:
            raise Closed("SIPMobility is not initialised; use it inside its async with block")
        if local != self._contact:
            self._contact = take_ports(self._driver, SOCKET, local, self._transport)
        return self._contact

    async def close(self, wait_s_max: float) -> None:
        """End every session and the registration, wait for the responses at most ``wait_s_max``, close the socket."""
        if self._driver is None:
            return
        self._farewell = asyncio.Event()
        self._unregistered = False
        self._driver.feed(StopUserAgent())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s_max):
                    await self._farewell.wait()
        finally:
            driver, self._driver, self._agent = self._driver, None, None
            if driver is not None:
                driver.close()

    def _report(self, output: Output) -> None:
        self._unregistered = self._unregistered or isinstance(output, Unregistered)
        self._on_report(output)
        if self._farewell is not None and self._unregistered and not self.sessions:
            self._farewell.set()


def _failed(fault: Exception) -> None:
    """Log an exception or a forbidden change of a handler; its message was sent unchanged."""
    if isinstance(fault, LocalProtocolError):
        _log.error("%s", fault)
    else:
        _log.error("a handler of SIP messages failed", exc_info=fault)
