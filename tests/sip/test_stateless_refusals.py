"""Stateless refusals: requests with an unproven source leave no state behind (RFC 3261 8.2.7, 26.3.2.4; SPEC C-20)."""

from __future__ import annotations

import pytest

from tests.sip.phone_world import SERVER, UNLIMITED, Phone, World
from tests.sip.transaction_world import BOB, Clockwork, SeededRandom, arrival, make_request, messages, statuses, wire
from wanderbus.machine import DatagramReceived, Output
from wanderbus.sip.message.message import Request, Response, encode_message, make_response
from wanderbus.sip.transaction.transaction_layer import AckReceived, RequestReceived, Respond, TransactionLayer

STRANGER = ("203.0.113.9", 5060)


@pytest.fixture
def bob() -> Clockwork:
    layer = TransactionLayer(SeededRandom(), transactions_max=64, local=BOB)
    return Clockwork(layer)


def refuse(node: Clockwork, method: str, branch: str, source: tuple[str, int] = STRANGER) -> list[Output]:
    data = wire(make_request(method), via(branch))
    (report,) = [each for each in node.step(arrival(data, source)) if isinstance(each, RequestReceived)]
    return node.step(Respond(report.transaction, make_response(report.request, 401, to_tag="b"), stateless=True))


def via(branch: str) -> str:
    return f"SIP/2.0/UDP 192.0.2.1:5060;rport;branch=z9hG4bK{branch}"


def tag_of(outputs: list[Output]) -> str:
    (message,) = messages(outputs)
    assert isinstance(message, Response)
    assert message.to.tag is not None
    return message.to.tag


def ack(tag: str, branch: str) -> DatagramReceived:
    return arrival(wire(make_request("ACK", to_tag=tag), via(branch)), STRANGER)


@pytest.mark.parametrize("method", ["INVITE", "REGISTER", "OPTIONS", "BYE"])
def test_a_refused_request_leaves_no_transaction_and_no_timer(bob: Clockwork, method: str) -> None:
    assert statuses(refuse(bob, method, "one")) == [401]
    assert (bob.layer.transaction_count, bob.timers) == (0, {})


def test_each_copy_is_answered_again_under_the_same_tag(bob: Clockwork) -> None:
    assert tag_of(refuse(bob, "INVITE", "one")) == tag_of(refuse(bob, "INVITE", "one"))
    assert tag_of(refuse(bob, "INVITE", "one")) != tag_of(refuse(bob, "INVITE", "two"))


def test_the_ack_of_a_forgotten_refusal_is_absorbed_and_no_other(bob: Clockwork) -> None:
    tag = tag_of(refuse(bob, "INVITE", "one"))
    assert bob.step(ack(tag, "one")) == []
    assert [type(each) for each in bob.step(ack(tag, "two"))] == [AckReceived]
    assert [type(each) for each in bob.step(ack("made-up", "one"))] == [AckReceived]


def test_a_known_peer_is_refused_again_until_it_confirms(bob: Clockwork) -> None:
    bob.layer.peers.note(STRANGER[0], 0.0)
    tag = tag_of(refuse(bob, "INVITE", "one"))
    assert len(bob.run_to(10.0)) > 3
    assert bob.step(ack(tag, "one")) == []
    assert bob.run_to(60.0) == []


def test_a_source_that_becomes_known_after_a_100_gets_the_refusal_again(bob: Clockwork) -> None:
    """This happens when a device calls while it registers at its new address, and loses the first refusal."""
    data = wire(make_request("INVITE"), via("one")).replace(b"\r\n\r\n", b"\r\nSubject: " + 700 * b"x" + b"\r\n\r\n", 1)
    (report,) = [each for each in bob.step(arrival(data, STRANGER)) if isinstance(each, RequestReceived)]
    trying = Respond(report.transaction, make_response(report.request, 100), within_request=True)
    large = make_response(report.request, 401, to_tag="b", headers=[("Subject", 350 * "x")])
    assert statuses(bob.step(trying)) == []
    assert statuses(each for _, each in bob.run_to(0.2)) == [100]
    assert statuses(bob.step(Respond(report.transaction, large, within_request=True))) == [401]
    assert bob.run_to(3.0) == [], "no more bytes go to a stranger than came"
    bob.layer.peers.note(STRANGER[0], 3.0)
    assert bob.sending_times(8.0) == [3.7, 7.7]


def test_a_challenge_that_comes_at_once_has_no_100_before_it_and_comes_again(bob: Clockwork) -> None:
    """A caller who has a 100 does not repeat the INVITE."""
    data = wire(make_request("INVITE"), via("one")).replace(b"\r\n\r\n", b"\r\nSubject: " + 700 * b"x" + b"\r\n\r\n", 1)
    (report,) = [each for each in bob.step(arrival(data, STRANGER)) if isinstance(each, RequestReceived)]
    challenge = make_response(report.request, 401, to_tag="b")
    for status, response in ((100, make_response(report.request, 100)), (401, challenge)):
        sent = bob.step(Respond(report.transaction, response, within_request=True))
        assert statuses(sent) == [status] * (status == 401)
    assert bob.sending_times(0.5) == [0.5], "the bytes that the 100 would have had"
    assert statuses(bob.step(arrival(data, STRANGER))) == [401]


def test_a_cancel_of_nothing_leaves_nothing(bob: Clockwork) -> None:
    assert statuses(bob.step(arrival(wire(make_request("CANCEL"))))) == [481]
    assert bob.layer.transaction_count == 0


def test_transactions_that_wait_for_an_ack_give_way_to_new_requests(bob: Clockwork) -> None:
    bob.layer.peers.note(STRANGER[0], 0.0)
    for number in range(500):
        assert statuses(refuse(bob, "INVITE", str(number))) == [401]
    assert bob.layer.transaction_count <= 64
    assert bob.layer.drops == {}


def test_strangers_that_nobody_answers_leave_room_for_known_peers(bob: Clockwork) -> None:
    bob.layer.peers.note("198.51.100.7", 0.0)
    crowded = []
    for number in range(40):
        data = wire(make_request("INVITE"), via(str(number)))
        (report,) = [
            each for each in bob.step(arrival(data, (f"203.0.113.{number}", 5060))) if isinstance(each, RequestReceived)
        ]
        crowded.append(report.crowded)
        if report.crowded:
            bob.step(Respond(report.transaction, make_response(report.request, 503, to_tag="b"), stateless=True))
    assert crowded == [False] * 16 + [True] * 24
    (known, *_) = bob.step(arrival(wire(make_request("INVITE"), via("known")), ("198.51.100.7", 5060)))
    assert isinstance(known, RequestReceived)
    assert not known.crowded


def test_one_stranger_holds_no_more_than_a_part_of_what_strangers_may(bob: Clockwork) -> None:
    for number in range(6):
        (report, *_) = bob.step(arrival(wire(make_request("INVITE"), via(str(number))), STRANGER))
        assert isinstance(report, RequestReceived)
        assert report.crowded == (number >= 4)


def test_large_requests_take_several_places(bob: Clockwork) -> None:
    large = make_request("INVITE").with_header("Subject", "x" * 5_000)
    (report, *_) = bob.step(arrival(wire(large, via("large")), STRANGER))
    assert isinstance(report, RequestReceived)
    (further, *_) = bob.step(arrival(wire(large, via("larger")), STRANGER))
    assert isinstance(further, RequestReceived)
    assert (report.crowded, further.crowded) == (False, True)


def test_a_flood_of_registers_leaves_nothing_at_the_registrar() -> None:
    world = World(flood=UNLIMITED)
    for number in range(100):
        mallory = Phone(world, "alice", (f"203.0.113.{number}", 5060))
        mallory.send(mallory.request("REGISTER", "sip:example.org"))
    assert world.server._layer.transaction_count == 0
    alice = Phone(world, "alice", ("198.51.100.1", 5060))
    assert alice.register().status == 200


def test_a_copy_of_a_wrong_password_is_no_further_guess() -> None:
    world = World()
    mallory = Phone(world, "alice", ("203.0.113.1", 5060), password="wrong")
    mallory.send(mallory.request("REGISTER", "sip:example.org"))
    (challenge,) = mallory.take()
    assert isinstance(challenge, Response)
    mallory.digest.learn(challenge)
    wrong = encode_message(mallory.digest.authorize(mallory.request("REGISTER", "sip:example.org")))
    for _ in range(10):
        world.send(mallory.address, wrong)
    assert mallory.statuses() == [403] * 10
    assert len(world.refused_logins) == 1


@pytest.mark.parametrize("seconds", [40.0])
def test_no_more_bytes_in_all_go_to_a_stranger_than_came(seconds: float) -> None:
    """An INVITE for a device that is silent, then refuses: 100, refusal and its repetitions."""
    for status in (None, 401, 486):
        world = World(flood=UNLIMITED)
        device = Phone(world, "bob", ("198.51.100.2", 5060))
        assert device.register().status == 200
        for padding in (0, 100, 300, 600, 1_000):
            sent = invite_from_a_stranger(padding)
            world.send(STRANGER, sent)
            requests = [each for each in device.take() if isinstance(each, Request)]
            if status is not None:
                challenge = ("WWW-Authenticate", 'Digest realm="example.org", nonce="n", algorithm=MD5, qop="auth"')
                for request in requests[:1]:
                    device.send(make_response(request, status, to_tag="of-bob", headers=[challenge]))
            world.advance(seconds)
            back = world.bytes_at(STRANGER)
            assert sum(map(len, back)) <= len(sent), (status, padding, back)
            assert back


def invite_from_a_stranger(padding: int) -> bytes:
    request = make_request("INVITE", call_id=f"call-{padding}").with_header("Contact", "<sip:m@203.0.113.9>")
    request = request.with_header("Subject", "x" * padding)
    data = wire(request, f"SIP/2.0/UDP 203.0.113.9;branch=z9hG4bKp{padding}")
    return data.replace(b"INVITE sip:bob@192.0.2.2", f"INVITE sip:bob@{SERVER[0]}".encode(), 1)


def test_a_register_from_a_forged_source_has_no_nonce_for_it() -> None:
    """An attacker requests a nonce at their own address, and then forges a victim's as the source."""
    world = World()
    victim = ("198.51.100.66", 5060)
    mallory = Phone(world, "alice", ("203.0.113.1", 5060))
    assert mallory.register().status == 200
    forged = mallory.digest.authorize(mallory.request("REGISTER", "sip:example.org", to="<sip:alice@example.org>"))
    world.send(victim, encode_message(forged.replacing("Contact", "<sip:alice@198.51.100.66>")))
    assert not any("198.51.100.66" in contact for report in world.reports for contact in str(report).split())
    mallory.address = ("203.0.113.1", 6060)
    assert mallory.register().status == 200
