"""Addresses in every form that a message may have them in."""

from __future__ import annotations

import pytest

from wanderbus.hosts import canonical, is_link_local, is_loopback, is_single_host, place_in


@pytest.mark.parametrize(
    "host",
    [
        *("ff02::1", "[ff02::1]", "ff02::1%eth0", "FF0E::1", "::", "[::]", "0.0.0.0", "224.0.0.1", "255.255.255.255"),
        *("::ffff:224.0.0.1", "::ffff:e000:1", "[::ffff:255.255.255.255]", "::ffff:0.0.0.0", "64:ff9b::224.0.0.1"),
    ],
)
def test_many_hosts_or_none_in_any_form_are_no_single_host(host: str) -> None:
    assert not is_single_host(host)


@pytest.mark.parametrize("host", ["phone.example.org", "192.0.2.1", "[2001:db8::1]", "::1", "64:ff9b::192.0.2.1"])
def test_other_hosts_are_single_ones(host: str) -> None:
    assert is_single_host(host)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in ("127.9.9.9", "::1", "[::1]", "0:0::1", "::ffff:127.0.0.1", "[::ffff:7f00:1]")),
        *((host, True) for host in ("64:ff9b::127.0.0.1", "::1%lo")),
        *((host, False) for host in ("localhost", "10.0.0.1", "::2", "64:ff9b::a00:1", "")),
    ],
)
def test_the_own_host_is_recognised_in_any_form(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("host", ["fe80::1", "fe80::1%eth0", "169.254.1.1", "::ffff:169.254.1.1"])
def test_link_local_addresses_are_recognised_in_any_form(host: str) -> None:
    assert is_link_local(host)
    assert not is_link_local("2001:db8::1")


@pytest.mark.parametrize(
    ("host", "form"),
    [
        ("[2001:DB8:0::1]", "2001:db8::1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("Phone.Example", "phone.example"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_one_host_has_one_form(host: str, form: str) -> None:
    assert canonical(host) == form


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("192.0.2.1:80", ("192.0.2.1", 80)),
        ("[2001:db8::1]:0", ("2001:db8::1", 0)),
        ("127.0.0.1:65535", ("127.0.0.1", 65_535)),
        ("127.0.0.1:65536", None),
        ("127.0.0.1:-1", None),
        ("127.0.0.1:٣", None),
        ("127.0.0.1", None),
        ("localhost:80", None),
        (":80", None),
        ("", None),
    ],
)
def test_a_place_is_an_ip_address_and_a_port(text: str, place: tuple[str, int] | None) -> None:
    assert place_in(text) == place
