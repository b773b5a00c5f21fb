"""All queues of a broker and the events that wait in them, as tables of the state (DESIGN 5.1).

An event is stored once, independent of the number of queues that it waits in. A queue is stored in blocks of entries: a
row for each entry would cost more than the entry itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from wanderbus.broker.queues.left_queue import LeftQueue
from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.queues.queue_items import Queued
from wanderbus.broker.queues.stored_blocks import Block, QueuePiece
from wanderbus.broker.state.rows import EventRow
from wanderbus.event import EventId


class StoredEvents:
    """The waiting events by id; each counts the sessions in which it waits."""

    name = "events"

    def __init__(self) -> None:
        self.rows: dict[EventId, EventRow] = {}
        self._changed: dict[EventId, EventRow | None] = {}
        self._returned: set[EventId] = set()
        """Events that were removed and added again since the last call of :meth:`changes`: a row may be stored."""

    def __len__(self) -> int:
        return len(self.rows)

    def items(self) -> Iterator[tuple[str, EventRow]]:
        """Yield all keys and rows."""
        return ((str(identity), row) for identity, row in self.rows.items())

    def add(self, row: EventRow) -> None:
        """Add an event; it may have waited here before."""
        if row.id in self._changed:
            self._returned.add(row.id)
        self.rows[row.id] = self._changed[row.id] = row

    def add_past(self, row: EventRow) -> EventRow:
        """Return the row of an event that waits in one more session; it may wait here already, or have waited here."""
        if (known := self.rows.get(row.id)) is None:
            row.sessions = 0
            self.add(row)
            known = row
        known.sessions += 1
        return known

    def release(self, row: EventRow) -> None:
        """Count one session less for an event; remove the event after the last one."""
        row.sessions -= 1
        if row.sessions > 0:
            return
        del self.rows[row.id]
        if self._changed.pop(row.id, None) is None or row.id in self._returned:
            self._changed[row.id] = None

    def add_again(self, rows: Iterable[EventRow]) -> None:
        """Add imported events, except those that wait here already; they may have waited here before."""
        for row in rows:
            if row.id not in self.rows:
                row.sessions = 0
                self.add(row)

    def tidy(self, identities: Iterable[EventId]) -> None:
        """Remove those of these events that wait in no session."""
        for identity in identities:
            row = self.rows[identity]
            if not row.sessions:
                row.sessions = 1
                self.release(row)

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Load stored rows; ``msgspec.DecodeError`` if one is not of this table."""
        decode = msgspec.msgpack.Decoder(EventRow).decode
        for _, data in rows:
            row = decode(data)
            row.sessions = 0
            self.rows[row.id] = row

    def counted(self, entries: Iterable[Queued]) -> None:
        """Count the events of notifications that were added to a session's queue."""
        for entry in entries:
            entry.event.sessions += 1

    def changes(self) -> Mapping[str, bytes | None]:
        """Return the rows changed since the last call, without events that were added and removed since."""
        encode = msgspec.msgpack.encode
        changed = {str(identity): None if row is None else encode(row) for identity, row in self._changed.items()}
        self._changed.clear()
        self._returned.clear()
        return changed


class StoredQueues:
    """The queues of each session, by the session's key.

    ``settled`` returns a subscription's settled number, and ``has_left`` whether a session is at another server, which
    may not have the whole queue yet.
    """

    name = "queue"

    def __init__(
        self, events: StoredEvents, settled: Callable[[str], int | None], has_left: Callable[[str], bool]
    ) -> None:
        self._events = events
        self._settled = settled
        self._has_left = has_left
        self._queues: dict[str, SessionQueue] = {}
        self._left: dict[str, LeftQueue] = {}
        self._growing: set[str] = set()
        """Sessions whose queues are kept though they are empty, because the rest of them is on its way here."""
        self._changed: dict[tuple[str, int], None] = {}

    def get(self, key: str) -> SessionQueue | None:
        """Return the queues of a session, None if nothing waits there."""
        return self._queues.get(key)

    def ensure(self, key: str) -> SessionQueue:
        """Return the queues of a session, after creating them if needed."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = SessionQueue(key, self._changed)
        return queue

    def tidy(self, key: str) -> None:
        """Remove the queues of a session if nothing waits there."""
        queue = self._queues.get(key)
        if queue is not None and not queue.queues and key not in self._growing:
            del self._queues[key]

    def grow(self, key: str, *, is_growing: bool) -> None:
        """Keep the queues of a session while the rest of them is on its way here, although nothing may wait."""
        if is_growing:
            self._growing.add(key)
            self.ensure(key)
        else:
            self._growing.discard(key)
            self.tidy(key)

    # Queues that have left --------------------------------------------------------------------------------------

    def left(self, key: str) -> LeftQueue | None:
        """Return what the next owner of a session may not have yet, None if it has everything."""
        return self._left.get(key)

    def leave(self, key: str) -> None:
        """Set the queues of a session aside, which has left."""
        self._left[key] = LeftQueue(self._queues.pop(key))

    def forget_left(self, key: str, through: int | None = None) -> None:
        """Forget what the next owner of a session has: all of its queue, or the part up to number ``through``."""
        if (left := self._left.get(key)) is None:
            return
        if through is None:
            del self._left[key]
        for entry in left.stored.forget(_FORGOTTEN if through is None else through):
            self._events.release(entry.event)

    # ------------------------------------------------------------------------------------------------------------

    def waiting(self) -> Iterable[tuple[str, SessionQueue]]:
        """Return the sessions in which something waits."""
        return list(self._queues.items())

    def __len__(self) -> int:
        """Return how many notifications and gaps wait in all sessions."""
        return sum(map(len, self._queues.values()))

    def items(self) -> Iterator[tuple[str, Block]]:
        """Yield all keys and rows."""
        left = ((key, each.stored) for key, each in self._left.items())
        for key, queue in (*self._queues.items(), *left):
            for number in queue.blocks():
                if block := queue.block(number):
                    yield f"{key}/{number}", block

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Load stored rows, after their events and subscriptions.

        ``msgspec.DecodeError`` if one is not of this table.
        """
        stored: dict[str, list[tuple[int, bytes]]] = {}
        for key, data in rows:
            session, _, number = key.rpartition("/")
            stored.setdefault(session, []).append((int(number), data))
        decode = msgspec.msgpack.Decoder(Block).decode
        present, former = _Settled(self._settled), _Settled(lambda subscription: 0)
        for session, blocks in stored.items():
            queue, settled = self.ensure(session), former if self._has_left(session) else present
            try:
                found = queue.load(
                    [(number, decode(data)) for number, data in sorted(blocks)], self._events.rows, settled
                )
            except KeyError as error:
                raise msgspec.DecodeError(f"the queue of {session} names {error}, which is not there") from None
            self._events.counted(found)
            if settled is former:
                self.leave(session)

    def take_over(self, key: str, piece: QueuePiece) -> list[Queued]:
        """Add the queues of a session that moves here, or the next piece of them, after its subscriptions.

        Return the notifications that wait.
        """
        self._events.add_again(piece.events)
        queue = self.ensure(key)
        added = queue.load(piece.blocks, self._events.rows, _Settled(self._settled), dict(piece.covered))
        self._events.counted(added)
        self._events.tidy(each.id for each in piece.events)
        self._changed |= dict.fromkeys((key, number) for number, _ in piece.blocks)
        self.tidy(key)
        return added

    def changes(self) -> Mapping[str, bytes | None]:
        """Return the rows changed since the last call, encoded; None for a removed row."""
        encode = msgspec.msgpack.encode
        changed: dict[str, bytes | None] = {}
        for key, number in self._changed:
            block = None
            queue = self._queues.get(key)
            if queue is None and (left := self._left.get(key)) is not None:
                queue = left.stored
            if queue is not None:
                block = queue.block(number)
                queue.saved()
            changed[f"{key}/{number}"] = None if block is None else encode(block)
        self._changed.clear()
        return changed


class _Settled(dict[str, int]):
    """Settled numbers by subscription, looked up on demand; for a forgotten subscription everything is settled."""

    def __init__(self, settled: Callable[[str], int | None]) -> None:
        super().__init__()
        self._look_up = settled

    def __missing__(self, subscription: str) -> int:
        settled = self._look_up(subscription)
        found = self[subscription] = _FORGOTTEN if settled is None else settled
        return found


_FORGOTTEN = 2**63
