"""Simulated multicast group of a domain: it loses, delays and repeats datagrams, and an attacker adds some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from wanderbus.machine import Address
from wanderbus.simulation.world import World

if TYPE_CHECKING:
    from wanderbus.simulation.domains.domain_node import DomainNode

GROUP: Final[Address] = ("239.255.7.1", 5602)
RECORDED_MAX: Final = 20
"""Datagrams that the attacker remembers."""


class DrawnRandom:
    """A machine's :class:`~wanderbus.machine.RandomSource` that draws from ``draw``."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw

    def token(self, n_bytes: int) -> bytes:
        """Return ``n_bytes`` bytes."""
        return self._draw.randbytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        """Return a number from ``low`` up to ``high``."""
        return self._draw.uniform(low, high)


class MulticastNetwork:
    """Delivers each datagram to every other server that runs and can be reached, with a fate of its own at each.

    ``is_reachable`` returns whether links between two servers are possible. All draws are from ``draw``.
    """

    def __init__(
        self,
        world: World,
        nodes: Mapping[str, DomainNode],
        is_reachable: Callable[[str, str], bool],
        draw: Random,
    ) -> None:
        self.datagrams = 0
        self._world = world
        self._nodes = nodes
        self._is_reachable = is_reachable
        self._draw = draw
        self._loss = draw.choice([0.0, 0.0, 0.1, 0.5])
        self._delay_max_s = draw.choice([0.002, 0.05, 1.0])
        self._is_hostile = draw.random() < 0.5
        self._recorded: list[bytes] = []
        self._deaf = {name for name in nodes if draw.random() < 0.1}
        """Servers that multicast does not reach."""

    def send(self, sender: str, data: bytes) -> None:
        """Send a datagram of a server to the group."""
        self.datagrams += 1
        self._recorded = [*self._recorded, data][-RECORDED_MAX:]
        for name in self._nodes:
            if self._draw.random() < 0.1:
                self._deliver(sender, name, data)
            if self._draw.random() >= self._loss:
                self._deliver(sender, name, data)
            if self._is_hostile and self._draw.random() < 0.5:
                self._deliver(sender, name, self._forged())

    def _forged(self) -> bytes:
        """Return a datagram that the attacker has recorded, perhaps with another bit."""
        data = bytearray(self._draw.choice(self._recorded))
        if self._draw.random() < 0.5:
            data[self._draw.randrange(len(data))] ^= 1 << self._draw.randrange(8)
        return bytes(data[: self._draw.choice([len(data), len(data), 5])])

    def _deliver(self, sender: str, name: str, data: bytes) -> None:
        if name not in self._deaf and self._is_reachable(sender, name):
            delay_s = self._draw.uniform(0.0005, self._delay_max_s)
            self._world.after(delay_s, lambda: self._nodes[name].datagram_arrived(data))
