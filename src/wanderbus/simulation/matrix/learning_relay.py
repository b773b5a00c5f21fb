"""Relay that learns addresses as rtpengine does: it knows no connection ids."""

from __future__ import annotations

from collections.abc import Sequence

from wanderbus.machine import Output
from wanderbus.simulation.relay.relay_host import RelayHost


class LearningRelay(RelayHost):
    """A relay in whose calls the first source after an offer or answer is a party's address, until the next one."""

    def perform(self, outputs: Sequence[Output]) -> None:
        """Forget the connection ids of the descriptions that the machine has just read."""
        for side in self.relay.sides.values():
            side.ids = ()
        super().perform(outputs)
