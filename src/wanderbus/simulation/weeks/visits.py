"""Visits of devices that come once: a program whose state directory is lost is another device at each start."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.weeks.device import WeeksDevice
from wanderbus.simulation.weeks.plans import DAY_S, EXPRESSIONS, HOUR_S, SUBJECTS, draw_habits

_PAUSE_S: Final = 2 * HOUR_S
"""Least time between two visits, in which the broker notices the end of the first and its subscriptions expire."""

_LIFETIME_S: Final = HOUR_S
"""Lifetime of the subscriptions of a visitor in a session of its own."""


def draw_visited(draw: Random, config: BrokerConfig, devices: int) -> BrokerConfig:
    """Return the configuration with bounds that visits reach; a user has ``devices`` other devices at most."""
    bounds: dict[str, int] = {"devices_max": devices + 2}
    if draw.random() < 0.3:
        bounds["user_devices_max"] = devices + 3
    return msgspec.structs.replace(config, **bounds, sessions_max=draw.choice([4, 5]))


class Visit:
    """One visit of a device: it subscribes, reads for a while, and never returns."""

    def __init__(self, draw: Random, number: int, device: WeeksDevice) -> None:
        self._world = device.world
        self._draw = draw
        self._device = device
        self._has_own_session = draw.random() < 0.4
        self._session = f"visit{number}" if self._has_own_session else "default"

    def plan(self, at: float) -> float:
        """Plan the visit from ``at`` on; return its end."""
        draw, world = self._draw, self._world
        stay_s = draw.uniform(0.01, 1) * draw.choice([HOUR_S, DAY_S])
        world.at(at, lambda: self._device.start(session=self._session))
        world.at(at + 60.0, self._subscribe)
        ends = self._has_own_session or draw.random() < 0.5
        if ends:
            world.at(at + 120.0 + stay_s, self._unsubscribe)
        if draw.random() < 0.4:
            world.at(at + 180.0 + stay_s, self._device.leave)
        world.at(at + 240.0 + stay_s, self._end)
        return at + 240.0 + stay_s

    def _subscribe(self) -> None:
        lifetime_s = _LIFETIME_S if self._has_own_session else None
        subject, expression = self._draw.choice(SUBJECTS), self._draw.choice(EXPRESSIONS)
        self._device.ask(
            protocol.Subscribe(0, subject, expression, lifetime_s, (), False, is_kept=self._draw.random() < 0.5)
        )

    def _unsubscribe(self) -> None:
        for identity in dict.fromkeys(self._device.subscriptions):
            self._device.ask(protocol.Unsubscribe(0, identity, abandon=self._draw.random() < 0.5))

    def _end(self) -> None:
        self._device.crash()
        self._device.retired = True


def plan_visits(draw: Random, devices: list[WeeksDevice], days: int) -> list[WeeksDevice]:
    """Plan visits, one after the other for each user; return the devices of the visitors."""
    visitors = []
    for regular in {device.user: device for device in devices}.values():
        at, number = draw.uniform(0.5, 1.5) * DAY_S, 0
        while at < (days - 1) * DAY_S and number < 40:
            number += 1
            habits = msgspec.structs.replace(draw_habits(draw), on_ended="ignore")
            visitor = regular.another(f"visitor{number}", habits)
            visitors.append(visitor)
            end = Visit(draw, number, visitor).plan(at)
            at = end + _PAUSE_S + draw.uniform(0, 1) * draw.choice([HOUR_S, HOUR_S, DAY_S])
    return visitors
