"""Simulated network between servers: delays that keep the order of each pair, and counts of messages by purpose."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal

from wanderbus.evaluation.handover.experiment import PLANE_M
from wanderbus.evaluation.handover.movement import Place
from wanderbus.simulation.world import World

HOP_S: Final = 0.002
"""Delay of each message, whatever its way."""

PLANE_S: Final = 0.02
"""Further delay over the side of the plane."""

JITTER_S: Final = 0.005
"""Largest random delay."""

Purpose = Literal["update", "answer", "handover", "copy", "group", "event"]
"""Purpose of a message.

It changes the interest of a server elsewhere, answers such a message, or belongs to the handover of a session; it
changes interest because a channel group moves, or belongs to such a move; or it carries an event.
"""


Delay = Callable[[int, int], float]
"""Function from two servers to the least delay in seconds of a message from the one to the other."""


def plane_delay_s(places: Sequence[Place]) -> Delay:
    """Return the delays between servers at these places of the plane."""
    return lambda source, target: HOP_S + math.dist(places[source], places[target]) / PLANE_M * PLANE_S


class Fabric:
    """Messages between servers, which are numbers."""

    def __init__(self, world: World, delay_s: Delay) -> None:
        self.messages: Counter[Purpose] = Counter()
        self.bytes: Counter[Purpose] = Counter()
        self.world = world
        self.delay_s = delay_s
        self._free_at: dict[tuple[int, int], float] = {}

    def send(self, source: int, target: int, purpose: Purpose, size: int, arrive: Callable[[], None]) -> None:
        """Send a message of ``size`` bytes; call ``arrive`` when it is there, after all that was sent before it."""
        self.messages[purpose] += 1
        self.bytes[purpose] += size
        at = self.world.now + self.delay_s(source, target) + self.world.random.uniform(0, JITTER_S)
        pair = source, target
        at = self._free_at[pair] = max(at, self._free_at.get(pair, 0.0))
        self.world.at(at, arrive)

    def along(self, path: Sequence[int], purpose: Purpose, size: int, arrive: Callable[[], None]) -> None:
        """Send a message from the first server of ``path`` to the last one, hop by hop."""
        if len(path) < 2:
            arrive()
        else:
            self.send(path[0], path[1], purpose, size, lambda: self.along(path[1:], purpose, size, arrive))

    def forget_counts(self) -> None:
        """Begin to count."""
        self.messages.clear()
        self.bytes.clear()
