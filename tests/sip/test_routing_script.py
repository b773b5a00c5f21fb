"""Programmable routing (SPEC I-03, X11): verdicts are followed, and a broken script harms one request alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sip.phone_world import BOB, Phone, World
from tests.sip.proxy_desk import CALLER, NOW, Desk, Script, sent, sip, statuses
from wanderbus.machine import Address
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy.default_routing import DefaultRouting, OnPathRouting
from wanderbus.sip.proxy.routing_script import Forward, Redirect, Reject, RoutingContext, RoutingFailed, Verdict
from wanderbus.sip.transaction.transaction_layer import AckReceived


class Broken:
    """Raises an exception, or returns an invalid verdict."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def route(self, request: Request, context: RoutingContext) -> Verdict:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        verdict: Verdict = self.outcome
        return verdict


def test_a_script_receives_the_proxys_knowledge() -> None:
    script = Script(Forward())
    Desk(2, script).ask(sip("BYE", to_tag="b"))
    ((request, context),) = script.asked
    assert request.method == "BYE"
    contacts = ("sip:bob@10.0.0.2:5062", "sip:bob@10.0.0.3:5062")
    assert context == RoutingContext(CALLER, NOW, "example.org", "bob", contacts, in_dialog=True, on_path=False)


def test_a_request_uri_that_is_no_user_of_ours_has_no_user() -> None:
    script = Script(Reject(403))
    Desk(1, script).ask(sip("INVITE", "sip:bob@elsewhere.org"))
    ((_, context),) = script.asked
    assert (context.user, context.contacts, context.in_dialog) == (None, (), False)


def test_a_script_is_not_asked_about_what_goes_no_further() -> None:
    """RFC 3261 16.3: requests to the server itself, with no hop left, or on a foreign Route."""
    script = Script(Forward(targets=("sip:x@10.7.7.7",)))
    desk = Desk(1, script)
    for request in (
        sip("OPTIONS", "sip:example.org"),
        sip("INVITE", BOB).replacing("Max-Forwards", "0"),
        sip("INVITE", BOB, ("Route", "<sip:10.0.0.77;lr>")),
    ):
        desk.refused(request)
    assert script.asked == []


@pytest.mark.parametrize("uri", [BOB, "sip:carol@example.org", "sip:nobody@example.org", "sip:x@elsewhere.org"])
def test_targets_of_a_script_are_followed_wherever_they_are(uri: str) -> None:
    """RFC 3261 16.5: also for users who are offline, unknown or foreign; duplicates count once."""
    targets = ("sip:desk@192.0.2.7", "sip:mail@192.0.2.8;transport=tcp", "sip:desk@192.0.2.7")
    branches = Desk(1, Script(Forward(targets))).forked(sip("INVITE", uri))
    assert [branch.request.uri for branch in branches] == list(targets[:2])
    destinations = [branch.destination for branch in branches]
    assert destinations == [Target("UDP", ("192.0.2.7", 5060)), Target("TCP", ("192.0.2.8", 5060))]


def test_a_target_that_is_a_user_of_ours_stands_for_its_devices() -> None:
    """RFC 3261 16.5: with the stream that a device keeps open, and each device once."""
    script = Script(Forward(("sip:bob@example.org", "sip:mail@192.0.2.8", "sip:bob@10.0.0.9:5060")))
    desk = Desk(2, script)
    branches = desk.forked(sip("INVITE", "sip:carol@example.org"))
    uris = ["sip:bob@10.0.0.2:5062", "sip:bob@10.0.0.3:5062", "sip:mail@192.0.2.8"]
    assert [branch.request.uri for branch in branches] == uris


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("sip:carol@example.org", 480),
        ("sips:bob@example.org", 480),
        ("sip:mail@elsewhere.org", 502),
        ("sips:mail@elsewhere.org", 502),
        ("sip:mail@elsewhere.org;transport=tcp", 502),
        ("sip:example.org", 502),
    ],
)
def test_a_target_that_leads_nowhere(target: str, status: int) -> None:
    """Offline, not secure enough, or a host name that the server would have to resolve."""
    assert Desk(1, Script(Forward((target,)))).refused(sip()).status == status


def test_an_ack_follows_the_script_too() -> None:
    desk = Desk(1, Script(Forward(targets=("sip:desk@192.0.2.7",))))
    assert [ack.request.uri for ack in desk.acked(sip("ACK", to_tag="b"))] == ["sip:desk@192.0.2.7"]


def test_reject_answers_with_status_and_reason() -> None:
    response = Desk(1, Script(Reject(603, "Not Tonight"))).refused(sip())
    assert (response.status, response.reason) == (603, "Not Tonight")
    assert Desk(1, Script(Reject(480))).refused(sip()).reason == "Temporarily Unavailable"


def test_redirect_answers_302_with_the_bindings() -> None:
    """SPEC X11, RFC 3261 8.3."""
    response = Desk(2, Script(Redirect())).refused(sip())
    assert response.status == 302
    assert [str(c.uri) for c in response.contacts] == ["sip:bob@10.0.0.2:5062", "sip:bob@10.0.0.3:5062"]


def test_redirect_answers_302_with_the_contacts_of_the_script() -> None:
    response = Desk(1, Script(Redirect(("sip:bob@192.0.2.9",)))).refused(sip())
    assert (response.status, response.header("Contact")) == (302, "<sip:bob@192.0.2.9>")


@pytest.mark.parametrize(
    ("uri", "status"), [("sip:carol@example.org", 480), ("sip:nobody@example.org", 404), ("sip:x@elsewhere.org", 403)]
)
def test_redirect_of_those_who_are_nowhere(uri: str, status: int) -> None:
    assert Desk(1, Script(Redirect())).refused(sip("INVITE", uri)).status == status


@pytest.mark.parametrize("verdict", [Redirect(), Reject(486)])
def test_an_ack_that_would_be_answered_is_dropped(verdict: Verdict) -> None:
    """RFC 3261 17.1.1.3."""
    assert Desk(1, Script(verdict)).step(AckReceived(sip("ACK", to_tag="b"), CALLER)) == []


OUTCOMES: list[Any] = [
    ValueError("no\nsuch luck " * 100),
    None,
    "forward",
    Forward(targets=()),
    Forward(targets=("sip:x@10.0.0.1",) * 17),
    Forward(targets=("not a uri",)),
    Forward(targets=("tel:1",)),
    Forward(targets=7),  # type: ignore[arg-type]
    Redirect(contacts=("sip:[",)),
    Reject(200),
    Reject(700),
    Reject("486"),  # type: ignore[arg-type]
    Reject(486, "two\r\nVia: lines"),
    Reject(486, 7),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_a_broken_script_costs_its_request_a_500_and_is_reported(outcome: Any) -> None:
    """The exception is caught, and an invalid verdict never reaches the wire."""
    desk = Desk(1, Broken(outcome))
    commands = desk.ask(sip())
    assert statuses(commands) == [500]
    assert sent(commands) == []
    (failure,) = [command for command in commands if isinstance(command, RoutingFailed)]
    assert failure.method == "INVITE"
    assert 0 < len(failure.error) <= 200


def test_a_broken_script_is_reported_for_an_ack() -> None:
    (failure,) = Desk(1, Broken(KeyError("x"))).step(AckReceived(sip("ACK", to_tag="b"), CALLER))
    assert failure == RoutingFailed("ACK", "KeyError: 'x'")


def test_a_target_that_cannot_be_sent_to_is_refused() -> None:
    desk = Desk(1, Script(Forward(targets=("sip:x@10.0.0.1;transport=sctp",))))
    assert desk.refused(sip()).status == 400
    assert len(desk.proxy) == 0


def test_the_server_runs_the_script_and_reports_its_failures() -> None:
    """Through datagrams, and REGISTER is none of its business."""
    world = World(routing=Broken(RuntimeError("boom")))
    alice = Phone(world, "alice", ("10.0.0.1", 6000))
    assert alice.register().status == 200
    assert alice.ask("INVITE", BOB) == 500
    assert world.failures == [RoutingFailed("INVITE", "RuntimeError: boom")]


def test_a_redirected_caller_gets_the_contacts_over_the_wire() -> None:
    world = World(routing=Script(Redirect()))
    alice, bob = (Phone(world, user, (f"10.0.0.{n}", 6000)) for n, user in enumerate(("alice", "bob"), 1))
    assert bob.register().status == 200
    alice.send(alice.request("INVITE", BOB))
    (response,) = alice.take()
    assert isinstance(response, Response)
    assert (response.status, response.headers_all("Contact")) == (302, ["<sip:bob@10.0.0.2:6000>"])
    assert bob.take() == []


def test_a_script_may_go_by_the_source() -> None:
    """A blocklist in four lines."""

    class Blocklist:
        def route(self, request: Request, context: RoutingContext) -> Verdict:
            return Reject(403) if context.source[0] == "10.6.6.6" else Forward()

    world = World(routing=Blocklist())
    assert Phone(world, "bob", ("10.0.0.2", 1)).register().status == 200
    places: list[Address] = [("10.6.6.6", 1), ("10.0.0.1", 1)]
    for place in places:
        caller = Phone(world, "alice", place)
        caller.send(caller.request("MESSAGE", BOB))
    assert [message.via.host for message in world.messages_at(("10.0.0.2", 1))] == ["10.0.0.9"]


@pytest.mark.parametrize(
    ("over", "contacts", "stays"),
    [
        ("UDP", ("sip:bob@10.0.0.2",), False),
        ("TCP", ("sip:bob@10.0.0.2;transport=tcp",), False),
        ("tls", ("sips:bob@10.0.0.2", "sip:bob@10.0.0.3;transport=TLS"), False),
        ("UDP", (), False),
        ("UDP", ("sip:bob@10.0.0.2", "sip:bob@10.0.0.3;transport=tls"), True),
        ("TLS", ("sip:bob@10.0.0.2",), True),
        ("TCP", ("sips:bob@10.0.0.2",), True),
    ],
)
def test_the_proxy_stays_between_two_transports(over: str, contacts: tuple[str, ...], stays: bool) -> None:
    """Neither side need have the transport of the other; with one for both they talk directly (SPEC D-09)."""
    request = sip().replacing("Via", f"SIP/2.0/{over} 10.0.0.1:7;branch=z9hG4bKcaller")
    context = RoutingContext(CALLER, NOW, "example.org", "bob", contacts, in_dialog=False, on_path=False)
    assert DefaultRouting().route(request, context) == Forward(stay_on_path=stays)
    assert OnPathRouting().route(request, context) == Forward(stay_on_path=True)
