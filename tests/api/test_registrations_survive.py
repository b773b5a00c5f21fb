"""A restarted server still knows all registered addresses (SPEC C-20, D-12), over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from wanderbus.machine import Address
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.server.server import Server
from wanderbus.sip.authentication.digest import DigestClient
from wanderbus.sip.message.message import Request, Response, encode_message, parse_message
from wanderbus.sip.proxy.routing_script import Forward, Reject, RoutingContext, Verdict
from wanderbus.sip.proxy.sip_server import SIPServer

pytestmark = pytest.mark.integration

BOB = "sip:bob@localhost"


class Phone:
    """One UDP socket that registers."""

    def __init__(self, server: Address) -> None:
        self.server = server
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.address = self.socket.getsockname()
        self.digest = DigestClient("bob", "builder", SystemRandom())
        self.cseq = 0

    async def received(self) -> bytes:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.socket, 65_535), 5.0)

    async def register(self, contact: str | None, cseq: int | None = None) -> Response:
        """Send a REGISTER, a query if ``contact`` is None; return the answer after any challenge."""
        while True:
            self.cseq = self.cseq + 1 if cseq is None else cseq
            self.socket.sendto(encode_message(self.digest.authorize(self._register(contact))), self.server)
            response = parse_message(await self.received())
            assert isinstance(response, Response)
            if response.status != 401 or not self.digest.learn(response):
                return response

    def _register(self, contact: str | None) -> Request:
        branch = f"z9hG4bK{SystemRandom().token(8).hex()}"
        headers = (
            ("Via", f"SIP/2.0/UDP 127.0.0.1:{self.address[1]};rport;branch={branch}"),
            ("Max-Forwards", "70"),
            ("From", f"<{BOB}>;tag=1"),
            ("To", f"<{BOB}>"),
            ("Call-ID", "phone-1"),
            ("CSeq", f"{self.cseq} REGISTER"),
            ("User-Agent", "a phone whose name is long enough for a challenge"),
        )
        contacts = () if contact is None else (("Contact", contact), ("Expires", "60"))
        return Request("REGISTER", "sip:localhost", headers + contacts)


def in_a_loop(test: Callable[[Path], Coroutine[object, object, None]]) -> Callable[[Path], None]:
    """Run an asynchronous test in pytest."""

    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def server(data: Path, **options: object) -> Server:
    return Server(domain="localhost", data_dir=data, users={"bob": "builder"}, port=0, **options)  # type: ignore[arg-type]


@in_a_loop
async def test_bindings_cseq_and_remaining_time_survive_a_restart(tmp_path: Path) -> None:
    async with server(tmp_path) as first:
        phone = Phone(first.address)
        granted = await phone.register("<sip:bob@127.0.0.1:7777>", cseq=None)
        assert granted.status == 200
        await asyncio.sleep(1.1)
    async with server(tmp_path) as second:
        phone.server = second.address
        (contact,) = (await phone.register(None)).contacts
        assert str(contact.uri) == "sip:bob@127.0.0.1:7777"
        assert 50 <= int(contact.param("expires") or "") <= 59
        late = await phone.register("<sip:bob@127.0.0.1:7777>", cseq=1)
        assert (late.status, late.reason) == (500, "CSeq Out Of Order")
        assert (await phone.register("<sip:bob@127.0.0.1:7777>;expires=0", cseq=90)).contacts == []
    async with server(tmp_path) as third:
        phone.server = third.address
        assert (await phone.register(None, cseq=99)).contacts == []
    phone.socket.close()


@in_a_loop
async def test_a_user_who_was_taken_off_the_list_is_not_restored(tmp_path: Path) -> None:
    async with server(tmp_path) as first:
        phone = Phone(first.address)
        assert (await phone.register("<sip:bob@127.0.0.1:7777>")).status == 200
    async with Server(domain="localhost", data_dir=tmp_path, users={"carol": "x"}, port=0):
        pass
    async with server(tmp_path) as third:
        phone.server = third.address
        assert (await phone.register(None)).contacts == []
    phone.socket.close()


@in_a_loop
async def test_a_routing_script_is_given_to_the_server(tmp_path: Path) -> None:
    """SPEC I-03: one argument."""

    class Closed:
        def route(self, request: Request, context: RoutingContext) -> Verdict:
            return Reject(480, "Closed Today") if context.user == "bob" else Forward()

    async with server(tmp_path, routing=Closed()) as running:
        phone = Phone(running.address)
        call = phone._register(None)
        headers = call.replacing("CSeq", "1 MESSAGE").headers
        phone.socket.sendto(encode_message(Request("MESSAGE", BOB, headers)), running.address)
        response = parse_message(await phone.received())
        assert isinstance(response, Response)
        assert (response.status, response.reason) == (480, "Closed Today")
        phone.socket.close()


class EdgeProxy(Phone):
    """One UDP socket that passes on the REGISTERs of a phone elsewhere."""

    def _register(self, contact: str | None) -> Request:
        return super()._register(contact).with_header("Via", "SIP/2.0/UDP 127.0.0.2;branch=z9hG4bKphone")


@pytest.mark.parametrize("known", [True, False])
def test_a_known_proxy_reports_the_address_of_a_phone(tmp_path: Path, known: bool) -> None:
    async def story() -> None:
        async with server(tmp_path, edge_proxies=("127.0.0.1",) if known else ()) as running:
            edge = EdgeProxy(running.address)
            assert (await edge.register("<sip:bob@127.0.0.2:7777>")).status == 200
            edge.socket.close()
            assert running._sip is not None
            machine = running._sip.machine
            assert isinstance(machine, SIPServer)
            (contact,) = machine.location.snapshot()[BOB]
            alias = "" if known else f";alias=127.0.0.1~{edge.address[1]}~1"
            assert contact.contact == f"sip:bob@127.0.0.2:7777{alias}"

    asyncio.run(story())
