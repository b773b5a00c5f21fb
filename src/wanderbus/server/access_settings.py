"""Settings of the choice among several brokers, checked before anything is opened (SPEC J-01)."""

from __future__ import annotations

import ipaddress
from typing import Final

from wanderbus.config import AccessSettings, ProxySettings, ServerSettings
from wanderbus.errors import ConfigurationError, SIPParseError
from wanderbus.hosts import canonical, is_ip_address
from wanderbus.sip.message.uri import SIPUri, canonical_uri, parse_host_port
from wanderbus.sip.proxy.access_policy import AccessPolicy, NearestServer

_KEY: Final = "access.nearest"


def access_policy(settings: ProxySettings) -> AccessPolicy:
    """Return the policy for access servers; :class:`ConfigurationError` for a value that cannot be used."""
    wanted = settings.access or AccessSettings()
    if wanted.choice not in ("hash", "least_loaded"):
        raise ConfigurationError(f"access.choice: invalid value {wanted.choice!r} (expected hash or least_loaded)")
    name = wanted.user
    if name is None:
        name = settings.broker_user if isinstance(settings, ServerSettings) else AccessPolicy().user
    try:
        user = SIPUri.parse(canonical_uri(f"sip:{name}@{settings.domain.lower()}")).user
    except SIPParseError as error:
        raise ConfigurationError(f"access.user: {name!r} is not a valid SIP user name: {error}") from None
    nearest = tuple(_nearest(network, server) for network, server in wanted.nearest.items())
    return AccessPolicy(user or name, wanted.choice, nearest)


def _nearest(text: str, server: str) -> NearestServer:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigurationError(f"{_KEY}: {text!r} is not a network: {error}; write 192.0.2.0/24") from None
    try:
        host, port = parse_host_port(server if server.count(":") < 2 or "[" in server else f"[{server}]", _KEY)
    except SIPParseError as error:
        raise ConfigurationError(f"{_KEY}: {server!r} cannot be used: {error}; write address or address:port") from None
    if not is_ip_address(host):
        raise ConfigurationError(f"{_KEY}: {server!r} is not an IP address; give that of a broker")
    return NearestServer(network, canonical(host), port)
