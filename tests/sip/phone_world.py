"""A SIP server in virtual time, and phones that talk to it in datagrams."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import pytest

from wanderbus.machine import Address, CancelTimer, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.parameters.signalling import FloodLimits
from wanderbus.refusals import Limited, LoginRefused
from wanderbus.sip.authentication.digest import DigestClient
from wanderbus.sip.message.message import Message, Request, Response, encode_message, parse_message
from wanderbus.sip.proxy.bindings import BindingChanged, BindingsWritten
from wanderbus.sip.proxy.routing_script import RoutingFailed
from wanderbus.sip.proxy.sip_server import SIPServer

SERVER = ("10.0.0.9", 5060)
PASSWORDS = {"alice": "wonder", "bob": "builder", "carol": "king"}
BOB = "sip:bob@example.org"


class CountingRandom:
    """Tokens that differ, the same in every run."""

    def __init__(self) -> None:
        self.drawn = 0

    def token(self, n_bytes: int) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(n_bytes, "big")

    def uniform(self, low: float, high: float) -> float:
        return low


UNLIMITED = FloodLimits(
    requests_per_s=1e9,
    burst_requests=1e9,
    stranger_requests_per_s=1e9,
    stranger_burst_requests=1e9,
    strangers_requests_per_s=1e9,
    strangers_burst_requests=1e9,
)
"""No limits of requests, for tests of the other bounds."""


class World:
    """One server, virtual time, and an inbox for each address."""

    def __init__(self, **options: Any) -> None:
        self.server = SIPServer("example.org", SERVER, PASSWORDS.get, CountingRandom(), b"k" * 32, **options)
        self.now = 100.0
        self.timers: dict[Hashable, float] = {}
        self.inboxes: dict[Address, list[bytes]] = {}
        self.reports: list[BindingChanged] = []
        self.written: list[BindingsWritten] = []
        self.limited: list[Limited] = []
        self.refused_logins: list[LoginRefused] = []
        self.failures: list[RoutingFailed] = []

    def send(self, source: Address, data: bytes) -> None:
        self._step(DatagramReceived("sip", source, data))

    def advance(self, seconds: float) -> None:
        """Advance the clock, and fire every timer when it is due."""
        end = self.now + seconds
        while due := [(at, repr(key), key) for key, at in self.timers.items() if at <= end]:
            at, _, key = min(due)
            self.now = max(self.now, at)
            del self.timers[key]
            self._step(TimerFired(key))
        self.now = end

    def know(self, address: Address) -> None:
        """Let the server count the host of ``address`` among its known peers."""
        self.server._layer.peers.note(address[0], self.now)

    def bytes_at(self, address: Address) -> list[bytes]:
        """Return and remove the datagrams that have arrived at ``address``."""
        return self.inboxes.pop(address, [])

    def messages_at(self, address: Address) -> list[Message]:
        return [parse_message(data) for data in self.bytes_at(address)]

    def _step(self, given_: Input) -> None:
        self.perform(self.server.step([given_], self.now))

    def perform(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            match output:
                case SendDatagram(socket="sip", destination=destination, data=data):
                    self.inboxes.setdefault(destination, []).append(data)
                case SetTimer(key=key, at=at):
                    self.timers[key] = at
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case BindingChanged():
                    self.reports.append(output)
                case BindingsWritten():
                    self.written.append(output)
                case RoutingFailed():
                    self.failures.append(output)
                case Limited():
                    self.limited.append(output)
                case LoginRefused():
                    self.refused_logins.append(output)
                case _:
                    pytest.fail(f"unexpected {output}")


class Phone:
    """A minimal user agent: it writes requests and reads the messages that arrive at its address."""

    def __init__(self, world: World, user: str, address: Address, password: str | None = None) -> None:
        self.world = world
        self.user = user
        self.address = address
        self.digest = DigestClient(user, password or PASSWORDS[user], CountingRandom())
        self.cseq = 0
        self.branches = 0

    @property
    def contact(self) -> str:
        return f"<sip:{self.user}@{self.address[0]}:{self.address[1]}>"

    def request(self, method: str, uri: str, *extra: tuple[str, str], to: str | None = None) -> Request:
        self.cseq += 1
        self.branches += 1
        via = f"SIP/2.0/UDP {self.address[0]}:{self.address[1]};rport;branch=z9hG4bK{self.user}{self.branches}"
        headers = (
            ("Via", via),
            ("From", f"<sip:{self.user}@example.org>;tag=of-{self.user}"),
            ("To", to or f"<{uri}>"),
            ("Call-ID", f"call-of-{self.user}"),
            ("CSeq", f"{self.cseq} {method}"),
            ("Contact", self.contact),
            *([] if any(name == "Max-Forwards" for name, _ in extra) else [("Max-Forwards", "70")]),
            *extra,
        )
        return Request(method, uri, headers)

    def send(self, message: Message) -> None:
        self.world.send(self.address, encode_message(message))

    def take(self) -> list[Message]:
        return self.world.messages_at(self.address)

    def taken_request(self) -> Request:
        (message,) = self.take()
        assert isinstance(message, Request)
        return message

    def statuses(self) -> list[int]:
        return [message.status for message in self.take() if isinstance(message, Response)]

    def ask(self, method: str, uri: str, *extra: tuple[str, str]) -> int:
        """Send a request and return the last status that came."""
        self.send(self.request(method, uri, *extra))
        return self.statuses()[-1]

    def register(self, expires_s: int = 60, *, aor: str | None = None) -> Response:
        """Register, answering one challenge; the device names itself by ``+sip.instance``."""
        to = f"<{aor or f'sip:{self.user}@example.org'}>"
        response = self.register_once(expires_s, to)
        if response.status == 401 and self.digest.learn(response):
            response = self.register_once(expires_s, to)
        return response

    def register_at(self, contact: str) -> Response:
        """Register another contact than the phone's own."""
        agent = ("User-Agent", "a phone whose name is long enough for a challenge")
        while True:
            request = self.request("REGISTER", "sip:example.org", agent, to=f"<sip:{self.user}@example.org>")
            self.send(self.digest.authorize(request.replacing("Contact", contact)))
            (response,) = self.take()
            assert isinstance(response, Response)
            if response.status != 401 or not self.digest.learn(response):
                return response

    def register_once(self, expires_s: int, to: str) -> Response:
        request = self.request("REGISTER", "sip:example.org", ("Expires", str(expires_s)), to=to)
        named = request.replacing("Contact", f'{self.contact};+sip.instance="<urn:uuid:{self.user}>"')
        self.send(self.digest.authorize(named))
        (response,) = self.take()
        assert isinstance(response, Response)
        return response
