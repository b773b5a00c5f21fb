"""Simulated domain whose sessions have patterns and move; clocks are up to a minute apart (SPEC L-01, T-07)."""

from __future__ import annotations

from random import Random
from typing import ClassVar, Final

import msgspec

from wanderbus import protocol
from wanderbus.event import Event
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.handover.device import HandoverDevice
from wanderbus.simulation.handover.pattern_checkers import KNOWN_PATTERNS, PatternHandoverTruth
from wanderbus.simulation.handover.scenario import CLOCKS_APART_S, HandoverScenario
from wanderbus.subscription import PATTERN, QueuePolicy

_AMPLE: Final = {
    "user_pattern_events_max": 10**6,
    "pattern_work_max": 10**9,
    "queue": QueuePolicy(notifications_max=10**6, bytes_max=2**30, when_full="drop_oldest"),
}
"""Bounds that no pattern meets."""


class PatternHandoverScenario(HandoverScenario):
    """A world with a domain whose sessions have patterns and move, set up by the seed."""

    counted: ClassVar = HandoverScenario.counted | {
        "patterns": "patterns",
        "detections": "detections",
        "stepped": "events that patterns read in the log",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = Random(f"clocks {seed}")
        apart_s = draw.choice([0.0, 1.0, CLOCKS_APART_S])
        for node in self.homes.values():
            node.clock_ahead_s = draw.uniform(0.0, apart_s)
            node.config = msgspec.structs.replace(node.config, **_AMPLE)

    def counts(self) -> dict[str, float]:
        truth = self._handover_truth
        patterns = list(truth.patterns.values()) if isinstance(truth, PatternHandoverTruth) else []
        return super().counts() | {
            "patterns": len(patterns),
            "detections": sum(len(each.found) for each in patterns),
            "stepped": truth.stepped if isinstance(truth, PatternHandoverTruth) else 0,
        }

    def _devices_of_a_user(self) -> int:
        """Return a few: many would read each of many detections."""
        return self.world.random.choice([1, 1, 2])

    def _subscribe(self, device: DomainDevice) -> None:
        """Request a subscription, often one to a pattern."""
        draw = self.world.random
        if device not in self._visitors and draw.random() < 0.5:
            text = draw.choice(KNOWN_PATTERNS).text
            device.ask(protocol.Subscribe(0, "", text, None, (), this_device_only=False, language=PATTERN))
        else:
            super()._subscribe(device)

    def _reply(self, device: HandoverDevice, event: Event) -> None:
        """Let a device reply to single events only: there may be many detections of each."""
        if "detection" not in event:
            super()._reply(device, event)

    def _wait(self) -> None:
        """Let the clocks of all servers pass what the latest of them has said, and then let the world rest."""
        self.world.run(self.world.now + 2 * CLOCKS_APART_S)
        super()._wait()

    def _make_handover_truth(self) -> PatternHandoverTruth:
        return PatternHandoverTruth(self.nodes, self._handed)
