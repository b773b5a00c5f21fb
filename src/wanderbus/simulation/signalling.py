"""Transports over which the agents of a world signal, drawn from its seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from wanderbus.simulation.world import World
from wanderbus.sip.message.targets import Transport

Stream = Literal["TCP", "TLS"]

SHARES: Final = (0.0, 0.0, 0.3, 1.0)
"""Shares of agents that signal over a stream, of which each world draws one: half of the worlds have none."""

UDP_ONLY: Final = (0.0,)


class SignallingDraw:
    """Draws a transport for each agent apart from the other draws, so that worlds without streams are as before."""

    def __init__(self, world: World, shares: Sequence[float], stream: Stream = "TCP") -> None:
        self._random = world.apart("signalling")
        self._share = self._random.choice(shares)
        self._stream: Stream = stream

    def transport(self) -> Transport:
        """Return the transport of the next agent."""
        return self._stream if self._random.random() < self._share else "UDP"
