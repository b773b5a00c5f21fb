"""The SIP server at datagram level: phones register, call and move (RFC 3261 10, 16; SPEC C-20, D-02, D-07)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sip.phone_world import BOB, SERVER, Phone, World
from tests.sip.proxy_desk import Script
from wanderbus.machine import CancelTimer, DatagramReceived, Input, TimerFired
from wanderbus.sip.message.message import Message, Request, Response, encode_message, make_response
from wanderbus.sip.proxy.bindings import BindingChanged
from wanderbus.sip.proxy.routing_script import Forward, Redirect, Verdict


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def alice(world: World) -> Phone:
    phone = Phone(world, "alice", ("10.0.0.1", 6000))
    assert phone.register().status == 200
    return phone


@pytest.fixture
def bob(world: World) -> Phone:
    phone = Phone(world, "bob", ("10.0.0.2", 7000))
    assert phone.register().status == 200
    return phone


def test_register_is_challenged_then_accepted(world: World) -> None:
    """RFC 3261 22.2, 10.3; SPEC D-02."""
    phone = Phone(world, "bob", ("10.0.0.2", 7000))
    assert phone.register_once(60, f"<{BOB}>").status == 401
    response = phone.register()
    assert response.status == 200
    assert world.server.location.contacts(BOB, world.now) == ("sip:bob@10.0.0.2:7000",)
    assert world.reports == [BindingChanged(BOB, ("sip:bob@10.0.0.2:7000",))]


def test_refused_users(world: World) -> None:
    """SPEC C-20: wrong password and unknown user 403 after the challenge, somebody else's address of record 403."""
    address = ("10.0.0.3", 1)
    assert Phone(world, "bob", address, "wrong").register().status == 403
    assert Phone(world, "mallory", address, "wrong").register().status == 403
    assert Phone(world, "carol", address).register(aor=BOB).status == 403
    assert len(world.server.location) == 0


def test_a_retransmitted_register_is_answered_identically(world: World) -> None:
    """RFC 3261 17.2.2: the same bytes again, not a second judgement of a nonce count that no longer rises."""
    phone = Phone(world, "bob", ("10.0.0.2", 7000))
    phone.register()
    request = encode_message(phone.digest.authorize(phone.request("REGISTER", "sip:example.org", to=f"<{BOB}>")))
    for _ in range(3):
        world.send(phone.address, request)
        world.advance(0.5)
    first, *others = world.bytes_at(phone.address)
    assert others == [first, first]
    assert b"SIP/2.0 200" in first
    assert len(world.reports) == 1


def test_a_replayed_register_in_a_new_transaction_is_challenged_again(world: World, bob: Phone) -> None:
    """RFC 7616 3.4: overheard credentials are useless under another branch."""
    request = bob.digest.authorize(bob.request("REGISTER", "sip:example.org", to=f"<{BOB}>"))
    bob.send(request)
    assert bob.statuses() == [200]
    via = "SIP/2.0/UDP 10.6.6.6:666;rport;branch=z9hG4bKreplayed"
    world.send(("10.6.6.6", 666), encode_message(request.replacing("Via", via)))
    (answer,) = world.messages_at(("10.6.6.6", 666))
    assert isinstance(answer, Response)
    assert answer.status == 401


def test_answers_go_to_where_the_request_came_from(world: World) -> None:
    """RFC 3581 4: behind a NAT the Via lies and the source does not."""
    outside = ("192.0.2.1", 40000)
    world.send(outside, encode_message(Phone(world, "bob", ("10.0.0.2", 7000)).request("OPTIONS", "sip:example.org")))
    (answer,) = world.messages_at(outside)
    assert (answer.via.received, answer.via.rport) == outside


def test_a_call_through_the_proxy(world: World, alice: Phone, bob: Phone) -> None:
    """SPEC D-07, D-09: INVITE and its answers pass the proxy, ACK and BYE go straight to the other phone."""
    invite = alice.request("INVITE", BOB)
    alice.send(invite)
    assert alice.statuses() == [100]
    received = bob.taken_request()
    assert (received.method, received.uri) == ("INVITE", "sip:bob@10.0.0.2:7000")
    assert [str(via.host) for via in received.vias] == ["10.0.0.9", "10.0.0.1"]
    assert received.record_routes == []
    bob.send(make_response(received, 180, to_tag="of-bob"))
    assert alice.statuses() == [180]
    bob.send(make_response(received, 200, to_tag="of-bob", headers=[("Contact", bob.contact)]))
    (accepted,) = alice.take()
    assert isinstance(accepted, Response)
    assert len(accepted.vias) == 1
    assert accepted.contact is not None
    assert str(accepted.contact.uri) == "sip:bob@10.0.0.2:7000"


def test_a_repeated_200_reaches_the_caller_again_without_a_second_invite(alice: Phone, bob: Phone) -> None:
    """RFC 3261 13.3.1.4: until the ACK arrives, end to end."""
    invite = alice.request("INVITE", BOB)
    alice.send(invite)
    accepted = make_response(bob.taken_request(), 200, to_tag="of-bob")
    bob.send(accepted)
    bob.send(accepted)
    assert alice.statuses() == [100, 200, 200]
    alice.send(invite)
    assert bob.take() == []


def test_ack_and_bye_by_address_of_record_pass_the_proxy_too(alice: Phone, bob: Phone) -> None:
    """X13: a peer that lost the other's address may go through the proxy."""
    alice.send(alice.request("INVITE", BOB))
    bob.send(make_response(bob.taken_request(), 200, to_tag="of-bob"))
    alice.cseq -= 1
    alice.send(alice.request("ACK", BOB, to=f"<{BOB}>;tag=of-bob"))
    assert bob.taken_request().method == "ACK"
    alice.statuses()
    alice.send(alice.request("BYE", BOB, to=f"<{BOB}>;tag=of-bob"))
    bob.send(make_response(bob.taken_request(), 200))
    assert alice.statuses() == [200]


def test_a_refusal_is_confirmed_hop_by_hop(world: World, alice: Phone, bob: Phone) -> None:
    """RFC 3261 17.1.1.3: the proxy confirms to the callee, the caller to the proxy."""
    invite = alice.request("INVITE", BOB)
    alice.send(invite)
    bob.send(make_response(bob.taken_request(), 486, to_tag="of-bob"))
    assert bob.taken_request().method == "ACK"
    (_, busy) = alice.take()
    assert isinstance(busy, Response)
    assert busy.status == 486
    confirmed = invite.replacing("CSeq", f"{invite.cseq.number} ACK").replacing("To", str(busy.to))
    alice.send(Request("ACK", BOB, confirmed.headers))
    world.advance(40.0)
    assert alice.take() == []
    assert bob.take() == []


def test_cancel_reaches_the_callee_and_487_the_caller(alice: Phone, bob: Phone) -> None:
    """RFC 3261 9.1, 16.10: not before the callee gave a sign of life, and under the INVITE's branch."""
    invite = alice.request("INVITE", BOB)
    alice.send(invite)
    received = bob.taken_request()
    alice.send(Request("CANCEL", BOB, invite.replacing("CSeq", f"{invite.cseq.number} CANCEL").headers))
    assert alice.statuses() == [100, 200]
    assert bob.take() == []
    bob.send(make_response(received, 180, to_tag="of-bob"))
    cancel = bob.taken_request()
    assert cancel.method == "CANCEL"
    assert cancel.via == received.via
    bob.send(make_response(cancel, 200, to_tag="of-bob"))
    bob.send(make_response(received, 487, to_tag="of-bob"))
    assert alice.statuses() == [180, 487]
    assert bob.taken_request().method == "ACK"


def test_a_callee_who_is_silent_costs_a_408(world: World, alice: Phone, bob: Phone) -> None:
    """RFC 3261 16.8: 64*T1 after the INVITE."""
    alice.send(alice.request("INVITE", BOB))
    world.advance(31.9)
    assert alice.statuses() == [100]
    world.advance(0.2)
    assert 408 in alice.statuses()
    assert {message.cseq.method for message in bob.take()} == {"INVITE"}


def test_after_all_is_over_nothing_is_kept(world: World, alice: Phone, bob: Phone) -> None:
    """No timer and no binding outlives calls that ended in every way there is."""
    for status in (200, 486, None):
        alice.send(alice.request("INVITE", BOB))
        received = bob.taken_request()
        if status is not None:
            bob.send(make_response(received, status, to_tag="of-bob"))
            bob.take()
    alice.send(alice.request("MESSAGE", BOB))
    world.advance(600.0)
    assert world.timers == {}
    assert len(world.server.location) == 0


def test_status_of_those_who_cannot_be_reached(world: World, alice: Phone) -> None:
    """RFC 3261 16.3 to 16.5."""
    assert alice.ask("INVITE", "sip:carol@example.org") == 480
    assert alice.ask("INVITE", "sip:nobody@example.org") == 404
    assert alice.ask("INVITE", "sip:carol@elsewhere.org") == 403
    assert alice.ask("REGISTER", "sip:elsewhere.org") == 403
    assert alice.ask("INVITE", BOB, ("Max-Forwards", "0")) == 483
    assert alice.ask("OPTIONS", "sip:example.org") == 200


def test_a_binding_ends_by_timer_and_the_callee_is_480(world: World, alice: Phone, bob: Phone) -> None:
    """RFC 3261 10.3, SPEC D-04: reported at its second, without anybody asking."""
    alice.register(600)
    world.reports.clear()
    world.advance(59.9)
    assert world.reports == []
    world.advance(0.1)
    assert world.reports == [BindingChanged(BOB, ())]
    assert alice.ask("INVITE", BOB) == 480


def test_unregistering_ends_it_at_once(alice: Phone, bob: Phone) -> None:
    """SPEC D-04."""
    assert bob.register(0).contacts == []
    assert alice.ask("INVITE", BOB) == 480


def test_a_device_that_moved_is_found_at_once_and_only_there(world: World, alice: Phone, bob: Phone) -> None:
    """SPEC D-07, D-08 (1); RFC 5626 6: the call succeeds after the callee re-registered elsewhere."""
    old = bob.address
    bob.address = ("10.9.9.9", 7001)
    assert len(bob.register().contacts) == 1
    alice.send(alice.request("INVITE", BOB))
    assert bob.taken_request().uri == "sip:bob@10.9.9.9:7001"
    assert world.messages_at(old) == []
    assert world.reports[-1] == BindingChanged(BOB, ("sip:bob@10.9.9.9:7001",))


def test_a_contact_that_points_back_at_the_server_is_a_loop(world: World, alice: Phone) -> None:
    """RFC 3261 16.3 item 4: found at the second pass with the same target, not at the seventieth hop."""
    phone = Phone(world, "carol", SERVER)
    world.inboxes.clear()
    phone.register()
    alice.send(alice.request("INVITE", "sip:carol@example.org"))
    hops = 0
    while looped := world.bytes_at(SERVER):
        for data in looped:
            hops += data.startswith(b"INVITE")
            world.send(SERVER, data)
    assert alice.statuses() == [100, 482]
    assert hops == 2


def test_bytes_for_another_socket_and_timers_of_nobody_are_ignored(world: World) -> None:
    strange: list[Input] = [
        DatagramReceived("data", ("10.0.0.1", 1), b"OPTIONS sip:example.org SIP/2.0\r\n\r\n"),
        TimerFired("nobody"),
        TimerFired(("proxy", "nobody")),
        TimerFired(("registrar", BOB)),
        TimerFired(("transactions", "nobody")),
    ]
    assert [output for output in world.server.step(strange, 0.0) if not isinstance(output, CancelTimer)] == []


def samples() -> list[bytes]:
    """Return one valid datagram of each kind a server meets, some of a call under way."""
    world = World()
    alice = Phone(world, "alice", ("10.0.0.1", 6000))
    bob = Phone(world, "bob", ("10.0.0.2", 7000))
    alice.register()
    bob.register()
    register = alice.digest.authorize(alice.request("REGISTER", "sip:example.org", to="<sip:alice@example.org>"))
    invite = alice.request("INVITE", BOB, ("Route", "<sip:10.0.0.9;lr>"), ("Content-Type", "application/sdp"))
    alice.send(invite)
    ringing = make_response(bob.taken_request(), 180, to_tag="of-bob")
    cancel = Request("CANCEL", BOB, invite.replacing("CSeq", f"{invite.cseq.number} CANCEL").headers)
    ack = Request("ACK", BOB, invite.replacing("CSeq", f"{invite.cseq.number} ACK").headers)
    others = [alice.request(method, BOB) for method in ("BYE", "OPTIONS", "MESSAGE")]
    messages: list[Message] = [register, invite, ringing, cancel, ack, *others]
    return [encode_message(message) for message in messages]


SAMPLES = samples()
FRAGMENTS = [
    *(b"\r\n \t", b"\r\n\r\n", b"\x00", b"\xff\xfe", b'"', b"<", b">", b",", b";", b"%", b"%0d%0a", b"*", b"-1"),
    *(b"99999999999999999999", b"sip:", b"sip:[::1]", b";expires=", b";q=.", b';+sip.instance="', b"z9hG4bK"),
    *(b"Contact: *\r\n", b"Expires: 0\r\n", b"Require: x\r\n", b"Proxy-Require: \r\n", b"Route: <sip:x>\r\n"),
    *(b"Via: SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bK\r\n", b"Max-Forwards: 0\r\n", b"Content-Length: 9\r\n"),
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid datagram with a few cuts, insertions, repetitions and changed bytes."""
    data = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 40)))
        new = draw(
            st.one_of(st.just(b""), st.sampled_from(FRAGMENTS), st.binary(max_size=4), st.just(data[start:end] * 2))
        )
        data = data[:start] + new + data[end:]
    return data


@given(
    datagrams=st.lists(mutated(), min_size=1, max_size=6),
    verdict=st.sampled_from([Forward(), Forward(stay_on_path=True), Forward(targets=(BOB,)), Redirect()]),
    devices=st.integers(0, 3),
)
def test_no_datagram_makes_the_server_raise(datagrams: list[bytes], verdict: Verdict, devices: int) -> None:
    """Hostile input is answered or discarded, through all its timers; other clients are served, and no state
    remains.
    """
    world = World(routing=Script(verdict))
    bob = Phone(world, "bob", ("10.0.0.2", 7000))
    bob.register(3600)
    for number in range(devices):
        bob.register_at(f"<sip:bob@10.0.1.{number}:7000>")
    for data in datagrams:
        world.send(("10.6.6.6", 666), data)
        world.advance(0.3)
    world.bytes_at(bob.address)
    assert bob.register(3600).status == 200
    world.advance(4_000.0)
    assert world.timers == {}
    assert len(world.server.location) == 0
    assert len(world.server._proxy) == 0
    assert world.server._layer.transaction_count == 0
