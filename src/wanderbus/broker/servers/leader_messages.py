"""Inputs and outputs of the broker about waits for leaders of channels, and the work of its interest at them."""

from __future__ import annotations

from wanderbus.machine import Input, Output


class InterestAwaited(Output, frozen=True):
    """Events of channels that this server leads wait until ``servers`` have reported what they want.

    It is reported with the first event that waits; without ``servers`` the wait is over.
    """

    servers: tuple[str, ...] = ()


class LeaderTrouble(Input, frozen=True):
    """Publishes to channels of ``leader`` wait for ``reason``; with "" that is over."""

    leader: str
    reason: str


class InterestMerged(Input, frozen=True):
    """Comparing and merging the subscription of this ``name`` for other servers took so many ``units`` of work."""

    name: str
    units: float
