"""Next hop of a URI (RFC 3261 19.1.2, 26.2.2; RFC 3263 4), and our Via and SDP for IPv6."""

from __future__ import annotations

import pytest

from wanderbus.errors import SIPParseError
from wanderbus.hosts import network_of
from wanderbus.machine import SendDatagram, SendOnStream
from wanderbus.sip.message.dialog import Dialog
from wanderbus.sip.message.headers import Via
from wanderbus.sip.message.message import Response
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription
from wanderbus.sip.message.targets import (
    Origin,
    Path,
    Target,
    Transport,
    as_target,
    direct_hop,
    make_via,
    redirected_to,
    response_path,
    stamped_via,
    target_of,
    transport_params,
)
from wanderbus.sip.message.uri import SIPUri

V6 = "2001:db8::1"


@pytest.mark.parametrize(
    ("uri", "target"),
    [
        ("sip:bob@192.0.2.1", Target("UDP", ("192.0.2.1", 5060))),
        ("sip:bob@192.0.2.1:5080;transport=udp", Target("UDP", ("192.0.2.1", 5080))),
        ("sip:bob@192.0.2.1;transport=TCP", Target("TCP", ("192.0.2.1", 5060))),
        ("sip:bob@192.0.2.1;transport=tls", Target("TLS", ("192.0.2.1", 5061))),
        ("sips:bob@192.0.2.1", Target("TLS", ("192.0.2.1", 5061))),
        ("sips:bob@192.0.2.1:5070;transport=tcp", Target("TLS", ("192.0.2.1", 5070))),
        ("sips:example.com", Target("TLS", ("example.com", 5061), "example.com")),
        ("sip:example.com;transport=tls", Target("TLS", ("example.com", 5061), "example.com")),
        ("sip:example.com", Target("UDP", ("example.com", 5060))),
        ("sip:bob@[2001:DB8:0::1]:5070;transport=tcp", Target("TCP", (V6, 5070))),
        ("sips:[2001:db8::1]", Target("TLS", (V6, 5061))),
    ],
)
def test_rfc3263_4_1_target_of(uri: str, target: Target) -> None:
    assert target_of(SIPUri.parse(uri)) == target


def test_the_default_transport_is_for_sip_uris_that_name_none() -> None:
    assert target_of(SIPUri.parse("sip:192.0.2.1"), default="TCP") == Target("TCP", ("192.0.2.1", 5060))
    assert target_of(SIPUri.parse("sip:192.0.2.1;transport=udp"), default="TCP").transport == "UDP"
    assert target_of(SIPUri.parse("sips:192.0.2.1"), default="TCP").transport == "TLS"


@pytest.mark.parametrize(
    "uri", ["sip:a;transport=ws", "sips:a;transport=udp", "sips:a;transport=sctp", "sip:a;transport", "tel:+1"]
)
def test_a_transport_we_have_not_got_is_an_error(uri: str) -> None:
    with pytest.raises(SIPParseError):
        target_of(SIPUri.parse_any(uri))


def test_a_bare_address_means_udp() -> None:
    assert as_target(("192.0.2.1", 5060)) == Target("UDP", ("192.0.2.1", 5060))
    tls = Target("TLS", ("192.0.2.1", 5061), "example.com")
    assert as_target(tls) is tls


def test_a_path_sends_datagrams_or_on_streams() -> None:
    udp, tcp = Target("UDP", ("192.0.2.1", 5060)), Target("TCP", ("192.0.2.1", 5060))
    assert Path("sip", udp).send(b"x") == SendDatagram("sip", udp.address, b"x")
    assert Path("sip", tcp, 7).send(b"x") == SendOnStream("sip", tcp, b"x", 7)
    assert (transport_params("UDP"), transport_params("TCP")) == ((), (("transport", "tcp"),))


def dialog_to(remote_target: str, *routes: str) -> Dialog:
    return Dialog("call", "a", "b", "sip:a@x", "sip:b@y", remote_target, routes, 1, 0)


def test_rfc3261_12_2_1_1_next_hop_names_the_transport() -> None:
    assert dialog_to("sip:b@[::1]:5070;transport=tcp").next_hop() == Target("TCP", ("::1", 5070))
    routed = dialog_to("sip:b@192.0.2.2", "<sips:[2001:db8::1];lr>")
    assert routed.next_hop() == Target("TLS", (V6, 5061))


@pytest.mark.parametrize("transport", ["UDP", "TCP", "TLS"])
def test_rfc3261_18_1_1_our_via_names_transport_and_literal(transport: str) -> None:
    via = make_via((V6, 5062), "z9hG4bKx", target_of(SIPUri.parse(f"sip:h;transport={transport.lower()}")).transport)
    assert str(via) == f"SIP/2.0/{transport} [2001:db8::1]:5062;rport;branch=z9hG4bKx"
    assert Via.parse(str(via)) == via


def test_rfc3581_4_received_carries_an_ipv6_address() -> None:
    via = stamped_via(Via.parse("SIP/2.0/UDP [2001:db8::9];rport;branch=z9hG4bKx"), (V6, 40_000))
    assert (via.received, via.rport) == (V6, 40_000)
    assert Via.parse(str(via)).received == V6


def test_rfc3261_18_2_2_answers_take_the_connection_else_the_port_of_the_via() -> None:
    origin = Origin(("192.0.2.1", 51_234), "TCP", 7)
    via = Via.parse("SIP/2.0/TCP 10.0.0.1:5070;rport;branch=z9hG4bKx")
    assert response_path(via, origin, "sip") == Path("sip", Target("TCP", ("192.0.2.1", 5070)), 7)
    tls = Via.parse("SIP/2.0/TLS 10.0.0.1;branch=z9hG4bKx")
    path = response_path(tls, Origin(("192.0.2.1", 51_234), "TLS", 8), "sip")
    assert path.target == Target("TLS", ("192.0.2.1", 5061))


def test_rfc4566_5_7_in_ip6() -> None:
    media = MediaDescription(address=V6, port=4000)
    data = SessionDescription("alice", 1, 1, V6, (media,)).encode()
    assert b"c=IN IP6 2001:db8::1\r\n" in data
    assert SessionDescription.parse(data).media == (media,)


HOSTS = [
    ("192.0.2.1", "192.0.2.2", False),
    ("2001:db8::1", "2001:db8::ffff:0:0:2", True),
    ("2001:db8::1", "2001:db8:0:1::1", False),
    ("fe80::1%eth0", "fe80::2%eth0", True),
    ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
    ("::ffff:192.0.2.1", "192.0.2.1", True),
    ("[2001:db8::1]", "2001:db8::2", True),
    ("Phone.example.org", "phone.example.org", True),
    ("64:ff9b::192.0.2.1", "64:ff9b::192.0.2.2", False),
    ("64:ff9b::192.0.2.1", "192.0.2.1", True),
    ("[::ffff:192.0.2.1]", "192.0.2.1", True),
]


@pytest.mark.parametrize(("one", "other", "same"), HOSTS)
def test_addresses_of_one_customer_are_one_network(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same


@pytest.mark.parametrize(
    ("uri", "proxy", "hop"),
    [
        ("sip:b@10.0.0.7:5070", "UDP", Target("UDP", ("10.0.0.7", 5070))),
        ("sip:b@10.0.0.7;transport=tcp", "UDP", Target("TCP", ("10.0.0.7", 5060))),
        ("sip:b@example.org", "UDP", None),
        ("sip:b@10.0.0.7:5070", "TLS", None),
        ("sip:b@10.0.0.7;transport=tcp", "TLS", None),
        ("sip:b@10.0.0.7;transport=tls", "TLS", Target("TLS", ("10.0.0.7", 5061))),
    ],
)
def test_a_redirected_request_goes_to_the_address_unless_it_would_lose_tls(
    uri: str, proxy: Transport, hop: Target | None
) -> None:
    server = Target(proxy, ("10.0.0.1", 5060))
    assert direct_hop(SIPUri.parse(uri), server) == (hop or server)


@pytest.mark.parametrize(
    ("transports", "chosen"),
    [
        (("UDP",), "sip:b@10.0.0.7"),
        (("TCP", "UDP"), "sip:b@10.0.0.7;transport=tcp"),
        (("TLS", "UDP"), "sip:b@10.0.0.7:5061;transport=tls"),
    ],
)
def test_the_contact_of_a_302_with_the_own_transport_is_followed(transports: tuple[str, ...], chosen: str) -> None:
    uris = ["sip:b@10.0.0.7", "sip:b@10.0.0.7;transport=tcp", "sip:b@10.0.0.7:5061;transport=tls"]
    response = Response(302, "Moved", tuple(("Contact", f"<{uri}>") for uri in uris))
    assert str(redirected_to(response, "sip:b@example.org", transports)) == chosen
