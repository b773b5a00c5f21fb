"""Transactions over TCP and TLS: no retransmissions, answers on the connection, prompt failure (RFC 3261 17, 18)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sip.transaction_world import ALICE, BOB, Clockwork, SeededRandom, make_request
from wanderbus.machine import (
    CloseStream,
    DatagramReceived,
    Output,
    SendDatagram,
    SendOnStream,
    StreamClosed,
    StreamReceived,
)
from wanderbus.sip.message.framing import PING, PONG
from wanderbus.sip.message.message import Message, Request, Response, encode_message, make_response, parse_message
from wanderbus.sip.message.targets import Target
from wanderbus.sip.transaction.transaction_layer import (
    AckReceived,
    PongReceived,
    RequestReceived,
    Respond,
    ResponseReceived,
    SendAck,
    SendPing,
    SendRequest,
    TransactionLayer,
    TransactionTimedOut,
    make_cancel,
)

TO_BOB = Target("TCP", BOB)
ALL = ("UDP", "TCP", "TLS")


@pytest.fixture
def alice() -> Clockwork:
    return layer_at(ALICE)


def layer_at(local: tuple[str, int], *transports: str, **settings: Any) -> Clockwork:
    return Clockwork(TransactionLayer(SeededRandom(), transports=transports or ALL, local=local, **settings))


def on_stream(outputs: list[Output]) -> list[Message]:
    return [parse_message(output.data) for output in outputs if isinstance(output, SendOnStream)]


def sent_request(outputs: list[Output]) -> Request:
    (request,) = on_stream(outputs)
    assert isinstance(request, Request)
    return request


def answered(request: Request, status: int) -> bytes:
    return encode_message(make_response(request, status, to_tag="b"))


def from_bob(data: bytes, connection: int = 1) -> StreamReceived:
    return StreamReceived("sip", connection, BOB, data, "TCP", TO_BOB)


def from_alice(request: Request, connection: int = 5, via: str = "192.0.2.1:5060") -> StreamReceived:
    data = encode_message(request.with_first("Via", f"SIP/2.0/TCP {via};rport;branch=z9hG4bKone"))
    return StreamReceived("sip", connection, ("192.0.2.1", 51_234), data)


class TestClients:
    def test_rfc3261_17_1_1_2_an_invite_goes_once(self, alice: Clockwork) -> None:
        outputs = alice.step(SendRequest("t", make_request("INVITE"), TO_BOB))
        assert outputs == [SendOnStream("sip", TO_BOB, outputs[0].data, None)]  # type: ignore[attr-defined]
        later = alice.run_to(100.0)
        assert later == [(32.0, TransactionTimedOut("t"))]

    def test_rfc3261_17_1_2_2_any_other_request_goes_once(self, alice: Clockwork) -> None:
        alice.step(SendRequest("t", make_request("OPTIONS"), TO_BOB))
        assert alice.run_to(100.0) == [(32.0, TransactionTimedOut("t", "timeout"))]

    def test_rfc3261_18_1_1_the_via_names_the_transport(self) -> None:
        alice = layer_at(ALICE, local_streams={"TLS": ("192.0.2.1", 5061)})
        tcp = sent_request(alice.step(SendRequest("a", make_request("OPTIONS"), TO_BOB)))
        tls = sent_request(alice.step(SendRequest("b", make_request("OPTIONS"), Target("TLS", BOB))))
        assert (tcp.via.transport, tcp.via.port) == ("TCP", 5060)
        assert (tls.via.transport, tls.via.port) == ("TLS", 5061)

    def test_rfc3261_table4_timers_d_and_k_are_zero(self, alice: Clockwork) -> None:
        invite = sent_request(alice.step(SendRequest("i", make_request("INVITE"), TO_BOB)))
        options = sent_request(alice.step(SendRequest("o", make_request("OPTIONS", number=2), TO_BOB)))
        refused = alice.step(from_bob(answered(invite, 486)))
        assert [message.method for message in on_stream(refused) if isinstance(message, Request)] == ["ACK"]
        alice.step(from_bob(answered(options, 200)))
        alice.run_to(0.0)
        assert alice.layer.transaction_count == 0
        assert alice.timers == {}

    def test_rfc6026_7_2_timer_m_runs_on_streams_too(self, alice: Clockwork) -> None:
        invite = sent_request(alice.step(SendRequest("i", make_request("INVITE"), TO_BOB)))
        for _ in range(2):
            (report,) = alice.step(from_bob(answered(invite, 200)))
            assert isinstance(report, ResponseReceived)
        alice.run_to(31.0)
        assert alice.layer.transaction_count == 1

    def test_cancel_goes_the_way_of_its_invite(self, alice: Clockwork) -> None:
        invite = sent_request(alice.step(SendRequest("i", make_request("INVITE"), TO_BOB)))
        alice.step(from_bob(answered(invite, 180)))
        cancel = sent_request(alice.step(SendRequest("c", make_cancel(make_request("INVITE")), TO_BOB)))
        assert (cancel.method, cancel.via) == ("CANCEL", invite.via)

    def test_an_ack_for_2xx_goes_on_the_stream(self, alice: Clockwork) -> None:
        ack = sent_request(alice.step(SendAck(make_request("ACK"), TO_BOB)))
        assert ack.via.transport == "TCP"


class TestFailures:
    """RFC 3261 8.1.3.1, 17.1.4: a transport error is reported at once."""

    @pytest.mark.parametrize("method", ["INVITE", "OPTIONS"])
    def test_a_refused_connection_ends_the_transaction(self, alice: Clockwork, method: str) -> None:
        alice.step(SendRequest("t", make_request(method), TO_BOB))
        assert alice.step(StreamClosed("sip", 1, "refused", TO_BOB)) == [TransactionTimedOut("t", "transport")]
        assert alice.layer.transaction_count == 0
        assert alice.run_to(100.0) == []

    def test_a_connection_lost_while_ringing_ends_it_too(self, alice: Clockwork) -> None:
        invite = sent_request(alice.step(SendRequest("t", make_request("INVITE"), TO_BOB)))
        alice.step(from_bob(answered(invite, 180)))
        assert alice.step(StreamClosed("sip", 1, "reset", TO_BOB)) == [TransactionTimedOut("t", "transport")]

    def test_every_transaction_of_the_connection_ends_and_no_other(self, alice: Clockwork) -> None:
        elsewhere = Target("TCP", ("192.0.2.3", 5060))
        for name, target in (("a", TO_BOB), ("b", TO_BOB), ("c", elsewhere), ("d", Target("TLS", BOB))):
            alice.step(SendRequest(name, make_request("OPTIONS", call_id=name), target))
        alice.step(SendRequest("u", make_request("OPTIONS", call_id="u"), BOB))
        ended = alice.step(StreamClosed("sip", 1, "reset", TO_BOB))
        assert ended == [TransactionTimedOut("a", "transport"), TransactionTimedOut("b", "transport")]

    def test_answered_transactions_do_not_fail(self, alice: Clockwork) -> None:
        invite = sent_request(alice.step(SendRequest("t", make_request("INVITE"), TO_BOB)))
        alice.step(from_bob(answered(invite, 200)))
        assert alice.step(StreamClosed("sip", 1, "closed", TO_BOB)) == []

    def test_a_transport_that_is_not_enabled_fails_at_once(self) -> None:
        alice = layer_at(ALICE, "UDP")
        failed = alice.step(SendRequest("t", make_request("OPTIONS"), TO_BOB))
        assert failed == [TransactionTimedOut("t", "transport")]
        assert alice.step(SendAck(make_request("ACK"), TO_BOB)) == []
        assert alice.layer.drops["no transport"] == 1

    def test_a_waiting_cancel_fails_with_its_invite(self, alice: Clockwork) -> None:
        alice.step(SendRequest("i", make_request("INVITE"), TO_BOB))
        assert alice.step(SendRequest("c", make_cancel(make_request("INVITE")), TO_BOB)) == []
        ended = alice.step(StreamClosed("sip", 1, "refused", TO_BOB))
        assert set(ended) == {TransactionTimedOut("i", "transport"), TransactionTimedOut("c")}

    def test_the_layer_keeps_nothing_of_ended_connections(self, alice: Clockwork) -> None:
        for number in range(20):
            request = make_request("OPTIONS", call_id=str(number))
            sent = sent_request(alice.step(SendRequest(f"t{number}", request, TO_BOB)))
            if number % 2:
                alice.step(from_bob(answered(sent, 200), number))
            alice.step(StreamClosed("sip", number, "closed", TO_BOB))
        alice.run_to(alice.now)
        assert alice.layer.transaction_count == 0
        assert alice.timers == {}


class TestFlows:
    """A device that cannot be connected to is reached on the connection it opened (RFC 5626)."""

    def flow(self, connection: int) -> StreamReceived:
        return StreamReceived("sip", connection, ("192.0.2.2", 51_234), PING)

    def test_an_open_connection_is_preferred(self, alice: Clockwork) -> None:
        alice.step(self.flow(9))
        (sent,) = alice.step(SendRequest("t", make_request("OPTIONS"), TO_BOB, connection=9))
        assert isinstance(sent, SendOnStream)
        assert (sent.connection, sent.target) == (9, TO_BOB)
        unrelated = alice.step(StreamClosed("sip", 2, "refused", TO_BOB))
        assert unrelated == []
        assert alice.step(StreamClosed("sip", 9, "reset")) == [TransactionTimedOut("t", "transport")]

    def test_a_closed_one_is_replaced_by_a_new_one(self, alice: Clockwork) -> None:
        alice.step(self.flow(9), StreamClosed("sip", 9, "closed"))
        (sent,) = alice.step(SendRequest("t", make_request("OPTIONS"), TO_BOB, connection=9))
        assert isinstance(sent, SendOnStream)
        assert sent.connection is None

    def test_requests_to_the_far_end_of_a_connection_use_it(self, alice: Clockwork) -> None:
        """Phones write it into the Contact of a dialog, although they do not listen there (RFC 3261 18.1.1)."""
        far_end = Target("TCP", ("192.0.2.2", 51_234))
        alice.step(self.flow(9))
        (sent,) = alice.step(SendAck(make_request("ACK", to_tag="b"), far_end))
        assert isinstance(sent, SendOnStream)
        assert sent.connection == 9
        for elsewhere in (Target("TCP", ("192.0.2.2", 51_235)), Target("TLS", far_end.address)):
            (sent,) = alice.step(SendAck(make_request("ACK", to_tag="b"), elsewhere))
            assert isinstance(sent, SendOnStream)
            assert sent.connection is None
        alice.step(self.flow(10), StreamClosed("sip", 9, "closed"))
        (sent,) = alice.step(SendAck(make_request("ACK", to_tag="b"), far_end))
        assert isinstance(sent, SendOnStream)
        assert sent.connection == 10, "the same far end came anew before the end of the former was told"
        alice.step(StreamClosed("sip", 10, "closed"))
        (sent,) = alice.step(SendAck(make_request("ACK", to_tag="b"), far_end))
        assert isinstance(sent, SendOnStream)
        assert sent.connection is None

    def test_a_tls_target_is_never_reached_in_the_clear(self, alice: Clockwork) -> None:
        """RFC 3261 26.2.2: the flow is TCP, but TLS was explicitly requested."""
        alice.step(self.flow(9))
        (sent,) = alice.step(SendRequest("t", make_request("OPTIONS"), Target("TLS", BOB), connection=9))
        assert isinstance(sent, SendOnStream)
        assert sent.connection is None


class TestServers:
    @pytest.fixture
    def bob(self) -> Clockwork:
        return layer_at(BOB)

    def test_rfc3261_18_2_2_the_answer_goes_on_the_connection(self, bob: Clockwork) -> None:
        (report,) = bob.step(from_alice(make_request("OPTIONS")))
        assert isinstance(report, RequestReceived)
        assert (report.transport, report.connection, report.source) == ("TCP", 5, ("192.0.2.1", 51_234))
        assert (report.request.via.received, report.request.via.rport) == ("192.0.2.1", 51_234)
        (sent,) = bob.step(Respond(report.transaction, make_response(report.request, 200, to_tag="b")))
        assert isinstance(sent, SendOnStream)
        assert (sent.connection, sent.target) == (5, Target("TCP", ("192.0.2.1", 5060)))

    def test_rfc3261_table4_timer_j_is_zero(self, bob: Clockwork) -> None:
        (report,) = bob.step(from_alice(make_request("OPTIONS")))
        assert isinstance(report, RequestReceived)
        bob.step(Respond(report.transaction, make_response(report.request, 200, to_tag="b")))
        bob.run_to(0.0)
        assert bob.layer.transaction_count == 0

    def test_rfc3261_17_2_1_no_timer_g_and_timer_i_is_zero(self, bob: Clockwork) -> None:
        (report,) = bob.step(from_alice(make_request("INVITE")))
        assert isinstance(report, RequestReceived)
        bob.step(Respond(report.transaction, make_response(report.request, 486, to_tag="b")))
        assert bob.run_to(31.0) == []
        ack = make_request("ACK", to_tag="b")
        assert bob.step(from_alice(ack)) == []
        bob.run_to(31.0)
        assert bob.layer.transaction_count == 0

    def test_an_ack_for_2xx_is_reported_with_its_connection(self, bob: Clockwork) -> None:
        (report,) = bob.step(from_alice(make_request("ACK", to_tag="b")))
        assert isinstance(report, AckReceived)
        assert (report.transport, report.connection) == ("TCP", 5)

    def test_a_request_that_cannot_be_read_is_answered_whatever_its_size(self, bob: Clockwork) -> None:
        """RFC 3261 8.2.7: the source of a connection cannot be forged, so the response need not be small."""
        request = make_request("OPTIONS")
        data = encode_message(request.with_first("Via", "SIP/2.0/TCP a;branch=z9hG4bKx")).replace(
            b"SIP/2.0\r", b"SIP/7.0\r"
        )
        (refusal,) = on_stream(bob.step(StreamReceived("sip", 5, ALICE, data)))
        assert isinstance(refusal, Response)
        assert refusal.status == 505
        assert bob.step(StreamReceived("sip", 5, ALICE, b"")) == []


class TestConnections:
    @pytest.fixture
    def bob(self) -> Clockwork:
        return layer_at(BOB)

    def test_rfc5626_4_4_1_a_ping_is_answered(self, bob: Clockwork) -> None:
        (pong,) = bob.step(StreamReceived("sip", 5, ALICE, PING * 2))
        assert pong == SendOnStream("sip", Target("TCP", ALICE), PONG * 2, 5)

    def test_rfc5626_4_4_1_our_ping_and_its_pong(self, alice: Clockwork) -> None:
        assert alice.step(SendPing(TO_BOB)) == [SendOnStream("sip", TO_BOB, PING, None)]
        assert alice.step(from_bob(PONG)) == [PongReceived(1, BOB)]
        assert alice.step(SendPing(Target("UDP", BOB))) == []

    def test_hostile_bytes_close_the_connection(self, bob: Clockwork) -> None:
        closed = bob.step(StreamReceived("sip", 5, ALICE, b"GET / HTTP/1.1\r\n\r\n"))
        assert closed == [CloseStream("sip", 5)]
        assert bob.step(from_alice(make_request("OPTIONS"))) == []
        assert bob.layer.drops["unframed"] == 1
        bob.step(StreamClosed("sip", 5, "closed here"))
        (report,) = bob.step(from_alice(make_request("OPTIONS"), connection=6))
        assert isinstance(report, RequestReceived)

    def test_messages_before_the_hostile_bytes_count(self, bob: Clockwork) -> None:
        good = from_alice(make_request("OPTIONS"))
        (report,) = bob.step(StreamReceived("sip", 5, ALICE, good.data + b"x\r\n\r\n"))
        assert isinstance(report, RequestReceived)
        assert bob.step(from_alice(make_request("OPTIONS", call_id="later"), connection=5)) == []
        bob.run_to(0.5)
        (answer,) = on_stream(bob.step(Respond(report.transaction, make_response(report.request, 200))))
        assert isinstance(answer, Response)
        assert answer.status == 200
        assert (1.0, CloseStream("sip", 5)) in bob.run_to(2.0)
        assert (bob.layer.drops["unframed"], bob.layer.drops["unfinished"]) == (1, 0)

    def test_a_connection_that_ends_before_its_answers_is_forgotten(self, bob: Clockwork) -> None:
        bob.step(StreamReceived("sip", 5, ALICE, from_alice(make_request("OPTIONS")).data + b"x\r\n\r\n"))
        bob.step(StreamClosed("sip", 5, "closed there"))
        assert CloseStream("sip", 5) not in [output for _, output in bob.run_to(40.0)]

    def test_a_message_that_never_ends_closes_the_connection(self, bob: Clockwork) -> None:
        data = from_alice(make_request("OPTIONS")).data
        bob.step(StreamReceived("sip", 5, ALICE, data + data[:20]))
        bob.run_to(20.0)
        bob.step(StreamReceived("sip", 5, ALICE, data[20:30]))
        assert (32.0, CloseStream("sip", 5)) in bob.run_to(33.0)
        assert bob.layer.drops["unfinished"] == 1

    def test_each_message_has_its_own_time(self, bob: Clockwork) -> None:
        data = from_alice(make_request("ACK", to_tag="b")).data
        bob.step(StreamReceived("sip", 5, ALICE, data[:20]))
        for _ in range(10):
            bob.run_to(bob.now + 20.0)
            outputs = bob.step(StreamReceived("sip", 5, ALICE, data[20:] + data[:20]))
            assert isinstance(outputs[0], AckReceived)
        bob.step(StreamReceived("sip", 5, ALICE, data[20:]))
        assert bob.timers == {}

    def test_a_closed_connection_leaves_no_timer(self, bob: Clockwork) -> None:
        bob.step(StreamReceived("sip", 5, ALICE, b"OPTIONS"))
        assert bob.timers
        bob.step(StreamClosed("sip", 5, "reset"))
        assert bob.timers == {}

    def test_other_sockets_are_not_ours(self, bob: Clockwork) -> None:
        assert bob.step(StreamReceived("data", 5, ALICE, PING), StreamClosed("data", 5, "x", TO_BOB)) == []


class TestLargeRequests:
    """RFC 3261 18.1.1: a request over 1,300 bytes uses a stream, and falls back to UDP if the connection is refused."""

    LARGE = make_request("INVITE").with_header("Subject", "x" * 1_200)

    def test_a_large_request_goes_over_tcp(self, alice: Clockwork) -> None:
        (sent,) = alice.step(SendRequest("t", self.LARGE, BOB))
        assert isinstance(sent, SendOnStream)
        assert sent.target == TO_BOB
        request = parse_message(sent.data)
        assert request.via.transport == "TCP"
        answer = alice.step(from_bob(answered(sent_request([sent]), 200)))
        assert isinstance(answer[0], ResponseReceived)

    def test_1300_bytes_still_go_over_udp(self, alice: Clockwork) -> None:
        (small,) = alice.step(SendRequest("probe", make_request("OPTIONS").with_header("Subject", ""), BOB))
        assert isinstance(small, SendDatagram)
        room = 1_300 - len(small.data)
        for extra, kind in ((0, SendDatagram), (1, SendOnStream)):
            request = make_request("OPTIONS").with_header("Subject", "x" * (room + extra))
            (sent,) = alice.step(SendRequest(f"t{extra}", request, BOB))
            assert isinstance(sent, kind)

    def test_without_tcp_it_stays_with_udp(self) -> None:
        (sent,) = layer_at(ALICE, "UDP").step(SendRequest("t", self.LARGE, BOB))
        assert isinstance(sent, SendDatagram)

    def test_a_refused_connection_falls_back_to_udp(self, alice: Clockwork) -> None:
        (first,) = alice.step(SendRequest("t", self.LARGE, BOB))
        assert isinstance(first, SendOnStream)
        (second,) = alice.step(StreamClosed("sip", 1, "refused", TO_BOB))
        assert isinstance(second, SendDatagram)
        before, after = parse_message(first.data), parse_message(second.data)
        assert (after.via.transport, after.via.branch) == ("UDP", before.via.branch)
        assert alice.sending_times(1.6) == [0.5, 1.5]
        assert isinstance(after, Request)
        got = alice.step(DatagramReceived("sip", BOB, answered(after, 200)))
        assert got == [ResponseReceived("t", got[0].response, BOB)]  # type: ignore[attr-defined]

    def test_tcp_is_not_retried_for_a_while_after_a_refusal(self, alice: Clockwork) -> None:
        alice.step(SendRequest("a", self.LARGE, BOB), StreamClosed("sip", 1, "refused", TO_BOB))
        (soon,) = alice.step(SendRequest("b", self.LARGE, BOB))
        assert isinstance(soon, SendDatagram)
        alice.run_to(700.0)
        (late,) = alice.step(SendRequest("c", self.LARGE, BOB))
        assert isinstance(late, SendOnStream)

    def test_a_cancel_waits_through_the_fall_back(self, alice: Clockwork) -> None:
        alice.step(SendRequest("i", self.LARGE, BOB))
        alice.step(SendRequest("c", make_cancel(self.LARGE), BOB))
        (invite,) = alice.step(StreamClosed("sip", 1, "refused", TO_BOB))
        assert isinstance(invite, SendDatagram)
        request = parse_message(invite.data)
        assert isinstance(request, Request)
        outputs = alice.step(DatagramReceived("sip", BOB, answered(request, 180)))
        cancels = [parse_message(output.data) for output in outputs if isinstance(output, SendDatagram)]
        assert [cancel.via for cancel in cancels] == [request.via]

    def test_once_it_rings_over_tcp_the_loss_of_the_connection_is_a_failure(self, alice: Clockwork) -> None:
        sent = sent_request(alice.step(SendRequest("t", self.LARGE, BOB)))
        alice.step(from_bob(answered(sent, 180)))
        assert alice.step(StreamClosed("sip", 1, "reset", TO_BOB)) == [TransactionTimedOut("t", "transport")]
