"""Journal: applies records at once, and holds outputs back until the records before them are durable (DESIGN 5.1).

One rule covers every acknowledgement: an output waits for every urgent record written before it. Records that may be
lost without harm are not urgent: a notify-ack is repeated, a status is detected again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from wanderbus.broker.fair_queue import BYTES_A_UNIT
from wanderbus.broker.messages import Append
from wanderbus.broker.signals import BrokerOutput
from wanderbus.broker.state.drops import Delivering, with_drops
from wanderbus.broker.state.state import BrokerState
from wanderbus.records import SERVER_LOG, AnyRecord, Drop, encode_record
from wanderbus.refusal_table import Tally


class Journal:
    """Writes records and releases outputs in the order of durability."""

    def __init__(self, state: BrokerState, log: str = SERVER_LOG) -> None:
        self._state = state
        self._log = log
        self._durable = state.offset
        self._barrier = 0
        self._entries: list[tuple[int, int, bytes]] = []
        self._held: deque[tuple[int, BrokerOutput]] = deque()
        self.work = 0.0
        """Units of work so far: one for each record and each output, and one for each KiB of them."""
        self.merging = 0
        """Units of work of filters that were compared and merged so far, :class:`wanderbus.work.WorkBudget`."""
        self.owed = 0.0
        """Work that notifications cause later, when they are sent and acknowledged."""
        self._marks: deque[tuple[int, float]] = deque()
        """Offsets up to which records were handed over for writing, and the work done by then."""
        self._synced_work = 0.0
        self._ready: list[BrokerOutput] = []
        self._is_waiting = False
        """True if records were handed over without a request to sync them."""
        self._is_hurried = False
        self.written = Counter[type[AnyRecord]]()
        """Number of records that were written since the start, by their type."""
        self.tally = Tally()
        """Counts of refusals and drops by the broker's bounds; reported without waiting for the disk."""

    def write(self, record: AnyRecord, *, urgent: bool) -> int:
        """Apply ``record`` and queue it for the log; return its offset."""
        offset = self._state.offset
        self._state.apply(offset, record)
        return self._queue(offset, record, urgent=urgent)

    def write_delivery(self, record: Delivering, bound: Callable[[], tuple[Drop, ...]], *, urgent: bool) -> int:
        """Apply ``record``, let ``bound`` drop what its notifications displace, and queue both as one for the log.

        ``bound`` applies the drops that it returns, and writes no record. Return the offset.
        """
        offset = self._state.offset
        self._state.apply(offset, record)
        if dropped := bound():
            record = with_drops(record, dropped)
        assert self._state.offset == offset + 1, record
        return self._queue(offset, record, urgent=urgent)

    def _queue(self, offset: int, record: AnyRecord, *, urgent: bool) -> int:
        state = self._state
        encoded = encode_record(record)
        self.written[type(record)] += 1
        self._entries.append((offset, record.at_us, encoded))
        if urgent:
            if self._barrier <= self._durable:
                self._synced_work = self.work  # nothing before it waits for the disk
            self._barrier = state.offset
        self.work += 1 + len(encoded) / BYTES_A_UNIT
        return offset

    @property
    def durable(self) -> int:
        """Return the offset below which every record is on disk."""
        return self._durable

    @property
    def unsynced(self) -> float:
        """Return the units of work that are not durable yet."""
        return self.work - self._synced_work if self._barrier > self._durable else 0.0

    def emit_now(self, output: BrokerOutput) -> None:
        """Release ``output`` without waiting for the disk."""
        self._ready.append(output)

    def emit(self, output: BrokerOutput, size_bytes: int = 0) -> None:
        """Release ``output`` as soon as every urgent record so far is durable."""
        self.work += 1 + size_bytes / BYTES_A_UNIT
        if (barrier := self._barrier) > self._durable:
            self._held.append((barrier, output))
        else:
            self._ready.append(output)

    def hurry(self) -> None:
        """Sync every record so far with the next :meth:`drain`: the agent that would repeat their cause is leaving."""
        self._is_hurried = True

    def appended(self, log: str, durable: int) -> None:
        """Release the outputs that waited for records below offset ``durable``, which are on disk now.

        Does nothing for a log of others.
        """
        if log != self._log:
            return
        self._durable = max(self._durable, durable)
        while self._marks and self._marks[0][0] <= self._durable:
            self._synced_work = self._marks.popleft()[1]
        held = self._held
        if held and held[-1][0] <= self._durable:
            self._ready += [output for _, output in held]
            held.clear()
        while held and held[0][0] <= self._durable:
            self._ready.append(held.popleft()[1])

    def drain(self) -> list[BrokerOutput]:
        """Return the outputs that are ready, and the records to append."""
        outputs, self._ready = self._ready, []
        if self._entries or (self._is_hurried and self._is_waiting):
            urgent = self._is_hurried or self._entries[0][0] < self._barrier
            outputs.append(Append(self._log, tuple(self._entries), urgent))
            self._marks.append((self._state.offset, self.work))
            self._entries = []
            self._is_waiting = not urgent
        self._is_hurried = False
        return outputs
