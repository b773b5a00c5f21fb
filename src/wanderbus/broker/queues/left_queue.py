"""Queue of a session that has left this server: cut into pieces for the next owner, in order (decision 0153).

Nothing is added to it and nothing is read from it here. What the next owner has is forgotten.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec

from wanderbus.broker.queues.queue import NUMBERS_OF_BLOCK, SessionQueue
from wanderbus.broker.queues.queue_items import Queued
from wanderbus.broker.queues.stored_blocks import Block, QueuePiece, StoredGap
from wanderbus.broker.state.rows import EventRow
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import EventId
from wanderbus.limits import EVENT_TIME_US_MAX
from wanderbus.protocol import decode_event

_ITEM_BYTES: Final = 64
"""Size that is counted for each notification beside its event, and for each gap beside its numbers."""

_NUMBER_BYTES: Final = 5

COUNT_MAX: Final = 2**62
"""Largest number that is taken from another server: what is counted on from there still fits the log and the lake."""


class LeftQueue:
    """The queues of one session."""

    def __init__(self, queue: SessionQueue) -> None:
        self.stored = queue
        """The part that has not been forgotten, as it is stored."""
        queue.queues.clear()
        self._blocks = queue.blocks()

    def piece(self, after: int, bytes_max: int) -> QueuePiece:
        """Return what follows number ``after``, about as many bytes as are wanted; one notification may exceed them."""
        return cut(self.stored, self._blocks, after, bytes_max)


def cut(queue: SessionQueue, blocks: Sequence[int], after: int, bytes_max: float) -> QueuePiece:
    """Return what follows number ``after`` in the ``blocks`` of a queue; it is all if ``bytes_max`` allows it."""
    events: dict[EventId, EventRow] = {}
    found: list[tuple[int, Block]] = []
    size, through, is_last = 0, after, True
    for number in blocks[bisect_left(blocks, (after + 1) // NUMBERS_OF_BLOCK) :]:
        if is_last and (block := queue.block(number)) is not None:
            for at, more in sorted(_sizes(queue, number, block).items()):
                if at > after and is_last:
                    is_last = not size or size + more <= bytes_max
                    size, through = (size + more, at) if is_last else (size, through)
            part = _part(block, number * NUMBERS_OF_BLOCK, after, through)
            if part.entries or part.gaps:
                found.append((number, part))
            rows = (queue.waiting(number * NUMBERS_OF_BLOCK + each.place) for each in part.entries)
            events |= {row.event.id: row.event for row in rows if row is not None}
    return QueuePiece(after, through, tuple(found), tuple(events.values()), queue.covered(after), is_last)


def _sizes(queue: SessionQueue, number: int, block: Block) -> dict[int, int]:
    """Return the bytes of what begins at each number of a block."""
    sizes: dict[int, int] = {}
    for stored in block.entries:
        at = number * NUMBERS_OF_BLOCK + stored.place
        if (entry := queue.waiting(at)) is not None:
            sizes[at] = len(entry.event.data) + _ITEM_BYTES
    for gap in block.gaps:
        more = _ITEM_BYTES + _NUMBER_BYTES * sum(map(len, gap.numbers.values()))
        sizes[gap.number] = sizes.get(gap.number, 0) + more
    return sizes


def _part(block: Block, first: int, after: int, through: int) -> Block:
    """Return what begins behind number ``after`` up to ``through`` in the block that begins at ``first``."""
    entries = tuple([each for each in block.entries if after < first + each.place <= through])
    gaps = tuple([each for each in block.gaps if after < each.number <= through])
    return msgspec.structs.replace(block, entries=entries, gaps=gaps)


def subscriptions_of(piece: QueuePiece) -> set[str]:
    """Return the subscriptions that a piece names."""
    blocks = [block for _, block in piece.blocks]
    names = {name for block in blocks for match in block.matches for name in match.subscriptions}
    return names | {gap.subscription for block in blocks for gap in block.gaps} | {name for name, _ in piece.covered}


def is_sound(piece: QueuePiece) -> bool:
    """Return whether a piece of another server can be added to a queue: each item in its place, with its event."""
    if not all(map(_is_event, piece.events)):
        return False
    events, last = {row.id for row in piece.events}, piece.after
    for number, block in piece.blocks:
        first, end = number * NUMBERS_OF_BLOCK, (number + 1) * NUMBERS_OF_BLOCK
        for each in block.entries:
            at = first + each.place
            if (
                not last < at < end
                or not 0 <= each.origin < len(block.origins)
                or not 0 <= each.match < len(block.matches)
            ):
                return False
            if EventId(*block.origins[each.origin], each.number) not in events:
                return False
            last = at
        if not _are_gaps(block.gaps, max(piece.after + 1, first), end):
            return False
    return last <= piece.through


def _are_gaps(gaps: Sequence[StoredGap], first: int, end: int) -> bool:
    """Return whether gaps begin from number ``first`` on and before ``end``, and count what is in them."""
    begins = {(each.subscription, each.number) for each in gaps}
    return len(begins) == len(gaps) and all(
        first <= each.number < end
        and each.number <= each.last <= COUNT_MAX
        and all(0 <= count <= COUNT_MAX for count in each.lost.values())
        and all(0 <= place <= each.last - each.number for places in each.numbers.values() for place in places)
        for each in gaps
    )


def _is_event(row: EventRow) -> bool:
    try:
        decode_event(row.data)
    except RemoteProtocolError:
        return False
    return 0 <= row.at_us <= EVENT_TIME_US_MAX


def counted(queue: SessionQueue, through: int) -> tuple[int, int, int]:
    """Return how many notifications, matches and bytes wait up to number ``through``."""
    entries: list[Queued] = []
    for entry in queue:
        if entry.number > through:
            break
        entries.append(entry)
    return len(entries), sum(each.waiting for each in entries), sum(len(each.event.data) for each in entries)
