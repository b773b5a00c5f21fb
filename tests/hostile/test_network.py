"""The network of a run."""

from __future__ import annotations

from ipaddress import ip_address

from hostile.network import ATTACKER, GOOD, MOVED, NEWCOMERS, SERVER, SOURCES, VICTIM, as_ipv6
from wanderbus.hosts import network_of


def test_every_address_of_ipv6_is_in_a_network_of_its_own() -> None:
    hosts = (SERVER, ATTACKER, VICTIM, *GOOD, MOVED, *NEWCOMERS, *SOURCES)
    addresses = [as_ipv6(host) for host in hosts]
    assert all(str(ip_address(address)) == address for address in addresses)
    assert len({network_of(address) for address in addresses}) == len(hosts)
