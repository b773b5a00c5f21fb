"""This server's part in a federation: the foreign domains, and as a gateway its address and the domain's key."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from wanderbus.access.federation_parts import FIRST_CIRCUIT, FOREIGN_SOCKET, FederationParts
from wanderbus.channels.hierarchy import Hierarchy
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.config import DomainsSettings, ServerSettings
from wanderbus.errors import ConfigurationError
from wanderbus.federation.gateway_choice import FOREIGN_RETRY_S_MAX, link_name
from wanderbus.federation.member import FederationMember
from wanderbus.federation.messages import FederationChanged, GatewaysFound
from wanderbus.federation.parameters import FederationParameters, ForeignDomain
from wanderbus.federation.reports.foreign_troubles import LINK_HINT
from wanderbus.federation.routing_messages import Neighbour, RoutingSettings
from wanderbus.machine import Address, Input, RandomSource
from wanderbus.peers.far_servers import FarDomains
from wanderbus.peers.links import ServerLinks
from wanderbus.rudp.keys import KeyPair
from wanderbus.runtime.files.federation_file import domain_key, federation_key_file, read_federation
from wanderbus.runtime.files.file_modes import warn_if_open
from wanderbus.runtime.files.users_reports import version_of
from wanderbus.runtime.system_random import wall_us
from wanderbus.server.domain_settings import name_servers
from wanderbus.server.ports import Port, UdpPort
from wanderbus.settings.federation import Federation
from wanderbus.sip.proxy.domain_servers import DomainLookedUp

if TYPE_CHECKING:
    from wanderbus.runtime.net.domain_resolver import DomainResolver

_log = logging.getLogger("wanderbus.server")

_FEDERATION: Final = "wanderbus federation"
"""Name of the domain of gateways, to which the keys of their links belong."""


LOOK_S: Final = 1.0
"""Pause between two checks for a change of the file."""


class FederationContext(msgspec.Struct):
    """Values that a server needs for its part in the federation, whatever the file says."""

    server: str
    servers: tuple[str, ...]
    """All servers of the domain."""
    channels: OwnChannels | None
    random: RandomSource
    reset_key: bytes
    epoch_ms: int
    """Time of the start, or of the last change of the file."""
    access: tuple[str, ...] = ()
    """Servers that serve devices; all if it is empty."""
    has_engine: bool = False
    """True if a matching engine on Spark matches events here."""

    @property
    def lineage(self) -> Callable[[str], Sequence[str]]:
        """Return the function that returns a subject, its parent and so on up to the top."""
        return Hierarchy({}).lineage if self.channels is None else self.channels.lineage


class OwnFederation:
    """A server of a domain that shares events with foreign domains.

    :param file: the file of the federation
    :param gateway: name of this server among the gateways of its domain; None if it is none
    :param key: file of the domain's private key, which only gateways need; beside ``file`` unless given
    """

    def __init__(self, file: Path, gateway: str | None = None, key: Path | None = None) -> None:
        """Read the files; raise :class:`ConfigurationError` if they cannot be used or do not belong together."""
        self._file = file
        self._version = version_of(file)
        self.federation = read_federation(file)
        self._context: FederationContext | None = None
        self._circuits = itertools.count(FIRST_CIRCUIT)
        self._links = itertools.count(1)
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

    @property
    def ports(self) -> tuple[Port, ...]:
        """Return the socket for the links to gateways of other domains, if this server is one."""
        if (address := self.address) is None:
            return ()
        return (UdpPort(name=FOREIGN_SOCKET, host=address[0], port=address[1]),)

    def resolver(
        self, feed: Callable[[GatewaysFound | DomainLookedUp], None], settings: DomainsSettings | None
    ) -> DomainResolver | None:
        """Return what looks up the gateways of other domains, None if they have addresses in the file.

        :param settings: those with the name servers, unless they are those of the system
        :raises ConfigurationError: there are no name servers
        """
        if self.address is None or not self.federation.looked_up:
            return None
        from wanderbus.runtime.net.domain_resolver import DomainResolver  # its library takes 0.3 s

        return DomainResolver(
            feed,
            name_servers=() if settings is None else name_servers(settings),
            ip_version=ip_address(self.address[0]).version,
            setting="federation",
            otherwise="give the gateways of other domains with their addresses",
        )

    def parts(
        self,
        server: str,
        servers: Sequence[str],
        channels: OwnChannels | None,
        random: RandomSource,
        reset_key: bytes,
        epoch_ms: int,
        access: Sequence[str] = (),
        *,
        has_engine: bool = False,
    ) -> FederationParts:
        """Return the part of this server, and as a gateway its links to other domains.

        :param servers: all servers of the domain
        :param epoch_ms: time of the start, which identifies this life of the server
        :param access: servers that serve devices; all unless given
        :param has_engine: true if a matching engine on Spark matches events here
        :raises ConfigurationError: a gateway is no server of the domain
        """
        context = self._context = FederationContext(
            server, tuple(servers), channels, random, reset_key, epoch_ms, tuple(access), has_engine
        )
        self._check(self.federation, context)
        parameters = self._parameters(context)
        domains = FarDomains(self.federation.name, parameters.far_domains, server, context.lineage)
        member = FederationMember(parameters, context.lineage, self._circuits.__next__, epoch=epoch_ms)
        return FederationParts(member, self._make_links(context), domains)

    def look(self) -> FederationChanged | None:
        """Read the file again if it has changed; return what changes, None if nothing does, or if it is unusable."""
        version, context = version_of(self._file), self._context
        if version == self._version or context is None:
            return None
        self._version = version
        try:
            federation = read_federation(self._file)
            self._check_own(federation)
            self._check(federation, context)
        except ConfigurationError as error:
            _log.error("the changed file %s is not used, the former one stays: %s", self._file, error)
            return None
        if federation.settings == self.federation.settings:
            return None
        self.federation = federation
        _log.warning("%s has changed: it now has %s foreign domains", self._file, len(federation.domains))
        context.epoch_ms = max(context.epoch_ms + 1, wall_us() // 1_000)
        parameters = self._parameters(context)
        return FederationChanged(parameters, parameters.far_domains, self._make_links(context), context.epoch_ms)

    def follow(self, feed: Callable[[Input], None]) -> asyncio.Task[None]:
        """Start a task that reads the file again after each change, and feeds what changes, until cancelled."""

        async def look_again() -> None:
            while True:
                await asyncio.sleep(LOOK_S)
                if (changed := self.look()) is not None:
                    feed(changed)

        return asyncio.create_task(look_again(), name="wanderbus-federation")

    def _check_own(self, federation: Federation) -> None:
        """Refuse a change of the own domain, which only a start can make."""
        before, now = self.federation, federation
        for key, is_same in (
            ("name", before.name == now.name),
            ("public_key", before.public_key == now.public_key),
            ("gateways", list(before.gateways.items()) == list(now.gateways.items())),
        ):
            if not is_same:
                raise ConfigurationError(f"{key}: the own one changes with a restart only; restart the server")

    def _check(self, federation: Federation, context: FederationContext) -> None:
        """Refuse what servers lack, and what contradicts the domain of this server."""
        if strangers := [each for each in federation.gateways if each not in context.servers]:
            raise ConfigurationError(
                f"federation: its gateway {strangers[0]} is no server of the domain; name gateways as in event_domain"
            )
        self._check_decentralised(federation, context.channels)
        self._check_causal(federation, context)

    def _make_links(self, context: FederationContext) -> ServerLinks | None:
        if self.gateway is None or self.key is None:
            return None
        return ServerLinks(
            link_name(self.federation.name, self.gateway),
            self.key,
            self.federation.links_of(self.gateway),
            _FEDERATION,
            context.random,
            new_link=self._links.__next__,
            socket=FOREIGN_SOCKET,
            reset_key=context.reset_key,
            hint=LINK_HINT,
            retry_s_max=FOREIGN_RETRY_S_MAX,
            found_later=self.federation.looked_up,
        )

    def _check_decentralised(self, federation: Federation, channels: OwnChannels | None) -> None:
        """Refuse several gateways where a received type is decentralised: only the publishing one knows its repeats."""
        decentralised = None if channels is None else channels.decentralised
        if decentralised is None or len(federation.gateways) == 1:
            return
        received = {each for name in federation.domains for each in federation.receives(name)}
        if found := sorted(each for each in received if decentralised.has(each)):
            raise ConfigurationError(
                f"federation: the channel of {found[0]} is decentralised, and {federation.name} has several "
                "gateways; leave one, or make the channel ordered"
            )

    def _check_causal(self, federation: Federation, context: FederationContext) -> None:
        """Refuse causal order where a channel has none within the domain."""
        channels = None if context.channels is None else context.channels.decentralised
        for name in federation.causal:
            for each in sorted(federation.receives(name) | federation.sends(name)):
                if channels is None or not channels.has(each):
                    raise ConfigurationError(
                        f"domains.{name}.causal: the channel of {each} is not decentralised; make it so in "
                        "event_domain, or leave out causal"
                    )
            if context.has_engine:
                raise ConfigurationError(
                    f"domains.{name}.causal: a matching engine on Spark matches events here, which then have no known "
                    "causes; leave out causal, or broker.spark_subjects"
                )

    def _parameters(self, context: FederationContext) -> FederationParameters:
        federation = self.federation
        settings, distances = federation.settings, federation.distances_ms
        reached = () if self.gateway is None else federation.links_of(self.gateway)
        names = federation.domains
        neighbours = {
            name: Neighbour(
                federation.receives(name),
                federation.sends(name),
                distances.get(name, 1.0),
                settings.domains[name].backbone,
            )
            for name in names
        }
        domains = [
            ForeignDomain(
                name,
                tuple([each for each in settings.domains[name].gateways if link_name(name, each) in reached]),
                neighbours[name].receives,
                neighbours[name].sends,
                settings.domains[name].events_per_s_max,
                settings.domains[name].gives_sessions,
                settings.domains[name].takes_sessions,
                name in federation.looked_up,
                settings.domains[name].visitors,
                settings.domains[name].causal,
            )
            for name in names
        ]
        return FederationParameters(
            own=federation.name,
            server=context.server,
            servers=context.servers,
            gateways=tuple(federation.gateways),
            access=context.access,
            domains=tuple(domains),
            routing=RoutingSettings(federation.name, neighbours, settings.method, settings.methods, settings.backbone),
        )


def federation_of(settings: ServerSettings) -> OwnFederation | None:
    """Return the server's part in a federation, None without one; :class:`ConfigurationError` if it is unusable."""
    gateway = settings.federation_gateway
    if settings.federation is None:
        if gateway is not None or settings.federation_key is not None:
            raise ConfigurationError(
                "federation_gateway, federation_key: apply only with federation; give it, or leave them out"
            )
        return None
    if gateway is None and settings.federation_key is not None:
        raise ConfigurationError("federation_key: only a gateway needs it; give federation_gateway, or leave it out")
    if gateway is not None and settings.event_server not in (None, gateway):
        raise ConfigurationError(
            f"federation_gateway: {gateway} is not {settings.event_server}, the name of this server in event_domain; "
            "use the same"
        )
    own = OwnFederation(settings.federation, gateway, settings.federation_key)
    if settings.domain.lower() != own.federation.name:
        raise ConfigurationError(
            f"domain: {settings.domain} is not that of {settings.federation}, which is {own.federation.name}; use "
            "the same"
        )
    if gateway is None and settings.event_domain is None:
        raise ConfigurationError("federation: this server is alone, so it is the gateway; give federation_gateway")
    return own
