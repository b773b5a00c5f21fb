"""The simulated host of a media relay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from wanderbus.machine import Address, Input, Output, SendOnStream, StreamClosed, StreamReceived
from wanderbus.relay import NG_SOCKET, ClosePort, OpenPort, PortOpened, Relay, Side
from wanderbus.simulation.network import Network
from wanderbus.simulation.node import Node
from wanderbus.simulation.world import SeededRandom, World

NG_PORT: Final = 2_223

_ANSWER_LOOKED_FOR_S: Final = 0.05
"""Pause until a connection is looked at again whose party has not described itself yet."""


class _Joined(NamedTuple):
    """Target of a connection to the other party, which belongs to the connection ``accepted``."""

    accepted: int
    address: Address
    transport: str
    fingerprint: bytes | None = None
    server_name: str | None = None
    sip_domain: str | None = None


class RelayHost(Node):
    """A relay at ``ip`` whose ports are opened and closed as the machine demands.

    TLS passes it, so a party that connects sees the certificate of the other one, which has this ``fingerprint``.
    """

    def __init__(self, ip: str, ports: range, world: World, network: Network, *, fingerprint: bytes = b"") -> None:
        self.ip = ip
        self.ports: dict[str, Address] = {}
        self._own = {NG_SOCKET: (ip, NG_PORT)}
        self._joined: dict[int, _Joined] = {}
        """Connections to the other party, by the number of the accepted one."""
        relay = Relay(SeededRandom(world), address=ip, ports=ports)
        super().__init__("relay", relay, self._own, world, network, self._reported, fingerprint=fingerprint)

    @property
    def relay(self) -> Relay:
        """Return the machine."""
        assert isinstance(self.machine, Relay)
        return self.machine

    def feed(self, inputs: Sequence[Input]) -> None:
        """Feed ``inputs`` to the machine, but forward the data of connections."""
        for given in inputs:
            match given:
                case StreamReceived(target=_Joined(accepted=accepted) as target):
                    self._streams.send(SendOnStream(given.socket, target, given.data, accepted, reopen=False))
                case StreamReceived():
                    self._forward(given)
                case StreamClosed(target=_Joined(accepted=accepted)):
                    self._streams.close(accepted)
                case StreamClosed(connection=connection):
                    if (joined := self._joined.pop(connection, None)) is not None:
                        self._streams.close_target(joined)
                case _:
                    super().feed([given])

    def _forward(self, given: StreamReceived) -> None:
        """Forward what a party has sent, on a connection to the other party."""
        side, number = self.relay.sides.get(given.socket), given.connection
        joined = self._joined.get(number)
        if side is None or (joined is None and side.is_described and side.target is None):
            self._streams.close(number)
        elif joined is None and not side.is_described:
            self._world.after(_ANSWER_LOOKED_FOR_S, lambda: self._forward(given))
        else:
            if joined is None:
                assert side.target is not None
                joined = self._joined[number] = _Joined(number, side.target, given.transport)
            side.carry(len(given.data), self._world.now)
            self._streams.send(SendOnStream(given.socket, joined, given.data))

    def _reported(self, output: Output) -> None:
        match output:
            case OpenPort(side=side, port=port):
                address = (self.ip, port)
                if side.transport == "TCP":
                    self._streams.listen(_name(side, port), address)
                else:
                    self.ports[_name(side, port)] = address
                    self.rebind(self._own | self.ports)
                self.feed([PortOpened(side, port)])
            case ClosePort(side=side, port=port):
                if side.transport == "TCP":
                    self._streams.stop_listening(_name(side, port))
                else:
                    del self.ports[_name(side, port)]
                    self.rebind(self._own | self.ports)


def _name(side: Side, port: int) -> str:
    """Return the name of a side's socket."""
    return f"{side.transport} {port}"
