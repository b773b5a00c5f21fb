"""A desk whose broker leaves the matching of all subjects to a simulated engine beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tests.broker.desk import Desk
from wanderbus.broker.messages import MatchesRead, MatchesWanted
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.engine import SimulatedEngine


class EngineDesk(Desk):
    """The engine answers at once, unless ``answers`` is false; then its answers wait for :meth:`match`."""

    def __init__(self, config: BrokerConfig | None = None, *, answers: bool = True, **options: Any) -> None:
        self.answers = answers
        self.asked: MatchesWanted | None = None
        self.engine = SimulatedEngine(())
        config = config or BrokerConfig()
        super().__init__(msgspec.structs.replace(config, spark_subjects=config.spark_subjects or ("*",)), **options)

    def start(self) -> None:
        self.asked = None
        super().start()

    def perform(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if isinstance(output, MatchesWanted):
                assert self.asked is None, "one request at a time"
                self.asked = output
        super().perform(outputs)
        while self.answers and self.match():
            pass

    def match(self) -> bool:
        """Answer the request of the broker if there is anything to say; return whether there was."""
        asked = self.asked
        if asked is None:
            return False
        self.engine.log = self.log
        answer = self.engine.read(asked, self.broker._journal.durable)
        if not answer.is_lost and answer.next == asked.first and asked.subscriptions is None:
            return False
        self.asked = None
        self.give(answer)
        return True

    def is_away(self, retry_s: float = 1.0) -> None:
        """Let the request fail."""
        assert self.asked is not None
        asked, self.asked = self.asked, None
        self.give(MatchesRead(asked.number, asked.first, failed="the engine is away", retry_s=retry_s))
