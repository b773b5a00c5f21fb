"""Messages of agents that wait for their turn."""

from __future__ import annotations

from typing import NamedTuple


class Waiting(NamedTuple):
    """A message that waits for its turn."""

    link: int
    payload: bytes


class Taken(NamedTuple):
    """A message that is about to be processed, and the units that it is expected to cost."""

    user: str
    message: Waiting
    units: float
