"""The simulated host of a media relay."""

from __future__ import annotations

from typing import Final

from wanderbus.machine import Address, Output
from wanderbus.relay import NG_SOCKET, ClosePort, OpenPort, PortOpened, Relay
from wanderbus.simulation.network import Network
from wanderbus.simulation.node import Node
from wanderbus.simulation.world import SeededRandom, World

NG_PORT: Final = 2_223


class RelayHost(Node):
    """A relay at ``ip`` whose ports are opened and closed as the machine demands."""

    def __init__(self, ip: str, ports: range, world: World, network: Network) -> None:
        self.ip = ip
        self.ports: dict[str, Address] = {}
        self._own = {NG_SOCKET: (ip, NG_PORT)}
        relay = Relay(SeededRandom(world), address=ip, ports=ports)
        super().__init__("relay", relay, self._own, world, network, self._reported)

    @property
    def relay(self) -> Relay:
        """Return the machine."""
        assert isinstance(self.machine, Relay)
        return self.machine

    def _reported(self, output: Output) -> None:
        match output:
            case OpenPort(side=side, port=port):
                self.ports[f"{side.transport} {port}"] = (self.ip, port)
                self.rebind(self._own | self.ports)
                self.feed([PortOpened(side, port)])
            case ClosePort(side=side, port=port):
                del self.ports[f"{side.transport} {port}"]
                self.rebind(self._own | self.ports)
