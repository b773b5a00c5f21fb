"""This server's part in a federation: the foreign domains, and as a gateway its address and the domain's key."""

from __future__ import annotations

from pathlib import Path

from wanderbus.config import ServerSettings
from wanderbus.errors import ConfigurationError
from wanderbus.machine import Address
from wanderbus.rudp.keys import KeyPair
from wanderbus.runtime.files.federation_file import domain_key, federation_key_file, read_federation
from wanderbus.runtime.files.file_modes import warn_if_open


class FederationMember:
    """A server of a domain that shares events with foreign domains.

    :param file: the file of the federation
    :param gateway: name of this server among the gateways of its domain; None if it is none
    :param key: file of the domain's private key, which only gateways need; beside ``file`` unless given
    """

    def __init__(self, file: Path, gateway: str | None = None, key: Path | None = None) -> None:
        """Read the files; raise :class:`ConfigurationError` if they cannot be used or do not belong together."""
        self.federation = read_federation(file)
        self.gateway = gateway
        self.key: KeyPair | None = None
        """Key pair of the domain; None unless this server is a gateway."""
        if gateway is None:
            return
        if gateway not in self.federation.gateways:
            known = " or ".join(self.federation.gateways)
            raise ConfigurationError(f"federation_gateway: {file} has no gateway {gateway!r} (expected {known})")
        key = key or federation_key_file(file)
        self.key = domain_key(key)
        if self.key.public != self.federation.public_key:
            raise ConfigurationError(
                f"federation_key: {key} is not the key of {self.federation.name} in {file}; copy both from one gateway"
            )
        warn_if_open(key, "the private key of a domain")

    @property
    def address(self) -> Address | None:
        """Return the address of this gateway for other domains; None if this server is no gateway."""
        return None if self.gateway is None else self.federation.gateways[self.gateway]


def member_of_federation(settings: ServerSettings) -> FederationMember | None:
    """Return the server's part in a federation, None without one; :class:`ConfigurationError` if it is unusable."""
    gateway = settings.federation_gateway
    if settings.federation is None:
        if gateway is not None or settings.federation_key is not None:
            raise ConfigurationError("federation_gateway, federation_key: apply only with federation; leave them out")
        return None
    if gateway is None and settings.federation_key is not None:
        raise ConfigurationError("federation_key: only a gateway needs it; give federation_gateway, or leave it out")
    if gateway is not None and settings.event_server not in (None, gateway):
        raise ConfigurationError(
            f"federation_gateway: {gateway} is not {settings.event_server}, the name of this server in event_domain; "
            "use the same"
        )
    member = FederationMember(settings.federation, gateway, settings.federation_key)
    if settings.domain.lower() != member.federation.name:
        raise ConfigurationError(
            f"domain: {settings.domain} is not that of {settings.federation}, which is {member.federation.name}; use "
            "the same"
        )
    return member
