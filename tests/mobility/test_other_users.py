"""A dialog belongs to its two users: others may know its Call-ID and tags, and change nothing (RFC 3261 12.2, 22.2)."""

from __future__ import annotations

import pytest

from tests.mobility.scripted import Scripted, sdp
from tests.mobility.world import DOMAIN, Phone, SeededRandom, Talk, established, media_at, password_of
from wanderbus.mobility.messages import SessionRemoved
from wanderbus.sip.authentication.digest import DigestClient
from wanderbus.sip.message.message import Request, Response

ELSEWHERE = ("10.0.9.9", 5060)
BROKER = "sip:broker@10.0.1.1:5060"


def within_the_dialog(broker: Phone, method: str, user: str, *, uri: str = BROKER, number: int = 50) -> Request:
    """Return a request of ``user`` in the dialog that alice has with the broker."""
    dialog = broker.session().dialog
    assert dialog is not None
    headers = [
        ("Max-Forwards", "70"),
        ("From", f"<sip:{user}@{DOMAIN}>;tag={dialog.remote_tag}"),
        ("To", f"<sip:broker@{DOMAIN}>;tag={dialog.local_tag}"),
        ("Call-ID", dialog.call_id),
        ("CSeq", f"{number} {method}"),
        ("Contact", f"<sip:{user}@{ELSEWHERE[0]}:{ELSEWHERE[1]}>"),
    ]
    body = sdp(media_at(ELSEWHERE), version=9) if method == "INVITE" else b""
    return Request(method, uri, (*headers, *([("Content-Type", "application/sdp")] if body else [])), body)


def proved(sender: Scripted, broker: Phone, request: Request, user: str, *, signed_for: str | None = None) -> Response:
    """Return the answer to ``request`` with a digest of ``user``, made for another Request-URI if one is given."""
    client = DigestClient(user, password_of(user) or "", SeededRandom("proofs"))
    asked = sender.asks(broker, request)
    assert asked.status == 401
    assert client.learn(asked)
    number = request.cseq.number + 1
    again = request.replacing("CSeq", f"{number} {request.method}")
    if signed_for is not None:
        authorization = client.authorize(Request(request.method, signed_for, again.headers)).header("Authorization")
        return sender.asks(broker, again.with_header("Authorization", authorization or ""))
    return sender.asks(broker, client.authorize(again))


@pytest.fixture
def talk() -> Talk:
    return established()


@pytest.mark.parametrize("method", ["BYE", "UPDATE", "INVITE"])
def test_the_dialog_of_another_user_is_left_alone(talk: Talk, method: str) -> None:
    world, _, broker = talk
    before = broker.session()
    bob = Scripted(world, ELSEWHERE)
    refusal = proved(bob, broker, within_the_dialog(broker, method, "bob"), "bob")
    assert (refusal.status, refusal.reason) == (403, "Not Your Dialog")
    assert broker.session() == before
    assert broker.all_of(SessionRemoved) == []


@pytest.mark.parametrize("method", ["BYE", "UPDATE", "INVITE"])
def test_its_own_user_may_be_anywhere(talk: Talk, method: str) -> None:
    world, _, broker = talk
    alice = Scripted(world, ELSEWHERE)
    assert proved(alice, broker, within_the_dialog(broker, method, "alice"), "alice").status == 200
    session = broker.agent.sessions.get("call")
    if method == "BYE":
        assert session is None
    else:
        assert session is not None
        assert session.dialog is not None
        assert session.dialog.remote_target == "sip:alice@10.0.9.9:5060"


def test_nobody_sends_in_the_name_of_another(talk: Talk) -> None:
    world, _, broker = talk
    refusal = proved(Scripted(world, ELSEWHERE), broker, within_the_dialog(broker, "BYE", "alice"), "bob")
    assert (refusal.status, refusal.reason) == (403, "Not Your Address")
    assert "call" in broker.agent.sessions


def test_an_unknown_dialog_is_indistinguishable_from_others(talk: Talk) -> None:
    world, _, broker = talk
    request = within_the_dialog(broker, "BYE", "bob")
    other = request.replacing("To", f"<sip:broker@{DOMAIN}>;tag=other")
    assert proved(Scripted(world, ELSEWHERE), broker, other, "bob").status == 481


@pytest.mark.parametrize(
    ("signed_for", "status"),
    [
        (f"sip:broker@{DOMAIN}", 200),
        (f"sips:broker@{DOMAIN.upper()}:5061;transport=tls", 200),
        ("sip:broker@10.0.1.1", 200),
        ("sip:broker@10.0.1.1:5060;alias=192.0.2.1~5060~1", 200),
        ("sip:brok%65r@10.0.1.1:5060", 200),
        (f"sip:bob@{DOMAIN}", 400),
        (f"sip:{DOMAIN}", 400),
        ("sip:broker@192.0.2.66", 400),
        ("tel:+15551234", 400),
        ("/", 400),
    ],
)
def test_rfc7616_3_4_6_credentials_are_for_whom_they_name(talk: Talk, signed_for: str, status: int) -> None:
    """A callee who lets alice sign a call to himself cannot reuse her credentials at the broker.

    A proxy replaces our address of record by our Contact, so the credentials may name either.
    """
    world, _, broker = talk
    alice = Scripted(world, ELSEWHERE)
    answer = proved(alice, broker, within_the_dialog(broker, "BYE", "alice"), "alice", signed_for=signed_for)
    assert answer.status == status
    assert ("call" in broker.agent.sessions) == (status != 200)
