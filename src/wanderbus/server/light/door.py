"""Door for lightweight clients of a server: its port, and who may log in there (SPEC P-02)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wanderbus.access.light_door import LightDoor
from wanderbus.access.light_messages import LIGHT_SOCKET
from wanderbus.config import ServerSettings
from wanderbus.errors import ConfigurationError, SIPParseError
from wanderbus.hosts import place_in
from wanderbus.machine import Address, RandomSource, shown
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.signalling import LoginLimits
from wanderbus.parameters.transports import LIGHT_LIMITS, TcpConfig, carrying
from wanderbus.runtime.net.certificate import OwnCertificate
from wanderbus.runtime.net.tls import server_tls
from wanderbus.server.ports import StreamPort
from wanderbus.sip.authentication.digest_values import Secret, secret_ha1
from wanderbus.sip.authentication.login_guard import LoginGuard
from wanderbus.sip.message.uri import canonical_uri

LOOPBACK: Final = "127.0.0.1"


def light_address(text: str) -> Address:
    """Return the address in ``host:port`` or ``port``; :class:`ConfigurationError` for any other text."""
    host, _, port = text.rpartition(":")
    address = place_in(text if host else f"{LOOPBACK}:{port}")
    if address is None:
        raise ConfigurationError(f"light: {text!r} is not HOST:PORT, with an IP address")
    return address


def light_port(settings: ServerSettings, certificate: OwnCertificate) -> StreamPort:
    """Return the socket for lightweight clients, which shows the server's own certificate."""
    host, port = light_address(settings.light or "")
    return StreamPort(
        name=LIGHT_SOCKET,
        host=host,
        port=port,
        server_tls=server_tls(certificate.file),
        limits=settings.light_connections or LIGHT_LIMITS,
    )


def light_port_error(settings: ServerSettings, error: OSError) -> ConfigurationError:
    """Return the error for that socket."""
    place = shown(light_address(settings.light or ""))
    return ConfigurationError(f"TCP port {place} cannot be used: {error.strerror}; give another with --light")


def light_door(
    settings: ServerSettings,
    config: BrokerConfig,
    users: Mapping[str, Secret],
    certificate: OwnCertificate,
    random: RandomSource,
    *,
    asks_owner: bool,
) -> LightDoor | None:
    """Return the door; None if lightweight clients are not served."""
    if settings.light is None:
        return None
    realm = settings.domain.lower()

    def secret_of(name: str) -> str | None:
        secret = users.get(name)
        if secret is None or not is_user(name, realm):
            return None
        return secret_ha1(secret, name, realm, "SHA-256")

    return LightDoor(
        random,
        realm,
        secret_of,
        fingerprint=certificate.fingerprint,
        message_bytes_max=carrying(settings.tcp_channels or TcpConfig(), config.event_bytes_max).message_bytes_max,
        guard=LoginGuard(settings.logins or LoginLimits()),
        limits=settings.light_connections or LIGHT_LIMITS,
        user_logins_per_s=config.user_connects_per_s,
        asks_owner=asks_owner,
    )


def is_user(name: str, domain: str) -> bool:
    """Return whether ``name`` is the user part of a SIP URI as it is stored."""
    uri = f"sip:{name}@{domain}"
    try:
        return canonical_uri(uri) == uri
    except SIPParseError:
        return False
