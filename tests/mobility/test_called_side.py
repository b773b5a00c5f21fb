"""Responses of a user agent to requests it cannot or will not serve (RFC 3261 8.2, 14.2, 22; RFC 3264 6; DESIGN
6.4).
"""

from __future__ import annotations

import msgspec
import pytest

from tests.mobility.world import DOMAIN, Node, Phone, SeededRandom, Talk, World, media_at, password_of, settled
from wanderbus.mobility.messages import SessionEstablished, SessionOffered
from wanderbus.sip.authentication.digest import DigestClient
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription
from wanderbus.sip.transaction.transaction_layer import ResponseReceived, SendRequest, TransactionLayer

OFFER = SessionDescription("-", 1, 1, "10.0.9.9", (media_at(("10.0.9.9", 5060)),)).encode()


class Stranger(Node):
    """Sends arbitrary datagrams of a test."""

    def __init__(self, world: World) -> None:
        layer = TransactionLayer(SeededRandom("stranger"), local=("10.0.9.9", 5060))
        super().__init__(world, layer, layer.local)
        world.add(self)

    def asks(self, phone: Phone, request: Request) -> Response:
        """Send ``request`` straight to ``phone``; return the final response."""
        self.reports.clear()
        self.give(SendRequest(f"ask {self.world.now}", request, phone.address))
        self.world.run(0.5)
        return self.all_of(ResponseReceived)[-1].response


@pytest.fixture
def stranger(world: World) -> Stranger:
    return Stranger(world)


@pytest.fixture
def bob(world: World) -> Phone:
    phone = world.phone("bob", "10.0.1.1")
    world.run(0.5)
    return phone


def request(method: str = "INVITE", body: bytes = OFFER, *, user: str = "bob", **headers: str) -> Request:
    fields = {
        "Max-Forwards": "70",
        "From": f"<sip:alice@{DOMAIN}>;tag=stranger",
        "To": f"<sip:bob@{DOMAIN}>",
        "Call-ID": "made-up",
        "CSeq": f"1 {method}",
        "Contact": "<sip:alice@10.0.9.9:5060>",
        "Content-Type": "application/sdp",
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method, f"sip:{user}@10.0.1.1", tuple(fields.items()), body)


def test_an_offer_without_authenticator_is_taken_from_anybody(stranger: Stranger, bob: Phone) -> None:
    assert stranger.asks(bob, request()).status == 200
    assert len(bob.all_of(SessionEstablished)) == 1


@pytest.mark.parametrize(
    ("status", "made_up"),
    [
        (488, request(body=b"")),
        (415, request(Content_Type="text/plain")),
        (400, request(body=b"not a description")),
        (488, request(body=OFFER.replace(b"UDP", b"SCTP"))),
        (488, request(body=OFFER.replace(b"x-wanderbus", b"h264"))),
        (488, request(body=OFFER.replace(b"40000", b"0"))),
        (488, request(body=OFFER.replace(b"c=IN IP4 10.0.9.9", b"c=IN IP4 somewhere.example"))),
        (488, request(body=OFFER.replace(b"c=IN IP4 10.0.9.9", b"c=IN IP6 somewhere.example"))),
        (488, request(body=OFFER.replace(b"c=IN IP4 10.0.9.9", b"c=IN IP4 10.1"))),
        (488, request(body=OFFER + b"c=IN IP4 somewhere.example\r\n")),
        (400, request(Contact="<sip:alice@somewhere.example>")),
        (400, request(Contact="<mailto:alice@example.org>")),
        (404, request(user="carol")),
        (420, request(Require="100rel")),
        (400, request(Require='"')),
        (400, request(Session_Expires="soon")),
        (400, request(Min_SE="soon")),
        (422, request(Session_Expires="89", Supported="timer")),
        (405, request("MESSAGE")),
        (481, request("BYE")),
        (481, request(To=f"<sip:bob@{DOMAIN}>;tag=unknown")),
        (481, request("BYE", To=f"<sip:bob@{DOMAIN}>;tag=unknown")),
    ],
)
def test_refusals(stranger: Stranger, bob: Phone, status: int, made_up: Request) -> None:
    assert stranger.asks(bob, made_up).status == status
    assert bob.all_of(SessionOffered) == []
    assert bob.agent.sessions == {}


def test_options_lists_our_capabilities(stranger: Stranger, bob: Phone) -> None:
    response = stranger.asks(bob, request("OPTIONS", b""))
    assert response.status == 200
    assert response.headers_all("Allow") == ["INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "UPDATE"]
    assert response.headers_all("Accept") == ["application/sdp"]
    assert response.headers_all("Supported") == ["timer"]


def test_rfc3261_12_2_2_options_in_a_dialog_that_is_none_of_ours(stranger: Stranger, bob: Phone) -> None:
    to = stranger.asks(bob, request()).header("To") or ""
    assert stranger.asks(bob, request("OPTIONS", b"", CSeq="2 OPTIONS", To=to)).status == 200
    assert stranger.asks(bob, request("OPTIONS", b"", CSeq="3 OPTIONS", To=f"{to}x")).status == 481


def test_rfc3264_6_every_line_of_an_offer_is_answered(stranger: Stranger, bob: Phone) -> None:
    voice = MediaDescription(media="audio", address="10.0.9.9", port=4000, protocol="RTP/AVP", formats=("0",))
    ours = media_at(("10.0.9.9", 5060))
    offer = SessionDescription("-", 1, 1, "10.0.9.9", (voice, ours, ours))
    response = stranger.asks(bob, request(body=offer.encode()))
    answer = SessionDescription.parse(response.body)
    assert [(media.media, media.port) for media in answer.media] == [
        ("audio", 0),
        ("application", 40_000),
        ("application", 0),
    ]


def test_a_line_that_is_not_in_use_may_be_anywhere(stranger: Stranger, bob: Phone) -> None:
    unused = b"m=audio 0 RTP/AVP 0\r\nc=IN IP4 somewhere.example\r\n"
    named = OFFER.replace(b"o=- 1 1 IN IP4 10.0.9.9", b"o=- 1 1 IN IP4 somewhere.example")
    assert stranger.asks(bob, request(body=named + unused)).status == 200


@pytest.mark.parametrize(
    ("status", "made_up"),
    [
        (482, request(CSeq="6 INVITE", From=f"<sip:mallory@{DOMAIN}>;tag=stranger")),
        (482, request(CSeq="6 INVITE", From=f"<sip:alice@{DOMAIN}>;tag=other")),
        (500, request(CSeq="4 INVITE")),
    ],
)
def test_the_id_of_a_session_belongs_to_its_caller(
    stranger: Stranger, bob: Phone, status: int, made_up: Request
) -> None:
    """RFC 3261 8.2.2.2; SPEC C-19."""
    stranger.asks(bob, request(CSeq="5 INVITE"))
    assert stranger.asks(bob, made_up).status == status
    assert len(bob.all_of(SessionOffered)) == 1


def test_the_same_caller_may_invite_again_under_the_same_id(stranger: Stranger, bob: Phone) -> None:
    stranger.asks(bob, request())
    assert stranger.asks(bob, request(CSeq="2 INVITE")).status == 200
    assert [report.update for report in bob.all_of(SessionEstablished)] == [False, True]


def test_rfc3261_12_2_2_a_request_older_than_the_last_is_refused(stranger: Stranger, bob: Phone) -> None:
    to = stranger.asks(bob, request(CSeq="5 INVITE")).header("To") or ""
    assert stranger.asks(bob, request(CSeq="4 INVITE", To=to)).status == 500
    assert stranger.asks(bob, request(CSeq="6 INVITE", To=to)).status == 200
    assert len(bob.agent.sessions) == 1


def test_rfc3261_14_2_a_second_reinvite_before_the_first_is_answered_gets_500(stranger: Stranger, bob: Phone) -> None:
    to = stranger.asks(bob, request()).header("To") or ""
    bob.answers = False
    stranger.asks(bob, request(CSeq="2 INVITE", To=to))
    response = stranger.asks(bob, request(CSeq="3 INVITE", To=to))
    assert response.status == 500
    assert response.header("Retry-After") is not None


@pytest.mark.parametrize("method", ["INVITE", "BYE"])
def test_an_authenticating_side_challenges_what_comes_from_outside(talk: Talk, method: str) -> None:
    """DESIGN 6.4: even when every tag is right."""
    world, alice, broker = talk
    response = Stranger(world).asks(broker, _forged(alice, method))
    assert response.status == 401
    assert response.header("WWW-Authenticate") is not None
    assert settled(alice, broker)


def test_a_user_speaks_for_nobody_else(talk: Talk) -> None:
    world, alice, broker = talk
    stranger = Stranger(world)
    bob = DigestClient("bob", password_of("bob") or "", SeededRandom("bob"))
    assert bob.learn(stranger.asks(broker, _forged(alice, "BYE")))
    assert stranger.asks(broker, bob.authorize(_forged(alice, "BYE"))).status == 403
    assert settled(alice, broker)


def _forged(alice: Phone, method: str) -> Request:
    """Return a request as alice would send it, but for her password."""
    dialog = alice.session().dialog
    assert dialog is not None
    headers = {"Contact": "<sip:alice@10.0.9.9:5060>", "Content-Type": "application/sdp"}
    forged = msgspec.structs.replace(dialog.next_request(method)[1], body=OFFER)
    return msgspec.structs.replace(forged, headers=(*forged.headers, *headers.items()))
