"""Outbox of a device: durable local storage of events, which are published when the broker can be reached."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from wanderbus import protocol
from wanderbus.client.machine import outbox as order
from wanderbus.client.machine.messages import PublishEvent, PublishSettled
from wanderbus.client.publishes import PublishRate
from wanderbus.client.reports import OutboxEnd, OutboxRefusal, OutboxSize
from wanderbus.errors import LimitExceeded, RemoteProtocolError, StorageError
from wanderbus.runtime.files.outbox_file import OutboxFile
from wanderbus.runtime.files.outbox_writer import OutboxWriter
from wanderbus.runtime.system_random import suspended_s

_log = logging.getLogger("wanderbus.agent")


class Outbox:
    """One device's outbox, open; made by :meth:`load`."""

    def __init__(
        self,
        file: OutboxFile,
        stored: list[tuple[int, bytes]],
        most: OutboxSize,
        feed: Callable[[PublishEvent], None],
        rate: PublishRate,
        on_refused: Callable[[OutboxRefusal], None],
    ) -> None:
        self._file = file
        self._most = most
        self._feed = feed
        self._rate = rate
        self._on_refused = on_refused
        self._events = dict(stored)
        self._size = OutboxSize(len(stored), sum(len(event) for _, event in stored))
        self._order = order.OutboxNumbers(self._events)
        self._writer = OutboxWriter(file, self._removed)
        self._news = asyncio.Event()
        self._sending = asyncio.create_task(self._send(), name="wanderbus-outbox")

    @classmethod
    async def load(
        cls,
        path: Path,
        owner: str,
        most: OutboxSize,
        feed: Callable[[PublishEvent], None],
        rate: PublishRate,
        on_refused: Callable[[OutboxRefusal], None],
    ) -> Outbox:
        """Open the outbox of ``owner`` at ``path``; :class:`StorageError` if it cannot be used or read."""

        def read() -> tuple[OutboxFile, list[tuple[int, bytes]]]:
            file = OutboxFile(path, owner)
            try:
                return file, _readable(file)
            except BaseException:
                file.close()
                raise

        file, stored = await asyncio.to_thread(read)
        return cls(file, stored, most, feed, rate, on_refused)

    @property
    def size(self) -> OutboxSize:
        """Return the number of events and bytes in the outbox."""
        return self._size

    @property
    def end(self) -> OutboxEnd:
        """Return the number of the last event that was stored."""
        return OutboxEnd(self._file.epoch, self._file.next - 1)

    async def put(self, event: bytes) -> None:
        """Store an encoded event durably, at the end of the outbox.

        :raises LimitExceeded: the outbox is full
        :raises StorageError: the event could not be written
        """
        grown = OutboxSize(self._size.events + 1, self._size.bytes + len(event))
        _check(grown.events, self._most.events, "outbox_events_max")
        _check(grown.bytes, self._most.bytes, "outbox_bytes_max")
        self._size = grown
        stored = self._writer.append(event)
        stored.add_done_callback(partial(self._stored, event))
        await asyncio.shield(stored)

    def settle(self, settled: PublishSettled) -> None:
        """Handle the broker's response to an event of this outbox."""
        number = settled.number
        if self._order.settled(number, settled.limit, asyncio.get_running_loop().time()):
            if settled.id is None:
                refusal = OutboxRefusal(protocol.decode_event(self._events[number]), settled.reason or "")
                _log.warning("the broker refused an event of the outbox: %s", refusal.reason)
                self._on_refused(refusal)
            self._writer.remove(number)
        else:
            _log.debug("event %s of the outbox will be retried: %s", number, settled.reason)
            if settled.limit == protocol.NUMBER_USED:
                _log.warning("event %s of the outbox %s: %s", number, self._file.path, settled.reason)
        if self._order.needs_epoch:
            # The broker has accepted none of the events that are left.
            self._writer.renew().add_done_callback(self._is_renewed)
        self._news.set()

    def _is_renewed(self, _: asyncio.Future[None]) -> None:
        self._order.renewed()
        self._news.set()

    async def finish(self) -> None:
        """Stop sending, and wait until everything passed to the writer is written."""
        self._sending.cancel()
        await asyncio.wait([self._sending])
        await self._writer.finish()

    def close(self) -> None:
        """Close the file; its events stay for the next start."""
        self._sending.cancel()
        self._writer.close()

    def _stored(self, encoded: bytes, stored: asyncio.Future[int]) -> None:
        if stored.exception() is not None:
            self._shrink(encoded)
            return
        self._events[stored.result()] = encoded
        self._order.stored(stored.result())
        self._news.set()

    def _removed(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._shrink(self._events.pop(number))
        self._order.removed(numbers)
        self._news.set()

    def _shrink(self, encoded: bytes) -> None:
        self._size = OutboxSize(self._size.events - 1, self._size.bytes - len(encoded))

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            while self._order.ready(loop.time()):
                await self._rate.turn()
                # Earlier events may have been refused meanwhile; they are retried first.
                if (number := self._order.next(loop.time())) is None:
                    break
                self._feed(PublishEvent(number, self._events[number], self._file.epoch, suspended_s()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._order.wake_at()):
                    await self._news.wait()


def _readable(file: OutboxFile) -> list[tuple[int, bytes]]:
    """Return the events of ``file``, which are sent as they are stored; :class:`StorageError` if one is unreadable."""
    stored = file.load()
    for number, event in stored:
        try:
            protocol.decode_event(event)
        except RemoteProtocolError as error:
            raise StorageError(
                f"event {number} of the outbox {file.path} cannot be read ({error}); move the outbox away to continue "
                "without its events"
            ) from None
    return stored


def _check(wanted: int, most: int, limit: str) -> None:
    if wanted > most:
        raise LimitExceeded(f"the outbox is full: {limit} is {most}; retry once the broker can be reached", limit)
