"""Transports over which the agents of a world signal, drawn from its seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from wanderbus.simulation.world import World

SHARES: Final = (0.0, 0.0, 0.3, 1.0)
"""Shares of agents that signal over TCP, of which each world draws one: half of the worlds have none."""

UDP_ONLY: Final = (0.0,)


class SignallingDraw:
    """Draws a transport for each agent, from a stream apart: worlds without TCP are the same as without this draw."""

    def __init__(self, world: World, shares: Sequence[float]) -> None:
        self._random = world.apart("signalling")
        self._share = self._random.choice(shares)

    def transport(self) -> Literal["UDP", "TCP"]:
        """Return the transport of the next agent."""
        return "TCP" if self._random.random() < self._share else "UDP"
