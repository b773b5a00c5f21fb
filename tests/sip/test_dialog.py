"""Dialogs (RFC 3261 12)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sip.transaction_world import make_request
from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.sip.message.dialog import Dialog
from wanderbus.sip.message.message import Request, Response, make_response

ROUTES = ("<sip:p1.example.com;lr>", "<sip:p2.example.com:5070;lr>")


def invitation(*, record_routes: tuple[str, ...] = (), number: int = 7) -> Request:
    request = make_request("INVITE", number=number).with_header("Contact", "<sip:alice@192.0.2.1:5062>;q=1")
    request = request.with_first("Via", "SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKone")
    for route in record_routes:
        request = request.with_header("Record-Route", route)
    return request


def acceptance(request: Request) -> Response:
    return make_response(request, 200, to_tag="b", headers=[("Contact", "<sip:bob@192.0.2.2;x=1>")])


def dialogs(*, record_routes: tuple[str, ...] = ()) -> tuple[Dialog, Dialog]:
    """The same dialog at the caller and at the callee."""
    request = invitation(record_routes=record_routes)
    return Dialog.from_uac(request, acceptance(request)), Dialog.from_uas(request, acceptance(request))


def test_rfc3261_12_1_2_dialog_at_the_caller() -> None:
    caller, _ = dialogs(record_routes=ROUTES)
    assert caller == Dialog(
        call_id="call",
        local_tag="a",
        remote_tag="b",
        local_uri="sip:alice@example.com",
        remote_uri="sip:bob@example.com",
        remote_target="sip:bob@192.0.2.2;x=1",
        route_set=(ROUTES[1], ROUTES[0]),
        local_cseq=7,
        remote_cseq=0,
    )


def test_rfc3261_12_1_1_dialog_at_the_callee() -> None:
    _, callee = dialogs(record_routes=ROUTES)
    assert callee == Dialog(
        call_id="call",
        local_tag="b",
        remote_tag="a",
        local_uri="sip:bob@example.com",
        remote_uri="sip:alice@example.com",
        remote_target="sip:alice@192.0.2.1:5062",
        route_set=ROUTES,
        local_cseq=0,
        remote_cseq=7,
    )


def test_rfc3261_12_1_1_sips_request_uri_makes_the_dialog_secure() -> None:
    request = msgspec.structs.replace(invitation(), uri="sips:bob@example.com")
    assert Dialog.from_uac(request, acceptance(request)).secure
    assert Dialog.from_uas(request, acceptance(request)).secure


@pytest.mark.parametrize("contact", [None, "*", "<mailto:bob@example.com>"])
def test_rfc3261_12_1_dialog_needs_a_sip_contact(contact: str | None) -> None:
    request = invitation().without("Contact")
    request = request if contact is None else request.with_header("Contact", contact)
    with pytest.raises(SIPParseError):
        Dialog.from_uas(request, acceptance(invitation()))


def test_rfc3261_12_2_1_1_request_within_a_dialog() -> None:
    caller, callee = dialogs(record_routes=ROUTES)
    following, bye = caller.next_request("BYE")
    assert (bye.method, bye.uri) == ("BYE", "sip:bob@192.0.2.2;x=1")
    assert [str(route) for route in bye.routes] == [ROUTES[1], ROUTES[0]]
    assert (bye.from_.tag, bye.to.tag, bye.call_id) == ("a", "b", "call")
    assert (bye.cseq.number, bye.cseq.method, bye.max_forwards) == (8, "BYE", 70)
    assert following.local_cseq == 8
    assert callee.accepts(bye) is None


def test_rfc3261_12_2_1_1_first_request_of_the_callee_is_number_1() -> None:
    caller, callee = dialogs()
    _, request = callee.next_request("INVITE")
    assert request.cseq.number == 1
    assert request.routes == []
    assert caller.accepts(request) is None


def test_rfc3261_12_2_1_1_strict_router_takes_the_request_uri() -> None:
    caller, _ = dialogs(record_routes=("<sip:p2.example.com;lr>", "<sip:strict.example.com;method=INVITE;x=1>"))
    _, request = caller.next_request("BYE")
    assert request.uri == "sip:strict.example.com;x=1"
    assert [str(route) for route in request.routes] == ["<sip:p2.example.com;lr>", "<sip:bob@192.0.2.2;x=1>"]
    assert caller.next_hop().address == ("strict.example.com", 5060)


@pytest.mark.parametrize(
    ("routes", "target", "hop"),
    [
        ((), "sip:bob@192.0.2.2", ("192.0.2.2", 5060)),
        ((), "sip:bob@192.0.2.2:5062", ("192.0.2.2", 5062)),
        ((), "sips:bob@192.0.2.2", ("192.0.2.2", 5061)),
        ((), "sip:bob@[2001:db8::1]:5062", ("2001:db8::1", 5062)),
        (("<sip:p2.example.com:5070;lr>",), "sip:bob@192.0.2.2", ("p2.example.com", 5070)),
    ],
)
def test_rfc3261_12_2_1_1_next_hop(routes: tuple[str, ...], target: str, hop: tuple[str, int]) -> None:
    dialog = msgspec.structs.replace(dialogs()[0], route_set=routes).retargeted(target)
    assert dialog.next_hop().address == hop


def test_rfc3261_13_2_2_4_ack_has_the_number_of_its_invite() -> None:
    caller, _ = dialogs(record_routes=ROUTES)
    later, _ = caller.next_request("INVITE")
    ack = later.ack(7)
    assert (ack.method, str(ack.cseq), ack.uri) == ("ACK", "7 ACK", "sip:bob@192.0.2.2;x=1")
    assert len(ack.routes) == 2


@pytest.mark.parametrize("method", ["ACK", "CANCEL"])
def test_rfc3261_12_2_1_1_ack_and_cancel_take_no_new_number(method: str) -> None:
    with pytest.raises(LocalProtocolError):
        dialogs()[0].next_request(method)


def test_rfc3261_12_2_2_lower_cseq_is_out_of_order() -> None:
    caller, callee = dialogs()
    later, first = caller.next_request("INFO")
    _, second = later.next_request("INFO")
    callee = callee.received(second)
    assert callee.remote_cseq == 9
    assert callee.accepts(first) == 500
    assert callee.received(first).remote_cseq == 9


@pytest.mark.parametrize(("header", "value"), [("Call-ID", "other"), ("To", "<sip:b@c>"), ("From", "<sip:a@c>;tag=z")])
def test_rfc3261_12_2_2_request_of_another_dialog_is_481(header: str, value: str) -> None:
    caller, callee = dialogs()
    _, request = caller.next_request("BYE")
    assert callee.accepts(request.replacing(header, value)) == 481


def test_rfc3261_12_2_contact_of_an_invite_moves_the_target_and_of_others_not() -> None:
    caller, callee = dialogs()
    following, invite = caller.next_request("INVITE")
    moved = callee.received(invite.with_header("Contact", "<sip:alice@198.51.100.7>"))
    assert moved.remote_target == "sip:alice@198.51.100.7"
    assert moved.next_hop().address == ("198.51.100.7", 5060)
    _, info = following.next_request("INFO")
    assert moved.received(info.with_header("Contact", "<sip:elsewhere>")).remote_target == moved.remote_target
    assert moved.received(following.ack(8)) == moved


@given(st.integers(0, 2**31 - 1), st.lists(st.sampled_from(ROUTES), max_size=3), st.booleans())
def test_dialog_survives_storage(cseq: int, routes: list[str], secure: bool) -> None:
    dialog = msgspec.structs.replace(dialogs()[0], remote_cseq=cseq, route_set=tuple(routes), secure=secure)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(dialog), type=Dialog) == dialog
