"""Validation of a server's settings before it opens any socket or file: contradictions, addresses, users (SPEC
Q-01).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wanderbus
from wanderbus.config import AccessSettings, RelaySettings
from wanderbus.errors import ConfigurationError
from wanderbus.server import validation
from wanderbus.server.proxy_server import ProxyServer
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy.default_routing import DefaultRouting

ELSEWHERE = {"sip_server": "sip:127.0.0.9"}
HERE = ("127.0.0.9", 5060)


def server(**given: Any) -> wanderbus.Server:
    return wanderbus.Server(**({"domain": "localhost", "data_dir": "data", "users": {"alice": "secret"}} | given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (ELSEWHERE | {"port": 5070}, "port: registrar and proxy are at sip_server, not here; leave one of them out"),
        (ELSEWHERE | {"tcp": False}, "tcp: registrar and proxy"),
        (ELSEWHERE | {"tls_certificate": "server.pem"}, "tls_certificate: registrar and proxy"),
        (ELSEWHERE | {"relay": RelaySettings()}, "relay: registrar and proxy"),
        (ELSEWHERE | {"relays": ("127.0.0.1",)}, "relays: registrar and proxy"),
        (ELSEWHERE | {"access": AccessSettings(choice="least_loaded")}, "access: registrar and proxy"),
        ({"access": AccessSettings(user="a b")}, "access.user: 'a b' is not a valid SIP user name"),
        (
            {"access": AccessSettings(nearest={"10.0.0.1/8": "10.0.0.1"})},
            "access.nearest: '10.0.0.1/8' is not a network: .* has host bits set; write 192.0.2.0/24",
        ),
        (
            {"access": AccessSettings(nearest={"10.0.0.0/8": "near"})},
            "access.nearest: 'near' is not an IP address; give that of a broker",
        ),
        (
            {"access": AccessSettings(nearest={"10.0.0.0/8": "10.0.0.1:x"})},
            "access.nearest: '10.0.0.1:x' cannot be used: .*; write address or address:port",
        ),
        (ELSEWHERE | {"routing": DefaultRouting()}, "routing: the proxy is at sip_server"),
        ({"broker_password": "a", "broker_password_file": "b"}, "broker_password: conflicts with broker_password_file"),
        ({"ca_file": "ca.pem"}, "ca_file: applies only with sip_server"),
        (
            ELSEWHERE | {"broker_password": "a", "broker_password_file": "b"},
            "broker_password: conflicts with broker_password_file; leave one of them out",
        ),
        ({"relay": RelaySettings(), "relays": ("127.0.0.1",)}, r"relays: conflicts with the \[relay\] table"),
        ({"relay_calls": "all"}, "relay_calls: no relay is configured"),
        (
            {"relay": RelaySettings(), "relay_calls": "some"},
            r"relay_calls: invalid value 'some' \(expected nat or all\)",
        ),
        (
            {"relays": ("127.0.0.1", "[::1]:22")},
            "relays: the relays and host must all have IPv4 addresses, or all IPv6 addresses",
        ),
        ({"relays": ("192.0.2.9",), "host": "2001:db8::1"}, "relays: the relays and host must"),
        ({"relays": ("192.0.2.9",)}, "host: 127.0.0.1 cannot be reached from relays"),
        (ELSEWHERE | {"edge_proxies": ("127.0.0.1",)}, "edge_proxies: registrar and proxy"),
        ({"edge_proxies": ("127.0.0.1", "edge")}, "edge_proxies: 'edge' is not an IP address; give those of the"),
        ({"relays": ("127.0.0.1:x",)}, "relays: '127.0.0.1:x' is not host:port"),
        ({"relay": RelaySettings(address="here")}, "relay.address: here is not an IP address"),
        ({"advertise": "here"}, "advertise: 'here' is not an IP address"),
        (
            {"advertise": "2001:db8::1"},
            "advertise: 2001:db8::1 is unspecified, or of another IP version than host 127.0.0.1",
        ),
        ({"advertise": "0.0.0.0"}, "advertise: 0.0.0.0 is unspecified, or of another IP version than host 127.0.0.1"),
        ({"broker_user": "a b"}, "'a b' is not a valid SIP user name"),
        ({"broker_user": "alice"}, "users: the name 'alice' is taken"),
    ],
)
def test_contradicting_settings_are_refused_in_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        server(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("sip:127.0.0.9", Target("UDP", HERE)),
        ("127.0.0.9", Target("UDP", HERE)),
        ("127.0.0.9:5070", Target("UDP", ("127.0.0.9", 5070))),
        ("sip:127.0.0.9:5070;transport=tcp", Target("TCP", ("127.0.0.9", 5070))),
        ("SIP:127.0.0.9;transport=TLS", Target("TLS", ("127.0.0.9", 5061))),
        ("sips:127.0.0.9", Target("TLS", ("127.0.0.9", 5061))),
        ("sips:localhost:5070", Target("TLS", ("127.0.0.1", 5070), "localhost")),
    ],
)
def test_address_of_the_sip_server(text: str, target: Target) -> None:
    made = server(sip_server=text)
    assert (made.sip_server, made.address) == (target, target.address)


def test_a_sip_server_at_an_ipv6_address() -> None:
    assert validation.sip_server("sip:[::1]:5070", "::1") == Target("UDP", ("::1", 5070))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sip:alice@127.0.0.9", "is a user, not a server; write sip:host:port"),
        ("sip:127.0.0.9;transport=sctp", "cannot send over the transport 'sctp'"),
        ("127.0.0.9:99999", "is not a SIP server"),
        ("sip:nowhere.invalid", "sip_server: the host of 'nowhere.invalid:5060' cannot be found"),
        ("sip:192.0.2.9", "host: 127.0.0.1 cannot be reached from sip_server"),
        ("sip:[::1]", "host: 127.0.0.1 cannot be reached from sip_server"),
    ],
)
def test_invalid_sip_servers(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        server(sip_server=text)


@pytest.mark.parametrize(
    ("relay", "address", "advertised"),
    [
        (RelaySettings(), "127.0.0.9", "192.0.2.8"),
        (RelaySettings(advertise="192.0.2.7"), "127.0.0.9", "192.0.2.7"),
        (RelaySettings(address="127.0.0.6"), "127.0.0.6", "127.0.0.6"),
    ],
)
def test_address_of_the_relay_in_the_process(relay: RelaySettings, address: str, advertised: str) -> None:
    """A public address of the server also applies to its relay, unless the relay has its own."""
    made = validation.relay_role(server(host="127.0.0.9", advertise="192.0.2.8", relay=relay)._settings)
    assert made is not None
    assert (made.host, made.machine.address) == (address, advertised)
    assert made.ng_address == ("127.0.0.1", 0)


def test_credentials_of_the_broker(tmp_path: Path) -> None:
    """Its line in the file of users, unless a password is given; and no caller can use that line."""
    users = tmp_path / "users"
    users.write_text("alice:secret\nbroker:quorum\n")
    word = tmp_path / "word"
    word.write_text("other\n")
    for given, password in (
        ({}, "quorum"),
        ({"broker_password": "own"}, "own"),
        ({"broker_password_file": word}, "other"),
    ):
        made = server(users=users, **ELSEWHERE, **given)
        assert made._broker_password == password
        assert made._secrets == {"alice": "secret"}
    assert server(**ELSEWHERE)._broker_password is None
    with pytest.raises(ConfigurationError, match="users, line 2: the name 'broker' is taken"):
        server(users=users)


def test_the_password_of_other_brokers_at_this_server(tmp_path: Path) -> None:
    """It is that of the own broker, too; unless it is given, nobody knows that of the own broker."""
    word = tmp_path / "word"
    word.write_text("other\n")
    for given, password in (({"broker_password": "own"}, "own"), ({"broker_password_file": word}, "other")):
        made = server(**given)
        assert made._broker_password == made._secrets["broker"] == password
    one, two = server(), server()
    assert one._secrets["broker"] != two._secrets["broker"]


def test_a_proxy_takes_the_brokers_line(tmp_path: Path) -> None:
    given: dict[str, Any] = {"domain": "localhost", "data_dir": tmp_path, "users": {"broker": "quorum"}}
    assert ProxyServer(**given)._secrets == {"broker": "quorum"}
    with pytest.raises(ConfigurationError, match="relay_calls: no relay is configured"):
        ProxyServer(**given, relay_calls="all")
    with pytest.raises(ConfigurationError, match="'a b' is not a valid SIP domain"):
        ProxyServer(**given | {"domain": "a b"})
