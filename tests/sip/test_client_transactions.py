"""Client transactions under literal times (RFC 3261 17.1, RFC 6026 7.2)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.sip.transaction_world import ALICE, BOB, Clockwork, SeededRandom, answer, make_request, messages
from wanderbus.errors import LocalProtocolError
from wanderbus.machine import Output, SendDatagram
from wanderbus.sip.message.message import Request, make_response
from wanderbus.sip.transaction.client_transactions import (
    INVITE_CLIENT,
    INVITE_CLIENT_TIMERS,
    NON_INVITE_CLIENT,
    NON_INVITE_CLIENT_TIMERS,
    make_cancel,
    make_failure_ack,
)
from wanderbus.sip.transaction.server_transactions import (
    INVITE_SERVER,
    INVITE_SERVER_TIMERS,
    NON_INVITE_SERVER,
    NON_INVITE_SERVER_TIMERS,
)
from wanderbus.sip.transaction.transaction_layer import (
    ForgetTransaction,
    LocalAddressChanged,
    ResponseReceived,
    SendAck,
    SendRequest,
    TransactionLayer,
    TransactionTimedOut,
)
from wanderbus.sip.transaction.transaction_machine import Running, Table
from wanderbus.sip.transaction.transaction_states import BaseTimers, State

ALL_TABLES: Mapping[str, tuple[State, Table, Running]] = {
    "INVITE client": (State.CALLING, INVITE_CLIENT, INVITE_CLIENT_TIMERS),
    "client": (State.TRYING, NON_INVITE_CLIENT, NON_INVITE_CLIENT_TIMERS),
    "INVITE server": (State.PROCEEDING, INVITE_SERVER, INVITE_SERVER_TIMERS),
    "server": (State.TRYING, NON_INVITE_SERVER, NON_INVITE_SERVER_TIMERS),
}


@pytest.fixture
def alice() -> Clockwork:
    layer = TransactionLayer(SeededRandom(), local=ALICE)
    return Clockwork(layer)


def start(node: Clockwork, method: str, name: str = "one") -> bytes:
    """Start a transaction and return the bytes of its request."""
    (sent,) = node.step(SendRequest(name, make_request(method), BOB))
    assert isinstance(sent, SendDatagram)
    assert sent.destination == BOB
    return sent.data


def reported(outputs: list[Output]) -> list[int]:
    return [output.response.status for output in outputs if isinstance(output, ResponseReceived)]


def scoped_letters(node: Clockwork) -> dict[str, float]:
    return {str(key[1]): at for key, at in node.timers.items() if isinstance(key, tuple)}


@pytest.mark.parametrize("machine", ALL_TABLES)
def test_every_state_is_reached_and_left(machine: str) -> None:
    """RFC 3261 figures 5 to 8: no state is an island or a trap, and each timer runs where the table expects it."""
    initial, table, running = ALL_TABLES[machine]
    reached = {initial}
    for _ in State:
        reached |= {after for (before, _), after in table.items() if before in reached}
    assert reached == {before for before, _ in table} | {State.TERMINATED}
    assert State.TERMINATED not in {before for before, _ in table}
    expected = {(state, trigger) for state, trigger in table if trigger.name.startswith("TIMER")}
    assert expected == {(state, timer) for state, timers in running.items() for timer in timers}


def test_rfc3261_17_1_1_2_timer_a_doubles_and_timer_b_ends(alice: Clockwork) -> None:
    start(alice, "INVITE")
    assert alice.sending_times(31.9) == [0.5, 1.5, 3.5, 7.5, 15.5, 31.5]
    assert alice.run_to(40.0) == [(32.0, TransactionTimedOut("one"))]
    assert alice.layer.transaction_count == 0
    assert not alice.timers


def test_rfc3261_17_1_1_2_provisional_stops_both_timers(alice: Clockwork) -> None:
    data = start(alice, "INVITE")
    assert reported(alice.step(answer(data, 180))) == [180]
    assert not alice.timers
    assert reported(alice.step(answer(data, 183))) == [183]
    assert alice.run_to(1000.0) == []
    assert reported(alice.step(answer(data, 200))) == [200]


def test_rfc3261_17_1_1_2_refusal_is_acknowledged_each_time_and_reported_once(alice: Clockwork) -> None:
    data = start(alice, "INVITE")
    first = alice.step(answer(data, 486))
    assert reported(first) == [486]
    assert [str(message.cseq) for message in messages(first)] == ["1 ACK"]
    assert scoped_letters(alice) == {"D": 32.0}
    alice.run_to(31.0)
    again = alice.step(answer(data, 486))
    assert reported(again) == []
    assert [str(message.cseq) for message in messages(again)] == ["1 ACK"]
    alice.run_to(32.0)
    assert alice.layer.transaction_count == 0


@pytest.mark.parametrize("method", ["INVITE", "OPTIONS"])
def test_an_accepted_invite_is_not_kept_while_2xx_may_be_repeated(alice: Clockwork, method: str) -> None:
    data = start(alice, method)
    assert kept(alice) > 300
    alice.step(answer(data, 180))
    assert kept(alice) > 300
    alice.step(answer(data, 200))
    assert alice.layer.transaction_count == 1
    assert kept(alice) == 0


def kept(alice: Clockwork) -> int:
    """Bytes of requests and data in client transactions, about."""
    transactions = alice.layer._clients._transactions.values()
    return sum(len(each.data) + len(repr(each.request and each.request.headers)) - len("None") for each in transactions)


def test_rfc3261_17_1_1_3_ack_is_made_from_invite_and_response(alice: Clockwork) -> None:
    routed = make_request("INVITE").with_header("Route", "<sip:one;lr>, <sip:two;lr>")
    (sent,) = alice.step(SendRequest("one", routed, BOB))
    assert isinstance(sent, SendDatagram)
    (ack,) = messages(alice.step(answer(sent.data, 404, to_tag="refuser")))
    (invite,) = messages([sent])
    assert isinstance(ack, Request)
    assert isinstance(invite, Request)
    assert (ack.method, ack.uri, ack.call_id) == ("ACK", invite.uri, invite.call_id)
    assert ack.headers_all("Via") == invite.headers_all("Via")
    assert ack.header("From") == invite.header("From")
    assert ack.to.tag == "refuser"
    assert [str(route) for route in ack.routes] == ["<sip:one;lr>", "<sip:two;lr>"]


def test_rfc3261_17_1_1_3_ack_has_only_the_top_via_of_a_proxied_invite() -> None:
    proxied = make_request("INVITE").with_first("Via", "SIP/2.0/UDP caller;branch=z9hG4bKcaller")
    proxied = proxied.with_first("Via", "SIP/2.0/UDP proxy;branch=z9hG4bKproxy")
    assert [via.host for via in make_failure_ack(proxied, make_response(proxied, 486, to_tag="b")).vias] == ["proxy"]


def test_rfc6026_7_2_every_2xx_is_reported_until_timer_m(alice: Clockwork) -> None:
    data = start(alice, "INVITE")
    accepted = alice.step(answer(data, 200))
    assert reported(accepted) == [200]
    assert messages(accepted) == [], "the ACK for a 2xx is the transaction user's"
    assert scoped_letters(alice) == {"M": 32.0}
    alice.run_to(31.9)
    assert reported(alice.step(answer(data, 200))) == [200]
    assert reported(alice.step(answer(data, 486))) == []
    alice.run_to(32.0)
    assert alice.step(answer(data, 200)) == []
    assert alice.layer.drops == {"stray response": 1}


def test_rfc3261_17_1_2_2_timer_e_doubles_to_t2_and_timer_f_ends(alice: Clockwork) -> None:
    start(alice, "REGISTER")
    assert alice.sending_times(31.9) == [0.5, 1.5, 3.5, 7.5, 11.5, 15.5, 19.5, 23.5, 27.5, 31.5]
    assert alice.run_to(40.0) == [(32.0, TransactionTimedOut("one"))]
    assert not alice.timers


def test_rfc3261_17_1_2_2_provisional_slows_timer_e_to_t2(alice: Clockwork) -> None:
    data = start(alice, "REGISTER")
    assert reported(alice.step(answer(data, 100))) == [100]
    assert alice.sending_times(13.0) == [0.5, 4.5, 8.5, 12.5]
    assert alice.run_to(32.0)[-1] == (32.0, TransactionTimedOut("one"))


def test_rfc3261_17_1_2_2_final_response_is_reported_once_and_timer_k_absorbs(alice: Clockwork) -> None:
    data = start(alice, "REGISTER")
    assert reported(alice.step(answer(data, 200))) == [200]
    assert scoped_letters(alice) == {"K": 5.0}
    assert alice.step(answer(data, 200)) == []
    assert alice.layer.dropped == 0
    assert alice.run_to(5.0) == []
    assert alice.layer.transaction_count == 0


def test_timers_scale_with_t1_except_timer_d() -> None:
    """RFC 3261 17.1.1.2: timer D is at least 32 s, for any T1 of ours."""
    layer = TransactionLayer(SeededRandom(), timers=BaseTimers(t1_s=0.1, t2_s=0.3, t4_s=1.0))
    node = Clockwork(layer)
    data = start(node, "OPTIONS")
    assert node.sending_times(1.25) == pytest.approx([0.1, 0.3, 0.6, 0.9, 1.2])
    node.step(answer(data, 200))
    assert scoped_letters(node) == pytest.approx({"K": 2.25})
    refused = start(node, "INVITE", "two")
    node.step(answer(refused, 500))
    assert scoped_letters(node)["D"] == pytest.approx(33.25)


def test_rfc3261_8_1_1_7_and_rfc3581_3_via_of_a_request(alice: Clockwork) -> None:
    branches = set()
    for number in range(20):
        (sent,) = messages(alice.step(SendRequest(str(number), make_request("OPTIONS"), BOB, ".loop")))
        assert (sent.via.host, sent.via.port, sent.via.wants_rport) == ("192.0.2.1", 5060, True)
        branch = sent.via.branch or ""
        assert branch.startswith("z9hG4bK")
        assert branch.endswith(".loop")
        branches.add(branch)
    assert len(branches) == 20


def test_rfc3261_17_1_3_response_matches_by_branch_sent_by_and_method(alice: Clockwork) -> None:
    data = start(alice, "OPTIONS")
    (request,) = messages([SendDatagram("sip", BOB, data)])
    branch = (request.via.branch or "").encode()
    for forged in (
        data.replace(branch, b"z9hG4bKother"),
        data.replace(b"UDP 192.0.2.1:5060", b"UDP 192.0.2.9:5060"),
        data.replace(b"OPTIONS", b"REGISTER"),
    ):
        assert forged != data
        assert alice.step(answer(forged, 200)) == []
    assert alice.layer.drops == {"stray response": 3}
    assert reported(alice.step(answer(data, 200))) == [200]


def test_response_still_matches_after_our_address_changed(alice: Clockwork) -> None:
    """SPEC U-09: an address change in the middle of a transaction; its Via keeps the old sent-by."""
    data = start(alice, "OPTIONS")
    assert alice.step(LocalAddressChanged(("198.51.100.7", 5070))) == []
    assert reported(alice.step(answer(data, 200))) == [200]
    (sent,) = messages(alice.step(SendRequest("two", make_request("OPTIONS"), BOB)))
    assert (sent.via.host, sent.via.port) == ("198.51.100.7", 5070)


def test_rfc3261_9_1_cancel_waits_for_a_provisional_and_shares_the_branch(alice: Clockwork) -> None:
    data = start(alice, "INVITE")
    (invite,) = messages([SendDatagram("sip", BOB, data)])
    assert alice.step(LocalAddressChanged(("198.51.100.7", 5070))) == []
    cancel = SendRequest("cancel", make_cancel(make_request("INVITE")), ("203.0.113.3", 9))
    assert alice.step(cancel) == []
    outputs = alice.step(answer(data, 100))
    (sent,) = [output for output in outputs if isinstance(output, SendDatagram)]
    (request,) = messages(outputs)
    assert isinstance(request, Request)
    assert request.method == "CANCEL"
    assert sent.destination == BOB, "a CANCEL goes where its INVITE went"
    assert request.headers_all("Via") == invite.headers_all("Via")
    assert reported(alice.step(answer(sent.data, 200))) == [200]
    assert reported(alice.step(answer(data, 487))) == [487]


def test_rfc3261_9_1_cancel_with_nothing_to_cancel_times_out_at_once(alice: Clockwork) -> None:
    cancel = SendRequest("cancel", make_cancel(make_request("INVITE")), BOB)
    assert alice.step(cancel) == [TransactionTimedOut("cancel")]
    data = start(alice, "INVITE")
    assert alice.step(cancel) == []
    assert alice.step(answer(data, 486))[-1] == TransactionTimedOut("cancel")
    assert alice.step(cancel) == [TransactionTimedOut("cancel")]


def test_rfc3261_13_2_2_4_ack_for_2xx_is_sent_once_under_a_fresh_branch(alice: Clockwork) -> None:
    start(alice, "INVITE")
    before = dict(alice.timers)
    first, second = messages(alice.step(*[SendAck(make_request("ACK", to_tag="b"), BOB)] * 2))
    assert first.via.branch != second.via.branch
    assert alice.timers == before


def test_forgotten_transaction_is_silent(alice: Clockwork) -> None:
    data = start(alice, "INVITE")
    assert alice.step(ForgetTransaction("one"), ForgetTransaction("unknown")) == []
    assert not alice.timers
    assert alice.step(answer(data, 200)) == []
    assert alice.run_to(100.0) == []


def test_name_is_free_again_after_the_final_response(alice: Clockwork) -> None:
    data = start(alice, "REGISTER")
    with pytest.raises(LocalProtocolError):
        alice.step(SendRequest("one", make_request("REGISTER", number=2), BOB))
    alice.step(answer(data, 401))
    second = start(alice, "REGISTER")
    alice.run_to(4.0)
    assert reported(alice.step(answer(second, 200))) == [200]
    assert alice.run_to(9.0) == []
    assert alice.layer.transaction_count == 0


def test_ack_cannot_be_started_as_a_transaction(alice: Clockwork) -> None:
    with pytest.raises(LocalProtocolError):
        alice.step(SendRequest("one", make_request("ACK"), BOB))
