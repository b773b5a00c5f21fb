"""Validation of a server's settings, before anything is opened."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from wanderbus.config import AccessSettings, ProxySettings, ServerSettings
from wanderbus.errors import ConfigurationError, SIPParseError
from wanderbus.hosts import is_ip_address
from wanderbus.limits import MESSAGE_BYTES_MAX
from wanderbus.machine import Address, shown
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.files.config_files import password_in
from wanderbus.runtime.files.users_file import Users
from wanderbus.runtime.net.resolver import resolve
from wanderbus.server.access_settings import access_policy
from wanderbus.server.domain_settings import check_user_domains, other_domains
from wanderbus.server.light.door import light_address
from wanderbus.server.relay_role import LOOPBACK, RelayRole
from wanderbus.settings.keys import table_of
from wanderbus.sip.authentication.digest import ALGORITHMS, Secret
from wanderbus.sip.message.targets import Target, target_of
from wanderbus.sip.message.uri import SIPUri, canonical_uri

NG_PORT: Final = 2223
"""Command port of rtpengine in its sample configuration."""

_OF_REGISTRAR: Final = (
    *("port", "tcp", "tls_certificate", "tls_key", "tls_port"),
    *("relay", "relays", "relay_calls", "stay_on_path", "edge_proxies", "domains", "access"),
)
"""Keys without a meaning in a process that has no registrar."""

_OF_REGISTERED_BROKER: Final = ("ca_file",)
"""Keys without a meaning in a process that has one."""


def check_proxy(settings: ProxySettings) -> None:
    """Raise :class:`ConfigurationError` for a domain, a host or a relay that cannot be used."""
    check_host(settings.host)
    _check_advertised(settings)
    _check_domain(settings.domain)
    if settings.relay_calls not in ("nat", "all"):
        raise ConfigurationError(f"relay_calls: invalid value {settings.relay_calls!r} (expected nat or all)")
    if settings.relay is not None and settings.relays:
        raise ConfigurationError(
            "relays: conflicts with the [relay] table (a relay in this process); leave one of them out"
        )
    if settings.relay_calls == "all" and settings.relay is None and not settings.relays:
        raise ConfigurationError("relay_calls: no relay is configured; set relays, or write a [relay] table")
    if not set(settings.digest_algorithms) <= set(ALGORITHMS) or not settings.digest_algorithms:
        raise ConfigurationError(
            f"digest_algorithms: invalid value {settings.digest_algorithms!r} (expected SHA-256, MD5)"
        )
    for address in settings.edge_proxies:
        if not is_ip_address(address):
            raise ConfigurationError(f"edge_proxies: {address!r} is not an IP address; give those of the proxies")
    relay_addresses(settings)
    relay_role(settings)
    other_domains(settings)
    access_policy(settings)


def check_server(settings: ServerSettings) -> None:
    """Raise :class:`ConfigurationError` for contradicting settings, or settings that agents could not work with."""
    check_proxy(settings)
    check_engine(settings)
    user_uri(settings.broker_user, settings.domain)
    if settings.eci_port is not None:
        check_host(settings.eci_host)
    if settings.light is not None:
        light_address(settings.light)
    if settings.sip_server is None:
        if given := _given(settings, _OF_REGISTERED_BROKER):
            raise ConfigurationError(
                f"{given}: applies only with sip_server, which the broker connects to; leave it out"
            )
    elif given := _given(settings, _OF_REGISTRAR):
        raise ConfigurationError(f"{given}: registrar and proxy are at sip_server, not here; leave one of them out")
    check_user_domains(settings, None if settings.sip_server is None else _sip_target(settings.sip_server))
    if settings.broker_password is not None and settings.broker_password_file is not None:
        raise ConfigurationError("broker_password: conflicts with broker_password_file; leave one of them out")
    for name in ("rudp", "tcp_channels"):
        if (channel := getattr(settings, name)) is not None and channel.message_bytes_max < MESSAGE_BYTES_MAX:
            raise ConfigurationError(
                f"{name}.message_bytes_max must be at least {MESSAGE_BYTES_MAX}: the broker sends messages of this size"
            )


def user_uri(user: str, domain: str) -> str:
    """Return the URI of ``user``; :class:`ConfigurationError` for a name that SIP does not allow."""
    _check_domain(domain)
    try:
        return canonical_uri(f"sip:{user}@{domain.lower()}")
    except SIPParseError as error:
        raise ConfigurationError(f"{user!r} is not a valid SIP user name: {error}") from None


def secrets(settings: ProxySettings, *, taken: str | None) -> Mapping[str, Secret]:
    """Return the secret of each user; :class:`ConfigurationError` for a file that cannot be read.

    The name ``taken`` may not be among them.
    """
    if isinstance(settings.users, Path):
        return Users(settings.users, domain=settings.domain, taken=taken)
    if taken in settings.users:
        raise ConfigurationError(
            f"users: the name {taken!r} is taken by this server's broker; if other brokers register here, give their "
            "password in broker_password_file"
        )
    return settings.users


def broker_password(settings: ServerSettings, users: Mapping[str, Secret]) -> str | None:
    """Return the broker's password, None if it has none."""
    if settings.broker_password_file is not None:
        return password_in(settings.broker_password_file)
    found = settings.broker_password or users.get(settings.broker_user)
    if found is not None and not isinstance(found, str):
        raise ConfigurationError(
            f"users: {settings.broker_user!r} has only digests there, but the broker needs its password; give it in "
            "broker_password_file"
        )
    return found


def sip_server(text: str, host: str) -> Target:
    """Return the target of ``sip:host``, ``sip:host:port;transport=tcp``, ``sips:host`` or ``host:port``.

    Raises :class:`ConfigurationError` for another form, or for a target that cannot be reached from ``host``.
    """
    target = _sip_target(text)
    try:
        address = resolve(shown(target.address))
    except ConfigurationError as error:
        raise ConfigurationError(f"sip_server: {error}") from None
    here, there = ipaddress.ip_address(host), ipaddress.ip_address(address[0])
    if here.version != there.version or (here.is_loopback and not there.is_loopback):
        raise ConfigurationError(f"host: {host} cannot be reached from sip_server {text}; give this host's address")
    return Target(target.transport, address, target.server_name)


def _sip_target(text: str) -> Target:
    """Return the target that ``sip_server`` names, before its host is resolved."""
    try:
        uri = SIPUri.parse(text if text.lower().startswith(("sip:", "sips:")) else f"sip:{text}")
        target = target_of(uri)
    except SIPParseError as error:
        raise ConfigurationError(f"sip_server: {text!r} is not a SIP server: {error}; write sip:host:port") from None
    if uri.user is not None:
        raise ConfigurationError(f"sip_server: {text!r} is a user, not a server; write sip:host:port")
    return target


def relay_addresses(settings: ProxySettings) -> list[Address]:
    """Return the command addresses of the remote relays; :class:`ConfigurationError` for an unresolvable one."""
    try:
        found = [resolve(place, default_port=NG_PORT) for place in settings.relays]
    except ConfigurationError as error:
        raise ConfigurationError(f"relays: {error}") from None
    addresses = [ipaddress.ip_address(host) for host, _ in found]
    if any(not address.is_loopback for address in addresses):
        here = ipaddress.ip_address(settings.host)
        addresses.append(here)
        if here.is_loopback:
            raise ConfigurationError(f"host: {here} cannot be reached from relays; give this host's address")
    if len({address.version for address in addresses}) > 1:
        raise ConfigurationError("relays: the relays and host must all have IPv4 addresses, or all IPv6 addresses")
    return found


def relay_role(settings: ProxySettings) -> RelayRole | None:
    """Return the relay of this process, not started yet, or None; :class:`ConfigurationError` for invalid settings.

    Only this process commands it, so it listens for commands on any port of loopback.
    """
    if settings.relay is None:
        return None
    relay = settings.relay
    address = relay.address or settings.host
    advertise = relay.advertise or (settings.advertise if address == settings.host else None)
    try:
        here = {"address": address, "advertise": advertise, "ng_listen": f"{LOOPBACK}:0", "ng_from": ()}
        return RelayRole(msgspec.structs.replace(relay, **here), table="relay.")
    except ConfigurationError as error:
        raise ConfigurationError(f"relay.{error}") from None


def broker_config(settings: ServerSettings) -> BrokerConfig:
    """Return the bounds of the broker, with the full URIs of those who have a role."""
    config = settings.broker or BrokerConfig()
    try:
        ZoneInfo(config.zone)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ConfigurationError(
            f"broker.zone: unknown time zone {config.zone!r}; use an IANA name such as America/Sao_Paulo"
        ) from None
    try:
        roles = {_user(name, settings.domain): role for name, role in config.roles.items()}
    except SIPParseError as error:
        raise ConfigurationError(f"broker.roles: {error}; write sip:name@domain") from None
    allowed = {}
    for key in ("may_publish", "may_subscribe"):
        try:
            named = getattr(config, key).items()
            allowed[key] = {name if name == "*" else _user(name, settings.domain): each for name, each in named}
        except SIPParseError as error:
            raise ConfigurationError(f"broker.{key}: {error}; write sip:name@domain") from None
    if settings.engine == "spark" and not config.spark_subjects:
        try:
            config = msgspec.structs.replace(config, spark_subjects=("*",))
        except ValueError as error:
            raise ConfigurationError(f"engine = 'spark' without broker.spark_subjects: {error}") from None
    return msgspec.structs.replace(config, roles=roles, domain=settings.domain.lower(), **allowed)


def check_engine(settings: ServerSettings) -> None:
    """Raise :class:`ConfigurationError` if the engine that the server has to start is not installed."""
    if settings.engine == "spark" and find_spec("pyspark") is None:
        raise ConfigurationError(
            "engine = 'spark' needs further packages, and pyspark is not installed: pip install 'wanderbus[pipeline]'"
        )


def check_host(host: str) -> None:
    """Raise :class:`ConfigurationError` unless ``host`` is one address."""
    try:
        unspecified = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        raise ConfigurationError(f"{host!r} is not an IP address; give the one to listen on") from None
    if unspecified:
        raise ConfigurationError(
            "give one address that agents can reach, not the unspecified one: agents connect to it"
        )


def _check_advertised(settings: ProxySettings) -> None:
    if settings.advertise is None:
        return
    try:
        advertised, here = ipaddress.ip_address(settings.advertise), ipaddress.ip_address(settings.host)
    except ValueError:
        raise ConfigurationError(f"advertise: {settings.advertise!r} is not an IP address") from None
    if advertised.is_unspecified or advertised.version != here.version:
        raise ConfigurationError(
            f"advertise: {advertised} is unspecified, or of another IP version than host {here}; "
            "give the address that agents reach"
        )


def _check_domain(domain: str) -> None:
    try:
        canonical_uri(f"sip:broker@{domain.lower()}")
    except SIPParseError as error:
        raise ConfigurationError(f"{domain!r} is not a valid SIP domain: {error}") from None


def _given(settings: ServerSettings, names: Iterable[str]) -> str:
    """Return the first of these keys with a value other than its default, "" if there is none.

    An ``access`` table of defaults does not count, because the sample file has one.
    """
    table = table_of(ServerSettings)
    for name in names:
        value = getattr(settings, name)
        default = None if name in table.tables else table.keys[name].default
        is_default = isinstance(value, AccessSettings) and value == AccessSettings()
        if value != default and not is_default:
            return name
    return ""


def _user(name: str, domain: str) -> str:
    return canonical_uri(name if "@" in name else f"{name}@{domain.lower()}")
