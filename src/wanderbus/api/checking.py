"""What a server is told, checked and completed before anything is opened."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from wanderbus.broker.config import BrokerConfig
from wanderbus.config import ServerSettings
from wanderbus.errors import ConfigurationError, SIPParseError
from wanderbus.limits import MESSAGE_BYTES_MAX
from wanderbus.runtime.server_files import read_users
from wanderbus.sip.uri import canonical_uri

BROKER = "broker"
"""The user that the broker is; nobody else may be called so."""


def broker_uri(settings: ServerSettings) -> str:
    """Return the URI of the broker; :class:`ConfigurationError` for a domain or a host that cannot be served."""
    _check_host(settings.host)
    if settings.eci_port is not None:
        _check_host(settings.eci_host)
    try:
        return canonical_uri(f"sip:{BROKER}@{settings.domain.lower()}")
    except SIPParseError as error:
        raise ConfigurationError(f"{settings.domain!r} is not a domain that SIP can name: {error}") from None


def check_channels(settings: ServerSettings) -> None:
    """Raise :class:`ConfigurationError` for a data channel that could not carry what the broker has to say."""
    for name in ("rudp", "tcp_channels"):
        if (channel := getattr(settings, name)) is not None and channel.message_bytes_max < MESSAGE_BYTES_MAX:
            raise ConfigurationError(
                f"{name}.message_bytes_max must be at least {MESSAGE_BYTES_MAX}: the broker has such messages"
            )


def passwords(settings: ServerSettings) -> Mapping[str, str]:
    """Return the password of each user; :class:`ConfigurationError` for a file that cannot be read."""
    users = read_users(settings.users) if isinstance(settings.users, Path) else settings.users
    if BROKER in users:
        raise ConfigurationError(f"users: the name {BROKER!r} is taken")
    return users


def broker_config(settings: ServerSettings) -> BrokerConfig:
    """Return the bounds of the broker, with the full URIs of those who have a role."""
    config = settings.broker or BrokerConfig()
    try:
        ZoneInfo(config.zone)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ConfigurationError(
            f"broker.zone: no time zone is called {config.zone!r}; use an IANA name such as America/Sao_Paulo"
        ) from None
    try:
        roles = {_user(name, settings.domain): role for name, role in config.roles.items()}
    except SIPParseError as error:
        raise ConfigurationError(f"broker.roles: {error}; write sip:name@domain") from None
    return msgspec.structs.replace(config, roles=roles)


def _user(name: str, domain: str) -> str:
    return canonical_uri(name if "@" in name else f"{name}@{domain.lower()}")


def _check_host(host: str) -> None:
    """Raise :class:`ConfigurationError` unless ``host`` is one address."""
    try:
        unspecified = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        raise ConfigurationError(f"{host!r} is not an IP address; give the one to listen on") from None
    if unspecified:
        raise ConfigurationError("listen on one address that agents can reach, not on all: they are told which")
