"""Reliable UDP and TCP combined into one machine, so that the owner need not know a data channel's transport (F-01).

Most agents use one of the two for their whole life, so the modules of each are loaded when the first connection needs
them. A server loads both at its start (:meth:`Transports.load`), because loading delays everybody.

::

    datagrams of ``data``              ──▶ rudp.Endpoint ──▶
    streams of ``data-stream``         ──▶ tcp.Endpoint  ──▶   their outputs, with timers under those two names
    requests, by the connection's id   ──▶ either
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Final, TypeGuard, cast

from wanderbus.composition import Composition, Part
from wanderbus.datachannel.description import DATA_SOCKET, STREAM_SOCKET, ChannelEnd, Protocol
from wanderbus.datachannel.trust import Parties
from wanderbus.detection import MakeDetector
from wanderbus.machine import (
    Address,
    DatagramReceived,
    Input,
    RandomSource,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.parameters.transports import RudpConfig, TcpConfig
from wanderbus.transport import CloseConnection, ConnectionRequest, TransportInput, TransportOutput

if TYPE_CHECKING:
    from wanderbus.datachannel.over_tcp import TcpCarrier
    from wanderbus.datachannel.over_udp import UdpCarrier
    from wanderbus.rudp.keys import KeyPair

UDP: Final = Part[TransportInput, TransportOutput](DATA_SOCKET)
TCP: Final = Part[TransportInput, TransportOutput](STREAM_SOCKET)
"""Endpoints; their timers have the names of their sockets."""

FromNetwork = DatagramReceived | StreamReceived | StreamClosed | TimerFired


class Transports:
    """Both transports of one host.

    :param reset_key: secret that lets a restarted endpoint prove its resets (DESIGN 6.3)
    :param fingerprint: SHA-256 of the certificate shown to peers that connect by TLS
    :param make_detector: returns the failure detector of each connection; None for the defaults (SPEC G-26)
    """

    def __init__(
        self,
        random: RandomSource,
        *,
        rudp_config: RudpConfig,
        tcp_config: TcpConfig,
        reset_key: bytes,
        fingerprint: bytes = b"",
        make_detector: MakeDetector | None = None,
    ) -> None:
        self.fingerprint = fingerprint
        self._random = random
        self._rudp_config = rudp_config
        self._tcp_config = tcp_config
        self._reset_key = reset_key
        self._make_detector = make_detector
        self._udp: UdpCarrier | None = None
        self._tcp: TcpCarrier | None = None
        self._over_tcp: set[int] = set()
        """Ids of TCP connections; all other ids belong to reliable UDP."""
        self._parts = Composition[TransportOutput]()
        """The endpoints that are loaded."""

    @property
    def udp(self) -> UdpCarrier:
        """Reliable UDP."""
        if self._udp is None:
            from wanderbus.datachannel.over_udp import UdpCarrier

            self._udp = UdpCarrier(self._random, self._rudp_config, self._reset_key, self._make_detector)
            self._parts.add(UDP, self._udp.endpoint.step, self._route)
        return self._udp

    @property
    def tcp(self) -> TcpCarrier:
        """TCP."""
        if self._tcp is None:
            from wanderbus.datachannel.over_tcp import TcpCarrier

            self._tcp = TcpCarrier(self._random, self._tcp_config, self.fingerprint, self._make_detector)
            self._parts.add(TCP, self._tcp.endpoint.step, self._route)
        return self._tcp

    def load(self, *, udp: bool = True, tcp: bool = True) -> None:
        """Load both transports now, or one of them."""
        self._udp = self.udp if udp else self._udp
        self._tcp = self.tcp if tcp else self._tcp

    def fresh_keys(self) -> KeyPair:
        """Return keys for one sealed connection over reliable UDP."""
        return self.udp.fresh_keys()

    def opening(self, local: int, remote: ChannelEnd, keys: KeyPair | None, parties: Parties) -> ConnectionRequest:
        """Return the input that opens the connection from ``local`` to ``remote``."""
        if remote.protocol == "UDP":
            return self.udp.opening(local, remote, keys, parties)
        return self.tcp.opening(local, remote, parties)

    def allocate(self, protocol: Protocol) -> int:
        """Return a fresh local id for a connection over ``protocol``."""
        if protocol == "UDP":
            return self.udp.endpoint.allocate()
        local_id = self.tcp.endpoint.allocate()
        self._over_tcp.add(local_id)
        return local_id

    def release(self, local_id: int) -> None:
        """Forget an id that was allocated and never opened."""
        if local_id in self._over_tcp:
            self._over_tcp.discard(local_id)
            self.tcp.endpoint.release(local_id)
        else:
            self.udp.endpoint.release(local_id)

    def all_confirmed(self, local_id: int) -> bool:
        """Return whether the peer has acknowledged everything that was sent or queued; True for an unknown id."""
        if local_id in self._over_tcp:
            return self.tcp.endpoint.all_confirmed(local_id)
        return self._udp is None or self._udp.endpoint.all_confirmed(local_id)

    def reached(self, local_id: int) -> bool:
        """Return whether the path in use works, as far as is known; False for an unknown id."""
        if local_id in self._over_tcp:
            return self.tcp.endpoint.reached(local_id)
        return self._udp is not None and self._udp.endpoint.reached(local_id)

    def proved_address(self, local_id: int) -> Address | None:
        """Return the address that the peer has proved; None before."""
        if local_id in self._over_tcp:
            return self.tcp.endpoint.proved_address(local_id)
        return None if self._udp is None else self._udp.endpoint.proved_address(local_id)

    def takes(self, given: Input) -> TypeGuard[FromNetwork]:
        """Return whether ``given`` is input from the network for one of the endpoints."""
        match given:
            case DatagramReceived(socket=name):
                return name == DATA_SOCKET
            case StreamReceived(socket=name) | StreamClosed(socket=name) | TimerFired(key=(name, _)):
                return name in (DATA_SOCKET, STREAM_SOCKET)
        return False

    def step(self, inputs: Iterable[Input], now: float) -> list[TransportOutput]:
        """Process a batch of inputs at monotonic second ``now``; each endpoint gets its own inputs in order.

        :raises LimitExceeded: a message to send is too long; nothing of its endpoint's batch was done.
        """
        over_udp: list[TransportInput] = []
        over_tcp: list[TransportInput] = []
        for given in inputs:
            if type(given) is DatagramReceived:
                over_udp.append(given)
            elif isinstance(given, ConnectionRequest):
                (over_tcp if given.local_id in self._over_tcp else over_udp).append(given)
                if type(given) is CloseConnection:
                    self._over_tcp.discard(given.local_id)
            elif type(given) is TimerFired:
                scope, key = cast(tuple[str, Hashable], given.key)
                (over_udp if scope == DATA_SOCKET else over_tcp).append(TimerFired(key))
            elif type(given) is StreamReceived or type(given) is StreamClosed:
                over_tcp.append(given)
        if self._udp is None or self._tcp is None:
            self.load(udp=bool(over_udp), tcp=bool(over_tcp))
        self._parts.give(UDP, over_udp)
        self._parts.give(TCP, over_tcp)
        self._parts.run(now)
        return self._parts.take_outputs()

    def _route(self, outputs: list[TransportOutput], now: float) -> None:
        """Emit everything: the endpoints do not use each other."""
        self._parts.emit(*outputs)
