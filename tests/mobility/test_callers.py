"""Callers of a user agent: identities that its server asserts, and unasserted ones (RFC 3325, DESIGN 6.4)."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.sip.phone_world import CountingRandom
from wanderbus.machine import StreamClosed, StreamReceived
from wanderbus.mobility.composer import Composer
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.session.callers import Callers
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.sip.message.message import Request
from wanderbus.sip.message.targets import Target
from wanderbus.sip.transaction.transaction_layer import RequestReceived

SERVER = ("10.0.0.9", 5060)
SECURE = Target("TLS", ("10.0.0.9", 5061), "sip.b.example")
CAROL = "sip:carol@a.example"
LOCAL = Properties(uri="sip:broker@b.example", server=SERVER, server_is_local=True, vouched_domains=("a.example",))
REMOTE = Properties(
    uri="sip:broker@b.example",
    server=SECURE.address,
    transport="TLS",
    server_name=SECURE.server_name,
    vouched_domains=("a.example",),
)


def callers(properties: Properties) -> Callers:
    random = CountingRandom()
    authenticator = Authenticator("b.example", {"bob": "hunter2"}.get, b"key")
    return Callers(Composer(properties, ("10.0.0.9", 5070), random), authenticator)


def invite(identity: str | None = CAROL, sender: str = CAROL, method: str = "INVITE") -> Request:
    asserted = () if identity is None else (("P-Asserted-Identity", f"<{identity}>"),)
    headers = (
        ("Via", "SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bK1"),
        ("From", f"<{sender}>;tag=x"),
        ("To", "<sip:broker@b.example>"),
        ("Call-ID", "c"),
        ("CSeq", f"1 {method}"),
        *asserted,
    )
    return Request(method, "sip:broker@b.example", headers)


def status(
    callers: Callers, request: Request, source: tuple[str, int] = SERVER, connection: int | None = None
) -> int | None:
    transport: Literal["UDP", "TLS"] = "UDP" if connection is None else "TLS"
    refusal = callers.refusal(RequestReceived("t", request, source, transport, connection), 1.0)
    return None if refusal is None else refusal.status


@pytest.mark.parametrize("method", ["INVITE", "UPDATE", "BYE"])
def test_a_server_on_this_host_vouches_by_its_address(method: str) -> None:
    assert status(callers(LOCAL), invite(method=method)) is None


@pytest.mark.parametrize(
    ("request_", "source"),
    [
        (invite(), ("10.0.0.66", 5060)),
        (invite(), ("10.0.0.9", 5062)),
        (invite(None), SERVER),
        (invite("sip:dave@a.example"), SERVER),
        (invite("sip:carol@b.example"), SERVER),
        (invite(CAROL, "sip:dave@a.example"), SERVER),
    ],
)
def test_callers_that_the_server_does_not_assert_are_refused(request_: Request, source: tuple[str, int]) -> None:
    assert status(callers(LOCAL), request_, source) == 403


def test_a_domain_that_is_not_admitted_is_refused_without_a_challenge() -> None:
    """A challenge would have its user prove a password to us that is none of ours."""
    assert status(callers(LOCAL), invite("sip:eve@c.example", "sip:eve@c.example")) == 403


def test_assertions_about_our_own_users_are_refused() -> None:
    assert status(callers(LOCAL), invite("sip:bob@b.example", "sip:bob@b.example")) == 401


def received(connection: int, target: Target | None, transport: Literal["TCP", "TLS"] = "TLS") -> StreamReceived:
    return StreamReceived("sip", connection, SECURE.address, b"", transport, target)


def test_a_server_elsewhere_vouches_on_the_connection_that_we_opened_to_it() -> None:
    asked = callers(REMOTE)
    assert status(asked, invite(), SECURE.address, 7) == 403
    asked.note(received(7, SECURE))
    assert status(asked, invite(), SECURE.address, 7) is None
    assert status(asked, invite(), SECURE.address, 8) == 403
    assert status(asked, invite(), SECURE.address) == 403, "a datagram from there"
    asked.note(StreamClosed("sip", 7, "gone", SECURE))
    assert status(asked, invite(), SECURE.address, 7) == 403


def test_other_connections_prove_nothing() -> None:
    asked = callers(REMOTE)
    asked.note(received(1, None))
    asked.note(received(2, Target("TLS", ("10.0.0.66", 5061), "sip.b.example")))
    assert [status(asked, invite(), SECURE.address, connection) for connection in (1, 2)] == [403, 403]


def test_a_connection_in_the_clear_proves_nothing() -> None:
    plain = Properties(uri="sip:broker@b.example", server=SERVER, transport="TCP", vouched_domains=("a.example",))
    asked = callers(plain)
    asked.note(received(1, Target("TCP", SERVER), "TCP"))
    assert status(asked, invite(), SERVER, 1) == 403
