"""Paths that drop longer datagrams silently: a large request is sent over TCP too (RFC 3261 18.1.1, RFC 2923 2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sip.test_reliable_transactions import TO_BOB, answered, layer_at
from tests.sip.transaction_world import ALICE, BOB, make_request
from wanderbus.machine import DatagramReceived, Output, SendDatagram, SendOnStream, StreamClosed, StreamReceived
from wanderbus.sip.message.message import Request, parse_message
from wanderbus.sip.transaction.transaction_layer import (
    CancelInvite,
    PathSeemsNarrow,
    ResponseReceived,
    SendRequest,
    TransactionTimedOut,
)

if TYPE_CHECKING:
    from tests.sip.transaction_world import Clockwork

INVITE = make_request("INVITE").with_header("Subject", "x" * 700)
SMALL = make_request("OPTIONS")


@pytest.fixture
def alice() -> Clockwork:
    """A user agent without TCP, whose small requests Bob answers."""
    made = layer_at(ALICE, "UDP", narrow_paths=True)
    answer(made, SMALL, "small")
    return made


def answer(layer: Clockwork, request: Request, name: str) -> None:
    (sent,) = layer.step(SendRequest(name, request, BOB))
    assert isinstance(sent, SendDatagram)
    parsed = parse_message(sent.data)
    assert isinstance(parsed, Request)
    layer.step(DatagramReceived("sip", BOB, answered(parsed, 200)))


def answer_over_tcp(layer: Clockwork, sent: SendOnStream, status: int) -> list[Output]:
    parsed = parse_message(sent.data)
    assert isinstance(parsed, Request)
    return layer.step(StreamReceived("sip", 1, BOB, answered(parsed, status), target=TO_BOB))


def copy_in(sent: list[Output]) -> SendOnStream:
    (copy,) = (each for each in sent if isinstance(each, SendOnStream))
    return copy


def sent_until(layer: Clockwork, until: float) -> list[Output]:
    """Return what is sent until then, from now on."""
    return [each for _, each in layer.run_to(until) if isinstance(each, SendDatagram | SendOnStream)]


@pytest.mark.parametrize("method", ["INVITE", "REGISTER"])
def test_a_large_request_is_sent_over_tcp_too_at_its_second_repetition(alice: Clockwork, method: str) -> None:
    (first,) = alice.step(SendRequest("i", make_request(method).with_header("Subject", "x" * 700), BOB))
    assert isinstance(first, SendDatagram)
    sent = sent_until(alice, 2.0)
    assert [type(each) for each in sent] == [SendDatagram, SendDatagram, SendOnStream]
    copy = copy_in(sent)
    assert copy.target == TO_BOB
    before, after = parse_message(first.data), parse_message(copy.data)
    assert (after.via.transport, after.via.branch) == ("TCP", before.via.branch)
    got = answer_over_tcp(alice, copy, 200)
    assert any(isinstance(each, ResponseReceived) for each in got)


def test_udp_goes_on_where_tcp_does_not_get_through(alice: Clockwork) -> None:
    alice.step(SendRequest("i", INVITE, BOB))
    sent = sent_until(alice, 31.0)
    assert len([each for each in sent if isinstance(each, SendDatagram)]) == 5
    assert copy_in(sent)
    assert alice.run_to(32.0)[-1] == (32.0, TransactionTimedOut("i"))


def test_the_next_large_request_uses_tcp_at_once_and_a_smaller_one_udp(alice: Clockwork) -> None:
    alice.step(SendRequest("i", INVITE, BOB))
    answer_over_tcp(alice, copy_in(sent_until(alice, 2.0)), 200)
    (large,) = alice.step(SendRequest("j", INVITE, BOB))
    assert isinstance(large, SendOnStream)
    answer(alice, SMALL, "k")
    alice.run_to(700.0)
    (late,) = alice.step(SendRequest("l", INVITE, BOB))
    assert isinstance(late, SendDatagram), "the path may have been mended"


def test_a_small_request_stays_with_udp(alice: Clockwork) -> None:
    alice.step(SendRequest("i", make_request("INVITE"), BOB))
    assert all(isinstance(each, SendDatagram) for each in sent_until(alice, 20.0))


@pytest.mark.parametrize("answered_before_s", [None, 40.0])
def test_an_address_that_answers_nothing_gets_no_tcp(answered_before_s: float | None) -> None:
    layer = layer_at(ALICE, "UDP", narrow_paths=True)
    if answered_before_s is not None:
        answer(layer, SMALL, "small")
        layer.run_to(answered_before_s)
    layer.step(SendRequest("i", INVITE, BOB))
    sent = sent_until(layer, 80.0)
    assert len(sent) >= 6
    assert all(isinstance(each, SendDatagram) for each in sent)


def test_a_layer_of_a_server_does_not_try_it() -> None:
    layer = layer_at(ALICE, "UDP", "TCP")
    answer(layer, SMALL, "small")
    layer.step(SendRequest("i", INVITE, BOB))
    assert all(isinstance(each, SendDatagram) for each in sent_until(layer, 20.0))


def test_a_peer_without_tcp_gets_no_tcp_for_a_while(alice: Clockwork) -> None:
    """A narrow path and no TCP is reported once, with the size of the request."""
    (sent,) = alice.step(SendRequest("i", INVITE, BOB))
    assert isinstance(sent, SendDatagram)
    copy_in(sent_until(alice, 2.0))
    assert alice.step(StreamClosed("sip", 1, "refused", TO_BOB)) == [PathSeemsNarrow(len(sent.data))]
    assert all(isinstance(each, SendDatagram) for each in sent_until(alice, 30.0))
    assert alice.run_to(40.0)[-1][1] == TransactionTimedOut("i")
    answer(alice, SMALL, "k")
    alice.step(SendRequest("j", INVITE, BOB))
    assert all(isinstance(each, SendDatagram) for each in sent_until(alice, 60.0))


def test_a_peer_without_tcp_that_answers_by_udp_has_no_narrow_path(alice: Clockwork) -> None:
    (sent,) = alice.step(SendRequest("i", INVITE, BOB))
    assert isinstance(sent, SendDatagram)
    copy_in(sent_until(alice, 2.0))
    parsed = parse_message(sent.data)
    assert isinstance(parsed, Request)
    alice.step(DatagramReceived("sip", BOB, answered(parsed, 100)))
    assert alice.step(StreamClosed("sip", 1, "refused", TO_BOB)) == []


def test_an_invite_that_was_answered_over_tcp_is_cancelled_there(alice: Clockwork) -> None:
    alice.step(SendRequest("i", INVITE, BOB))
    alice.step(CancelInvite("i", repeats=True))
    copy = copy_in(sent_until(alice, 2.0))
    request = parse_message(copy.data)
    outputs = answer_over_tcp(alice, copy, 180)
    cancels = [parse_message(each.data) for each in outputs if isinstance(each, SendOnStream)]
    assert [cancel.via for cancel in cancels] == [request.via]
