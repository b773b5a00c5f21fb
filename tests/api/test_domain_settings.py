"""Settings about other domains that cannot be used, and the errors that people see (SPEC D-13, Q-02)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.certificates import certify, make_certificates
from wanderbus.config import DomainsSettings
from wanderbus.errors import ConfigurationError

PLAIN = {"example.net": ("192.0.2.7;transport=tcp",)}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory)
    names = {"own": "DNS:example.com,DNS:sip.example.com", "other": "DNS:example.org", "wild": "DNS:*.example.com"}
    return {name: certify(directory, name, alternatives) for name, alternatives in names.items()}


def made(certificate: Path | None, domains: dict[str, Any] | None, **more: Any) -> wanderbus.Server:
    settings: dict[str, Any] = {"domain": "example.com", "data_dir": Path("data"), "users": {}, "host": "192.0.2.1"}
    table = None if domains is None else DomainsSettings(**domains)
    return wanderbus.Server(**(settings | {"tls_certificate": certificate, "domains": table} | more))


@pytest.mark.parametrize(
    ("certificate", "domains", "more", "expected"),
    [
        (None, {}, {}, "give one that names example.com as tls_certificate"),
        ("other", {}, {}, r"the certificate of example\.com, .*other-both\.pem, names example\.org"),
        ("wild", {}, {}, "names no domain"),
        ("own", {"routes": {"example.net": ()}}, {}, "example.net has 0 servers; give 1 to 8"),
        ("own", {"routes": {"example.com": ("192.0.2.7",)}}, {}, "example.com is this server's own domain"),
        ("own", {"routes": {"192.0.2.9": ("192.0.2.7",)}}, {}, "'192.0.2.9' is not a domain"),
        ("own", {"routes": {"example.net": ("sip.example.net",)}}, {}, "write an IP address"),
        ("own", {"routes": {"example.net": ("192.0.2.7;transport=sctp",)}}, {}, "cannot send over"),
        ("own", {"routes": {"example.net": ("[2001:db8::1]",)}}, {}, "another IP version than host"),
        ("own", {"routes": PLAIN}, {"tcp": False}, "tcp is off"),
        ("own", {"routes": PLAIN, "trusted": ("example.net",)}, {}, "has a route without TLS"),
        ("own", {"name_servers": ("dns.example.net",)}, {}, "is not an IP address"),
        ("own", {}, {"user_domains": ("example.net",)}, "add it to domains.trusted"),
        ("own", None, {"user_domains": ("example.net",)}, "add it to domains.trusted"),
        ("own", {}, {"user_domains": ("example.com",)}, "is this server's own domain"),
        (None, None, {"user_domains": ("example.net",), "sip_server": "sip:192.0.2.9"}, "write sips:"),
        (None, {"lookup": False}, {"sip_server": "sip:192.0.2.9"}, "domains: registrar and proxy are at sip_server"),
    ],
)
def test_invalid_settings_are_refused_in_one_line(
    certificate: str | None,
    domains: dict[str, Any] | None,
    more: dict[str, Any],
    expected: str,
    certificates: dict[str, Path],
) -> None:
    with pytest.raises(ConfigurationError, match=expected) as refused:
        made(None if certificate is None else certificates[certificate], domains, **more)
    assert "\n" not in str(refused.value)


def test_plain_routes_alone_need_no_certificate() -> None:
    made(None, {"routes": PLAIN, "lookup": False})


def test_a_trusted_domain_may_be_looked_up(certificates: dict[str, Path]) -> None:
    made(certificates["own"], {"trusted": ("example.net",)}, user_domains=("example.net",))


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_an_agent_speaks_tls_for_a_broker_of_another_domain(transport: Any) -> None:
    uris: dict[str, Any] = {"uri": "sip:carol@example.net", "broker": "sip:broker@example.com"}
    assert wanderbus.connect(**uris)._end.properties.transport == "TLS"
    with pytest.raises(ConfigurationError, match=r"is in another domain .* leave out transport"):
        wanderbus.connect(**uris, transport=transport)
