"""A network that loses, repeats, delays and reorders datagrams, and whose hosts come, go and move."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from wanderbus.machine import Address
from wanderbus.simulation.world import World

Receiver = Callable[[Address, bytes], None]


class Conditions(msgspec.Struct):
    """How bad the network is: chances from 0 to 1, one-way delays in seconds."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_min_s: float = 0.001
    delay_max_s: float = 0.01
    spike: float = 0.0
    """Chance that a datagram is held up ``spike_s`` longer, so that later ones overtake it."""
    spike_s: float = 0.5


class Network:
    """Delivers datagrams to whoever is bound to the destination when they arrive."""

    def __init__(self, world: World, conditions: Conditions) -> None:
        self.conditions = conditions
        self.delivered = 0
        self._world = world
        self._bound: dict[Address, Receiver] = {}
        self._cut: set[str] = set()

    def bind(self, address: Address, receiver: Receiver) -> None:
        """Let ``receiver`` have what arrives at ``address``."""
        self._bound[address] = receiver

    def unbind(self, address: Address) -> None:
        """Let what arrives at ``address`` be lost."""
        self._bound.pop(address, None)

    def is_bound(self, address: Address) -> bool:
        """Return whether somebody listens at ``address``."""
        return address in self._bound

    def cut(self, ip: str) -> None:
        """Lose everything to and from ``ip``."""
        self._cut.add(ip)

    def mend(self, ip: str) -> None:
        """End :meth:`cut`."""
        self._cut.discard(ip)

    def send(self, source: Address, destination: Address, data: bytes) -> None:
        """Carry a datagram as the conditions allow."""
        draw = self._world.random
        conditions = self.conditions
        copies = 2 if draw.random() < conditions.duplication else 1
        for _ in range(copies):
            lost = draw.random() < conditions.loss
            delay = draw.uniform(conditions.delay_min_s, conditions.delay_max_s)
            if draw.random() < conditions.spike:
                delay += conditions.spike_s
            if not lost and source[0] not in self._cut:
                self._world.after(delay, lambda: self._arrive(source, destination, data))

    def _arrive(self, source: Address, destination: Address, data: bytes) -> None:
        receiver = self._bound.get(destination)
        if receiver is not None and destination[0] not in self._cut:
            self.delivered += 1
            receiver(source, data)
