"""Networks of a domain's servers: which server is near to a device, by the address of its data (SPEC L-01)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from wanderbus.errors import ConfigurationError
from wanderbus.hosts import canonical, is_ip_address

NETWORKS_MAX: Final = 1_024
"""Largest number of networks of one server."""


class ServerNetworks:
    """The server of each network; a network within another one comes first.

    :param networks: for each server, its networks as an address and the length of their prefix, ``192.0.2.0/24``
    """

    def __init__(self, networks: Mapping[str, Iterable[str]]) -> None:
        """Read the networks; :class:`ConfigurationError` names the server of one that cannot be used."""
        self._servers: dict[IPv4Network | IPv6Network, str] = {}
        for server, texts in networks.items():
            for count, text in enumerate(texts, 1):
                network = _network(text)
                if network is None:
                    raise ConfigurationError(f"servers.{server}.networks: {text!r} is no network, such as 192.0.2.0/24")
                if (other := self._servers.setdefault(network, server)) != server:
                    raise ConfigurationError(f"servers.{server}.networks: {other} has {text} too; leave it to one")
                if count > NETWORKS_MAX:
                    raise ConfigurationError(f"servers.{server}.networks: it has more than {NETWORKS_MAX}")
        self._lengths = {
            version: sorted({each.prefixlen for each in self._servers if each.version == version}, reverse=True)
            for version in (4, 6)
        }

    def nearest(self, host: str) -> str:
        """Return the server whose network has the address ``host``, the smallest such network; "" if none has it."""
        host = canonical(host)
        if not self._servers or not is_ip_address(host):
            return ""
        address = ip_address(host.partition("%")[0])
        found = (
            self._servers.get(ip_network((address.packed, length), strict=False))
            for length in self._lengths[address.version]
        )
        return next((each for each in found if each is not None), "")


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None
