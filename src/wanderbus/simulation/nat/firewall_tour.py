"""Tour of all agents through networks with firewalls, in a world without loss (SPEC I-08)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from wanderbus.client.machine.data_path import PATIENCE_S_MAX, UDP_PATIENCE_S, UDP_ROUND_TRIPS
from wanderbus.simulation.nat.firewall import Firewall
from wanderbus.simulation.network import Network
from wanderbus.simulation.server import SERVER_ADDRESS, SERVER_IP
from wanderbus.simulation.system.traveller import Traveller
from wanderbus.simulation.world import World

RELAY_IP: Final = "10.0.0.2"

_BROKER: Final = (SERVER_IP, 5070)

FIREWALLS: Final = {
    "udp-relay": Firewall(open_to=frozenset({SERVER_ADDRESS, _BROKER, RELAY_IP})),
    "tcp": Firewall(open_to=frozenset({SERVER_ADDRESS, _BROKER})),
}
"""Firewalls that let signalling pass, by the best transport that each of them leaves."""

WAYS_AHEAD: Final = 2
"""Transports that have to fail before the worst of them is tried."""

ROUND_TRIPS: Final = 24
"""Round trips: signalling over three transports with digest, and the opening of TCP and TLS."""

OPENING_S: Final = 3.0
"""Time besides round trips: pauses, and earlier traffic of the network."""


class FirewallTour:
    """Moves every agent behind a firewall and then to an open network, and publishes in both.

    ``move`` moves an agent behind a firewall, or with None to an open network.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        travellers: Sequence[Traveller],
        move: Callable[[Traveller, Firewall | None], None],
    ) -> None:
        self._world = world
        self._network = network
        self._travellers = travellers
        self._move = move

    @property
    def bound_s(self) -> float:
        """Return the longest time that an agent may take from a move until events flow."""
        round_trip_s = 2 * self._network.conditions.delay_max_s
        patience_s = min(max(UDP_PATIENCE_S, 3 * UDP_ROUND_TRIPS * round_trip_s), PATIENCE_S_MAX)
        return WAYS_AHEAD * patience_s + ROUND_TRIPS * round_trip_s + OPENING_S

    def problems(self) -> Iterator[str]:
        """Make the tour; yield the agents that did not find the best transport in time."""
        draw = self._world.random
        ways = {traveller.name: draw.choice([*FIREWALLS]) for traveller in self._travellers}
        for traveller in self._travellers:
            self._move(traveller, FIREWALLS[ways[traveller.name]])
        yield from self._arrived("behind a firewall", ways)
        for traveller in self._travellers:
            self._move(traveller, None)
        yield from self._arrived("in an open network", dict.fromkeys(ways, "udp"))

    def _arrived(self, where: str, ways: dict[str, str]) -> Iterator[str]:
        for traveller in self._travellers:
            traveller.publish({"Stock": "PETR4", "Price": 20})
        self._world.run(self._world.now + self.bound_s)
        for traveller in self._travellers:
            if not traveller.is_answered:
                yield f"{traveller.name} {where}: its stream does not go on within {self.bound_s:.1f} s"
            if traveller.way != ways[traveller.name]:
                yield f"{traveller.name} {where}: it takes {traveller.way} and not {ways[traveller.name]}"
