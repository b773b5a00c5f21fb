"""Arguments of a queue policy: a queue as the policy sees it (SPEC G-23)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from wanderbus.broker.queues.waiting_notification import Waiting

SHOWN_MAX: Final = 32
"""Notifications at each end of a queue that a policy sees."""


class Queue(msgspec.Struct, frozen=True):
    """The argument of a policy: the queue of ``subscription``, to which one notification was just added.

    ``oldest`` and ``newest`` are up to :data:`SHOWN_MAX` notifications at either end, each in order; they overlap in a
    short queue. ``over`` is the exceeded bound, or None; if the policy drops nothing, ``when_full`` decides.
    """

    subscription: str
    now_us: int
    waiting: int
    waiting_bytes: int
    over: str | None
    oldest: Sequence[Waiting]
    newest: Sequence[Waiting]


Policy = Callable[[Queue], Collection[int]]
"""Returns the numbers to drop, of those that it sees."""
