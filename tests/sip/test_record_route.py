"""Staying on the path of a dialog: Record-Route, loose and strict routing (RFC 3261 16.4, 16.6, 16.12; SPEC D-09)."""

from __future__ import annotations

import pytest

from tests.sip.phone_world import BOB, Phone, World
from tests.sip.proxy_desk import Desk, Script, sip
from wanderbus.sip.message.headers import NameAddr
from wanderbus.sip.message.message import Request, Response, make_response
from wanderbus.sip.message.targets import Target
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.routing_script import Forward
from wanderbus.sip.transaction.transaction_layer import SendRequest

STAY = Script(Forward(stay_on_path=True))
PEER = "sip:bob@192.0.2.5:5070"
PEER_AT = Target("UDP", ("192.0.2.5", 5070))


def route_of(desk: Desk, **options: str) -> str:
    """Return the Record-Route that the proxy puts on an INVITE."""
    (branch,) = desk.forked(sip("INVITE", BOB, **options), "recorded")
    (value,) = branch.request.headers_all("Record-Route")
    return value


def only(branches: list[SendRequest]) -> SendRequest:
    (branch,) = branches
    return branch


def test_nothing_is_recorded_unless_the_script_asks() -> None:
    """SPEC D-09."""
    assert only(Desk().forked(sip())).request.header("Record-Route") is None


@pytest.mark.parametrize(("method", "recorded"), [("INVITE", 1), ("SUBSCRIBE", 1), ("MESSAGE", 0), ("BYE", 0)])
def test_requests_that_create_dialogs_are_recorded(method: str, recorded: int) -> None:
    """RFC 3261 16.6 item 4: a SIP URI of ours with lr, above all others."""
    other = ("Record-Route", "<sip:10.0.0.50;lr>")
    values = only(Desk(1, STAY).forked(sip(method, BOB, other))).request.record_routes
    assert len(values) == 1 + recorded
    if recorded:
        assert (values[0].uri.host, values[0].uri.port, values[0].uri.param("lr")) == ("10.0.0.9", 5060, "")


def test_a_route_of_ours_leads_to_the_peer_wherever_it_is() -> None:
    """RFC 3261 16.12.1.1: the Request-URI is the remote target, and no contact registered here."""
    desk = Desk(1, STAY)
    branch = only(desk.forked(sip("BYE", PEER, ("Route", route_of(desk)), to_tag="b")))
    assert (branch.request.uri, branch.destination) == (PEER, PEER_AT)
    assert branch.request.header("Route") is None


def test_an_ack_takes_the_route_too() -> None:
    desk = Desk(1, STAY)
    (ack,) = desk.acked(sip("ACK", PEER, ("Route", route_of(desk)), to_tag="b"))
    assert (ack.request.uri, ack.destination, ack.request.header("Route")) == (PEER, PEER_AT, None)


def test_the_next_loose_router_gets_the_request_with_its_route() -> None:
    """RFC 3261 16.6 items 6 and 7, 16.12.1.1."""
    desk = Desk(1, STAY)
    request = sip("BYE", PEER, ("Route", f"{route_of(desk)}, <sip:10.0.0.50:5080;lr>, <sip:10.0.0.51;lr>"), to_tag="b")
    branch = only(desk.forked(request))
    assert branch.destination == Target("UDP", ("10.0.0.50", 5080))
    assert branch.request.uri == PEER
    assert branch.request.headers_all("Route") == ["<sip:10.0.0.50:5080;lr>", "<sip:10.0.0.51;lr>"]


def test_the_next_strict_router_gets_its_own_uri_and_the_target_last() -> None:
    """RFC 3261 16.6 item 6, 16.12.1.2."""
    desk = Desk(1, STAY)
    request = sip(
        "BYE", PEER, ("Route", f"{route_of(desk)}, <sip:10.0.0.50;method=BYE>, <sip:10.0.0.51;lr>"), to_tag="b"
    )
    branch = only(desk.forked(request))
    assert branch.destination == Target("UDP", ("10.0.0.50", 5060))
    assert branch.request.uri == "sip:10.0.0.50"
    assert branch.request.headers_all("Route") == ["<sip:10.0.0.51;lr>", f"<{PEER}>"]


def test_a_strict_router_before_us_is_undone() -> None:
    """RFC 3261 16.4, 16.12.1.3: our Record-Route came as Request-URI, the real one is the last Route."""
    desk = Desk(1, STAY)
    ours = str(NameAddr.parse(route_of(desk)).uri)
    request = sip("BYE", ours, ("Route", f"<sip:10.0.0.51;lr>, <{PEER}>"), to_tag="b")
    branch = only(desk.forked(request))
    assert (branch.request.uri, branch.destination) == (PEER, Target("UDP", ("10.0.0.51", 5060)))
    assert branch.request.headers_all("Route") == ["<sip:10.0.0.51;lr>"]


def test_our_own_uri_without_a_route_is_a_request_to_the_server() -> None:
    desk = Desk(1, STAY)
    ours = str(NameAddr.parse(route_of(desk)).uri)
    assert desk.refused(sip("BYE", ours, to_tag="b")).status == 405


def forged(route: str) -> str:
    uri = NameAddr.parse(route).uri
    params = tuple(
        (name, value if value is None else value[:-1] + ("0" if value[-1] != "0" else "1"))
        for name, value in uri.params
    )
    return f"<{SIPUri(uri.scheme, uri.user, uri.host, uri.port, params)}>"


def test_a_route_we_did_not_make_is_no_way_to_elsewhere() -> None:
    """No open relay: no mark, a forged mark, the mark of another call."""
    desk = Desk(1, STAY)
    genuine = route_of(desk)
    for route in ("<sip:10.0.0.9;lr>", "<sip:example.org;lr>", forged(genuine)):
        assert desk.refused(sip("BYE", PEER, ("Route", route), to_tag="b")).status == 403
        assert desk.acked(sip("ACK", PEER, ("Route", route), to_tag="b")) == []
    other = sip("BYE", PEER, ("Route", genuine), to_tag="b", call_id="another-call")
    assert desk.refused(other).status == 403
    beyond = sip("BYE", PEER, ("Route", "<sip:10.0.0.9;lr>, <sip:10.0.0.50;lr>"), to_tag="b")
    assert desk.refused(beyond).status == 403


def test_our_mark_on_the_uri_of_another_is_not_ours() -> None:
    """Every member of the dialog can copy the mark."""
    desk = Desk(1, STAY)
    mark = NameAddr.parse(route_of(desk)).uri.param("path")
    request = sip("BYE", f"sip:10.6.6.6;lr;path={mark}", ("Route", f"<{PEER}>"), to_tag="b")
    assert desk.refused(request).status == 403


def test_a_request_with_a_route_left_goes_there_once() -> None:
    """RFC 3261 16.6 item 7: the route decides, however many devices the user has."""
    desk = Desk(3, STAY)
    request = sip("BYE", BOB, ("Route", f"{route_of(Desk(1, STAY))}, <sip:10.0.0.50;lr>"), to_tag="b")
    assert only(desk.forked(request)).destination == Target("UDP", ("10.0.0.50", 5060))


def test_another_servers_key_makes_other_marks() -> None:
    route = route_of(Desk(1, STAY))
    assert route == route_of(Desk(1, STAY))
    assert route != route_of(Desk(1, STAY), call_id="call-2")


def test_a_request_within_a_dialog_to_a_registered_contact_is_passed_on() -> None:
    """RFC 3261 16.5: a peer that can reach only us may send in-dialog requests this way; the URI stays as it is."""
    desk = Desk(2)
    branch = only(desk.forked(sip("BYE", "sip:bob@10.0.0.3:5062;x=y", to_tag="b")))
    assert branch.request.uri == "sip:bob@10.0.0.3:5062;x=y"
    assert branch.destination == Target("UDP", ("10.0.0.3", 5062))


@pytest.mark.parametrize(
    ("uri", "to_tag"),
    [
        ("sip:bob@10.0.0.3:5062", None),
        ("sip:bob@10.0.0.3:5063", "b"),
        ("sip:eve@10.0.0.3:5062", "b"),
        ("sip:bob@10.0.0.3:5062;maddr=10.6.6.6", "b"),
        ("sip:bob@10.0.0.4:5062", "b"),
    ],
)
def test_other_requests_are_not_recorded(uri: str, to_tag: str | None) -> None:
    assert Desk(2).refused(sip("BYE", uri, to_tag=to_tag)).status == 403


def test_a_contact_that_ended_is_no_longer_passed_on_to() -> None:
    desk = Desk(1)
    desk.location.replace(BOB, [])
    assert desk.refused(sip("BYE", "sip:bob@10.0.0.2:5062", to_tag="b")).status == 403


@pytest.mark.parametrize("strict", [False, True])
def test_a_whole_call_stays_on_the_path(strict: bool) -> None:
    """RFC 3261 16.12.1: INVITE, ACK and BYE of a call between phones that follow the recorded route."""
    world = World(routing=STAY)
    alice, bob = (Phone(world, user, (f"10.0.0.{n}", 6000)) for n, user in enumerate(("alice", "bob"), 1))
    assert bob.register().status == 200
    alice.send(alice.request("INVITE", BOB))
    received = bob.taken_request()
    contact = ("Contact", bob.contact)
    bob.send(make_response(received, 200, to_tag="of-bob", headers=[contact]))
    accepted = alice.take()[-1]
    assert isinstance(accepted, Response)
    (route,) = [str(value) for value in accepted.record_routes]
    target = f"sip:bob@{bob.address[0]}:{bob.address[1]}"
    for method in ("ACK", "BYE"):
        if strict:
            request = alice.request(method, str(NameAddr.parse(route).uri), ("Route", f"<{target}>"))
        else:
            request = alice.request(method, target, ("Route", route))
        alice.send(Request(method, request.uri, request.replacing("To", f"<{BOB}>;tag=of-bob").headers))
        arrived = bob.taken_request()
        assert (arrived.method, arrived.uri, arrived.header("Route")) == (method, target, None)
        assert arrived.header("Record-Route") is None
    bob.send(make_response(arrived, 200))
    assert alice.statuses() == [200]
