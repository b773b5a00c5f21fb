"""What a consumer that changes its address goes through: one script, for virtual time and for real time.

An imposed outage lasts from the last event received before it to the first one after it. The script sees the events:
it lets the address go midway between two of them, so that what was received is acknowledged, and lets the next one
come earlier than the outage ends, by the time that healing took the last time. What came of that is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, Protocol

import msgspec

from wanderbus.evaluation.plan import Change

HEALING_S: Final = 0.03
"""Assumed of the first change: from when a new address is given until an event has come to it."""


class Device(Protocol):
    """What the consumer runs on."""

    @property
    def received_s(self) -> float:
        """Return when the last event was received."""
        ...

    def leave(self) -> None:
        """Lose the address."""
        ...

    def arrive(self) -> None:
        """Have another address at once, whether or not the old one was lost before."""
        ...


class Measured(msgspec.Struct, frozen=True):
    """One change of address as it was, in seconds."""

    outage_s: float
    """From the last event received before it to the first after it."""
    healing_s: float
    """The part of that from when the new address was given."""


Script = Generator[float | Callable[[], None] | None, float, None]
"""Yields a moment to wait for, None for the next event, or a deed to do; is sent when that was, or was begun."""


def roam(changes: Sequence[Change], began_s: float, spacing_s: float, device: Device, done: list[Measured]) -> Script:
    """Go through ``changes`` from ``began_s`` on and add what each was to ``done``; events are ``spacing_s`` apart."""
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
