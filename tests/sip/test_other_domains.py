"""Requests between domains: routes, lookups, asserted identity, and no open relay (SPEC D-13; RFC 3263, 3325, 5922)."""

from __future__ import annotations

import pytest

from tests.sip.two_domains import PASSWORD, Net, Site, Telephone, requests_of, tls, two_domains
from wanderbus.machine import DatagramReceived, StreamReceived
from wanderbus.sip.message.message import Message, Request, Response, encode_message, make_response
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy.domain_servers import DomainLookedUp, DomainServer, FindDomain, OtherDomains

BOB = "sip:bob@b.example"
SERVERS = (tls("b.example", "10.0.2.1"),)
LOOKING_UP = OtherDomains(lookup=True, trusted=frozenset({"b.example"}))


def called(net: Net, host: str = "10.0.20.1") -> Request:
    """Return the one request that reached a phone."""
    (request,) = requests_of(net.inboxes.pop((host, 5062), []))
    return request


def phones(a: Site, b: Site) -> tuple[Telephone, Telephone]:
    alice, bob = Telephone(a, "alice", "10.0.10.1"), Telephone(b, "bob", "10.0.20.1")
    for phone in (alice, bob):
        phone.register()
    return alice, bob


def statuses_of(messages: list[Message]) -> list[int]:
    return [message.status for message in messages if isinstance(message, Response)]


def crossing(net: Net, method: str = "INVITE") -> list[Request]:
    """Return the requests that went from one domain to the other."""
    return [message for _, _, message in net.between if isinstance(message, Request) and message.method == method]


def test_d13_a_call_reaches_a_user_of_another_domain() -> None:
    net, a, b = two_domains()
    alice, bob = phones(a, b)
    assert alice.ask(alice.request("INVITE", BOB)) == []
    request = called(net)
    assert request.uri == "sip:bob@10.0.20.1:5062"
    assert [str(route.uri.host) for route in request.record_routes] == [
        "10.0.2.1",
        "b.example",
        "a.example",
        "10.0.1.1",
    ]
    bob.send(make_response(request, 200, to_tag="b", headers=[bob.contact]))
    (accepted,) = alice.take()
    assert isinstance(accepted, Response)
    assert accepted.status == 200


def test_the_identity_is_asserted_to_a_trusted_domain() -> None:
    net, a, b = two_domains()
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB, ("P-Asserted-Identity", "<sip:carol@a.example>")))
    assert called(net).headers_all("P-Asserted-Identity") == ["<sip:alice@a.example>"]


def test_without_a_proof_nothing_leaves() -> None:
    """No open relay (RFC 3261 26.3.2.2): neither for strangers nor for users without valid credentials."""
    net, a, b = two_domains()
    alice, _ = phones(a, b)
    stranger = Telephone(b, "mallory", "10.0.66.6")
    stranger.site = a
    unproved, foreign = alice.request("INVITE", BOB), stranger.request("INVITE", BOB)
    assert statuses_of(alice.send(unproved)) == [407]
    assert statuses_of(stranger.send(foreign)) == [403]
    assert crossing(net) == []


def test_a_user_cannot_speak_for_another() -> None:
    net, a, b = two_domains()
    alice, _ = phones(a, b)
    request = alice.request("INVITE", BOB).replacing("From", "<sip:carol@a.example>;tag=x")
    assert [answer.status for answer in alice.ask(request)] == [403]
    assert crossing(net) == []


def test_credentials_stay_at_home() -> None:
    net, a, b = two_domains()
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB))
    assert called(net).header("Proxy-Authorization") is None


def test_no_identity_leaks_to_a_domain_that_is_not_trusted() -> None:
    net, a, b = two_domains(OtherDomains({"b.example": SERVERS}))
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB, ("P-Preferred-Identity", alice.uri), ("P-Asserted-Identity", alice.uri)))
    (sent,) = crossing(net)
    assert sent.header("P-Asserted-Identity") is sent.header("P-Preferred-Identity") is None


def test_no_identity_over_a_plain_route() -> None:
    """A route without TLS never authenticates its other end, whatever the settings are."""
    plain = {"b.example": (DomainServer(Target("UDP", ("10.0.2.1", 5060))),)}
    net, a, b = two_domains(OtherDomains(plain, trusted=frozenset({"b.example"})))
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB))
    (sent,) = crossing(net)
    assert sent.header("P-Asserted-Identity") is None
    assert called(net).header("P-Asserted-Identity") is None


@pytest.mark.parametrize(("privacy", "kept"), [("none", True), ("id", False), ("header; ID", False)])
def test_privacy_is_respected_where_trust_ends(privacy: str, *, kept: bool) -> None:
    """RFC 3325 7: the trusted domain gets the identity, and its own devices do not."""
    net, a, b = two_domains()
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB, ("Privacy", privacy)))
    (sent,) = crossing(net)
    assert sent.header("P-Asserted-Identity") == "<sip:alice@a.example>"
    assert (called(net).header("P-Asserted-Identity") is not None) == kept


def inbound(identity: str, sender: str = "sip:alice@a.example") -> bytes:
    request = Request(
        "INVITE",
        BOB,
        (
            ("Via", "SIP/2.0/TLS 10.0.1.1:5061;branch=z9hG4bKp1"),
            ("Via", "SIP/2.0/UDP 10.0.10.1:5062;branch=z9hG4bKp0"),
            ("From", f"<{sender}>;tag=x"),
            ("To", f"<{BOB}>"),
            ("Call-ID", "inbound"),
            ("CSeq", "1 INVITE"),
            ("Max-Forwards", "60"),
            ("Contact", "<sip:alice@10.0.10.1:5062>"),
            ("P-Asserted-Identity", identity),
        ),
    )
    return encode_message(request)


@pytest.mark.parametrize(
    ("certified", "identity", "believed"),
    [
        (("a.example",), "<sip:alice@a.example>", True),
        (("a.example", "other.example"), "<sips:alice@a.example:5061;x=y>", True),
        (("a.example",), "<sip:alice@b.example>", False),
        (("a.example",), "<sip:eve@c.example>", False),
        (("a.example",), "<sip:alice@a.example>, <sip:bob@b.example>", False),
        (("a.example",), "<tel:+15550100>", False),
        (("a.example",), "rubbish", False),
        (("c.example",), "<sip:dave@c.example>", False),
        ((), "<sip:alice@a.example>", False),
    ],
)
def test_an_identity_is_believed_of_a_trusted_domain_and_its_own_users(
    certified: tuple[str, ...], identity: str, *, believed: bool
) -> None:
    net, a, b = two_domains()
    phones(a, b)
    b.step(StreamReceived("sip", 99, ("10.0.1.1", 41_000), inbound(identity), "TLS", None, certified))
    expected = ["<sip:alice@a.example>"] if believed else []
    assert called(net).headers_all("P-Asserted-Identity") == expected


def test_an_identity_in_a_datagram_is_not_believed() -> None:
    net, a, b = two_domains()
    phones(a, b)
    b.step(DatagramReceived("sip", ("10.0.1.1", 5060), inbound("<sip:alice@a.example>")))
    assert called(net).header("P-Asserted-Identity") is None


def test_later_requests_take_both_proxies_and_are_vouched_for() -> None:
    net, a, b = two_domains()
    alice, bob = phones(a, b)
    alice.ask(alice.request("INVITE", BOB, call_id="c"))
    first = called(net)
    bob.send(make_response(first, 200, to_tag="bb", headers=[bob.contact]))
    (accepted,) = alice.take()
    assert isinstance(accepted, Response)
    route = ("Route", ", ".join(map(str, reversed(accepted.record_routes))))
    ack = alice.request("ACK", "sip:bob@10.0.20.1:5062", route, call_id="c", to_tag="bb")
    alice.send(ack.replacing("CSeq", f"{first.cseq.number} ACK"))
    assert called(net).method == "ACK"
    alice.ask(alice.request("INVITE", "sip:bob@10.0.20.1:5062", route, call_id="c", to_tag="bb"))
    moved = called(net)
    assert moved.headers_all("P-Asserted-Identity") == ["<sip:alice@a.example>"]
    bob.send(make_response(moved, 200, headers=[bob.contact]))
    back = ("Route", ", ".join(map(str, first.record_routes)))
    bye = bob.request("BYE", "sip:alice@10.0.10.1:5062", back, call_id="c", to_tag="of-alice")
    bob.ask(bye)
    (ended,) = requests_of(alice.take())
    assert (ended.method, ended.headers_all("P-Asserted-Identity")) == ("BYE", ["<sip:bob@b.example>"])


def test_the_ack_carries_no_credentials_to_the_other_domain() -> None:
    net, a, b = two_domains()
    alice, bob = phones(a, b)
    alice.ask(alice.request("INVITE", BOB, call_id="c"))
    first = called(net)
    bob.send(make_response(first, 200, to_tag="bb", headers=[bob.contact]))
    (accepted,) = alice.take()
    assert isinstance(accepted, Response)
    route = ("Route", ", ".join(map(str, reversed(accepted.record_routes))))
    proof = alice._digest.authorize(alice.request("INVITE", BOB)).header("Proxy-Authorization") or ""
    ack = alice.request("ACK", BOB, route, ("Proxy-Authorization", proof), call_id="c", to_tag="bb")
    alice.send(ack)
    (passed,) = crossing(net, "ACK")
    assert proof
    assert passed.header("Proxy-Authorization") is None


def test_an_ack_of_no_dialog_of_ours_goes_nowhere() -> None:
    net, a, b = two_domains()
    alice, _ = phones(a, b)
    alice.send(alice.request("ACK", BOB, to_tag="bb"))
    assert crossing(net, "ACK") == []


def test_a_domain_is_looked_up_and_remembered_for_its_ttl() -> None:
    net, a, b = two_domains(LOOKING_UP)
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB, call_id="1"))
    alice.ask(alice.request("INVITE", BOB, call_id="2"))
    assert a.asked == [FindDomain("b.example", None)]
    assert crossing(net) == []
    a.step(DomainLookedUp("b.example", None, SERVERS, ttl_s=60.0))
    assert [request.call_id for request in crossing(net)] == ["1", "2"]
    net.advance(50.0)
    alice.ask(alice.request("MESSAGE", BOB, call_id="3"))
    assert len(a.asked) == 1
    net.advance(20.0)
    alice.ask(alice.request("MESSAGE", BOB, call_id="4"))
    assert len(a.asked) == 2


def test_a_port_in_the_uri_is_looked_up_beside_the_domain() -> None:
    _, a, b = two_domains(LOOKING_UP)
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", "sip:bob@b.example:5099"))
    assert a.asked == [FindDomain("b.example", 5099)]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (DomainLookedUp("b.example", None, failure="no such domain"), 502),
        (DomainLookedUp("b.example", None, failure="silence", timed_out=True), 504),
    ],
)
def test_a_domain_that_is_not_found_is_refused(answer: DomainLookedUp, status: int) -> None:
    _, a, b = two_domains(LOOKING_UP)
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB))
    a.step(answer)
    assert statuses_of(alice.take())[-1] == status


def test_a_silent_resolver_is_waited_for_five_seconds() -> None:
    net, a, b = two_domains(LOOKING_UP)
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB))
    net.advance(4.9)
    assert 504 not in statuses_of(alice.take())
    net.advance(0.2)
    assert 504 in statuses_of(alice.take())
    a.step(DomainLookedUp("b.example", None, SERVERS, ttl_s=60.0))
    assert crossing(net) == []


def test_a_call_can_be_cancelled_while_its_domain_is_looked_up() -> None:
    net, a, b = two_domains(LOOKING_UP)
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB))
    waiting = alice.cseq
    cancel = alice.request("CANCEL", BOB).replacing("CSeq", f"{waiting} CANCEL")
    cancel = cancel.replacing("Via", f"SIP/2.0/UDP 10.0.10.1:5062;rport;branch=z9hG4bKalice{waiting}again")
    assert sorted(statuses_of(alice.send(cancel))) == [200, 487]
    a.step(DomainLookedUp("b.example", None, SERVERS, ttl_s=60.0))
    assert crossing(net) == []


def test_lookups_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanderbus.sip.proxy.domain_crossing.LOOKUPS_MAX", 2)
    _, a, b = two_domains(LOOKING_UP)
    alice, _ = phones(a, b)
    statuses = [
        [answer.status for answer in alice.ask(alice.request("MESSAGE", f"sip:x@d{number}.example"))]
        for number in range(3)
    ]
    assert (statuses, len(a.asked)) == ([[], [], [503]], 2)


def test_the_next_server_is_tried_when_one_is_down() -> None:
    """RFC 3263 4.3: priority first, and a server that did not answer goes last for a while."""
    servers = tuple(
        DomainServer(Target("TLS", (host, 5061), None, "b.example"), priority=priority)
        for host, priority in (("10.0.2.1", 20), ("10.0.2.9", 10))
    )
    net, a, b = two_domains(OtherDomains({"b.example": servers}, trusted=frozenset({"b.example"})))
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB, call_id="1"))
    assert called(net).headers_all("P-Asserted-Identity") == ["<sip:alice@a.example>"]
    routes = a.server._proxy._routes
    order = routes.targets(("b.example", None), "any", net.now)
    assert isinstance(order, tuple)
    assert [target.address[0] for target in order] == ["10.0.2.1", "10.0.2.9"]
    later = routes.targets(("b.example", None), "any", net.now + 31.0)
    assert isinstance(later, tuple)
    assert [target.address[0] for target in later] == ["10.0.2.9", "10.0.2.1"]


def test_all_servers_down_is_an_error_of_the_server() -> None:
    net, a, b = two_domains()
    alice, _ = phones(a, b)
    net.dead.add("10.0.2.1")
    assert [answer.status for answer in alice.ask(alice.request("INVITE", BOB))] == [500]


def test_a_server_with_the_certificate_of_another_domain_gets_nothing() -> None:
    net, a, b = two_domains(b_certified=("c.example",))
    alice, _ = phones(a, b)
    assert [answer.status for answer in alice.ask(alice.request("INVITE", BOB))] == [500]
    assert crossing(net) == []


def test_weights_share_the_calls_and_a_call_stays_with_its_server() -> None:
    servers = tuple(
        DomainServer(Target("TLS", (f"10.0.2.{n}", 5061), None, "b.example"), weight=weight)
        for n, weight in ((1, 30), (2, 10), (3, 0))
    )
    _, a, _ = two_domains(OtherDomains({"b.example": servers}))
    routes = a.server._proxy._routes
    first: dict[str, int] = {}
    for call in range(2_000):
        order = routes.targets(("b.example", None), f"call-{call}", 0.0)
        assert order == routes.targets(("b.example", None), f"call-{call}", 0.0)
        assert isinstance(order, tuple)
        assert order[2].address[0] == "10.0.2.3"
        first[order[0].address[0]] = first.get(order[0].address[0], 0) + 1
    assert first["10.0.2.1"] == pytest.approx(1_500, abs=100)


def test_nobody_has_a_request_passed_on_to_a_third_domain() -> None:
    """Two proxies that each route a domain to the other: neither forwards requests that came from another domain."""
    loop = {"c.example": (tls("b.example", "10.0.2.1"),), "b.example": SERVERS}
    back = {"c.example": (tls("a.example", "10.0.1.1"),), "a.example": (tls("a.example", "10.0.1.1"),)}
    net, a, b = two_domains(
        OtherDomains(loop, trusted=frozenset(loop)), OtherDomains(back, trusted=frozenset({"a.example"}))
    )
    alice, _ = phones(a, b)
    assert [answer.status for answer in alice.ask(alice.request("INVITE", "sip:dave@c.example"))] == [403]
    assert len(crossing(net)) == 1


def test_a_route_that_leads_back_to_us_is_a_loop() -> None:
    net, a, b = two_domains(OtherDomains({"b.example": (tls("a.example", "10.0.1.1"),)}))
    alice, _ = phones(a, b)
    assert [answer.status for answer in alice.ask(alice.request("INVITE", BOB))] == [482]
    assert len(crossing(net)) == 1


def test_hops_are_counted_over_both_domains() -> None:
    net, a, b = two_domains()
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB))
    assert called(net).max_forwards == 68
    request = alice.request("INVITE", BOB, call_id="short").replacing("Max-Forwards", "1")
    assert [answer.status for answer in alice.ask(request)] == [483]


def test_sips_takes_no_route_in_the_clear() -> None:
    plain = {"b.example": (DomainServer(Target("TCP", ("10.0.2.1", 5060))),)}
    net, a, b = two_domains(OtherDomains(plain))
    alice, _ = phones(a, b)
    assert [answer.status for answer in alice.ask(alice.request("INVITE", "sips:bob@b.example"))] == [502]
    assert crossing(net) == []


def test_other_domains_are_refused_unless_they_are_served() -> None:
    net, _, _ = two_domains()
    alone = net.add(Site(net, "c.example", "10.0.3.1", None))
    dave = Telephone(alone, "dave", "10.0.30.1")
    assert [answer.status for answer in dave.ask(dave.request("INVITE", BOB))] == [403]
    assert crossing(net) == []


def test_a_name_server_never_learns_of_users_at_home() -> None:
    _, a, b = two_domains(LOOKING_UP)
    alice, _ = phones(a, b)
    carol = Telephone(a, "carol", "10.0.10.2")
    carol.register()
    alice.ask(alice.request("INVITE", carol.uri))
    assert requests_of(carol.take())
    assert a.asked == []


def test_passwords_are_in_no_message_between_domains() -> None:
    net, a, b = two_domains()
    alice, _ = phones(a, b)
    alice.ask(alice.request("INVITE", BOB))

    def shown(message: Message) -> str:
        return encode_message(message).decode()

    assert net.between
    assert not any(PASSWORD in shown(message) or "Digest" in shown(message) for _, _, message in net.between)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_server_of_a_trusted_domain_that_was_looked_up_is_called_by_its_address(is_trusted: bool) -> None:
    """The servers of a domain redirect calls to each other's addresses."""
    others = OtherDomains(lookup=True, trusted=frozenset({"b.example"} if is_trusted else ()))
    net, a, b = two_domains(others)
    alice, _ = phones(a, b)
    there = "sip:bob@10.0.2.1:5061;transport=tls"
    assert [each.status for each in alice.ask(alice.request("INVITE", there, call_id="1"))] == [403]
    alice.ask(alice.request("INVITE", BOB, call_id="2"))
    a.step(DomainLookedUp("b.example", None, SERVERS, ttl_s=60.0))
    alice.ask(alice.request("INVITE", there, call_id="3"))
    assert [request.call_id for request in crossing(net)] == (["2", "3"] if is_trusted else ["2"])
    alice.ask(alice.request("INVITE", "sip:bob@10.0.2.9:5061;transport=tls", call_id="4"))
    assert "4" not in [request.call_id for request in crossing(net)], "only servers of the domain are called"
