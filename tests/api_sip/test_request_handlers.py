"""Control of the stack below: replies of the application's own, and replies changed by it (SPEC C-08)."""

from __future__ import annotations

import pytest

from tests.api_sip.parties import BOB, run, two
from wanderbus.api.sip_mobility import SIPCommunicationStatus
from wanderbus.errors import LocalProtocolError, SessionRefused
from wanderbus.mobility.request_handlers import RequestHandlers
from wanderbus.sip.message.message import Message, Request, Response, make_response

REQUEST = Request(
    "OPTIONS",
    "sip:bob@example.org",
    (
        ("Via", "SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKx"),
        ("From", "<sip:alice@example.org>;tag=a"),
        ("To", "<sip:bob@example.org>"),
        ("Call-ID", "call"),
        ("CSeq", "1 OPTIONS"),
    ),
)


def invite() -> Request:
    return Request("INVITE", REQUEST.uri, REQUEST.headers).replacing("CSeq", "1 INVITE")


def test_a_changed_reply_is_sent_and_others_are_left_alone() -> None:
    replies = RequestHandlers()
    replies.alter("OPTIONS", lambda reply: reply.with_header("Server", "mine"))
    assert replies.edited(make_response(REQUEST, 200)).header("Server") == "mine"
    other = make_response(invite(), 200)
    assert replies.edited(other) is other
    assert replies.edited(REQUEST) is REQUEST
    replies.alter("OPTIONS", None)
    assert replies.edited(make_response(REQUEST, 200)).header("Server") is None


CHANGES: dict[str, tuple[Message, Message]] = {
    "the outcome (200 to 486)": (make_response(invite(), 200), make_response(invite(), 486)),
    "the outcome (486 to 200)": (make_response(invite(), 486), make_response(invite(), 200)),
    "the outcome (180 to 200)": (make_response(invite(), 180), make_response(invite(), 200)),
    "the method": (REQUEST, Request("INFO", REQUEST.uri, REQUEST.headers)),
    "CSeq": (REQUEST, REQUEST.replacing("CSeq", "2 OPTIONS")),
    "Via": (REQUEST, REQUEST.replacing("Via", "SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKother")),
    "Call-ID": (REQUEST, REQUEST.replacing("Call-ID", "other")),
    "the tag of From": (REQUEST, REQUEST.replacing("From", "<sip:alice@example.org>;tag=b")),
    "the tag of To": (make_response(REQUEST, 200, to_tag="b"), make_response(REQUEST, 200, to_tag="c")),
}


@pytest.mark.parametrize(("what", "messages"), CHANGES.items(), ids=CHANGES.keys())
def test_c08_a_change_that_cannot_be_is_named_and_never_dropped_in_silence(
    what: str, messages: tuple[Message, Message]
) -> None:
    before, after = messages
    strict, faults = RequestHandlers(), list[Exception]()
    lenient = RequestHandlers(faults.append)
    for replies in (strict, lenient):
        for method in ("INVITE", "OPTIONS"):
            replies.alter(method, lambda reply: after)  # type: ignore[arg-type,return-value]
            replies.alter_requests(method, lambda request: after)  # type: ignore[arg-type,return-value]
    with pytest.raises(LocalProtocolError, match="a handler may not change") as raised:
        strict.edited(before)
    assert what in str(raised.value)
    assert lenient.edited(before) is before
    assert [str(fault) for fault in faults] == [str(raised.value)]


def test_an_invite_can_be_refused_instead_but_not_accepted() -> None:
    replies = RequestHandlers()
    replies.serve("INVITE", lambda request: make_response(request, 486))
    refusal = replies.instead(invite())
    assert refusal is not None
    assert refusal.status == 486
    replies.serve("INVITE", lambda request: make_response(request, 200))
    with pytest.raises(LocalProtocolError, match="may not answer INVITE with 200"):
        replies.instead(invite())


@pytest.mark.parametrize("method", ["ACK", "CANCEL"])
def test_a_handler_that_could_never_be_asked_is_refused_at_once(method: str) -> None:
    with pytest.raises(LocalProtocolError, match=method):
        RequestHandlers().serve(method, lambda request: None)


def test_there_is_no_reply_to_an_ack() -> None:
    with pytest.raises(LocalProtocolError, match="ACK"):
        RequestHandlers().alter("ACK", lambda reply: reply)


@pytest.mark.integration
def test_c08_a_custom_handler_alters_a_reply() -> None:
    def signed(reply: Response) -> Response:
        return reply.with_header("Server", "made by hand")

    async def scenario() -> None:
        async with two() as (alice, bob):
            before = await alice.mobility.helper.request("OPTIONS", BOB)
            bob.mobility.set_reply_handler("OPTIONS", signed)
            after = await alice.mobility.helper.request("OPTIONS", BOB)
            assert (before.status, after.status) == (200, 200)
            assert (before.header("Server"), after.header("Server")) == (None, "made by hand")

    run(scenario())


@pytest.mark.integration
def test_c08_a_handler_replies_to_a_method_that_the_stack_does_not_serve() -> None:
    said: list[bytes] = []

    async def scenario() -> None:
        async with two() as (alice, bob):
            refused = await alice.mobility.helper.request("MESSAGE", BOB, body=b"hello")

            def take(request: Request) -> Response:
                said.append(request.body)
                return bob.mobility.helper.reply(request, 202)

            bob.mobility.set_request_handler("MESSAGE", take)
            taken = await alice.mobility.helper.request("MESSAGE", BOB, body=b"hello again")
            assert (refused.status, taken.status, said) == (405, 202, [b"hello again"])

    run(scenario())


@pytest.mark.integration
def test_c08_a_handler_refuses_a_session_instead_of_the_stack() -> None:
    async def scenario() -> None:
        async with two() as (alice, bob):
            bob.mobility.set_request_handler("INVITE", lambda request: bob.mobility.helper.reply(request, 486))
            with pytest.raises(SessionRefused) as refused:
                await alice.mobility.create_session(BOB)
            assert refused.value.status == 486
            assert [session.communication for session in alice.callbacks.sessions if session is not None] == [
                SIPCommunicationStatus.INVITING,
                SIPCommunicationStatus.DISCONNECTED,
                SIPCommunicationStatus.DISCONNECTED,
            ]
            assert "session_created" not in bob.callbacks.names

    run(scenario())


@pytest.mark.integration
def test_a_handler_that_raises_leaves_the_reply_to_the_stack() -> None:
    def fails(message: object) -> Response:
        raise RuntimeError("a fault of the application")

    async def scenario() -> None:
        async with two() as (alice, bob):
            bob.mobility.set_request_handler("OPTIONS", fails)
            bob.mobility.set_reply_handler("OPTIONS", fails)
            assert (await alice.mobility.helper.request("OPTIONS", BOB)).status == 200
            bob.mobility.set_reply_handler("OPTIONS", lambda reply: reply.with_header("Server", "a\r\nb"))
            assert (await alice.mobility.helper.request("OPTIONS", BOB)).header("Server") is None

    run(scenario())


@pytest.mark.integration
def test_methods_of_sessions_are_not_sent_by_the_helper() -> None:
    async def scenario() -> None:
        async with two() as (alice, _):
            with pytest.raises(LocalProtocolError, match="belongs to a session"):
                await alice.mobility.helper.request("BYE", BOB)

    run(scenario())
