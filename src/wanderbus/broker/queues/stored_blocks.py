"""Stored form of a session's queues: rows of blocks of numbers (DESIGN 5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from wanderbus.broker.state.rows import EventRow


class StoredMatch(msgspec.Struct, frozen=True, array_like=True):
    """The subscriptions of a notification, and the devices they are bound to."""

    subscriptions: tuple[str, ...]
    bound: tuple[tuple[str, str], ...]


class StoredEntry(msgspec.Struct, frozen=True, array_like=True):
    """A notification of a block: its number from the block's first, and its match.

    The event is the ``number`` of an id whose origin and incarnation are in the block's list, as the match is.
    """

    place: int
    origin: int
    number: int
    match: int
    history_us: int = 0


class StoredGap(msgspec.Struct, frozen=True, array_like=True):
    """A gap that begins in a block."""

    subscription: str
    number: int
    last: int
    lost: dict[str, int]
    numbers: dict[str, tuple[int, ...]]
    """Numbers of the first dropped notifications by reason, relative to the gap's first."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """The stored row of the items that begin at the numbers of one block; many notifications share origin and match.

    A notification waits for those of its subscriptions that have not settled its number and have no gap there; this is
    computed, not stored.
    """

    origins: tuple[tuple[str, int], ...]
    matches: tuple[StoredMatch, ...]
    entries: tuple[StoredEntry, ...]
    gaps: tuple[StoredGap, ...] = ()


class QueuePiece(msgspec.Struct, frozen=True, array_like=True):
    """The part of a session's queues behind number ``after`` up to ``through``, and its events.

    Gaps that began before it reach up to the numbers in ``covered``, by subscription.
    """

    after: int = 0
    through: int = 0
    blocks: tuple[tuple[int, Block], ...] = ()
    events: tuple[EventRow, ...] = ()
    covered: tuple[tuple[str, int], ...] = ()
    is_last: bool = False


class CopiedEntry(NamedTuple):
    """An item of a copied queue: encoded event and its subscriptions, or what one subscription has lost."""

    data: bytes
    subscriptions: tuple[str, ...]
    lost: Mapping[str, int] = {}
    """Number of lost notifications by reason."""
