"""Simulated history of subscriptions that begin in the past, while everything else goes on (SPEC T-05)."""

from __future__ import annotations

from functools import partial
from typing import Final

from wanderbus.simulation.system.scenario import ACTIVE_S, SystemScenario
from wanderbus.simulation.system.traveller import Traveller
from wanderbus.subscription import Since

BURST: Final = 60
"""Events that one traveller publishes around the beginning of a subscription, within :data:`BURST_S`."""

BURST_S: Final = 0.3


class HistoryScenario(SystemScenario):
    """The usual world; some subscriptions begin late, from a point in the past on, often during a burst or a crash."""

    def plan(self, traveller: Traveller) -> None:
        """Plan the late subscriptions beside everything else."""
        super().plan(traveller)
        draw = self.world.random
        places = range(1, len(traveller.expressions) + 1)
        traveller.late = set(places) if draw.random() < 0.7 else set(draw.sample(places, len(places) // 2))
        for place in sorted(traveller.late):
            at = draw.uniform(5, ACTIVE_S - 2)
            self.world.at(at, partial(self._begin, traveller, place))
            if draw.random() < 0.7:
                for _ in range(BURST):
                    moment = at + draw.uniform(-BURST_S / 2, BURST_S)
                    self.world.at(moment, lambda: self._publish(draw.choice(self.travellers)))
            if draw.random() < 0.4:
                self.world.at(at + draw.uniform(0, 0.2), self._crash_server)
            if draw.random() < 0.3:
                self.world.at(at + draw.uniform(0, 0.2), lambda: self.move(traveller))

    def _begin(self, traveller: Traveller, place: int) -> None:
        draw = self.world.random
        known = sorted(identity for each in self.travellers for identity in each.accepted.values())
        match draw.choice(["earliest", "time", "event"]):
            case "time":
                since = Since(at_us=self.world.wall_us - round(draw.uniform(0, 20) * 1e6))
            case "event" if known:
                since = Since(event=draw.choice(known))
            case _:
                since = Since()
        traveller.begin(place, since)
