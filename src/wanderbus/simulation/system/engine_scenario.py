"""Simulated history of a server whose events an engine beside it matches: late, away, or killed (SPEC T-06)."""

from __future__ import annotations

import msgspec

from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.system.history_scenario import HistoryScenario
from wanderbus.simulation.system.scenario import ACTIVE_S


class EngineScenario(HistoryScenario):
    """The world of history, with an engine that answers late and in small batches, is away, and is killed."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw, engine = self.world.random, self.server.engine
        engine.events_max = draw.choice([1, 5, 256])
        engine.delay_s_max = draw.choice([0.01, 0.3, 2.0])
        for _ in range(draw.randint(0, 6)):
            self.world.at(draw.uniform(2, ACTIVE_S), engine.forget)
        for _ in range(draw.randint(0, 2)):
            start = draw.uniform(2, ACTIVE_S - 10)
            self.world.at(start, self._leave)
            self.world.at(start + draw.uniform(0.1, 10), self._return)

    def at_rest(self) -> bool:
        """Return whether nothing waits for the engine either."""
        access = self.server.access
        return access is not None and not access.broker.engine.is_waiting and super().at_rest()

    def _broker_config(self) -> BrokerConfig:
        return msgspec.structs.replace(super()._broker_config(), spark_subjects=("*",))

    def _leave(self) -> None:
        self.server.engine.is_away = True

    def _return(self) -> None:
        self.server.engine.is_away = False

    def _end_disturbances(self) -> None:
        super()._end_disturbances()
        self._return()
