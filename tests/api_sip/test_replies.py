"""Control of the stack below: replies of the application's own, and replies changed by it (SPEC C-08)."""

from __future__ import annotations

import pytest

from tests.api_sip.parties import BOB, run, two
from wanderbus.api.sip_mobility import SIPCommunicationStatus
from wanderbus.errors import LocalProtocolError, SessionRefused
from wanderbus.mobility.replies import Replies
from wanderbus.sip.message import Request, Response, make_response
from wanderbus.sip.transactions import Respond

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
    replies = Replies()
    replies.alter("OPTIONS", lambda reply: reply.with_header("Server", "mine"))
    given = Respond("one", make_response(REQUEST, 200))
    altered = replies.altered(given)
    assert isinstance(altered, Respond)
    assert (altered.transaction, altered.response.header("Server")) == ("one", "mine")
    other = Respond("two", make_response(invite(), 200))
    assert replies.altered(other) is other
    replies.alter("OPTIONS", None)
    assert replies.altered(given) is given


@pytest.mark.parametrize(("ours", "theirs"), [(200, 486), (486, 200), (180, 200)])
def test_a_change_cannot_mean_another_outcome(ours: int, theirs: int) -> None:
    replies = Replies()
    replies.alter("INVITE", lambda reply: make_response(invite(), theirs))
    given = Respond("one", make_response(invite(), ours))
    assert replies.altered(given) is given


def test_an_invite_can_be_refused_instead_but_not_accepted() -> None:
    replies = Replies()
    replies.serve("INVITE", lambda request: make_response(request, 486))
    refusal = replies.instead(invite())
    assert refusal is not None
    assert refusal.status == 486
    replies.serve("INVITE", lambda request: make_response(request, 200))
    assert replies.instead(invite()) is None


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
            assert [session.communication for session in alice.told.sessions if session is not None] == [
                SIPCommunicationStatus.INVITING,
                SIPCommunicationStatus.DISCONNECTED,
                SIPCommunicationStatus.DISCONNECTED,
            ]
            assert "session_created" not in bob.told.names

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
