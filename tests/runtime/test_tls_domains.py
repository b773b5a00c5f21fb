"""SIP domains in certificates (RFC 5922 7.1 and 7.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certificates import certify, make_certificates
from wanderbus.errors import ConfigurationError
from wanderbus.runtime.net.tls import domains_among, own_sip_domains


@pytest.mark.parametrize(
    ("names", "domains"),
    [
        ([("DNS", "A.example")], ("a.example",)),
        ([("DNS", "a.example"), ("DNS", "b.example"), ("DNS", "a.example")], ("a.example", "b.example")),
        ([("URI", "sip:a.example"), ("DNS", "host.example")], ("a.example",)),
        ([("URI", "sip:carol@a.example"), ("DNS", "host.example")], ("host.example",)),
        ([("URI", "https://a.example/"), ("DNS", "host.example")], ("host.example",)),
        ([("DNS", "*.a.example")], ()),
        ([("IP Address", "192.0.2.1")], ()),
        ([], ()),
    ],
)
def test_the_domains_that_a_certificate_names(names: list[tuple[str, str]], domains: tuple[str, ...]) -> None:
    assert domains_among(names) == domains


def test_the_domains_in_a_file(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    assert own_sip_domains(certify(tmp_path, "uri", "URI:sip:a.example,DNS:www.example")) == ("a.example",)
    assert own_sip_domains(certify(tmp_path, "dns", "DNS:a.example,IP:192.0.2.1")) == ("a.example",)
    assert own_sip_domains(tmp_path / "authority.pem") == ()


def test_a_file_that_holds_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name in ("empty.pem", "missing.pem"):
        with pytest.raises(ConfigurationError, match=f"{name} cannot be used for TLS"):
            own_sip_domains(tmp_path / name)
