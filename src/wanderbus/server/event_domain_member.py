"""This server's part in an event domain: its name, its key, its channels, and its links to the other servers."""

from __future__ import annotations

import itertools
from pathlib import Path

from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.own_channels import Merging, OwnChannels
from wanderbus.config import ServerSettings
from wanderbus.domain.parts import SERVER_LINKS
from wanderbus.domain.servers.leader_sessions import LeaderSessions
from wanderbus.domain.servers.links import ServerLinks
from wanderbus.domain.servers.server_traffic import FIRST_LINK
from wanderbus.errors import ConfigurationError, StateCorrupt
from wanderbus.machine import Address, RandomSource
from wanderbus.rudp.keys import KeyPair
from wanderbus.runtime.files.domain_file import key_file, read_domain
from wanderbus.runtime.files.kept_key import kept_key
from wanderbus.server.ports import UdpPort
from wanderbus.settings.event_domain import EventDomain, address_in


class EventDomainMember:
    """The server ``name`` of a domain.

    :param file: the file of the domain
    :param key: file of the server's private key; ``keys/NAME.key`` beside the domain's file unless given
    """

    def __init__(self, file: Path, name: str, key: Path | None = None) -> None:
        """Read the files; raise :class:`ConfigurationError` if they cannot be used or do not belong together."""
        self.name = name
        self.domain = read_domain(file)
        servers = self.domain.settings.servers
        if name not in servers:
            raise ConfigurationError(f"event_server: {file} has no server {name!r} (expected {' or '.join(servers)})")
        self._key = _private_key(key or key_file(file, name))
        if self._key.public.hex() != servers[name].public_key.lower():
            raise ConfigurationError(f"event_key: the key is not that of {name} in {file}; copy keys/{name}.key here")
        self.channels = OwnChannels(self.domain.directory, name, self._merging_of)

    @property
    def port(self) -> UdpPort:
        """Return the socket for the links to the other servers."""
        host, port = _address(self.domain, self.name)
        return UdpPort(name=SERVER_LINKS, host=host, port=port)

    def parts(self, state: BrokerState, random: RandomSource, reset_key: bytes) -> tuple[ServerLinks, LeaderSessions]:
        """Return the links to the other servers, and the sessions at leaders as ``state`` has them."""
        settings = self.domain.settings
        others = {
            name: (_address(self.domain, name), bytes.fromhex(server.public_key))
            for name, server in settings.servers.items()
            if name != self.name
        }
        links = ServerLinks(
            self.name,
            self._key,
            others,
            settings.name,
            random,
            new_link=itertools.count(FIRST_LINK).__next__,
            reset_key=reset_key,
        )
        epoch = max(1, state.wall_us)
        return links, LeaderSessions(self.channels, epoch=epoch, positions=dict(state.leaders.items()))

    def _merging_of(self, subject: str) -> Merging:
        channel = self.domain.channel(subject)
        return Merging(channel.merging, channel.precision_min or self.domain.settings.precision_min)


def member_of(settings: ServerSettings) -> EventDomainMember | None:
    """Return the server's part in its event domain, None without one; :class:`ConfigurationError` if it is unusable."""
    if settings.event_domain is None:
        if settings.event_server is not None or settings.event_key is not None:
            raise ConfigurationError("event_server, event_key: apply only with event_domain; leave them out")
        return None
    if settings.event_server is None:
        raise ConfigurationError("event_domain: also give event_server, the name of this server in that file")
    member = EventDomainMember(settings.event_domain, settings.event_server, settings.event_key)
    name = member.domain.settings.name
    if settings.domain.lower() != name.lower():
        raise ConfigurationError(
            f"domain: {settings.domain} is not that of {settings.event_domain}, which is {name}; use the same"
        )
    return member


def _private_key(file: Path) -> KeyPair:
    if not file.exists():
        raise ConfigurationError(f"event_key: {file} does not exist; 'wanderbus domain init' makes the keys")
    try:
        return KeyPair(kept_key(file))
    except StateCorrupt:
        raise ConfigurationError(f"event_key: {file} is damaged; copy it from where the domain was made") from None
    except OSError as error:
        raise ConfigurationError(f"event_key: {file} cannot be read: {error.strerror}") from None


def _address(domain: EventDomain, name: str) -> Address:
    address = address_in(domain.settings.servers[name].address)
    assert address is not None, "the domain has checked its addresses"
    return address
