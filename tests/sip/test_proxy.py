"""The proxy as a pure machine over the inputs and outputs of the transaction layer (RFC 3261 16; SPEC D-07,
D-09, X11).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.sip.phone_world import CountingRandom
from wanderbus.machine import CancelTimer, SetTimer, TimerFired
from wanderbus.sip.message.message import Request, Response, make_response
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy import proxy as proxy_module
from wanderbus.sip.proxy.bindings import Binding, Domain
from wanderbus.sip.proxy.location import LocationService
from wanderbus.sip.proxy.proxy import Proxy
from wanderbus.sip.proxy.proxy_signals import Command, Report
from wanderbus.sip.proxy.response_forwarding import SETTLING_S, TIMER_C_S
from wanderbus.sip.transaction.transaction_layer import (
    AckReceived,
    CancelReceived,
    ForgetTransaction,
    RequestReceived,
    Respond,
    ResponseReceived,
    SendAck,
    SendRequest,
    TransactionTimedOut,
)

CALLER = ("10.0.0.1", 7)
BOB_AT = Target("UDP", ("10.0.0.2", 5062))
BOB = "sip:bob@example.org"
NOW = 50.0


class Setting:
    """A proxy for example.org where bob has a binding, carol has none and no other user exists."""

    def __init__(self) -> None:
        location = LocationService()
        location.replace(BOB, [Binding("sip:bob@10.0.0.2:5062;ob", 1000.0, "c", 1)])
        domain = Domain("example.org", ("10.0.0.9", 5060))
        self.proxy = Proxy(domain, location, {"bob", "carol"}.__contains__, CountingRandom(), b"key")

    def step(self, *reports: Report, now: float = NOW) -> list[Command]:
        return self.proxy.step(reports, now)

    def ask(self, request: Request, transaction: str = "s1") -> list[Command]:
        return self.step(RequestReceived(transaction, request, CALLER))

    def sent(self, request: Request) -> SendRequest:
        """Forward ``request`` and return the sent requests."""
        (sent,) = [command for command in self.ask(request) if isinstance(command, SendRequest)]
        return sent


def ask(
    method: str = "INVITE", uri: str = BOB, extra: Sequence[tuple[str, str]] = (), max_forwards: str | None = "70"
) -> Request:
    headers = [
        ("Via", "SIP/2.0/UDP 10.0.0.1:7;branch=z9hG4bKcaller"),
        ("From", "<sip:alice@example.org>;tag=a"),
        ("To", f"<{BOB}>"),
        ("Call-ID", "call-1"),
        ("CSeq", f"1 {method}"),
        *extra,
    ]
    if max_forwards is not None:
        headers.append(("Max-Forwards", max_forwards))
    return Request(method, uri, tuple(headers), b"body")


def answer_to(sent: SendRequest, status: int) -> ResponseReceived:
    """Return the callee's answer, with the proxy's Via on top as the layer reports it."""
    request = sent.request.with_first("Via", "SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bKproxy")
    return ResponseReceived(sent.transaction, make_response(request, status, to_tag="b"))


def statuses(commands: Sequence[Command]) -> list[int]:
    return [command.response.status for command in commands if isinstance(command, Respond)]


def refusal(commands: Sequence[Command]) -> Response:
    (command,) = commands
    assert isinstance(command, Respond)
    return command.response


def test_an_invite_is_tried_and_forwarded_to_the_binding() -> None:
    """RFC 3261 16.2, 16.6: 100 first; new Request-URI, one hop less, no Record-Route (D-09), all else as it came."""
    setting = Setting()
    trying, sent, timer = setting.ask(ask())
    assert isinstance(trying, Respond)
    assert trying.response.status == 100
    assert isinstance(sent, SendRequest)
    assert sent.destination == BOB_AT
    onward = ask(uri="sip:bob@10.0.0.2:5062;ob", max_forwards="69")
    assert sent.request == onward.with_header("Max-Breadth", "60")
    assert timer == SetTimer("s1/0", NOW + TIMER_C_S)


def test_a_request_that_is_no_invite_gets_no_100_and_no_timer_c() -> None:
    """RFC 4320 4.1."""
    (sent,) = Setting().ask(ask("MESSAGE"))
    assert isinstance(sent, SendRequest)


@pytest.mark.parametrize(("came", "leaves"), [(None, "70"), ("1", "0"), ("70", "69"), ("255", "69")])
def test_max_forwards_falls(came: str | None, leaves: str) -> None:
    """RFC 3261 16.6 item 3."""
    assert Setting().sent(ask(max_forwards=came)).request.header("Max-Forwards") == leaves


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (ask(max_forwards="0"), 483),
        (ask(uri="sip:nobody@example.org"), 404),
        (ask(uri="sip:carol@example.org"), 480),
        (ask(uri="sip:bob@elsewhere.org"), 403),
        (ask(uri="sip:bob@10.0.0.2:5062"), 403),
        (ask(extra=[("Route", "<sip:10.0.0.77;lr>")]), 403),
        (ask(extra=[("Route", "<sip:10.0.0.9;lr>, <sip:10.0.0.77;lr>")]), 403),
        (ask(uri="tel:1"), 416),
        (ask(uri="sips:bob@example.org"), 480),
        (ask(uri="sip:bob@[zz]"), 400),
        (ask(uri="sip:example.org"), 405),
    ],
)
def test_requests_that_are_not_forwarded(request_: Request, status: int) -> None:
    """RFC 3261 16.3 to 16.5: each refusal has its status, and no other message is sent."""
    setting = Setting()
    response = refusal(setting.ask(request_))
    assert response.status == status
    assert response.to.tag
    assert len(setting.proxy) == 0


def test_proxy_require_is_refused_with_the_names() -> None:
    """RFC 3261 16.3 item 5."""
    response = refusal(Setting().ask(ask(extra=[("Proxy-Require", "foo, bar")])))
    assert (response.status, response.headers_all("Unsupported")) == (420, ["foo", "bar"])


@pytest.mark.parametrize("uri", ["sip:example.org", "sip:10.0.0.9:5060"])
def test_options_to_the_server_itself_is_answered(uri: str) -> None:
    """RFC 3261 11.2: even with no hop left, for it goes nowhere."""
    response = refusal(Setting().ask(ask("OPTIONS", uri, max_forwards="0")))
    assert response.status == 200
    assert "INVITE" in response.headers_all("Allow")
    assert response.headers_all("Accept") == ["*/*"]
    assert response.header("Supported") == ""


@pytest.mark.parametrize("uri", ["sip:bob@10.0.0.9", "sip:%62ob@example.org:5060", "sip:bob@example.org;x=y"])
def test_other_spellings_of_the_user_are_found(uri: str) -> None:
    """RFC 3261 10.3 step 5, SPEC A-05."""
    assert Setting().sent(ask(uri=uri)).destination == BOB_AT


def test_our_own_route_is_taken_off() -> None:
    """RFC 3261 16.4."""
    sent = Setting().sent(ask(extra=[("Route", "<sip:10.0.0.9;lr>")]))
    assert sent.destination == BOB_AT
    assert sent.request.header("Route") is None


def test_a_loop_is_found_by_the_mark_in_our_branch_and_a_spiral_is_not() -> None:
    """RFC 3261 16.3 item 4: the same request with the same target is a loop, with another target it is a spiral."""
    mark = Setting().sent(ask()).branch_suffix
    via = ("Via", f"SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bK1{mark}")
    assert refusal(Setting().ask(ask(extra=[via]))).status == 482
    assert Setting().sent(ask(uri="sip:bob@10.0.0.9", extra=[via])).branch_suffix != mark


def test_another_server_with_our_mark_is_no_loop() -> None:
    mark = Setting().sent(ask()).branch_suffix
    assert Setting().sent(ask(extra=[("Via", f"SIP/2.0/UDP 10.0.0.8:5060;branch=z9hG4bK1{mark}")]))


def test_responses_go_back_without_our_via_and_100_stays_here() -> None:
    """RFC 3261 16.7 items 3 to 5."""
    setting = Setting()
    sent = setting.sent(ask())
    assert statuses(setting.step(answer_to(sent, 100))) == []
    ringing = setting.step(answer_to(sent, 180))
    assert ringing[0] == SetTimer("s1/0", NOW + TIMER_C_S)
    assert isinstance(ringing[1], Respond)
    assert [str(via) for via in ringing[1].response.vias] == ["SIP/2.0/UDP 10.0.0.1:7;branch=z9hG4bKcaller"]


def test_repeated_2xx_to_invite_are_all_passed_on_until_the_context_ends() -> None:
    """RFC 3261 13.3.1.4, 16.7 item 5."""
    setting = Setting()
    sent = setting.sent(ask())
    commands = setting.step(answer_to(sent, 200))
    assert statuses(commands) == [200]
    assert SetTimer("s1", NOW + SETTLING_S) in commands
    assert statuses(setting.step(answer_to(sent, 200), answer_to(sent, 200), now=NOW + 31)) == [200, 200]
    assert setting.step(TimerFired("s1"), now=NOW + SETTLING_S) == [CancelTimer("s1")]
    assert len(setting.proxy) == 0


def test_an_answered_invite_keeps_no_header_field_and_no_body() -> None:
    setting = Setting()
    setting.step(answer_to(setting.sent(ask()), 200))
    (context,) = setting.proxy._forwarding._contexts.values()
    kept = [context.received, *(branch.sent for branch in context.branches.values())]
    assert [(request.method, request.headers, request.body) for request in kept] == [("INVITE", (), b"")] * 2


@pytest.mark.parametrize(("method", "status"), [("INVITE", 486), ("BYE", 200), ("MESSAGE", 404)])
def test_a_final_response_ends_the_context(method: str, status: int) -> None:
    setting = Setting()
    sent = setting.sent(ask(method))
    assert statuses(setting.step(answer_to(sent, status))) == [status]
    assert len(setting.proxy) == 0
    assert setting.step(answer_to(sent, status)) == []


def test_a_503_of_the_callee_becomes_500() -> None:
    """RFC 3261 16.7 item 6: a 503 is not about this server."""
    setting = Setting()
    assert statuses(setting.step(answer_to(setting.sent(ask()), 503))) == [500]


def test_a_response_with_our_via_alone_goes_nowhere() -> None:
    """RFC 3261 16.7 item 3."""
    setting = Setting()
    report = answer_to(setting.sent(ask()), 200)
    lone = report.response.without_first("Via")
    assert setting.step(ResponseReceived(report.transaction, lone)) == []


def test_cancel_goes_the_way_of_its_invite_once() -> None:
    """RFC 3261 16.10."""
    setting = Setting()
    sent = setting.sent(ask())
    cancel = ask("CANCEL")
    commands = setting.step(CancelReceived("s1", cancel), CancelReceived("s1", cancel))
    (sent_cancel,) = [command for command in commands if isinstance(command, SendRequest)]
    assert (sent_cancel.request.method, sent_cancel.request.uri) == ("CANCEL", sent.request.uri)
    assert sent_cancel.destination == BOB_AT
    assert statuses(setting.step(answer_to(sent, 487))) == [487]


def test_an_answer_that_crosses_the_cancel_wins() -> None:
    """RFC 3261 9.1: a 200 already under way is passed on."""
    setting = Setting()
    sent = setting.sent(ask())
    setting.step(CancelReceived("s1", ask("CANCEL")))
    assert statuses(setting.step(answer_to(sent, 200))) == [200]


def test_timer_c_cancels_and_then_gives_up() -> None:
    """RFC 3261 16.8, 9.1: a callee who rings for ever is cancelled; one who ignores that is forgotten."""
    setting = Setting()
    sent = setting.sent(ask())
    commands = setting.step(TimerFired("s1/0"), now=NOW + TIMER_C_S)
    assert [command.request.method for command in commands if isinstance(command, SendRequest)] == ["CANCEL"]
    gave_up = NOW + TIMER_C_S + SETTLING_S
    assert SetTimer("s1/0", gave_up) in commands
    commands = setting.step(TimerFired("s1/0"), now=gave_up)
    assert statuses(commands) == [408]
    assert ForgetTransaction(sent.transaction) in commands
    assert len(setting.proxy) == 0


@pytest.mark.parametrize(("method", "expected"), [("INVITE", [408]), ("BYE", [])])
def test_a_callee_who_does_not_answer(method: str, expected: list[int]) -> None:
    """RFC 3261 16.9; RFC 4320 4.2: 408 is for INVITE only."""
    setting = Setting()
    sent = setting.sent(ask(method))
    assert statuses(setting.step(TransactionTimedOut(sent.transaction))) == expected
    assert len(setting.proxy) == 0


def test_a_server_transaction_that_ended_ends_its_branch() -> None:
    setting = Setting()
    sent = setting.sent(ask("BYE"))
    assert ForgetTransaction(sent.transaction) in setting.step(TransactionTimedOut("s1"))
    assert len(setting.proxy) == 0


def test_an_ack_for_a_2xx_to_a_user_is_passed_on() -> None:
    """RFC 3261 16.11: without a transaction."""
    (command,) = Setting().step(AckReceived(ask("ACK"), CALLER))
    assert isinstance(command, SendAck)
    assert command.destination == BOB_AT
    assert (command.request.uri, command.request.header("Max-Forwards")) == ("sip:bob@10.0.0.2:5062;ob", "69")


@pytest.mark.parametrize(
    "ack",
    [
        ask("ACK", max_forwards="0"),
        ask("ACK", uri="sip:bob@elsewhere.org"),
        ask("ACK", uri="sip:carol@example.org"),
        ask("ACK", uri="tel:1"),
        ask("ACK", extra=[("Via", "SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bKours")]),
    ],
)
def test_an_ack_that_cannot_go_on_is_dropped(ack: Request) -> None:
    """RFC 3261 17.1.1.3: an ACK gets no response."""
    assert Setting().step(AckReceived(ack, CALLER)) == []


def test_requests_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "PROXIED_TRANSACTIONS_MAX", 1)
    setting = Setting()
    sent = setting.sent(ask())
    assert refusal(setting.ask(ask(), "s2")).status == 503
    setting.step(answer_to(sent, 486))
    assert statuses(setting.ask(ask(), "s3")) == [100]


def test_messages_without_a_transaction_are_ignored() -> None:
    unknown: list[Report] = [
        TimerFired("s9"),
        TimerFired(("odd",)),
        CancelReceived("s9", ask("CANCEL")),
        TransactionTimedOut("s9"),
        TransactionTimedOut("s9/0"),
        TransactionTimedOut("s9/0/cancel"),
    ]
    assert Setting().step(*unknown) == []
