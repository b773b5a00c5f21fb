"""A SIP server and phones on loopback with real sockets, over any transport and either family."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tests.certificates import Certificates
from wanderbus.machine import Address, Input, Output, SendDatagram, SendOnStream
from wanderbus.mobility.messages import (
    AcceptOffer,
    CreateSession,
    Registered,
    SessionEstablished,
    SessionOffered,
    SessionRemoved,
    Start,
    StopUserAgent,
    TerminateSession,
    Unregistered,
    UpdateSession,
)
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.runtime.net.driver import Driver
from wanderbus.runtime.net.sip_listening import listen_for_sip
from wanderbus.runtime.net.tls import client_tls, server_tls
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.sip.message.message import parse_message
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.sip.message.targets import Transport
from wanderbus.sip.proxy.sip_server import SIPServer

DOMAIN = "example.org"
PASSWORDS = {"alice": "wonder", "bob": "builder"}
PATIENCE_S = 30.0

Report = TypeVar("Report", bound=Output)


class Wire:
    """Messages that one machine sent: the first word of each, or the status and method, and the transport."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.sent: list[tuple[str, str]] = []

    def step(self, inputs: Any, now: float) -> list[Output]:
        outputs: list[Output] = self.machine.step(inputs, now)
        for output in outputs:
            if isinstance(output, SendDatagram | SendOnStream) and output.data.strip():
                over = "UDP" if isinstance(output, SendDatagram) else output.target.transport
                message = parse_message(output.data)
                first = output.data.split(b" ")[0].decode()
                what = f"{output.data.split(b' ')[1].decode()} {message.cseq.method}" if "/" in first else first
                self.sent.append((what, over))
        return outputs

    def transports_of(self, what: str) -> set[str]:
        return {over for sent, over in self.sent if sent == what}


class Phone:
    """A user agent with its sockets, whose owner answers every offer; ``listens``: others can connect to it."""

    def __init__(self, user: str, server: Address, transport: Transport, certificates: Certificates | None) -> None:
        self.user = user
        self.server = server
        self.transport = transport
        self.certificates = certificates
        self.reports: list[Output] = []
        self.driver = Driver(_Silent(), self._report)

    def start(self, *, listens: bool) -> None:
        host = self.server[0]
        contact = self.driver.bind({"sip": (host, 0)})["sip"]
        tls = client_tls(self.certificates.authority) if self.certificates else None
        own = server_tls(self.certificates.certificate, self.certificates.key) if self.certificates else None
        wanted: Any = {self.transport: contact} if listens and self.transport != "UDP" else {}
        self.driver.bind_streams("sip", wanted, server_tls=own, client_tls=tls, local_host=host)
        self.media = MediaDescription(address=host, port=40_000)
        properties = Properties(
            f"{self.user}@{DOMAIN}",
            self.server,
            password=PASSWORDS[self.user],
            instance=f"<urn:uuid:{self.user}>",
            transport=self.transport,
        )
        self.agent = UserAgent(properties, SystemRandom(), contact=contact)
        self.wire = Wire(self.agent)
        self.driver.machine = self.wire
        self.give(Start())

    def give(self, *inputs: Input) -> None:
        self.driver.feed(*inputs)

    def count(self, kind: type[Report]) -> int:
        return sum(isinstance(report, kind) for report in self.reports)

    def _report(self, report: Output) -> None:
        self.reports.append(report)
        if isinstance(report, SessionOffered):
            self.give(AcceptOffer(report.id, self.media))


class _Silent:
    def step(self, inputs: object, now: float) -> list[Output]:
        return []


class ServerOnLoopback:
    """The server machine with its sockets: UDP always, TCP always, TLS where there are certificates."""

    def __init__(self, host: str, certificates: Certificates | None) -> None:
        self.driver = Driver(_Silent(), lambda report: None)
        own = server_tls(certificates.certificate, certificates.key) if certificates else None
        trust = client_tls(certificates.authority) if certificates else None
        self.address, self.streams = listen_for_sip(
            self.driver, "sip", (host, 0), tcp=True, server_tls=own, client_tls=trust
        )
        machine = SIPServer(DOMAIN, self.address, PASSWORDS.get, SystemRandom(), b"k" * 32, streams=self.streams)
        self.wire = Wire(machine)
        self.driver.machine = self.wire

    def at(self, transport: Transport) -> Address:
        return self.address if transport == "UDP" else self.streams[transport]


@asynccontextmanager
async def call_of_two(
    transports: tuple[Transport, Transport], host: str, certificates: Certificates | None, *, listen: bool = True
) -> AsyncIterator[tuple[ServerOnLoopback, Phone, Phone]]:
    """Register alice and bob, and let alice call bob; ``transports`` are hers and his."""
    server = ServerOnLoopback(host, certificates)
    phones = [
        Phone(user, server.at(transport), transport, certificates)
        for user, transport in zip(PASSWORDS, transports, strict=True)
    ]
    try:
        for phone in phones:
            phone.start(listens=listen)
        alice, bob = phones
        await until(lambda: alice.count(Registered) and bob.count(Registered))
        alice.give(CreateSession("call", f"sip:bob@{DOMAIN}", alice.media))
        await until(lambda: alice.count(SessionEstablished) and bob.count(SessionEstablished))
        yield server, alice, bob
    finally:
        for driver in (server.driver, *(phone.driver for phone in phones)):
            driver.close()
        await asyncio.sleep(0)


async def update(phone: Phone, other: Phone, port: int) -> None:
    """Let ``phone`` move its media by re-INVITE, until both sides have it."""
    before = phone.count(SessionEstablished), other.count(SessionEstablished)
    phone.give(UpdateSession("call", MediaDescription(address=phone.media.address, port=port)))
    await until(lambda: phone.count(SessionEstablished) > before[0] and other.count(SessionEstablished) > before[1])


async def hang_up(phone: Phone, other: Phone) -> None:
    """End the call, then both registrations."""
    phone.give(TerminateSession("call"))
    await until(lambda: phone.count(SessionRemoved) and other.count(SessionRemoved))
    for each in (phone, other):
        each.give(StopUserAgent())
    await until(lambda: phone.count(Unregistered) and other.count(Unregistered))


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not reached():
            await asyncio.sleep(0.005)
