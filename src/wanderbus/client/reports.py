"""What an application may listen to beside its notifications: every report from the call on, none missed."""

from __future__ import annotations

import asyncio
import weakref
from typing import Generic, Self, TypeVar

import msgspec

from wanderbus.completion import public_names
from wanderbus.event import Event
from wanderbus.subscription import Subscription

Report = TypeVar("Report")


class StatusChange(msgspec.Struct, frozen=True):
    """The agent became ``CONNECTED`` or ``DISCONNECTED``, or completed a move; ``address`` is where its data goes.

    See SPEC E-07.
    """

    status: str
    address: str
    at_us: int
    reason: str


class Ending(msgspec.Struct, frozen=True):
    """``subscription`` ended without this application having asked for it (SPEC G-10).

    ``reason`` is ``expired``, ``discarded`` or ``removed``, or ``missed`` if it ended while the agent was away.
    ``successor`` is what stands for it now (SPEC G-11): itself, renewed, or another; None for nothing.
    """

    subscription: Subscription
    reason: str
    successor: Subscription | None


class OutboxRefusal(msgspec.Struct, frozen=True):
    """The broker will not have ``event`` of the outbox, because of ``reason``; it was removed (SPEC G-20)."""

    event: Event
    reason: str


class Reports(Generic[Report]):
    """An async iterator over the reports since it was made; it ends when the agent is closed."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Report | None] = asyncio.Queue()
        self._ended = False

    def __repr__(self) -> str:
        return f"<Reports: {'ended' if self._ended else f'{self._queue.qsize()} waiting'}>"

    def __dir__(self) -> list[str]:
        return public_names(self, but={"put"})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Report:
        report = None if self._ended else await self._queue.get()
        if report is None:
            self._ended = True
            raise StopAsyncIteration
        return report

    def put(self, report: Report | None) -> None:
        """Take a report to be read, None for the end (the agent's side of this object)."""
        self._queue.put_nowait(report)


class Listeners(Generic[Report]):
    """All iterators over one kind of report; one that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._listening: weakref.WeakSet[Reports[Report]] = weakref.WeakSet()
        self._closed = False

    def listen(self) -> Reports[Report]:
        """Return an iterator over every report from now on; an ended one if there will be none."""
        reports: Reports[Report] = Reports()
        if self._closed:
            reports.put(None)
        else:
            self._listening.add(reports)
        return reports

    def tell(self, report: Report) -> None:
        """Let every iterator have ``report``."""
        for each in list(self._listening):
            each.put(report)

    def close(self) -> None:
        """End every iterator once it has been read to here."""
        self._closed = True
        for each in list(self._listening):
            each.put(None)
        self._listening.clear()
