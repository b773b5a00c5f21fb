"""Matching engines beside servers of a simulated domain: some servers have one, late, away or killed (SPEC T-06)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from random import Random
from typing import Final

import msgspec

from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.engine import SimulatedEngine
from wanderbus.simulation.world import World

SHARE: Final = 0.3
"""Share of the worlds that have engines."""

AWAY_S_MAX: Final = 10.0

SETTLED_DELAY_S_MAX: Final = 0.05
"""Longest time until an answer after the last disturbance."""


class Engines:
    """The engines of one world, with a random source of their own; :attr:`is_used` tells whether there are any."""

    def __init__(self, world: World, seed: int, active_s: float) -> None:
        self._world = world
        self._draw = Random(f"engines {seed}")
        self._active_s = active_s
        self.is_used = self._draw.random() < SHARE

    def config(self, config: BrokerConfig, subjects: Sequence[str]) -> BrokerConfig:
        """Return the settings of one more server: its engine matches everything, one subject, or nothing."""
        if not self.is_used:
            return config
        chosen: tuple[str, ...] = self._draw.choice([("*",), ("*",), (self._draw.choice(subjects),), ()])
        return msgspec.structs.replace(config, spark_subjects=chosen)

    def plan(self, nodes: Iterable[DomainNode]) -> None:
        """Let each engine be slow, be away and be killed."""
        if not self.is_used:
            return
        draw, at = self._draw, self._world.at
        for engine in [node.engine for node in nodes]:
            engine.events_max = draw.choice([1, 5, 256])
            engine.delay_s_max = draw.choice([0.01, 0.3, 2.0])
            for _ in range(draw.randint(0, 4)):
                at(draw.uniform(0.0, self._active_s), engine.forget)
            for _ in range(draw.randint(0, 2)):
                start = draw.uniform(0.0, self._active_s)
                at(start, partial(_set_away, engine, is_away=True))
                at(start + draw.uniform(0.1, AWAY_S_MAX), partial(_set_away, engine, is_away=False))

    def end_disturbances(self, nodes: Iterable[DomainNode]) -> None:
        """Let every engine answer soon: a slow one that finds nothing looks like the end of all work."""
        for node in nodes:
            node.engine.is_away = False
            node.engine.delay_s_max = SETTLED_DELAY_S_MAX


def _set_away(engine: SimulatedEngine, *, is_away: bool) -> None:
    engine.is_away = is_away
