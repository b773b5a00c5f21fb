"""The server that is near to a device, by the networks of a domain's servers (SPEC L-01)."""

from __future__ import annotations

import pytest

from wanderbus.errors import ConfigurationError
from wanderbus.server_networks import NETWORKS_MAX, ServerNetworks

NETWORKS = ServerNetworks({"south": ["10.0.0.0/8", "2001:db8::/32"], "north": ["10.7.0.0/16"], "east": []})


@pytest.mark.parametrize(
    ("host", "server"),
    [
        ("10.1.2.3", "south"),
        ("10.7.2.3", "north"),
        ("::ffff:10.7.2.3", "north"),
        ("2001:db8::1", "south"),
        ("[2001:db8::1]", "south"),
        ("192.0.2.1", ""),
        ("fe80::1%eth0", ""),
        ("phone.example.org", ""),
        ("", ""),
    ],
)
def test_the_smallest_network_with_an_address_says_which_server_is_near(host: str, server: str) -> None:
    assert NETWORKS.nearest(host) == server
    assert ServerNetworks({}).nearest(host) == ""


@pytest.mark.parametrize(
    ("networks", "complaint"),
    [
        ({"south": ["10.0.0.1/8"]}, "servers.south.networks: '10.0.0.1/8' is no network"),
        ({"south": ["here"]}, "servers.south.networks: 'here' is no network"),
        ({"north": ["10.0.0.0/8"], "south": ["10.0.0.0/8"]}, "servers.south.networks: north has 10.0.0.0/8 too"),
        (
            {"south": [f"10.{n // 256}.{n % 256}.0/24" for n in range(NETWORKS_MAX + 1)]},
            f"servers.south.networks: it has more than {NETWORKS_MAX}",
        ),
    ],
)
def test_networks_that_cannot_be_used_are_refused(networks: dict[str, list[str]], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match="servers") as refused:
        ServerNetworks(networks)
    assert str(refused.value).startswith(complaint)
