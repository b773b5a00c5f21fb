"""Reports to the application besides notifications: status changes, ended subscriptions, refusals of the outbox."""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Generic, Self, TypeVar

import msgspec

from wanderbus.completion import public_names
from wanderbus.detection import DetectorFailed
from wanderbus.event import Event
from wanderbus.machine import Output
from wanderbus.refusals import Limited
from wanderbus.subscription import Subscription

_log = logging.getLogger("wanderbus.agent")

Report = TypeVar("Report")


class StatusChange(msgspec.Struct, frozen=True):
    """Report that the agent became ``CONNECTED`` or ``DISCONNECTED``, or completed a move (SPEC E-07).

    ``address`` is the agent's address for data.
    """

    status: str
    address: str
    at_us: int
    reason: str


class Ending(msgspec.Struct, frozen=True):
    """Report that ``subscription`` ended without a request by this application (SPEC G-10).

    ``reason`` is ``expired``, ``discarded``, ``removed``, or ``left_behind`` if it was not kept and its devices were
    away for too long; ``missed`` if it ended while the agent was disconnected.
    ``successor`` is the subscription that replaces it (SPEC G-11): the same one, renewed, or another; or None.
    """

    subscription: Subscription
    reason: str
    successor: Subscription | None


class OutboxRefusal(msgspec.Struct, frozen=True):
    """Report that the broker refused ``event`` of the outbox for ``reason``; the event was removed (SPEC G-20)."""

    event: Event
    reason: str


class OutboxSize(msgspec.Struct, frozen=True):
    """Number of events in an outbox, and their size in bytes; also the most that it may have."""

    events: int = 0
    bytes: int = 0


class OutboxEnd(msgspec.Struct, frozen=True):
    """Number of the last event that was stored in an outbox, 0 before the first one.

    Numbers rise by one. A new outbox has a new ``epoch``; so has an empty one that another user takes over.
    """

    epoch: int
    number: int


class Reports(Generic[Report]):
    """Async iterator over the reports since its creation; it misses none, and ends when the agent is closed."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Report | None] = asyncio.Queue()
        self._ended = False

    def __repr__(self) -> str:
        return f"<Reports: {'ended' if self._ended else f'{self._queue.qsize()} waiting'}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Report:
        report = None if self._ended else await self._queue.get()
        if report is None:
            self._ended = True
            raise StopAsyncIteration
        return report

    def _put(self, report: Report | None) -> None:
        """Enqueue a report, or None for the end."""
        self._queue.put_nowait(report)


class Listeners(Generic[Report]):
    """All iterators over one kind of report, by weak reference."""

    def __init__(self) -> None:
        self._listening: weakref.WeakSet[Reports[Report]] = weakref.WeakSet()
        self._closed = False

    def listen(self) -> Reports[Report]:
        """Return an iterator over every report from now on; it has ended already if the agent is closed."""
        reports: Reports[Report] = Reports()
        if self._closed:
            reports._put(None)
        else:
            self._listening.add(reports)
        return reports

    def report(self, report: Report) -> None:
        """Pass ``report`` to every iterator."""
        for each in list(self._listening):
            each._put(report)

    def close(self) -> None:
        """End every iterator once it has been read up to this point."""
        self._closed = True
        for each in list(self._listening):
            each._put(None)
        self._listening.clear()


class MachineWarnings:
    """Logs discarded SIP messages of strangers and failed detectors: the first, and each doubling of their number."""

    def __init__(self) -> None:
        self._discarded = 0

    def log(self, output: Output) -> None:
        """Log an output of the machine that is due; others are no warnings."""
        if isinstance(output, DetectorFailed):
            _log.warning("failure detectors of the application failed %s times so far: %s", output.count, output.reason)
        elif isinstance(output, Limited):
            self._count(output)

    def _count(self, limited: Limited) -> None:
        before, self._discarded = self._discarded, self._discarded + limited.count
        if before.bit_length() != self._discarded.bit_length():
            _log.warning(
                "%s %s were discarded so far, the last from %s: a flood (%s)",
                self._discarded,
                limited.reason,
                limited.party,
                limited.limit,
            )
