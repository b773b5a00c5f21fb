"""A party that sends only the test's messages, datagram by datagram."""

from __future__ import annotations

from collections.abc import Sequence

from tests.mobility.world import DOMAIN, SERVER, Node, Phone, SeededRandom, World, media_at
from wanderbus.machine import Address
from wanderbus.sip.message.message import Request, Response, make_response
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription
from wanderbus.sip.transaction.transaction_layer import (
    AckReceived,
    RequestReceived,
    Respond,
    ResponseReceived,
    SendAck,
    SendRequest,
    TransactionLayer,
)

Headers = Sequence[tuple[str, str]]


def sdp(*lines: MediaDescription, version: int = 1) -> bytes:
    """Return a description with these lines."""
    return SessionDescription("-", 1, version, lines[0].address, lines).encode()


class Scripted(Node):
    """Sends and answers by script, through a transaction layer; takes over ``address`` from its previous owner."""

    def __init__(self, world: World, address: Address = SERVER) -> None:
        layer = TransactionLayer(SeededRandom(f"scripted {address}"), local=address)
        super().__init__(world, layer, address)
        if address in world.nodes:
            world.nodes[address].crash()
        world.add(self)
        self._asked = 0

    def got(self, method: str) -> list[RequestReceived]:
        """Return the requests of one kind that came, in order."""
        return [report for report in self.all_of(RequestReceived) if report.request.method == method]

    @property
    def acks(self) -> list[Request]:
        """The ACKs for a 200 that came."""
        return [report.request for report in self.all_of(AckReceived)]

    def says(
        self, status: int, tag: str | None = None, *, to: RequestReceived, headers: Headers = (), body: bytes = b""
    ) -> None:
        """Answer the request ``to``; a body is SDP."""
        fields = [*headers, ("Content-Type", "application/sdp")] if body else list(headers)
        if 100 < status < 300 and not any(name == "Contact" for name, _ in headers):
            fields.append(("Contact", f"<sip:peer@{self.address[0]}:{self.address[1]}>"))
        response = make_response(to.request, status, to_tag=tag, headers=fields, body=body)
        self.give(Respond(to.transaction, response))
        self.world.run(0.1)

    def accepts(self, invite: RequestReceived, tag: str = "peer", *, headers: Headers = (), port: int = 40_000) -> None:
        """Answer an offer with one line of ours."""
        self.says(200, tag, to=invite, headers=headers, body=sdp(media_at(self.address, port)))

    def sends(self, phone: Phone, request: Request) -> str:
        """Send ``request`` to ``phone`` and wait a little; return the name of its transaction."""
        self._asked += 1
        name = f"ask {self._asked}"
        self.give(SendRequest(name, request, phone.address))
        self.world.run(0.5)
        return name

    def asks(self, phone: Phone, request: Request) -> Response:
        """Send ``request`` to ``phone``; return the newest response to it."""
        name = self.sends(phone, request)
        return [report.response for report in self.all_of(ResponseReceived) if report.transaction == name][-1]

    def acknowledges(self, phone: Phone, request: Request, body: bytes = b"") -> None:
        """Send the ACK for a 200 to ``request``."""
        fields = tuple(field for field in request.headers if field[0] not in ("CSeq", "Content-Type"))
        fields += (("CSeq", f"{request.cseq.number} ACK"),)
        if body:
            fields += (("Content-Type", "application/sdp"),)
        self.give(SendAck(Request("ACK", request.uri, fields, body), phone.address))
        self.world.run(0.1)


def asking(
    method: str,
    number: int,
    to_tag: str | None = None,
    *,
    body: bytes = b"",
    contact: str = "10.0.9.9",
    headers: Headers = (),
) -> Request:
    """Return a request of a stranger who claims to be alice, to bob, with the Call-ID ``scripted``."""
    tag = "" if to_tag is None else f";tag={to_tag}"
    fields = [
        ("Max-Forwards", "70"),
        ("From", f"<sip:alice@{DOMAIN}>;tag=stranger"),
        ("To", f"<sip:bob@{DOMAIN}>{tag}"),
        ("Call-ID", "scripted"),
        ("CSeq", f"{number} {method}"),
        ("Contact", f"<sip:alice@{contact}:5060>"),
        *headers,
    ]
    if body:
        fields.append(("Content-Type", "application/sdp"))
    return Request(method, "sip:bob@10.0.1.1:5060", tuple(fields), body)
