"""Simulated server: registrar and proxy, access server with its broker, and their disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from wanderbus.access.access_server import DATA_SOCKET, ECI_SOCKET, SIP_SOCKET, STREAM_SOCKET, AccessServer
from wanderbus.access.baseline import Baseline
from wanderbus.access.federation_parts import FOREIGN_SOCKET, FederationParts
from wanderbus.broker.core import Broker
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.machine import Address, ClockRead, Input, Output
from wanderbus.mobility.properties import Properties
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.eci import BaselineConfig
from wanderbus.parameters.transports import RudpConfig
from wanderbus.peers.parts import SERVER_SOCKET
from wanderbus.peers.server_parts import ServerParts
from wanderbus.records import DialogStored
from wanderbus.refusal_table import RefusalTable
from wanderbus.refusals import Limited
from wanderbus.relay.ng_client import RelayDriver
from wanderbus.simulation.network import Network
from wanderbus.simulation.node import Node
from wanderbus.simulation.storage import SimulatedStorage
from wanderbus.simulation.world import SeededRandom, World
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.sip.message.targets import PORTS, Target, uri_at
from wanderbus.sip.proxy.domain_servers import DomainServer, OtherDomains
from wanderbus.sip.proxy.sip_server import SOCKET as PROXY_SOCKET
from wanderbus.sip.proxy.sip_server import SIPServer

DOMAIN: Final = "sim.test"
_BROKER: Final = "broker"
BROKER_URI: Final = f"sip:{_BROKER}@{DOMAIN}"
SERVER_IP: Final = "10.0.0.1"
SERVER_ADDRESS: Final[Address] = (SERVER_IP, 5060)
_BROKER_PORT: Final = 5070
_DATA_PORT: Final = 5071
_STREAM_PORT: Final = 5072
_NG_PORT: Final = 5074
LINKS_PORT: Final = 5075
"""Port of the links to the other servers of an event domain."""
GATEWAY_PORT: Final = 5900
"""Port of the links to gateways of other domains."""
ECI_ADDRESS: Final[Address] = (SERVER_IP, 5073)
FINGERPRINT: Final = bytes(range(32))


def password_of(user: str) -> str:
    """Return the password of a simulated user name."""
    return f"secret of {user}"


def broker_of(domain: str) -> str:
    """Return the URI of the broker of a domain."""
    return f"sip:{_BROKER}@{domain}"


class SimulatedMember(NamedTuple):
    """Part of a server in an event domain; ``make_parts`` returns its links, and what uses them, for a state."""

    channels: OwnChannels
    make_parts: Callable[[BrokerState], ServerParts]


class SimulatedFederation(NamedTuple):
    """Part of a server in a federation; ``make_parts`` returns its links to other domains for a state.

    ``proxies`` are the addresses of those of the other domains, over TLS. Both sides vouch for their users.
    """

    proxies: Mapping[str, Address]
    make_parts: Callable[[BrokerState], FederationParts]

    @property
    def others(self) -> OtherDomains:
        """Return the policy of the proxy for the other domains."""
        routes = {name: (DomainServer(Target("TLS", address, None, name)),) for name, address in self.proxies.items()}
        return OtherDomains(routes, lookup=False, trusted=frozenset(routes))


class AccessNode(Node):
    """The node of the access server: its machine receives the wall clock with every batch."""

    def feed(self, inputs: object) -> None:
        """Feed ``inputs`` to the machine, the wall clock first."""
        super().feed([ClockRead(self._world.wall_us), *inputs])  # type: ignore[misc]


class SimulatedServer:
    """Starts, crashes and restarts the server machines over one disk; with ``eci`` it serves the original ECI too.

    Calls with a side behind NAT pass one of the ``relays``. ``member`` is its part in an event domain, ``federation``
    the one among domains: then agents and other proxies signal over TLS in place of TCP.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        config: BrokerConfig,
        rudp: RudpConfig,
        *,
        encryption: bool = True,
        eci: BaselineConfig | None = None,
        relays: Sequence[Address] = (),
        ip: str = SERVER_IP,
        domain: str = DOMAIN,
        member: SimulatedMember | None = None,
        federation: SimulatedFederation | None = None,
    ) -> None:
        self.ip = ip
        self.domain = domain
        self._member = member
        self._federation = federation
        self.storage = SimulatedStorage(world, config, self._feed, save_s=(0.5, 5.0))
        self.disk, self.engine = self.storage.disk, self.storage.engine
        self.crashes = 0
        self.refusals = RefusalTable()
        self._config = config
        self._rudp = rudp
        self.encryption = encryption
        self.eci = eci
        self._reset_key = SeededRandom(world).token(32)
        self._relays = relays
        self._path_key = SeededRandom(world).token(16) if relays else b""
        self._world = world
        self._network = network
        self._sip: Node | None = None
        self._access: AccessNode | None = None

    @property
    def access(self) -> AccessServer | None:
        """Return the machine of the live access server, None while the server is down."""
        if self._access is None or not self._access.alive:
            return None
        machine = self._access.machine
        assert isinstance(machine, AccessServer)
        return machine

    @property
    def state(self) -> BrokerState:
        """Return the live broker's state."""
        assert self._access is not None
        machine = self._access.machine
        assert isinstance(machine, AccessServer)
        return machine.broker.state

    def address_of(self, user: str) -> str | None:
        """Return the address to which the broker sends the user's data, by its log."""
        return next(
            (r.address for r in reversed(self.disk.records()) if isinstance(r, DialogStored) and r.user == user), None
        )

    def start(self) -> None:
        """Boot from the disk."""
        random, state = SeededRandom(self._world), self.storage.start()
        # Dialogs through the proxy survive a restart, because its key stays the same.
        self._path_key = self._path_key or random.token(16)
        self._sip = self._start_proxy(random)
        self._access, access = self._start_access(random, state)
        self._access.perform(access.start(self._world.wall_us, self._world.now))
        self.storage.save_later(state)

    @property
    def _proxy_addresses(self) -> dict[str, Address]:
        """The addresses of the proxy, by transport."""
        stream = "TCP" if self._federation is None else "TLS"
        return {each: (self.ip, PORTS[each]) for each in ("UDP", stream)}

    def _start_proxy(self, random: SeededRandom) -> Node:
        """Start registrar and proxy."""
        media = RelayDriver(self._relays, random) if self._relays else None
        streams = self._proxy_addresses
        address = streams.pop("UDP")
        others = None if self._federation is None else self._federation.others
        sip = SIPServer(
            self.domain, address, password_of, random, self._path_key, media=media, streams=streams, others=others
        )
        served = {PROXY_SOCKET: address} | ({"ng": (self.ip, _NG_PORT)} if self._relays else {})
        (stream,) = streams.values()
        return Node(
            *("registrar", sip, served, self._world, self._network, self._report),
            streams={PROXY_SOCKET: stream},
            certified=(self.domain,),
        )

    def _start_access(self, random: SeededRandom, state: BrokerState) -> tuple[AccessNode, AccessServer]:
        """Make the access server, and bind its sockets."""
        member, federation = self._member, self._federation
        access = AccessServer(
            self._properties(),
            Broker(state, self._config, channels=None if member is None else member.channels),
            random,
            sip_address=(self.ip, _BROKER_PORT),
            data_address=(self.ip, _DATA_PORT),
            stream_address=(self.ip, _STREAM_PORT),
            authenticator=Authenticator(self.domain, password_of, random.token(16)),
            encryption=self.encryption,
            reset_key=self._reset_key,
            fingerprint=FINGERPRINT if self.encryption else b"",
            rudp=self._rudp,
            baseline=None if self.eci is None else Baseline(self.eci, key=self._reset_key),
            servers=None if member is None else member.make_parts(state),
            federation=None if federation is None else federation.make_parts(state),
        )
        sockets = {SIP_SOCKET: (self.ip, _BROKER_PORT), DATA_SOCKET: (self.ip, _DATA_PORT)}
        if member is not None:
            sockets[SERVER_SOCKET] = (self.ip, LINKS_PORT)
        if federation is not None:
            sockets[FOREIGN_SOCKET] = (self.ip, GATEWAY_PORT)
        if self.eci is not None:
            sockets[ECI_SOCKET] = ECI_ADDRESS
        node = AccessNode(
            *("access", access, sockets, self._world, self._network, self._report),
            streams={STREAM_SOCKET: (self.ip, _STREAM_PORT)},
            fingerprint=FINGERPRINT,
        )
        return node, access

    def _properties(self) -> Properties:
        """Return the properties of the broker's user agent."""
        addresses = self._proxy_addresses
        return Properties(
            uri=broker_of(self.domain),
            server=addresses["UDP"],
            password=password_of(_BROKER),
            reached_at=tuple([uri_at(_BROKER, address, transport) for transport, address in addresses.items()]),
            server_is_local=self._federation is not None,
            vouched_domains=() if self._federation is None else tuple(self._federation.proxies),
        )

    def close_signalling(self) -> None:
        """Close one of the connections over which agents signal, if there is any."""
        if self._sip is not None:
            self._sip.close_any_stream(PROXY_SOCKET)

    def crash(self, *, lose_rows: bool) -> None:
        """Kill every server process and the power with it; the state file may be lost too."""
        assert self._sip is not None
        assert self._access is not None
        self.crashes += 1
        self._sip.kill()
        self._access.kill()
        self.storage.crash(lose_rows=lose_rows)

    def _report(self, output: Output) -> None:
        if isinstance(output, Limited):
            self.refusals.note(output, self._world.now)
        else:
            self.storage.perform(output)

    def _feed(self, given: Input) -> None:
        assert self._access is not None
        self._access.feed([given])
