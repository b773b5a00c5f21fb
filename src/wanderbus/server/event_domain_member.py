"""This server's part in an event domain: its name, its key, its channels, and its links to the other servers."""

from __future__ import annotations

import itertools
from functools import lru_cache
from pathlib import Path
from typing import Final

from wanderbus.broker.state.start import has_moved
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.config import ServerSettings
from wanderbus.datachannel.trust import hkdf
from wanderbus.errors import ConfigurationError, StateCorrupt
from wanderbus.machine import Address, RandomSource
from wanderbus.peers.decentralised_interest import DecentralisedInterest
from wanderbus.peers.leader_sessions import LeaderSessions
from wanderbus.peers.links import ServerLinks
from wanderbus.peers.multicast_group import MulticastGroup
from wanderbus.peers.parts import MULTICAST_SOCKET, SERVER_SOCKET
from wanderbus.peers.server_parts import ServerParts
from wanderbus.peers.server_traffic import FIRST_LINK
from wanderbus.rudp.keys import KeyPair
from wanderbus.runtime.files.domain_file import key_file, read_domain
from wanderbus.runtime.files.kept_key import kept_key
from wanderbus.server.ports import MulticastPort, Port, UdpPort
from wanderbus.settings.event_domain import EventDomain, address_in
from wanderbus.settings.shared_tables import layout_of, shared_tables
from wanderbus.subscription import EVERY_SUBJECT

_VISIT_LABEL: Final = b"wanderbus visit key 1"

_MERGINGS_MAX: Final = 4_096
"""Subjects whose merging is remembered."""


class EventDomainMember:
    """The server ``name`` of a domain.

    :param file: the file of the domain
    :param key: file of the server's private key; ``keys/NAME.key`` beside the domain's file unless given
    """

    def __init__(self, file: Path, name: str, key: Path | None = None) -> None:
        """Read the files; raise :class:`ConfigurationError` if they cannot be used or do not belong together."""
        self.name = name
        self.domain = read_domain(file)
        servers, present = self.domain.settings.servers, self.domain.settings.present
        if name not in servers:
            raise ConfigurationError(f"event_server: {file} has no server {name!r} (expected {' or '.join(present)})")
        if name not in present:
            raise ConfigurationError(
                f"event_server: {name} has left the domain of {file}; 'wanderbus domain add' adds one with another name"
            )
        self._key = _private_key(key or key_file(file, name))
        if self._key.public.hex() != servers[name].public_key.lower():
            raise ConfigurationError(f"event_key: the key is not that of {name} in {file}; copy keys/{name}.key here")
        self._tables = shared_tables(self.domain)
        self._left = tuple(each for each in servers if each not in present)

    @property
    def ports(self) -> tuple[Port, ...]:
        """Return the sockets for the links to the other servers, and for the multicast group if there is one."""
        host, port = _address(self.domain, self.name)
        links = UdpPort(name=SERVER_SOCKET, host=host, port=port)
        group, multicast = self.domain.multicast_group, self.domain.settings.multicast
        if group is None or multicast is None:
            return (links,)
        joined = MulticastPort(
            name=MULTICAST_SOCKET,
            host=group[0],
            port=group[1],
            local_host=host,
            interface=multicast.interface,
            ttl=multicast.ttl,
        )
        return links, joined

    def channels(self, state: BrokerState) -> OwnChannels:
        """Return the channels as this server sees them.

        A server that has sent events directly, as ``state`` has it, goes on until the others have them all.

        :raises ConfigurationError: the numbers of servers would change, which the log has for causal order
        """
        settings = self.domain.settings
        known, numbered = state.servers[state.server].servers, settings.numbered
        has_decentralised = "decentralised" in self.domain.models
        keeps_numbers = numbered[: len(known)] == known
        if not keeps_numbers and (has_decentralised or state.decentralised.causal.outgoing.retained):
            raise ConfigurationError(
                f"event_domain: its servers were {', '.join(known)} at the last start, and are {', '.join(numbered)} "
                "now; use 'wanderbus domain add' and 'wanderbus domain remove'"
            )
        removed = state.decentralised.causal.knowledge.removed
        if returned := [each for number, each in enumerate(numbered) if number in removed and each in settings.present]:
            raise ConfigurationError(f"event_domain: {returned[0]} has left the domain, and cannot come back")
        decentralised = (
            self._decentralised_channels(has_decentralised=has_decentralised)
            if has_decentralised or (known and keeps_numbers)
            else None
        )
        return OwnChannels(
            self.domain.directory,
            self.name,
            lru_cache(_MERGINGS_MAX)(self._merging_of),  # it is asked for each event
            decentralised,
            [each for each in settings.present if each != self.name],
            layout_of(self._tables),
            founders=settings.founders("resolution"),
            left=self._left,
            joins=settings.servers[self.name].joined is not None,
        )

    def parts(
        self, channels: OwnChannels, state: BrokerState, random: RandomSource, reset_key: bytes, wall_us: int
    ) -> ServerParts:
        """Return the links to the other servers, and what uses them, as ``state`` has it."""
        settings = self.domain.settings
        others = {
            name: (_address(self.domain, name), bytes.fromhex(server.public_key))
            for name, server in settings.present.items()
            if name != self.name
        }
        links = ServerLinks(
            self.name,
            self._key,
            others,
            settings.name,
            random,
            new_link=itertools.count(FIRST_LINK).__next__,
            tables=self._tables,
            reset_key=reset_key,
            joins=channels.joins,
        )
        epoch, positions = max(1, state.wall_us), dict(state.leaders.items())
        leaders = LeaderSessions(
            channels, epoch=epoch, positions=positions, have_moved=has_moved(state, channels.layout)
        )
        # A server that has lost its log begins with a higher epoch, too: others know its interest by the last one.
        interest = None
        if (decentralised := channels.decentralised) is not None:
            interest = DecentralisedInterest(
                decentralised, epoch=max(epoch, wall_us), group=self._group(decentralised, random)
            )
        access = frozenset(settings.servers_with("access"))
        return ServerParts(self.name, links, leaders, interest, tuple(others), access, self.domain.networks)

    def _group(self, channels: DecentralisedChannels, random: RandomSource) -> MulticastGroup | None:
        address, settings = self.domain.multicast_group, self.domain.settings
        if address is None:
            return None
        key = bytes.fromhex(settings.hash_key)
        return MulticastGroup(
            address, key, domain=settings.name, servers=channels.servers, server=self.name, random=random
        )

    def _decentralised_channels(self, *, has_decentralised: bool) -> DecentralisedChannels:
        domain = self.domain
        subjects = [EVERY_SUBJECT, *domain.settings.channels]
        mergings = [self._merging_of(each) for each in subjects]
        if domain.settings.model == "decentralised":
            is_required = domain.settings.advertisements == "required"
            mergings.append(Merging(domain.settings.merging, domain.settings.precision_min, is_required))
        return DecentralisedChannels(
            domain.interest_directory,
            self.name,
            domain.settings.numbered,
            domain.is_decentralised,
            self._merging_of,
            tuple(dict.fromkeys(mergings)),
            has_ordered="ordered" in domain.models,
            has_decentralised=has_decentralised,
            joined=len(domain.settings.servers) - len(domain.settings.founders()),
            left=self._left,
        )

    def _merging_of(self, subject: str) -> Merging:
        channel = self.domain.channel(subject)
        bound = channel.precision_min or self.domain.settings.precision_min
        return Merging(channel.merging, bound, self.domain.requires_advertisements(subject))


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


def visit_key_of(member: EventDomainMember | None, own_secret: bytes) -> bytes:
    """Return the key by which servers of a domain recognise calls of their users to other domains (decision 0174).

    It is made from the secret of the domain, or from ``own_secret`` if this server is alone.
    """
    secret = own_secret if member is None else bytes.fromhex(member.domain.settings.hash_key)
    return hkdf(secret, _VISIT_LABEL)
