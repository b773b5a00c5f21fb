"""Settings about other domains, checked and completed before anything is opened (SPEC D-13)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from wanderbus.config import DomainsSettings, ProxySettings, ServerSettings
from wanderbus.errors import ConfigurationError, SIPParseError
from wanderbus.hosts import domain_of, is_ip_address
from wanderbus.machine import Address
from wanderbus.runtime.net.tls import own_sip_domains
from wanderbus.sip.message.targets import Target, target_of
from wanderbus.sip.message.uri import SIPUri, canonical_uri, parse_host_port
from wanderbus.sip.proxy.domain_routes import SERVERS_MAX
from wanderbus.sip.proxy.domain_servers import DomainServer, OtherDomains

_DNS_PORT: Final = 53


def other_domains(settings: ProxySettings) -> OtherDomains | None:
    """Return the routes and trust of the proxy for other domains, None without any.

    Raises :class:`ConfigurationError` for a value that cannot be used, or that other domains could not authenticate.
    """
    wanted = settings.domains
    if wanted is None:
        return None
    routes = {domain.lower(): _servers(domain, wanted.routes[domain], settings) for domain in wanted.routes}
    trusted = frozenset(_domain("domains.trusted", domain) for domain in wanted.trusted)
    for domain in sorted(trusted & routes.keys()):
        if any(server.target.transport != "TLS" for server in routes[domain]):
            raise ConfigurationError(
                f"domains.trusted: {domain} has a route without TLS, which cannot be authenticated; "
                "leave out its transport, or do not trust it"
            )
    needs_tls = wanted.lookup or any(each.target.transport == "TLS" for servers in routes.values() for each in servers)
    if needs_tls:
        _check_certificate(settings)
    name_servers(wanted)
    return OtherDomains(routes, wanted.lookup, trusted)


def name_servers(settings: DomainsSettings) -> list[Address]:
    """Return the name servers, an empty list for the system's; :class:`ConfigurationError` for an invalid address."""
    return [_address("domains.name_servers", text, _DNS_PORT) for text in settings.name_servers]


def check_user_domains(settings: ServerSettings, sip_server: Target | None) -> frozenset[str]:
    """Return the other domains whose users may use the broker.

    Raises :class:`ConfigurationError` if no trusted server could authenticate them.
    """
    admitted = frozenset(_domain("user_domains", domain) for domain in settings.user_domains)
    if settings.domain.lower() in admitted:
        raise ConfigurationError(f"user_domains: {settings.domain} is this server's own domain; name other domains")
    if not admitted:
        return admitted
    if sip_server is not None:
        if sip_server.transport != "TLS":
            raise ConfigurationError(
                "user_domains: identities asserted by sip_server are accepted over TLS only; write sips:"
            )
        return admitted
    trusted = {domain.lower() for domain in settings.domains.trusted} if settings.domains else set()
    if missing := sorted(admitted - trusted):
        raise ConfigurationError(
            f"user_domains: no trusted server asserts the users of {missing[0]}; add it to domains.trusted"
        )
    return admitted


def _servers(domain: str, written: Iterable[str], settings: ProxySettings) -> tuple[DomainServer, ...]:
    name = _domain("domains.routes", domain)
    if name == settings.domain.lower():
        raise ConfigurationError(f"domains.routes: {name} is this server's own domain; name other domains")
    servers = tuple(DomainServer(_target(name, text, settings), priority) for priority, text in enumerate(written))
    if not 0 < len(servers) <= SERVERS_MAX:
        raise ConfigurationError(f"domains.routes: {name} has {len(servers)} servers; give 1 to {SERVERS_MAX}")
    return servers


def _target(domain: str, text: str, settings: ProxySettings) -> Target:
    where = f"domains.routes: {text!r}, a server of {domain}, cannot be used"
    try:
        target = target_of(SIPUri.parse(f"sip:{text}"), default="TLS")
    except SIPParseError as error:
        raise ConfigurationError(f"{where}: {error}; write address:port;transport=tls") from None
    host, port = target.address
    if not is_ip_address(host):
        raise ConfigurationError(f"{where}: write an IP address, or leave out the route so that the name is looked up")
    if ipaddress.ip_address(host).version != ipaddress.ip_address(settings.host).version:
        raise ConfigurationError(f"{where}: it is of another IP version than host {settings.host}")
    if target.transport == "TCP" and not settings.tcp:
        raise ConfigurationError(f"{where}: its transport is TCP, but tcp is off; turn tcp on, or use TLS")
    return Target(target.transport, (host, port), None, domain if target.transport == "TLS" else None)


def _check_certificate(settings: ProxySettings) -> None:
    """Raise :class:`ConfigurationError` unless the certificate authenticates this server to other domains."""
    if settings.tls_certificate is None:
        raise ConfigurationError(
            "domains: servers of other domains authenticate this one by its certificate; give one that names "
            f"{settings.domain} as tls_certificate, or only routes with transport=tcp or udp and lookup = false"
        )
    named = own_sip_domains(settings.tls_certificate)
    if settings.domain.lower() not in named:
        raise ConfigurationError(
            f"domains: the certificate of {settings.domain}, {settings.tls_certificate}, names "
            f"{', '.join(named) or 'no domain'}; other domains would not accept it"
        )


def _domain(key: str, text: str) -> str:
    try:
        if is_ip_address(text):
            raise SIPParseError("an address")
        return domain_of(canonical_uri(f"sip:user@{text}"))
    except SIPParseError as error:
        raise ConfigurationError(f"{key}: {text!r} is not a domain: {error}") from None


def _address(key: str, text: str, default_port: int) -> Address:
    try:
        host, port = parse_host_port(text if text.count(":") < 2 or "[" in text else f"[{text}]", key)
    except SIPParseError as error:
        raise ConfigurationError(f"{key}: {text!r} cannot be used: {error}; write address:port") from None
    if not is_ip_address(host):
        raise ConfigurationError(f"{key}: {text!r} is not an IP address")
    return host, port or default_port
