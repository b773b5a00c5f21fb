"""Server transactions under literal times (RFC 3261 17.2, RFC 6026 7.1)."""

from __future__ import annotations

import pytest

from tests.sip.transaction_world import (
    ALICE,
    BOB,
    Clockwork,
    SeededRandom,
    arrival,
    make_request,
    messages,
    statuses,
    wire,
)
from wanderbus.machine import Output, SendDatagram
from wanderbus.sip.message.message import Response, make_response
from wanderbus.sip.transaction.client_transactions import make_cancel
from wanderbus.sip.transaction.transaction_layer import (
    AckReceived,
    CancelReceived,
    ForgetTransaction,
    RequestReceived,
    Respond,
    TransactionLayer,
    TransactionTimedOut,
)

VIA = "SIP/2.0/UDP 192.0.2.1:5060;rport;branch=z9hG4bKone"


@pytest.fixture
def bob() -> Clockwork:
    layer = TransactionLayer(SeededRandom(), local=BOB)
    layer.peers.know_everybody()
    return Clockwork(layer)


def receive(node: Clockwork, method: str, via: str = VIA) -> RequestReceived:
    """Let a new request arrive and return its report."""
    (report,) = node.step(arrival(wire(make_request(method), via)))
    assert isinstance(report, RequestReceived)
    return report


def respond(node: Clockwork, report: RequestReceived, status: int) -> list[Output]:
    return node.step(Respond(report.transaction, make_response(report.request, status, to_tag="b")))


def running(node: Clockwork) -> dict[str, float]:
    return {str(key[1]): at for key, at in node.timers.items() if isinstance(key, tuple)}


def test_rfc3261_17_2_1_invite_nobody_answers_gets_100_after_200_ms(bob: Clockwork) -> None:
    receive(bob, "INVITE")
    assert running(bob) == {"100": 0.2}
    ((at, sent),) = bob.run_to(60.0)
    assert at == 0.2
    (trying,) = messages([sent])
    assert isinstance(trying, Response)
    assert (trying.status, trying.to.tag) == (100, None)


def test_rfc3261_17_2_1_no_100_once_the_user_has_answered(bob: Clockwork) -> None:
    report = receive(bob, "INVITE")
    assert statuses(respond(bob, report, 180)) == [180]
    assert bob.run_to(60.0) == []


def test_rfc3261_17_2_1_repeated_invite_gets_the_last_provisional(bob: Clockwork) -> None:
    report = receive(bob, "INVITE")
    assert bob.step(arrival(wire(make_request("INVITE")))) == []
    respond(bob, report, 180)
    respond(bob, report, 183)
    assert statuses(bob.step(arrival(wire(make_request("INVITE"))))) == [183]


def test_rfc3261_17_2_1_timer_g_repeats_a_refusal_up_to_t2_and_timer_h_ends(bob: Clockwork) -> None:
    report = receive(bob, "INVITE")
    assert statuses(respond(bob, report, 486)) == [486]
    assert running(bob) == {"G": 0.5, "H": 32.0}
    assert bob.sending_times(31.9) == [0.5, 1.5, 3.5, 7.5, 11.5, 15.5, 19.5, 23.5, 27.5, 31.5]
    assert bob.run_to(100.0) == [(32.0, TransactionTimedOut(report.transaction))]
    assert bob.layer.transaction_count == 0


def test_rfc3261_17_2_1_ack_stops_a_refusal_and_timer_i_absorbs_more(bob: Clockwork) -> None:
    report = receive(bob, "INVITE")
    respond(bob, report, 486)
    ack = arrival(wire(make_request("ACK", to_tag="b")))
    assert bob.step(ack) == []
    assert running(bob) == {"I": 5.0}
    assert bob.step(ack) == []
    assert bob.step(arrival(wire(make_request("INVITE")))) == []
    assert bob.run_to(5.0) == []
    assert bob.layer.transaction_count == 0


def test_rfc3261_17_2_1_second_final_response_is_not_sent(bob: Clockwork) -> None:
    report = receive(bob, "INVITE")
    respond(bob, report, 486)
    assert respond(bob, report, 200) == []
    assert respond(bob, report, 180) == []


def test_rfc6026_7_1_accepted_absorbs_invites_and_lets_the_user_repeat_2xx(bob: Clockwork) -> None:
    report = receive(bob, "INVITE")
    assert statuses(respond(bob, report, 200)) == [200]
    assert running(bob) == {"L": 32.0}
    assert bob.step(arrival(wire(make_request("INVITE")))) == []
    assert statuses(respond(bob, report, 200)) == [200]
    assert respond(bob, report, 486) == []
    assert bob.run_to(31.9) == []
    assert bob.step(arrival(wire(make_request("INVITE")))) == []
    bob.run_to(32.0)
    assert bob.layer.transaction_count == 0
    assert respond(bob, report, 200) == []


def test_an_accepted_invite_is_not_kept_because_the_user_repeats_the_2xx(bob: Clockwork) -> None:
    respond(bob, receive(bob, "INVITE"), 200)
    (transaction,) = bob.layer._servers._transactions.values()
    assert transaction._last_data == b""
    assert transaction.unanswered is None


@pytest.mark.parametrize("branch", ["z9hG4bKone", "z9hG4bKacknowledging"])
def test_rfc3261_13_3_1_4_ack_for_2xx_is_the_users(bob: Clockwork, branch: str) -> None:
    respond(bob, receive(bob, "INVITE"), 200)
    (report,) = bob.step(arrival(wire(make_request("ACK", to_tag="b"), f"SIP/2.0/UDP 192.0.2.1;branch={branch}")))
    assert isinstance(report, AckReceived)
    assert report.source == ALICE


def test_rfc3261_17_2_2_repeated_request_is_absorbed_then_answered_again(bob: Clockwork) -> None:
    report = receive(bob, "REGISTER")
    again = arrival(wire(make_request("REGISTER")))
    assert bob.step(again) == []
    respond(bob, report, 100)
    assert statuses(bob.step(again)) == [100]
    first = respond(bob, report, 200)
    assert statuses(first) == [200]
    assert bob.step(again) == first
    assert respond(bob, report, 500) == []
    assert running(bob) == {"J": 32.0}
    assert bob.run_to(32.0) == []
    assert isinstance(bob.step(again)[0], RequestReceived), "after timer J it is a new request"


def test_rfc4320_4_2_request_never_answered_is_given_up(bob: Clockwork) -> None:
    report = receive(bob, "OPTIONS")
    respond(bob, report, 100)
    assert bob.run_to(100.0) == [(32.0, TransactionTimedOut(report.transaction))]
    assert respond(bob, report, 200) == []
    assert bob.layer.transaction_count == 0


def test_rfc3261_17_2_3_branch_sent_by_and_method_identify_transactions(bob: Clockwork) -> None:
    first = receive(bob, "OPTIONS")
    others = [
        receive(bob, "OPTIONS", VIA.replace("one", "two")),
        receive(bob, "OPTIONS", VIA.replace("192.0.2.1:5060", "192.0.2.1:5062")),
        receive(bob, "OPTIONS", VIA.replace("192.0.2.1:5060", "192.0.2.7")),
        receive(bob, "REGISTER"),
    ]
    assert len({report.transaction for report in (first, *others)}) == 5
    folded = wire(make_request("OPTIONS"), "SIP/2.0/UDP 192.0.2.1;rport;branch=z9hG4bKone")
    assert bob.step(arrival(folded)) == [], "the default port is 5060"


def test_rfc3261_17_2_3_branch_without_cookie_matches_by_the_request(bob: Clockwork) -> None:
    old = "SIP/2.0/UDP 192.0.2.1;branch=1"
    report = receive(bob, "INVITE", old)
    assert bob.step(arrival(wire(make_request("INVITE"), old))) == []
    (other,) = bob.step(arrival(wire(make_request("INVITE", number=2), old)))
    assert isinstance(other, RequestReceived)
    respond(bob, report, 486)
    assert bob.step(arrival(wire(make_request("ACK", to_tag="b"), old))) == []
    assert "I" in running(bob)


def test_rfc3261_9_2_cancel_is_answered_and_reported(bob: Clockwork) -> None:
    report = receive(bob, "INVITE")
    respond(bob, report, 180)
    cancel = arrival(wire(make_cancel(make_request("INVITE"))))
    sent, cancelled = bob.step(cancel)
    (response,) = messages([sent])
    assert isinstance(response, Response)
    assert (response.status, response.cseq.method, response.to.tag) == (200, "CANCEL", "b")
    assert isinstance(cancelled, CancelReceived)
    assert cancelled.transaction == report.transaction
    assert bob.step(cancel) == [sent], "a repeated CANCEL is absorbed"
    assert statuses(respond(bob, report, 487)) == [487]


def test_rfc3261_9_2_cancel_after_the_final_response_changes_nothing(bob: Clockwork) -> None:
    respond(bob, receive(bob, "INVITE"), 200)
    assert statuses(outputs := bob.step(arrival(wire(make_cancel(make_request("INVITE")))))) == [200]
    assert len(outputs) == 1


def test_rfc3261_9_2_cancel_of_nothing_is_481(bob: Clockwork) -> None:
    assert statuses(outputs := bob.step(arrival(wire(make_cancel(make_request("INVITE")))))) == [481]
    assert len(outputs) == 1
    bob.run_to(32.0)
    assert bob.layer.transaction_count == 0


@pytest.mark.parametrize(
    ("via", "source", "received", "rport", "destination"),
    [
        ("192.0.2.1:5060;rport;branch=z9hG4bKa", ("192.0.2.1", 5060), "192.0.2.1", 5060, ("192.0.2.1", 5060)),
        ("10.0.0.1:5060;rport;branch=z9hG4bKa", ("192.0.2.1", 7777), "192.0.2.1", 7777, ("192.0.2.1", 7777)),
        ("10.0.0.1:5080;branch=z9hG4bKa", ("192.0.2.1", 7777), "192.0.2.1", None, ("192.0.2.1", 5080)),
        ("192.0.2.1;branch=z9hG4bKa", ("192.0.2.1", 7777), None, None, ("192.0.2.1", 5060)),
        ("alice.example.com;branch=z9hG4bKa", ("192.0.2.1", 7777), "192.0.2.1", None, ("192.0.2.1", 5060)),
        ("[2001:db8::1]:5060;rport;branch=z9hG4bKa", ("2001:db8::2", 7), "2001:db8::2", 7, ("2001:db8::2", 7)),
        ("[2001:db8::1]:5062;branch=z9hG4bKa", ("2001:db8::1", 7), None, None, ("2001:db8::1", 5062)),
        (
            "192.0.2.1;received=203.0.113.9;rport=9;maddr=203.0.113.9;branch=z9hG4bKa",
            ("192.0.2.1", 7777),
            "192.0.2.1",
            7777,
            ("192.0.2.1", 7777),
        ),
        ("192.0.2.1;received=203.0.113.9;branch=z9hG4bKa", ("192.0.2.1", 7), None, None, ("192.0.2.1", 5060)),
    ],
)
def test_rfc3581_4_and_rfc3261_18_2_answers_go_where_the_request_came_from(
    bob: Clockwork,
    via: str,
    source: tuple[str, int],
    received: str | None,
    rport: int | None,
    destination: tuple[str, int],
) -> None:
    (report,) = bob.step(arrival(wire(make_request("OPTIONS"), f"SIP/2.0/UDP {via}"), source))
    assert isinstance(report, RequestReceived)
    assert (report.request.via.received, report.request.via.rport) == (received, rport)
    assert report.request.via.branch == "z9hG4bKa"
    (sent,) = respond(bob, report, 200)
    assert isinstance(sent, SendDatagram)
    assert sent.destination == destination


def test_only_the_top_via_of_a_list_is_stamped(bob: Clockwork) -> None:
    via = "SIP/2.0/UDP 10.0.0.1;rport;branch=z9hG4bKtop, SIP/2.0/UDP 10.0.0.2;rport;branch=z9hG4bKlow"
    report = receive(bob, "OPTIONS", via)
    top, low = report.request.vias
    assert (top.branch, top.rport, low.branch, low.wants_rport) == ("z9hG4bKtop", 5060, "z9hG4bKlow", True)


def test_answer_follows_a_device_that_moves_within_a_transaction(bob: Clockwork) -> None:
    """SPEC U-09: the answer goes to where the newest copy of the request came from."""
    report = receive(bob, "REGISTER")
    moved = ("198.51.100.7", 5070)
    assert bob.step(arrival(wire(make_request("REGISTER")), moved)) == []
    (sent,) = respond(bob, report, 200)
    assert isinstance(sent, SendDatagram)
    assert sent.destination == moved


def test_forgotten_transaction_is_silent(bob: Clockwork) -> None:
    report = receive(bob, "INVITE")
    assert bob.step(ForgetTransaction(report.transaction)) == []
    assert not bob.timers
    assert respond(bob, report, 200) == []
