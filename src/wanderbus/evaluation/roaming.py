"""Script of a roaming consumer: its changes of address, for virtual time and for real time.

An imposed outage lasts from the last event received before it to the first one after it. The script observes the
events: it removes the address midway between two of them, so that received events are acknowledged. It adds the next
address before the outage ends, earlier by the duration of the last healing. The resulting outage is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, Protocol

import msgspec

from wanderbus.evaluation.plan import AddressChange

HEALING_S: Final = 0.03
"""Assumed healing time of the first change: from a new address to the first event."""


class RoamingDevice(Protocol):
    """Device of the consumer."""

    @property
    def received_s(self) -> float:
        """Return the time of the last received event."""
        ...

    def leave(self) -> None:
        """Lose the address."""
        ...

    def arrive(self) -> None:
        """Get another address at once, whether or not the old one was lost before."""
        ...


class Measured(msgspec.Struct, frozen=True):
    """Measurement of one change of address, in seconds."""

    outage_s: float
    """Time from the last event received before it to the first after it."""
    healing_s: float
    """The part of that since the new address was given."""


Script = Generator[float | Callable[[], None] | None, float, None]
"""Script: yields a moment to wait for, None for the next event, or an action to do; receives the actual time."""


def roam(
    changes: Sequence[AddressChange], began_s: float, spacing_s: float, device: RoamingDevice, done: list[Measured]
) -> Script:
    """Run ``changes`` from ``began_s`` on and append their measurements to ``done``; events are ``spacing_s`` apart."""
    healing_s = HEALING_S
    for change in changes:
        yield began_s + change.at_s
        received_s = yield None
        yield received_s + spacing_s / 2
        if change.outage_s:
            yield device.leave
            yield device.received_s + change.outage_s - healing_s
        left_s = device.received_s
        given_s = yield device.arrive
        resumed_s = yield None
        healing_s = resumed_s - given_s
        done.append(Measured(resumed_s - left_s, healing_s))
