"""File of an event domain, the same for all its servers (SPEC J-01, K-01; DESIGN 10)."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Annotated, Any, Final, Literal

import msgspec

from wanderbus.channels.directory import Directory, LeaderTable, first_table
from wanderbus.channels.groups import GROUPS, ChannelGroups
from wanderbus.errors import ConfigurationError
from wanderbus.machine import Address
from wanderbus.server_networks import ServerNetworks
from wanderbus.subscription import EVERY_SUBJECT

Role = Literal["access", "resolution", "directory"]
Model = Literal["ordered", "decentralised"]
Merging = Literal["none", "perfect", "imperfect", "adaptive"]
Advertisements = Literal["optional", "required"]

ROLES: Final[tuple[Role, ...]] = ("access", "resolution", "directory")
KEY_BYTES: Final = 32


class DomainServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server of the domain."""

    address: str
    """Address for the other servers, ``host:port``."""

    public_key: str
    """X25519 public key in hexadecimal, by which the other servers authenticate it."""

    roles: tuple[Role, ...] = ROLES
    """Roles of the server; exactly one server is the directory."""

    sip: str | None = None
    """Address for agents, ``host:port`` with an IP address: the ``host`` and ``port`` of the server, unless its options
    or its own file of settings give them."""

    networks: tuple[str, ...] = ()
    """Networks near to this server, such as 192.0.2.0/24: a session moves here once its devices have moved into one of
    them (SPEC L-01). A network within another server's network comes first."""

    joined: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Place among the servers that joined later, from 1 on; the first servers of the domain have none. 'wanderbus
    domain add' gives it, and it never changes."""

    left: bool = False
    """True for a server that has left the domain for good; its entry stays, so that no other server gets its place.
    'wanderbus domain remove' writes it."""


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Model, merging and advertisements of the channel of a subject, and of those below it in its hierarchy."""

    model: Model | None = None
    merging: Merging | None = None
    precision_min: float | None = None
    advertisements: Advertisements | None = None


class MulticastSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Multicast between the servers, in decentralised channels only; without this table they do not use it."""

    group: str | None = None
    """IPv4 multicast group and UDP port, such as 239.255.7.1:5602; it must be given. The servers send changes of
    interest to it, encrypted (SPEC J-12)."""

    interface: str | None = None
    """Network interface for the group, such as eth0, the same name on all machines; unless given, the one with the
    ``address`` of each server."""

    ttl: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1
    """Number of networks that a datagram may cross: 1 for one network, more where routers forward multicast."""


class EventDomainSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an event domain."""

    name: str
    """SIP domain name of all servers."""

    hash_key: str
    """Secret key in hexadecimal, by which subjects are hashed to channel groups; it never changes."""

    servers: Mapping[str, DomainServerSettings]
    """Servers by their names, each with ``address``, ``public_key``, ``roles`` and ``networks`` (SPEC J-01)."""

    groups: int = GROUPS
    """Channel groups; the number never changes (SPEC J-02)."""

    model: Model = "ordered"
    """Model of channels that ``channels`` does not name (SPEC K-01)."""

    merging: Merging = "perfect"
    """Merging of filters between servers, of channels that ``channels`` does not name (SPEC B-05)."""

    precision_min: float = 0.9
    """Least precision of adaptive merging, from 0 to 1."""

    advertisements: Advertisements = "optional"
    """Advertisements in decentralised channels that ``channels`` does not name. If they are ``required``, an event is
    refused unless its publisher has advertised it, and servers send their filters only where that was done (SPEC A-17,
    K-07)."""

    pins: Mapping[str, int] = {}
    """Channel groups of some subjects, instead of those by hash."""

    parents: Mapping[str, str] = {}
    """Parent of each child in a hierarchy of subjects; a subscription to it also receives the child's events (SPEC
    J-13)."""

    channels: Mapping[str, ChannelSettings] = {}
    """Channels of subjects with ``model``, ``merging``, ``precision_min`` and ``advertisements`` of their own; subjects
    with a parent have those of the top of their hierarchy."""

    multicast: MulticastSettings | None = None
    """Multicast between the servers, which is off without this table. They send each change of interest in
    decentralised channels as one datagram to a group, and repair it on their links."""

    @property
    def present(self) -> Mapping[str, DomainServerSettings]:
        """Return the servers that have not left, by their names."""
        return {name: server for name, server in self.servers.items() if not server.left}

    @property
    def numbered(self) -> tuple[str, ...]:
        """Return all servers in the order of their numbers, which never change: the first ones by their names."""
        return tuple(sorted(self.servers, key=lambda name: (self.servers[name].joined or 0, name)))

    def servers_with(self, role: Role) -> tuple[str, ...]:
        """Return the names of the present servers that have ``role``, sorted."""
        return tuple(sorted(name for name, server in self.present.items() if role in server.roles))

    def founders(self, role: Role | None = None) -> tuple[str, ...]:
        """Return the first servers of the domain, sorted, also those that have left; with a ``role``, only those."""
        return tuple(
            sorted(
                name for name, server in self.servers.items() if server.joined is None and role in (None, *server.roles)
            )
        )


class Channel(msgspec.Struct, frozen=True):
    """Channel of a subject: its place, its model, and the merging of its filters; ``precision_min`` if adaptive.

    ``advertisements`` is "required" if only advertised events may be published.
    """

    subject: str
    group: int
    leader: str
    epoch: int
    model: Model
    merging: Merging
    precision_min: float | None
    advertisements: Advertisements = "optional"


class EventDomain:
    """An event domain as its file describes it."""

    def __init__(self, settings: EventDomainSettings) -> None:
        """Check the settings and build the directory of the domain before any relocation.

        :raises ConfigurationError: the settings contradict themselves; the message begins with the key
        """
        self.settings = settings
        key = _hex_key("hash_key", settings.hash_key)
        for name, server in settings.servers.items():
            _hex_key(f"servers.{name}.public_key", server.public_key)
            for kind, address in (("address", server.address), ("sip", server.sip)):
                if address is not None and address_in(address) is None:
                    raise ConfigurationError(f"servers.{name}.{kind}: {address!r} is not host:port")
        for role in ROLES:
            if not settings.servers_with(role):
                raise ConfigurationError(f"servers: no server has the role {role}; give it to one of them")
        if len(directories := settings.servers_with("directory")) > 1:
            raise ConfigurationError(f"servers: {' and '.join(directories)} have the role directory; leave it to one")
        groups = ChannelGroups(key, settings.groups, pins=settings.pins, parents=settings.parents)
        for subject in settings.channels:
            if (top := groups.hierarchy.top(subject)) != subject:
                raise ConfigurationError(f"channels.{subject}: {subject!r} has the channel of {top!r}; set that")
        self._check_joined()
        self.directory = Directory(groups, self._first_table(key, settings.founders("resolution")))
        """Leaders of ordered channels: changes of the servers change none of them."""
        self.interest_directory = self.directory
        """Leaders that spread the interest in decentralised channels."""
        if "decentralised" in self.models and (stay := self.interest_leaders) != settings.founders("resolution"):
            self.interest_directory = Directory(groups, self._first_table(key, stay))
        for name, bound in self._bounds():
            if not 0 < bound <= 1:
                raise ConfigurationError(f"{name}: {bound} is out of range (expected above 0, at most 1)")
        self._check_advertisements()
        self._check_multicast()
        self.networks = ServerNetworks({name: server.networks for name, server in settings.present.items()})
        for name, server in settings.present.items():
            if server.networks and "access" not in server.roles:
                raise ConfigurationError(f"servers.{name}.networks: devices are served by access servers; add the role")

    @property
    def interest_leaders(self) -> tuple[str, ...]:
        """Return the servers that spread interest in decentralised channels: first servers that have not left."""
        present = self.settings.present
        return tuple(each for each in self.settings.founders("resolution") if each in present)

    def _first_table(self, key: bytes, servers: tuple[str, ...]) -> LeaderTable:
        """Return the table of groups led by ``servers``; all present resolution servers may lead groups later."""
        if not servers:
            raise ConfigurationError("servers: of the first resolution servers, one has to stay")
        table = first_table(self.settings.groups, servers, key)
        return msgspec.structs.replace(table, servers=self.settings.servers_with("resolution"))

    def _check_joined(self) -> None:
        """Raise :class:`ConfigurationError` if the places of servers that have joined are not 1, 2, 3 ..."""
        joined = sorted(server.joined for server in self.settings.servers.values() if server.joined is not None)
        if joined != [*range(1, len(joined) + 1)]:
            places = ", ".join(map(str, joined))
            raise ConfigurationError(
                f"servers: the places of those that joined are {places} (expected 1 to {len(joined)}, each once); "
                "a server that has left keeps its entry, with left = true"
            )

    @property
    def multicast_group(self) -> Address | None:
        """Return the address of the multicast group of the servers; None without one."""
        multicast = self.settings.multicast
        return None if multicast is None else address_in(multicast.group or "")

    def channel(self, subject: str) -> Channel:
        """Return the channel of ``subject``."""
        directory = self.interest_directory if self.is_decentralised(subject) else self.directory
        place = directory.lookup(subject)
        own = self._own_settings(subject)
        merging = own.merging or self.settings.merging
        bound = self.settings.precision_min if own.precision_min is None else own.precision_min
        model = own.model or self.settings.model
        bound_shown = bound if merging == "adaptive" else None
        required: Advertisements = "required" if self.requires_advertisements(subject) else "optional"
        return Channel(subject, *place, model, merging, bound_shown, required)

    @property
    def models(self) -> frozenset[Model]:
        """Return the models of all channels."""
        own = [each.model for each in self.settings.channels.values()]
        return frozenset([self.settings.model, *[each for each in own if each is not None]])

    def is_decentralised(self, subject: str) -> bool:
        """Return whether the channel of ``subject`` is decentralised."""
        return (self._own_settings(subject).model or self.settings.model) == "decentralised"

    def requires_advertisements(self, subject: str) -> bool:
        """Return whether events of ``subject`` have to be advertised; for ``*`` whether those of every subject have to.

        Those of ordered channels never have to.
        """
        if subject != EVERY_SUBJECT:
            own = self._own_settings(subject).advertisements or self.settings.advertisements
            return own == "required" and self.is_decentralised(subject)
        subjects = filter(self.is_decentralised, self.settings.channels)
        is_default = self.settings.model == "ordered" or self.settings.advertisements == "required"
        return is_default and "decentralised" in self.models and all(map(self.requires_advertisements, subjects))

    def _check_advertisements(self) -> None:
        """Raise :class:`ConfigurationError` if advertisements are required where they have no effect."""
        if self.settings.advertisements == "required" and "decentralised" not in self.models:
            raise ConfigurationError(
                "advertisements: they can be required in decentralised channels only; set the model"
            )
        for subject, own in self.settings.channels.items():
            if own.advertisements == "required" and not self.is_decentralised(subject):
                raise ConfigurationError(
                    f"channels.{subject}.advertisements: they can be required in decentralised channels only; "
                    "set its model"
                )

    def _check_multicast(self) -> None:
        """Raise :class:`ConfigurationError` if the multicast group cannot be used, or has no effect."""
        multicast = self.settings.multicast
        if multicast is None:
            return
        group = self.multicast_group
        if group is None or not _is_multicast(group[0]):
            given = "it is not given" if multicast.group is None else f"{multicast.group!r} is none"
            raise ConfigurationError(f"multicast.group: {given} (expected an IPv4 multicast address, host:port)")
        if "decentralised" not in self.models:
            raise ConfigurationError("multicast: it serves decentralised channels only; set the model, or leave it out")
        for name, server in self.settings.present.items():
            address = address_in(server.address)
            if multicast.interface is None and (address is None or not _is_ipv4(address[0])):
                raise ConfigurationError(
                    f"multicast.interface: {name} has no IPv4 address that shows its interface; name one"
                )

    def _own_settings(self, subject: str) -> ChannelSettings:
        return self.settings.channels.get(self.directory.groups.hierarchy.top(subject)) or ChannelSettings()

    def _bounds(self) -> list[tuple[str, float]]:
        own: list[tuple[str, Any]] = [(f"channels.{name}", each) for name, each in self.settings.channels.items()]
        return [("precision_min", self.settings.precision_min)] + [
            (f"{name}.precision_min", each.precision_min) for name, each in own if each.precision_min is not None
        ]


def address_in(text: str) -> Address | None:
    """Return the address in ``host:port``, with an IPv6 address in brackets; None if it is not one."""
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16):
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_ipv4(host: str) -> bool:
    try:
        IPv4Address(host)
    except ValueError:
        return False
    return True


def _is_multicast(host: str) -> bool:
    return _is_ipv4(host) and IPv4Address(host).is_multicast


def _hex_key(name: str, text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"{name} is not a key of {2 * KEY_BYTES} hexadecimal digits; 'wanderbus domain init' makes keys"
        )
    return key
