"""One order for several streams of notifications.

A traveller reads one stream per subscription, and its session numbers all notifications as one dense sequence. A
committed position covers all notifications up to it, so results have to be committed in the order of the numbers,
whichever stream they arrive on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NotificationOrder:
    """Lets notifications pass in the order of their numbers; ``last`` is the last (epoch, number) committed.

    Without ``last``, as in any other epoch, the sequence begins at 1.
    """

    def __init__(self, last: tuple[int, int] | None) -> None:
        self._last = last
        self._moved = asyncio.Condition()

    @asynccontextmanager
    async def turn(self, epoch: int, first: int, number: int) -> AsyncIterator[bool]:
        """Wait until all before ``first`` have passed, then hold the turn of ``first`` to ``number`` while inside.

        Gives False if it has passed before: two subscriptions of a user may both show the same notification.
        """
        async with self._moved:
            await self._moved.wait_for(lambda: self._may_pass(epoch, first))
            fresh = self._last is None or (epoch, number) > self._last
            yield fresh
            if fresh:
                self._last = (epoch, number)
                self._moved.notify_all()

    def _may_pass(self, epoch: int, first: int) -> bool:
        known, number = self._last or (epoch, 0)
        return first <= (number + 1 if epoch == known else 1)
