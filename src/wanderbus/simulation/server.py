"""Simulated server: registrar and proxy, access server with its broker, and their disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from wanderbus.access.access_server import DATA_SOCKET, ECI_SOCKET, SIP_SOCKET, STREAM_SOCKET, AccessServer
from wanderbus.access.baseline import Baseline
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
from wanderbus.sip.message.targets import uri_at
from wanderbus.sip.proxy.sip_server import SOCKET as PROXY_SOCKET
from wanderbus.sip.proxy.sip_server import SIPServer

DOMAIN: Final = "sim.test"
BROKER_URI: Final = f"sip:broker@{DOMAIN}"
SERVER_IP: Final = "10.0.0.1"
SERVER_ADDRESS: Final[Address] = (SERVER_IP, 5060)
_SIP_PORT: Final = 5060
_BROKER_PORT: Final = 5070
_DATA_PORT: Final = 5071
_STREAM_PORT: Final = 5072
_NG_PORT: Final = 5074
LINKS_PORT: Final = 5075
"""Port of the links to the other servers of an event domain."""
ECI_ADDRESS: Final[Address] = (SERVER_IP, 5073)
FINGERPRINT: Final = bytes(range(32))


def password_of(user: str) -> str:
    """Return the password of a simulated user name."""
    return f"secret of {user}"


class SimulatedMember(NamedTuple):
    """Part of a server in an event domain; ``make_parts`` returns its links, and what uses them, for a state."""

    channels: OwnChannels
    make_parts: Callable[[BrokerState], ServerParts]


class AccessNode(Node):
    """The node of the access server: its machine receives the wall clock with every batch."""

    def feed(self, inputs: object) -> None:
        """Feed ``inputs`` to the machine, the wall clock first."""
        super().feed([ClockRead(self._world.wall_us), *inputs])  # type: ignore[misc]


class SimulatedServer:
    """Starts, crashes and restarts the server machines over one disk; with ``eci`` it serves the original ECI too.

    Calls with a side behind NAT pass one of the ``relays``. ``member`` is its part in an event domain.
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
        member: SimulatedMember | None = None,
    ) -> None:
        self.ip = ip
        self._member = member
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
        random, state, member = SeededRandom(self._world), self.storage.start(), self._member
        # Dialogs through the proxy survive a restart, because its key stays the same.
        self._path_key = self._path_key or random.token(16)
        media = RelayDriver(self._relays, random) if self._relays else None
        address = self.ip, _SIP_PORT
        sip = SIPServer(DOMAIN, address, password_of, random, self._path_key, media=media, streams={"TCP": address})
        served = {PROXY_SOCKET: address} | ({"ng": (self.ip, _NG_PORT)} if self._relays else {})
        self._sip = Node(
            "registrar", sip, served, self._world, self._network, self._report, streams={PROXY_SOCKET: address}
        )
        access = AccessServer(
            Properties(
                uri=BROKER_URI,
                server=address,
                password=password_of("broker"),
                reached_at=(uri_at("broker", address, "UDP"), uri_at("broker", address, "TCP")),
            ),
            Broker(state, self._config, channels=None if member is None else member.channels),
            random,
            sip_address=(self.ip, _BROKER_PORT),
            data_address=(self.ip, _DATA_PORT),
            stream_address=(self.ip, _STREAM_PORT),
            authenticator=Authenticator(DOMAIN, password_of, random.token(16)),
            encryption=self.encryption,
            reset_key=self._reset_key,
            fingerprint=FINGERPRINT if self.encryption else b"",
            rudp=self._rudp,
            baseline=None if self.eci is None else Baseline(self.eci, key=self._reset_key),
            servers=None if member is None else member.make_parts(state),
        )
        sockets = {SIP_SOCKET: (self.ip, _BROKER_PORT), DATA_SOCKET: (self.ip, _DATA_PORT)}
        if member is not None:
            sockets[SERVER_SOCKET] = (self.ip, LINKS_PORT)
        if self.eci is not None:
            sockets[ECI_SOCKET] = ECI_ADDRESS
        streams = {STREAM_SOCKET: (self.ip, _STREAM_PORT)}
        self._access = AccessNode(
            "access",
            access,
            sockets,
            self._world,
            self._network,
            self._report,
            streams=streams,
            fingerprint=FINGERPRINT,
        )
        self._access.perform(access.start(self._world.wall_us, self._world.now))
        self.storage.save_later(state)

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
