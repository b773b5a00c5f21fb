"""A proxy without a network: requests go in as the transaction layer reports them, commands come out."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sip.phone_world import CountingRandom
from wanderbus.sip.message.message import Request, Response, make_response
from wanderbus.sip.proxy.anchoring import RelayCalls
from wanderbus.sip.proxy.bindings import Binding, Domain
from wanderbus.sip.proxy.location import LocationService
from wanderbus.sip.proxy.proxy import Proxy
from wanderbus.sip.proxy.proxy_signals import Command, Report
from wanderbus.sip.proxy.routing_script import RoutingContext, RoutingScript, Verdict
from wanderbus.sip.transaction.transaction_layer import (
    AckReceived,
    RequestReceived,
    Respond,
    ResponseReceived,
    SendAck,
    SendRequest,
)

CALLER = ("10.0.0.1", 7)
BOB = "sip:bob@example.org"
SERVER = ("10.0.0.9", 5060)
NOW = 50.0


class Script:
    """A routing script that always returns one verdict and keeps the requests it was called with."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.asked: list[tuple[Request, RoutingContext]] = []

    def route(self, request: Request, context: RoutingContext) -> Verdict:
        self.asked.append((request, context))
        return self.verdict


class Desk:
    """A proxy for example.org where bob has ``devices``, carol has none and no other user exists."""

    def __init__(self, devices: int = 1, routing: RoutingScript | None = None, relay: RelayCalls | None = None) -> None:
        self.location = LocationService()
        self.location.replace(
            BOB, [Binding(f"sip:bob@10.0.0.{n + 2}:5062", 1000.0, f"c{n}", 1) for n in range(devices)]
        )
        domain = Domain("example.org", SERVER)
        known = {"bob", "carol"}.__contains__
        self.proxy = Proxy(domain, self.location, known, CountingRandom(), b"key", routing, relay=relay)

    def step(self, *reports: Report, now: float = NOW) -> list[Command]:
        return self.proxy.step(reports, now)

    def ask(self, request: Request, transaction: str = "s1") -> list[Command]:
        return self.step(RequestReceived(transaction, request, CALLER))

    def forked(self, request: Request, transaction: str = "s1") -> list[SendRequest]:
        return sent(self.ask(request, transaction))

    def acked(self, request: Request) -> list[SendAck]:
        commands = self.step(AckReceived(request, CALLER))
        return [command for command in commands if isinstance(command, SendAck)]

    def refused(self, request: Request) -> Response:
        """Return the answer to a request that goes nowhere."""
        commands = self.ask(request)
        assert sent(commands) == []
        (response,) = responses(commands)
        return response


def sip(
    method: str = "INVITE", uri: str = BOB, *extra: tuple[str, str], to_tag: str | None = None, call_id: str = "call-1"
) -> Request:
    headers = (
        ("Via", "SIP/2.0/UDP 10.0.0.1:7;branch=z9hG4bKcaller"),
        ("From", "<sip:alice@example.org>;tag=a"),
        ("To", f"<{BOB}>" + (f";tag={to_tag}" if to_tag else "")),
        ("Call-ID", call_id),
        ("CSeq", f"1 {method}"),
        ("Max-Forwards", "70"),
        *extra,
    )
    return Request(method, uri, headers)


def answer(branch: SendRequest, status: int, headers: Sequence[tuple[str, str]] = ()) -> ResponseReceived:
    """Return a callee's answer as the layer reports it, with the proxy's Via on top."""
    request = branch.request.with_first("Via", "SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bKproxy")
    response = make_response(request, status, to_tag=branch.transaction.replace("/", "-"), headers=headers)
    return ResponseReceived(branch.transaction, response)


def sent(commands: Sequence[Command]) -> list[SendRequest]:
    return [command for command in commands if isinstance(command, SendRequest)]


def cancelled(commands: Sequence[Command]) -> list[str]:
    """Return the Request-URIs that were cancelled."""
    return [command.request.uri for command in sent(commands) if command.request.method == "CANCEL"]


def responses(commands: Sequence[Command]) -> list[Response]:
    return [command.response for command in commands if isinstance(command, Respond)]


def statuses(commands: Sequence[Command]) -> list[int]:
    return [response.status for response in responses(commands)]
