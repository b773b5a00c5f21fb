"""Publisher of detections: an agent with an outbox in the checkpoint, each detection once (SPEC T-07; decision 0078).

Before a batch is stored, a file beside the outbox notes the number of the outbox's last event. A batch that is repeated
has the same detections in the same order. So the outbox's number tells how many of them it has already.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from wanderbus.cli.connection_options import ConnectionOptions
from wanderbus.cli.output import print_error
from wanderbus.cli.pub_publisher import emptied
from wanderbus.client.publishes import encoded
from wanderbus.client.reports import OutboxEnd
from wanderbus.errors import ConfigurationError, EventError, LimitExceeded, Refused, StorageError
from wanderbus.event import Event
from wanderbus.patterns import Detection, Pattern
from wanderbus.runtime.files.disk import SYSTEM, replace_file
from wanderbus.runtime.files.file_modes import make_private_directory
from wanderbus.subscription import EVERY_SUBJECT

OUTBOX_FILE: Final = "outbox.db"
"""File within the checkpoint; its device is beside it."""

BATCH_FILE: Final = "published.json"
"""File within the checkpoint with the last batch that had detections."""

_SESSION: Final = "pattern"
_FULL_S: Final = 0.05
"""Pause before another attempt to store an event in a full outbox."""

Returned = TypeVar("Returned")


class BatchBegun(msgspec.Struct, frozen=True):
    """A batch, and the last event of the outbox before its first detection."""

    batch: int
    outbox: OutboxEnd


def require_no_loop(pattern: Pattern) -> None:
    """Raise ``ConfigurationError`` if a step takes the subject of the pattern's own detections."""
    subject = pattern.declaration.subject
    for step in pattern.declaration.steps:
        own = step.leaf.subject
        if own in (subject, EVERY_SUBJECT) or subject in pattern.children.get(own, ()):
            taken = "every subject" if own == EVERY_SUBJECT else f"the subject {own!r}"
            raise ConfigurationError(
                f"the step {step.name} takes {taken}, so the pattern would find its own detections, which have the "
                f"subject {subject!r}; give the step or 'emit' another subject"
            )


class DetectionPublisher:
    """Publishes batches of detections; its agent runs in a thread of its own.

    Entering connects, and raises the errors of :class:`~wanderbus.Agent`. Leaving waits until the broker has all
    events, as long as it can be reached, and raises :class:`Refused` if it refused some.
    """

    def __init__(self, connection: ConnectionOptions, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._patience_s = connection.settings().connect_s_max
        make_private_directory(checkpoint)
        self._agent = connection.agent(outbox_file=checkpoint / OUTBOX_FILE, session=_SESSION)
        self._refused: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wanderbus-publisher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._do(self._open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._do(self._close())
        finally:
            self._end()
        if self._refused and error is None:
            raise Refused(f"the broker refused {len(self._refused)} detections; the first: {self._refused[0]}")

    def publish(self, batch: int, detections: Sequence[Detection]) -> None:
        """Store the detections of a batch durably for the broker; those that an earlier run has stored are skipped."""
        if events := [event for each in detections if (event := self._publishable(each)) is not None]:
            self._do(self._store(batch, events))

    def _do(self, work: Coroutine[Any, Any, Returned]) -> Returned:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        self._refusals = self._agent.outbox_refusals()
        await self._agent.__aenter__()
        self._reporting = asyncio.create_task(self._report())

    async def _close(self) -> None:
        try:
            await emptied(self._agent, asyncio.create_task(self._agent.connected()), self._patience_s, must=False)
        finally:
            waiting = self._agent.outbox.events
            await self._agent.close()
            await self._reporting
        if waiting:
            print_error(f"{waiting} detections are unpublished in {self._checkpoint}; the next run publishes them")

    def _end(self) -> None:
        """End the thread; what it is doing fails."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(_cancelled(self._loop))
        self._loop.close()

    async def _report(self) -> None:
        async for refusal in self._refusals:
            self._refuse(refusal.event.get("detection"), refusal.reason)

    def _refuse(self, detection: object, reason: object) -> None:
        self._refused.append(str(reason))
        print_error(f"{detection} is not published: {reason}")

    def _publishable(self, detection: Detection) -> Event | None:
        """Return the event of a detection; None if there is no such event."""
        event = detection.to_event()
        try:
            encoded(event)
        except (EventError, LimitExceeded) as error:
            self._refuse(detection.id, error)
            return None
        return event

    async def _store(self, batch: int, events: Sequence[Event]) -> None:
        stored = self._stored(batch, await self._agent.outbox_end())
        for event in events[stored:]:
            while not await self._is_stored(event):
                await asyncio.sleep(_FULL_S)

    async def _is_stored(self, event: Event) -> bool:
        """Store an event; return False if the outbox is full."""
        try:
            await self._agent.publish(event, outbox=True)
        except LimitExceeded:
            return False
        return True

    def _stored(self, batch: int, end: OutboxEnd) -> int:
        """Return how many events of a batch the outbox has had; note the batch if it is a new one."""
        path = self._checkpoint / BATCH_FILE
        begun = _begun(path)
        if begun is None or begun.batch < batch:
            replace_file(SYSTEM, path, msgspec.json.encode(BatchBegun(batch, end)))
            return 0
        if begun.batch > batch or begun.outbox.epoch != end.epoch or begun.outbox.number > end.number:
            raise StorageError(
                f"{path} is not of this outbox and checkpoint, so detections could be published twice; "
                "begin with a new checkpoint"
            )
        return end.number - begun.outbox.number


def _begun(path: Path) -> BatchBegun | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=BatchBegun)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise StorageError(f"{path} is damaged; begin with a new checkpoint") from None


async def _cancelled(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel everything else on the loop, and wait for its end."""
    tasks = [each for each in asyncio.all_tasks(loop) if each is not asyncio.current_task()]
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
