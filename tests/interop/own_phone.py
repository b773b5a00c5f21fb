"""A telephone of our own, the machine with its sockets: over UDP, TCP and TLS, at one local address after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from tests.certificates import Certificates
from tests.interop.kamailio import DOMAIN
from wanderbus.machine import Address, Input, Output
from wanderbus.mobility.messages import (
    AcceptOffer,
    AddressChanged,
    ChangeMedia,
    CreateSession,
    Refuse,
    Registered,
    SessionOffered,
    Start,
    StopUserAgent,
    Unregistered,
)
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.session.session import SIPSession
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.runtime.net.driver import Driver, Unmade
from wanderbus.runtime.net.tls import client_tls
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.sip.message.targets import Transport

PATIENCE_S = 30.0

Report = TypeVar("Report", bound=Output)


class Phone:
    """One user's telephone; ``decision`` is its response to an offer: answer (0), wait (None), or refuse with this
    status.

    ``username`` is the name for authentication, ``user`` unless given.
    """

    def __init__(self, user: str, password: str, server: Address, transport: Transport, username: str = "") -> None:
        self.uri = f"sip:{user}@{DOMAIN}"
        self.reports: list[Output] = []
        self.decision: int | None = 0
        self.media = MediaDescription(address="127.0.0.1", port=4_000)
        self._properties = Properties(
            self.uri, server, username=username, password=password, instance=f"<urn:uuid:{user}>", transport=transport
        )

    def start(self, certificates: Certificates | None) -> None:
        """Register. Over TCP and TLS it opens a connection to its server, and takes none itself."""
        self._driver = Driver(Unmade(), self._report)
        self._tls = certificates and client_tls(certificates.authority)
        self.agent = UserAgent(self._properties, SystemRandom(), contact=self._bind())
        self._driver.machine = self.agent
        self.give(Start())

    def give(self, *inputs: Input) -> None:
        """Give inputs to its user agent."""
        self._driver.feed(*inputs)

    def call(self, other: Phone) -> None:
        """Invite ``other``, once."""
        self.give(CreateSession("call", other.uri, self.media))

    async def move(self, address: str, other: Phone) -> None:
        """Move to ``address`` during a call with ``other``; return when ``other`` and the registrar know the new
        address.
        """
        registered = self.count(Registered)
        self.media = MediaDescription(address=address, port=4_000)
        self.give(AddressChanged(self._bind()), ChangeMedia(self.media))
        await until(lambda: other.sends_to == address and self.count(Registered) > registered)

    @property
    def sessions(self) -> list[SIPSession]:
        """The calls that it is in, or that begin."""
        return list(self.agent.sessions.values())

    @property
    def sends_to(self) -> str:
        """The address that the other side of its one call receives at."""
        (session,) = self.sessions
        return session.remote_media.address if session.remote_media else ""

    def count(self, kind: type[Report]) -> int:
        """Return how many reports of this kind there were."""
        return sum(isinstance(report, kind) for report in self.reports)

    def last(self, kind: type[Report]) -> Report:
        """Return the last report of this kind."""
        return next(report for report in reversed(self.reports) if isinstance(report, kind))

    def close(self) -> None:
        """Be gone, without a farewell."""
        self._driver.close()

    def _bind(self) -> Address:
        contact = self._driver.bind({"sip": (self.media.address, 0)})["sip"]
        if self._properties.transport != "UDP":
            self._driver.bind_streams("sip", {}, client_tls=self._tls, local_host=contact[0])
        return contact

    def _report(self, report: Output) -> None:
        self.reports.append(report)
        if isinstance(report, SessionOffered) and self.decision is not None:
            decided = Refuse(report.id, self.decision) if self.decision else AcceptOffer(report.id, self.media)
            self.give(decided)


@contextlib.asynccontextmanager
async def phones(*made: Phone, certificates: Certificates | None) -> AsyncIterator[None]:
    """Have these phones registered for the block, and see that they leave in good order."""
    try:
        for phone in made:
            phone.start(certificates)
        await until(lambda: all(phone.count(Registered) for phone in made))
        yield
        for phone in made:
            phone.give(StopUserAgent())
        await until(lambda: all(phone.count(Unregistered) for phone in made))
    finally:
        for phone in made:
            phone.close()
        await asyncio.sleep(0)


async def until(reached: Callable[[], object]) -> None:
    """Run the loop until ``reached`` is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not reached():
            await asyncio.sleep(0.005)
