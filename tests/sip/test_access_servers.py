"""Several access servers under one address of record: the proxy chooses one, and tries the next one if it fails (SPEC
J-01, J-08).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from tests.sip.phone_world import CountingRandom
from tests.sip.proxy_desk import CALLER, NOW, SERVER, Script, answer, cancelled, responses, sent, statuses
from wanderbus.machine import SetTimer, TimerFired
from wanderbus.sip.message.message import Request
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.access_policy import AccessPolicy
from wanderbus.sip.proxy.bindings import Binding, Domain
from wanderbus.sip.proxy.location import LocationService
from wanderbus.sip.proxy.proxy import Proxy
from wanderbus.sip.proxy.proxy_signals import Command, Report
from wanderbus.sip.proxy.response_forwarding import SERVER_PATIENCE_S, TIMER_C_S
from wanderbus.sip.proxy.routing_script import Forward, Redirect, RoutingScript
from wanderbus.sip.transaction.transaction_layer import (
    AckReceived,
    CancelReceived,
    RequestReceived,
    SendAck,
    SendRequest,
    TransactionTimedOut,
)

BROKER = "sip:broker@example.org"


class Desk:
    """A proxy for example.org, at which brokers 10.0.0.1 and so on are registered, and alice with two devices."""

    def __init__(self, brokers: int = 3, policy: AccessPolicy | None = None, routing: RoutingScript | None = None):
        self.location = LocationService()
        self.register(*range(1, brokers + 1))
        self.location.replace(
            "sip:alice@example.org", [Binding(f"sip:alice@10.0.1.{n}", 1000.0, f"a{n}", 1) for n in range(2)]
        )
        self.proxy = Proxy(
            Domain("example.org", SERVER),
            self.location,
            {"broker", "alice"}.__contains__,
            CountingRandom(),
            b"key",
            routing,
            access=policy,
        )
        self.transactions = 0

    def register(self, *brokers: int) -> None:
        self.location.replace(BROKER, [binding(number) for number in brokers])

    def step(self, *reports: Report, now: float = NOW) -> list[Command]:
        return self.proxy.step(reports, now)

    def ask(self, request: Request, now: float = NOW) -> list[Command]:
        self.transactions += 1
        return self.step(RequestReceived(f"s{self.transactions}", request, CALLER), now=now)

    def chosen(self, request: Request, now: float = NOW) -> SendRequest:
        (branch,) = sent(self.ask(request, now))
        return branch

    def order(self, request: Request) -> list[str]:
        """Return the hosts that a request reaches, if each of them refuses service."""
        branches = [self.chosen(request)]
        while again := sent(self.step(answer(branches[-1], 503))):
            branches += again
        return [host(branch) for branch in branches]


def binding(number: int) -> Binding:
    return Binding(f"sip:broker@10.0.0.{number}:5062", 1000.0, f"b{number}", 1, f"<urn:uuid:{number}>")


def sip(
    method: str = "INVITE", uri: str = BROKER, *, caller: str = "user0", to_tag: str | None = None, call: str = "call"
) -> Request:
    headers = (
        ("Via", "SIP/2.0/UDP 10.0.0.1:7;branch=z9hG4bKcaller"),
        ("From", f"<sip:{caller}@example.org>;tag=a"),
        ("To", f"<{BROKER}>" + (f";tag={to_tag}" if to_tag else "")),
        ("Call-ID", call),
        ("CSeq", f"1 {method}"),
        ("Max-Forwards", "70"),
    )
    return Request(method, uri, headers)


def host(branch: SendRequest) -> str:
    return SIPUri.parse(branch.request.uri).host


def timers(commands: Sequence[Command]) -> dict[object, float]:
    return {command.key: command.at for command in commands if isinstance(command, SetTimer)}


def test_j01_a_user_reaches_one_broker_again_and_again() -> None:
    desk, restarted = Desk(), Desk()
    restarted.register(3, 1, 2)
    for number in range(20):
        caller = f"user{number}"
        hosts = {host(desk.chosen(sip(caller=caller, call=f"{caller}-{n}"))) for n in range(3)}
        hosts.add(host(desk.chosen(sip("OPTIONS", caller=caller, call=f"{caller}-options"))))
        hosts.add(host(restarted.chosen(sip(caller=caller, call=f"{caller}-later"))))
        assert len(hosts) == 1


def test_j01_users_are_spread_over_the_brokers() -> None:
    desk = Desk()
    counts = Counter(host(desk.chosen(sip(caller=f"user{n}", call=f"{n}"))) for n in range(90))
    assert len(counts) == 3
    assert min(counts.values()) >= 20


def test_j01_the_policy_names_the_least_loaded_broker_and_a_seen_bye_frees_it() -> None:
    desk = Desk(policy=AccessPolicy(choice="least_loaded"))
    hosts = [host(desk.chosen(sip(call=f"{n}"))) for n in range(6)]
    assert sorted(Counter(hosts).values()) == [2, 2, 2]
    desk.ask(sip("BYE", f"sip:broker@{hosts[4]}:5062", to_tag="b", call="4"))
    assert host(desk.chosen(sip(call="7"))) == hosts[4]


def test_a_refused_call_is_no_load_and_a_challenged_one_keeps_its_broker() -> None:
    desk = Desk(2, AccessPolicy(choice="least_loaded"))
    first = desk.chosen(sip(call="1"))
    desk.step(answer(first, 403))
    challenged = desk.chosen(sip(call="2"))
    assert host(challenged) == host(first)
    desk.step(answer(challenged, 401))
    assert host(desk.chosen(sip(call="3"))) != host(first)
    desk.ask(sip("BYE", "sip:broker@10.0.0.9", to_tag="b", call="3"))
    assert host(desk.chosen(sip(call="2"))) == host(first)


def test_a_single_broker_is_treated_like_any_device() -> None:
    desk = Desk(1)
    commands = desk.ask(sip())
    assert timers(commands) == {"s1/0": NOW + TIMER_C_S}
    (branch,) = sent(commands)
    assert branch.request.uri == "sip:broker@10.0.0.1:5062"
    assert statuses(desk.step(answer(branch, 503))) == [500]
    assert len(desk.proxy) == 0


def test_other_users_are_called_at_all_devices_at_once() -> None:
    assert len(sent(Desk().ask(sip(uri="sip:alice@example.org")))) == 2
    other = Desk(policy=AccessPolicy(user="alice"))
    assert len(sent(other.ask(sip(uri="sip:alice@example.org")))) == 1
    assert len(sent(other.ask(sip()))) == 3


@pytest.mark.parametrize("failure", ["503", "timeout", "transport"])
@pytest.mark.parametrize("method", ["INVITE", "MESSAGE"])
def test_j01_if_a_broker_fails_the_next_one_is_tried(failure: str, method: str) -> None:
    order = Desk().order(sip())
    assert sorted(order) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    desk = Desk()
    first = desk.chosen(sip(method))
    report: Report = answer(first, 503)
    if failure != "503":
        report = TransactionTimedOut(first.transaction, "transport" if failure == "transport" else "timeout")
    commands = desk.step(report)
    (second,) = sent(commands)
    assert [host(first), host(second)] == order[:2]
    assert statuses(commands) == []
    assert statuses(desk.step(answer(second, 200))) == [200]
    following = host(desk.chosen(sip(method, call="another")))
    assert following == order[0 if failure == "503" else 1], "a broker that cannot be reached is avoided for a while"


def test_j01_a_silent_broker_is_given_up_soon() -> None:
    desk = Desk()
    commands = desk.ask(sip())
    (first,) = sent(commands)
    assert timers(commands) == {first.transaction: NOW + SERVER_PATIENCE_S}
    commands = desk.step(TimerFired(first.transaction), now=NOW + SERVER_PATIENCE_S)
    cancel, second = sent(commands)
    assert (cancel.request.method, cancel.request.uri) == ("CANCEL", first.request.uri)
    assert timers(commands) == {second.transaction: NOW + 2 * SERVER_PATIENCE_S}
    assert desk.step(answer(first, 180), answer(first, 487)) == [], "it is not awaited any more"
    challenge = desk.step(answer(second, 401), now=NOW + 3)
    assert statuses(challenge) == [401]
    assert len(desk.proxy) == 0
    assert desk.step(TransactionTimedOut(first.transaction, "timeout"), now=NOW + 32) == []
    assert host(desk.chosen(sip(call="another"), NOW + 4)) == host(second)


def test_the_last_broker_has_the_usual_time() -> None:
    desk = Desk(2)
    first = desk.chosen(sip())
    commands = desk.step(TimerFired(first.transaction), now=NOW + 2)
    second = sent(commands)[1]
    assert timers(commands) == {second.transaction: NOW + 2 + TIMER_C_S}
    assert statuses(desk.step(TransactionTimedOut(second.transaction, "timeout"), now=NOW + 34)) == [408]
    assert len(desk.proxy) == 0


def test_a_late_acceptance_is_forwarded_too() -> None:
    """RFC 3261 16.7 item 5: the caller must receive it to end that dialog."""
    desk = Desk(2)
    first = desk.chosen(sip())
    second = sent(desk.step(TimerFired(first.transaction), now=NOW + 2))[1]
    assert statuses(desk.step(answer(second, 200), answer(first, 200), now=NOW + 3)) == [200, 200]


@pytest.mark.parametrize("status", [100, 180])
def test_a_broker_that_responds_at_all_has_the_usual_time(status: int) -> None:
    desk = Desk()
    first = desk.chosen(sip())
    assert timers(desk.step(answer(first, status), now=NOW + 1)) == {first.transaction: NOW + 1 + TIMER_C_S}
    commands = desk.step(TimerFired(first.transaction), now=NOW + 1 + TIMER_C_S)
    assert cancelled(commands) == [first.request.uri]
    assert len(sent(commands)) == 1


def test_a_decisive_refusal_is_forwarded() -> None:
    desk = Desk()
    for status in (302, 401, 403, 404, 481, 486, 600):
        assert statuses(desk.step(answer(desk.chosen(sip(call=f"{status}")), status))) == [status]


def moved_to(*numbers: int) -> list[tuple[str, str]]:
    """Return the header fields of a redirection to brokers."""
    return [("Contact", f"<sip:broker@10.0.0.{number}:5062>") for number in numbers]


def test_a_caller_of_another_domain_is_sent_to_the_broker_that_a_redirection_names() -> None:
    """The caller would ask the own proxy, which does not know the brokers of this domain."""
    request = sip()
    headers = tuple((name, value.replace("user0@example.org", "carol@a.example")) for name, value in request.headers)
    desk = Desk()
    first = desk.chosen(Request("INVITE", BROKER, headers))
    others = [number for number in (1, 2, 3) if f"10.0.0.{number}" != host(first)]
    (second,) = sent(desk.step(answer(first, 302, moved_to(others[1]))))
    assert host(second) == f"10.0.0.{others[1]}"
    again = desk.step(answer(second, 302, moved_to(others[0])))
    assert statuses(again) == [302], "a second redirection may lead in a circle"


def test_a_redirection_to_no_broker_here_and_one_of_an_own_caller_are_forwarded() -> None:
    desk = Desk()
    first = desk.chosen(sip())
    assert statuses(desk.step(answer(first, 302, moved_to(1, 2, 3)))) == [302]
    request = sip(call="other")
    headers = tuple((name, value.replace("user0@example.org", "carol@a.example")) for name, value in request.headers)
    first = desk.chosen(Request("INVITE", BROKER, headers))
    assert statuses(desk.step(answer(first, 302, moved_to(9)))) == [302]


def test_a_cancelled_call_is_not_sent_to_the_next_broker() -> None:
    desk = Desk()
    first = desk.chosen(sip())
    assert cancelled(desk.step(CancelReceived("s1", sip("CANCEL")))) == [first.request.uri]
    assert sent(desk.step(answer(first, 503))) == []
    assert desk.step(TimerFired(first.transaction), now=NOW + 32) == []


def test_a_request_within_a_dialog_goes_to_its_broker() -> None:
    """By its contact; and by the address of record, which an agent uses if its broker has moved (SPEC X13)."""
    desk = Desk(policy=AccessPolicy(choice="least_loaded"))
    first = desk.chosen(sip())
    desk.step(answer(first, 200))
    for number in range(5):
        desk.ask(sip(call=f"{number}"))
    for uri in (first.request.uri, BROKER):
        assert host(desk.chosen(sip(uri=uri, to_tag="s1-0"))) == host(first)
        (ack,) = [c for c in desk.step(AckReceived(sip("ACK", uri, to_tag="s1-0"), CALLER)) if isinstance(c, SendAck)]
        assert SIPUri.parse(ack.request.uri).host == host(first)
    assert host(desk.chosen(sip("BYE", first.request.uri, to_tag="s1-0"))) == host(first)


def test_a_request_in_an_unknown_dialog_finds_its_broker() -> None:
    """After a restart of the proxy, or if the choice has changed: the others respond 481."""
    desk = Desk()
    first = desk.chosen(sip(to_tag="b"))
    (second,) = sent(desk.step(answer(first, 481)))
    assert statuses(desk.step(answer(second, 401))) == [401]
    again = desk.chosen(sip(to_tag="b"))
    assert host(again) == host(second), "the challenge is that of this broker"
    (third,) = sent(desk.step(answer(again, 481)))
    assert statuses(desk.step(answer(third, 401))) == [401]
    again = desk.chosen(sip(to_tag="b"))
    assert host(again) == host(third)
    assert statuses(desk.step(answer(again, 481))) == [481], "the others have answered 481"
    unknown = desk.chosen(sip(to_tag="b", call="unknown"))
    for _ in range(2):
        (unknown,) = sent(desk.step(answer(unknown, 481)))
    assert statuses(desk.step(answer(unknown, 481))) == [481]


def test_a_request_within_a_dialog_waits_for_its_broker() -> None:
    """A 481 of another broker would end the session."""
    desk = Desk()
    commands = desk.ask(sip(to_tag="b"))
    assert list(timers(commands).values()) == [NOW + TIMER_C_S]


def test_a_redirected_call_reaches_the_broker_that_it_names_and_no_other_contact() -> None:
    desk = Desk()
    assert host(desk.chosen(sip(uri="sip:broker@10.0.0.2:5062"))) == "10.0.0.2"
    for uri in ("sip:broker@10.0.0.9:5062", "sip:alice@10.0.1.1"):
        assert statuses(desk.ask(sip(uri=uri))) == [403]


def test_a_script_chooses_among_the_brokers_or_leaves_it_to_the_proxy() -> None:
    default = host(Desk().chosen(sip()))
    assert host(Desk(routing=Script(Forward(targets=(BROKER,)))).chosen(sip())) == default
    assert host(Desk(routing=Script(Forward(targets=("sip:broker@10.0.0.3:5062",)))).chosen(sip())) == "10.0.0.3"
    (redirected,) = responses(Desk(routing=Script(Redirect())).ask(sip()))
    assert redirected.status == 302
    assert [SIPUri.parse(str(contact.uri)).host for contact in redirected.contacts] == Desk().order(sip())


def test_a_broker_whose_connection_is_closed_is_not_chosen() -> None:
    """The alias of a contact behind NAT names the connection."""
    order = Desk().order(sip())
    desk = Desk()
    bindings = [
        msgspec.structs.replace(each, contact=each.contact + ";alias=192.0.2.7~4001~2")
        if order[0] in each.contact
        else each
        for each in map(binding, (1, 2, 3))
    ]
    desk.location.replace(BROKER, bindings)
    assert host(desk.chosen(sip())) == order[1]


def test_a_secure_request_reaches_no_broker_without_tls() -> None:
    desk = Desk()
    desk.location.replace(
        BROKER, [binding(1), msgspec.structs.replace(binding(2), contact="sips:broker@10.0.0.2:5063")]
    )
    assert desk.chosen(sip(uri="sips:broker@example.org")).request.uri == "sips:broker@10.0.0.2:5063"
