"""Messages of agents that wait for their turn."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus.broker.messages import MessageArrived


class DueMessage(NamedTuple):
    """A message that is about to be processed, and the units that it is expected to cost."""

    user: str
    message: MessageArrived
    units: float
