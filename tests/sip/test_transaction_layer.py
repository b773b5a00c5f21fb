"""The transaction layer as a whole: loss, limits, hostile bytes (RFC 3261 17 and 18)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sip.transaction_world import (
    ALICE,
    BOB,
    Clockwork,
    LossyWorld,
    SeededRandom,
    answer,
    arrival,
    make_request,
    messages,
    statuses,
    wire,
)
from wanderbus.machine import DatagramReceived, Input, Output, SendDatagram, TimerFired
from wanderbus.sip.message.dialog import Dialog
from wanderbus.sip.message.message import Response, make_response
from wanderbus.sip.transaction.transaction_layer import (
    TRANSACTIONS_MAX,
    AckReceived,
    RequestReceived,
    Respond,
    ResponseReceived,
    SendAck,
    SendRequest,
    TransactionLayer,
    TransactionTimedOut,
)

REQUESTS = {"refused": ("INVITE", 486), "accepted": ("INVITE", 200), "one": ("REGISTER", 200), "two": ("OPTIONS", 404)}


class Caller:
    """Sends requests; counts their final responses and timeouts; confirms each 2xx to an INVITE."""

    def __init__(self) -> None:
        self.finals: Counter[str] = Counter()
        self.timeouts: dict[str, float] = {}
        self.accepted: Counter[str] = Counter()

    def __call__(self, output: Output, now: float) -> list[tuple[float, Input]]:
        match output:
            case TransactionTimedOut(transaction=name):
                assert name not in self.timeouts
                self.timeouts[name] = now
            case ResponseReceived(transaction=name, response=response) if response.status >= 200:
                assert response.status == REQUESTS[name][1]
                if response.cseq.method == "INVITE" and response.status < 300:
                    self.accepted[name] += 1
                    self.finals[name] = 1
                    ack = make_request("ACK", call_id=name, to_tag="b")
                    return [(0.0, SendAck(ack, BOB))]
                self.finals[name] += 1
        return []


class Callee:
    """Answers requests after a while; repeats a 2xx to an INVITE until its ACK (RFC 3261 13.3.1.4)."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.acknowledged: set[str] = set()
        self.unacknowledged: list[str] = []

    def __call__(self, output: Output, now: float) -> list[tuple[float, Input]]:
        match output:
            case RequestReceived(transaction=transaction, request=request):
                self.requests[request.call_id] += 1
                status = REQUESTS[request.call_id][1]
                final = Respond(transaction, make_response(request, status, to_tag="b"))
                repeated = request.method == "INVITE" and status < 300
                delays = [0.05, 0.5, 1.5, 3.5, 7.5, 11.5, 15.5, 19.5, 23.5, 27.5, 31.5] if repeated else [0.05]
                return [(delay, final) for delay in delays]
            case AckReceived(request=request):
                self.acknowledged.add(request.call_id)
            case TransactionTimedOut(transaction=transaction):
                self.unacknowledged.append(transaction)
        return []


@pytest.mark.parametrize("first_seed", range(0, 200, 50))
def test_rfc3261_17_one_request_and_one_final_response_under_loss(first_seed: int) -> None:
    """40 % loss, 200 seeds: all is reported once, or the client gives up at exactly 64*T1."""
    outcomes: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + 50):
        caller, callee = Caller(), Callee()
        world = LossyWorld(seed, 0.4, {ALICE: caller, BOB: callee})
        for index, (name, (method, _)) in enumerate(REQUESTS.items()):
            world.post(index * 0.1, ALICE, SendRequest(name, make_request(method, call_id=name), BOB))
        world.run()
        for index, name in enumerate(REQUESTS):
            if name in caller.timeouts:
                assert caller.timeouts[name] == pytest.approx(index * 0.1 + 32.0)
                assert caller.finals[name] == 0, f"seed {seed}: {name}"
                assert callee.requests[name] <= 1, f"seed {seed}: {name}"
            else:
                assert (callee.requests[name], caller.finals[name]) == (1, 1), f"seed {seed}: {name}"
            outcomes["timed out" if name in caller.timeouts else "answered"] += 1
        for node in world.nodes.values():
            assert node.layer.transaction_count == 0
            assert not node.timers
    assert outcomes["answered"] > 190


def test_without_loss_nothing_is_sent_twice() -> None:
    """RFC 3261 17: INVITE, 486, ACK; INVITE, 200 (as often as the user repeats it), ACK; request and response."""
    caller, callee = Caller(), Callee()
    world = LossyWorld(1, 0.0, {ALICE: caller, BOB: callee})
    for name, (method, _) in REQUESTS.items():
        world.post(0.0, ALICE, SendRequest(name, make_request(method, call_id=name), BOB))
    world.run()
    sent = [message for _, output in world.nodes[ALICE].log for message in messages([output])]
    assert Counter((message.call_id, message.cseq.method) for message in sent) == {
        ("refused", "INVITE"): 1,
        ("refused", "ACK"): 1,
        ("accepted", "INVITE"): 1,
        ("accepted", "ACK"): caller.accepted["accepted"],
        ("one", "REGISTER"): 1,
        ("two", "OPTIONS"): 1,
    }
    assert callee.acknowledged == {"accepted"}
    assert callee.unacknowledged == []


def test_dead_network_times_every_request_out() -> None:
    caller = Caller()
    world = LossyWorld(1, 1.0, {ALICE: caller, BOB: Callee()})
    for name, (method, _) in REQUESTS.items():
        world.post(0.0, ALICE, SendRequest(name, make_request(method, call_id=name), BOB))
    world.run()
    assert caller.timeouts == dict.fromkeys(REQUESTS, 32.0)


def test_new_requests_over_the_limit_are_dropped_and_counted() -> None:
    node = Clockwork(TransactionLayer(SeededRandom(), transactions_max=2))
    for number in range(5):
        via = f"SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK{number}"
        reports = node.step(arrival(wire(make_request("OPTIONS"), via)))
        assert len(reports) == (1 if number < 2 else 0)
    assert (node.layer.dropped, node.layer.drops) == (3, {"over limit": 3})
    for number in range(3):
        outputs = node.step(SendRequest(str(number), make_request("OPTIONS"), BOB))
        assert (outputs == [TransactionTimedOut(str(number))]) == (number == 2)
    assert node.layer.transaction_count == 4
    node.run_to(32.0)
    assert node.layer.transaction_count == 0
    assert TRANSACTIONS_MAX == 16_384


def test_retransmissions_pass_at_the_limit() -> None:
    node = Clockwork(TransactionLayer(SeededRandom(), transactions_max=1))
    (report,) = node.step(arrival(wire(make_request("OPTIONS"))))
    assert isinstance(report, RequestReceived)
    node.step(Respond(report.transaction, make_response(report.request, 200)))
    assert statuses(node.step(arrival(wire(make_request("OPTIONS"))))) == [200]
    assert node.layer.dropped == 0


def test_rfc3261_18_1_2_response_whose_top_via_is_not_ours_is_dropped() -> None:
    node = Clockwork(TransactionLayer(SeededRandom()))
    assert node.step(answer(wire(make_request("OPTIONS")), 200)) == []
    assert node.layer.drops == {"stray response": 1}


UNREADABLE = wire(make_request("OPTIONS").with_header("Contact", "<sip:alice@192.0.2.1>")).replace(
    b"CSeq: 1 OPTIONS", b"CSeq: one OPTIONS"
)


def test_rfc3261_8_2_unreadable_request_is_refused_without_a_transaction() -> None:
    node = Clockwork(TransactionLayer(SeededRandom()))
    (sent,) = node.step(arrival(UNREADABLE, ("192.0.2.1", 7777)))
    assert isinstance(sent, SendDatagram)
    assert sent.destination == ("192.0.2.1", 7777)
    assert sent.data.startswith(b"SIP/2.0 400 ")
    assert b"received=192.0.2.1;rport=7777" in sent.data
    assert b"CSeq: one OPTIONS" in sent.data
    assert len(sent.data) <= len(UNREADABLE)
    assert node.layer.transaction_count == 0
    assert node.layer.drops == {"unreadable": 1}


def test_rfc3261_8_2_version_is_refused_with_505() -> None:
    node = Clockwork(TransactionLayer(SeededRandom()))
    later = UNREADABLE.replace(b"CSeq: one", b"CSeq: 1").replace(b" SIP/2.0\r\n", b" SIP/7.0\r\n", 1)
    (sent,) = node.step(arrival(later))
    assert isinstance(sent, SendDatagram)
    assert sent.data.startswith(b"SIP/2.0 505 ")


def test_refusal_larger_than_the_request_is_not_sent() -> None:
    """A forged source must not get more bytes than were spent on it."""
    node = Clockwork(TransactionLayer(SeededRandom()))
    short = b"X s SIP/2.0\r\nv:SIP/2.0/UDP 10.0.0.1;rport\r\nf:<sip:a@b>\r\nt:<sip:c@d>\r\ni:1\r\nCSeq:1 Y\r\n\r\n"
    assert node.step(arrival(short)) == []
    assert node.layer.drops == {"unreadable": 1}


@pytest.mark.parametrize(
    "data",
    [b"", b"\r\n\r\n", b"\x00\xff", b"SIP/2.0 200 OK\r\n\r\n", UNREADABLE.replace(b"OPTIONS", b"ACK")],
    ids=["empty", "keepalive", "noise", "response", "ACK"],
)
def test_noise_responses_and_acks_get_no_answer(data: bytes) -> None:
    node = Clockwork(TransactionLayer(SeededRandom()))
    assert node.step(arrival(data)) == []
    assert node.layer.drops == {"unreadable": 1}


def test_other_sockets_and_stale_timers_are_not_ours() -> None:
    node = Clockwork(TransactionLayer(SeededRandom(), socket="sip"))
    assert node.step(DatagramReceived("data", ALICE, wire(make_request("OPTIONS")))) == []
    stale = [TimerFired((("client", ("z9hG4bKgone", "OPTIONS")), "A")), TimerFired((("server", "server-9"), "J"))]
    assert node.step(*stale, TimerFired("another machine's")) == []
    assert node.layer.dropped == 0


VALID = [wire(make_request(method)) for method in ("INVITE", "ACK", "CANCEL", "REGISTER")]


@given(st.lists(st.tuples(st.sampled_from(VALID), st.integers(0, 400), st.binary(max_size=6)), max_size=6))
@settings(max_examples=150, deadline=None)
def test_hostile_bytes_never_raise_nor_get_back_more_than_they_cost(cuts: list[tuple[bytes, int, bytes]]) -> None:
    node = Clockwork(TransactionLayer(SeededRandom()))
    for data, position, patch in cuts:
        mutated = data[:position] + patch + data[position + len(patch) :]
        unreadable = node.layer.drops["unreadable"]
        outputs = node.step(arrival(mutated))
        if node.layer.drops["unreadable"] > unreadable:
            assert sum(len(output.data) for output in outputs if isinstance(output, SendDatagram)) <= len(mutated)
    node.run_to(200.0)


def test_dialog_and_layer_carry_a_call() -> None:
    """RFC 3261 12 and 13: the dialog made from an INVITE and its 200 confirms it and ends it with BYE."""
    layers = {each: TransactionLayer(SeededRandom(index), local=each) for index, each in enumerate((ALICE, BOB))}
    alice, bob = Clockwork(layers[ALICE]), Clockwork(layers[BOB])
    invite = make_request("INVITE").with_header("Contact", "<sip:alice@192.0.2.1>")
    (report,) = bob.step(*_carried(alice.step(SendRequest("invite", invite, BOB)), ALICE))
    assert isinstance(report, RequestReceived)
    ok = make_response(report.request, 200, to_tag="b", headers=[("Contact", "<sip:bob@192.0.2.2>")])
    (answered,) = alice.step(*_carried(bob.step(Respond(report.transaction, ok)), BOB))
    assert isinstance(answered, ResponseReceived)
    ours, theirs = Dialog.from_uac(invite, answered.response), Dialog.from_uas(report.request, ok)
    (acknowledged,) = bob.step(*_carried(alice.step(SendAck(ours.ack(1), ours.next_hop())), ALICE))
    assert isinstance(acknowledged, AckReceived)
    assert theirs.accepts(acknowledged.request) is None
    theirs, bye = theirs.next_request("BYE")
    (ended,) = alice.step(*_carried(bob.step(SendRequest("bye", bye, theirs.next_hop())), BOB))
    assert isinstance(ended, RequestReceived)
    assert ours.accepts(ended.request) is None
    done = alice.step(Respond(ended.transaction, make_response(ended.request, 200)))
    (last,) = bob.step(*_carried(done, ALICE))
    assert isinstance(last, ResponseReceived)
    assert isinstance(last.response, Response)


def _carried(outputs: list[Output], source: tuple[str, int]) -> list[Input]:
    return [DatagramReceived("sip", source, output.data) for output in outputs if isinstance(output, SendDatagram)]
