"""Simulated NAT of the worst common kind: another port for each destination, which only that destination may use.

RFC 4787 calls it address and port dependent in mapping and filtering. Outgoing datagrams keep a mapping alive, incoming
ones do not; an unused mapping is forgotten, and a lost mapping is replaced by one with another port.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from wanderbus.machine import Address
from wanderbus.simulation.network import Network
from wanderbus.simulation.world import World

_FIRST_PORT = 20_000


class _Mapping(msgspec.Struct):
    inside: Address
    destination: Address
    used_at: float


class NAT:
    """A NAT at ``ip`` that forgets a mapping after ``idle_s`` seconds without use; hosts bind to it."""

    def __init__(self, ip: str, idle_s: float, world: World, network: Network) -> None:
        self.ip = ip
        self.filtered = 0
        """Number of datagrams without a mapping."""
        self._idle_s = idle_s
        self._world = world
        self._network = network
        self._inside: dict[Address, Callable[[Address, bytes], None]] = {}
        self._ports: dict[tuple[Address, Address], int] = {}
        self._mappings: dict[int, _Mapping] = {}
        self._next_port = _FIRST_PORT

    def bind(self, address: Address, receiver: Callable[[Address, bytes], None]) -> None:
        """Deliver datagrams that are let in for the inner ``address`` to ``receiver``."""
        self._inside[address] = receiver

    def unbind(self, address: Address) -> None:
        """Discard datagrams that are let in for the inner ``address``."""
        self._inside.pop(address, None)

    def send(self, source: Address, destination: Address, data: bytes) -> None:
        """Send a datagram out, from the port that is mapped for this pair of addresses."""
        port = self._ports.get((source, destination))
        if port is None or self._is_idle(self._mappings[port]):
            port = self._mapped(source, destination)
        self._mappings[port].used_at = self._world.now
        self._network.send((self.ip, port), destination, data)

    def restart(self) -> None:
        """Forget every mapping, like a NAT after a power cut."""
        for port in self._mappings:
            self._network.unbind((self.ip, port))
        self._mappings.clear()
        self._ports.clear()

    def _mapped(self, source: Address, destination: Address) -> int:
        port = self._next_port
        self._next_port += 1
        self._ports[source, destination] = port
        self._mappings[port] = _Mapping(source, destination, self._world.now)
        self._network.bind((self.ip, port), lambda sender, data: self._arrived(port, sender, data))
        return port

    def _arrived(self, port: int, sender: Address, data: bytes) -> None:
        mapping = self._mappings[port]
        receiver = self._inside.get(mapping.inside)
        if sender != mapping.destination or receiver is None or self._is_idle(mapping):
            self.filtered += 1
        else:
            receiver(sender, data)

    def _is_idle(self, mapping: _Mapping) -> bool:
        return self._world.now - mapping.used_at > self._idle_s
