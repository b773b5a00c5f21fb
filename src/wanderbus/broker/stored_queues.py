"""Every queue of a broker and the events that wait in them, as tables of the state (DESIGN 5.1).

An event is kept once, however many queues it waits in. A queue is stored in blocks of entries: a row for each
would cost more than what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from wanderbus.broker.queue import Block, Queue, Queued
from wanderbus.broker.rows import EventRow


class Events:
    """The events that wait, by offset, and in how many queues each does."""

    name = "events"

    def __init__(self) -> None:
        self.rows: dict[int, EventRow] = {}
        self._queues: dict[int, int] = {}
        self._changed: dict[int, EventRow | None] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def items(self) -> Iterator[tuple[str, EventRow]]:
        """Yield all keys and rows."""
        return ((str(offset), row) for offset, row in self.rows.items())

    def add(self, row: EventRow, queues: int) -> None:
        """Keep an event that waits in so many queues now."""
        self.rows[row.offset] = self._changed[row.offset] = row
        self._queues[row.offset] = queues

    def release(self, offset: int) -> None:
        """The event waits in one queue less; behind the last one it is forgotten."""
        if (queues := self._queues[offset] - 1) > 0:
            self._queues[offset] = queues
            return
        del self._queues[offset], self.rows[offset]
        if self._changed.pop(offset, None) is None:
            self._changed[offset] = None

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take over rows as the store holds them; ``msgspec.DecodeError`` if one is not of this table."""
        decode = msgspec.msgpack.Decoder(EventRow).decode
        for _, data in rows:
            row = decode(data)
            self.rows[row.offset] = row
            self._queues[row.offset] = 0

    def counted(self, queue: Queue) -> None:
        """Count the events of a queue that was loaded."""
        counts = self._queues
        for entry in queue:
            if isinstance(entry, Queued):
                counts[entry.event.offset] += 1

    def changes(self) -> Mapping[str, bytes | None]:
        """Return what changed since the last call; an event that came and went since is not among it."""
        encode = msgspec.msgpack.encode
        changed = {str(offset): None if row is None else encode(row) for offset, row in self._changed.items()}
        self._changed.clear()
        return changed


class Queues:
    """The queue of each session, by the session's key."""

    name = "queue"

    def __init__(self, events: Events) -> None:
        self._events = events
        self._queues: dict[str, Queue] = {}
        self._changed: dict[tuple[str, int], None] = {}

    def __getitem__(self, key: str) -> Queue:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue(key, self._changed)
        return queue

    def __len__(self) -> int:
        """Return how many entries wait in all queues, gaps among them."""
        return sum(map(len, self._queues.values()))

    def items(self) -> Iterator[tuple[str, Block]]:
        """Yield all keys and rows."""
        for key, queue in self._queues.items():
            for number in queue.blocks():
                if block := queue.block(number):
                    yield f"{key}/{number}", block

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take over rows as the store holds them, whose events have been loaded.

        ``msgspec.DecodeError`` if one is not of this table.
        """
        stored: dict[str, list[tuple[int, bytes]]] = {}
        for key, data in rows:
            session, _, number = key.rpartition("/")
            stored.setdefault(session, []).append((int(number), data))
        decode = msgspec.msgpack.Decoder(Block).decode
        for session, blocks in stored.items():
            queue = self[session]
            try:
                for block, data in sorted(blocks):
                    queue.load(block, decode(data), self._events.rows)
            except KeyError as error:
                raise msgspec.DecodeError(f"the queue of {session} names event {error}, which is not there") from None
            self._events.counted(queue)

    def changes(self) -> Mapping[str, bytes | None]:
        """Return the rows changed since the last call, encoded; None for a row that is gone."""
        encode = msgspec.msgpack.encode
        changed: dict[str, bytes | None] = {}
        for key, number in self._changed:
            block = self._queues[key].block(number)
            changed[f"{key}/{number}"] = None if block is None else encode(block)
        self._changed.clear()
        return changed
