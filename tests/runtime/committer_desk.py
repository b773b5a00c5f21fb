"""A committer over real files, for tests of what it reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wanderbus.runtime.files.state_store import StateStore
from wanderbus.runtime.log.committer import Committer, LogEntry
from wanderbus.runtime.log.event_log import EventLog

PATIENCE_S = 30
"""Longest time for a thread and a disk on a loaded machine; only a failure waits so long."""


class CommitterDesk:
    """Base of desks: a subclass opens the files and the committer, and notes the reports that it wants."""

    log: EventLog
    store: StateStore
    committer: Committer

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.001)

    def close(self) -> None:
        self.committer.stop()
        self.store.close()
        self.log.close()


def entries(first: int, count: int) -> list[LogEntry]:
    return [(offset, 1_000 + offset, b"%010d" % offset) for offset in range(first, first + count)]
