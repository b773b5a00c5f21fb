"""The outbox of an agent's device, opened when it is first used (SPEC G-20)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from wanderbus.client.agent_sockets import End
from wanderbus.client.machine.messages import PublishSettled
from wanderbus.client.publishes import Turnstile
from wanderbus.client.reports import OutboxRefusal, OutboxSize
from wanderbus.errors import Closed
from wanderbus.machine import Input

if TYPE_CHECKING:
    from wanderbus.client.outbox import Outbox


class OwnOutbox:
    """Opens the outbox of a device once, however many calls ask for it.

    :param check_open: raises :class:`Closed` when the agent is not open
    """

    def __init__(
        self,
        end: End,
        most: OutboxSize,
        feed: Callable[[Input], None],
        turnstile: Turnstile,
        report: Callable[[OutboxRefusal], None],
        check_open: Callable[[], object],
    ) -> None:
        self._end = end
        self.most = most
        self._feed = feed
        self._turnstile = turnstile
        self._report = report
        self._check_open = check_open
        self._outbox: Outbox | None = None
        self._opening = asyncio.Lock()

    @property
    def size(self) -> OutboxSize:
        """Return the number of events in the outbox, and their bytes."""
        return OutboxSize() if self._outbox is None else self._outbox.size

    async def opened(self) -> Outbox:
        """Return the outbox, opened if need be; :class:`Closed` if the agent is closed meanwhile."""
        self._check_open()
        async with self._opening:
            if self._outbox is None:
                # Only agents with an outbox load its file and its writer.
                from wanderbus.client.outbox import Outbox

                self._outbox = await Outbox.load(
                    self._end.outbox_file(),
                    self._end.outbox_owner,
                    self.most,
                    self._feed,
                    self._turnstile,
                    self._report,
                )
        try:
            self._check_open()
        except Closed:
            self._outbox.close()
            raise
        return self._outbox

    def settle(self, settled: PublishSettled) -> None:
        """Handle the broker's answer to an event of the outbox."""
        assert self._outbox is not None
        self._outbox.settle(settled)

    async def finish(self) -> None:
        """Stop sending, and wait until everything is written."""
        if self._outbox is not None:
            await self._outbox.finish()

    def close(self) -> None:
        """Close the outbox if it is open; its events stay on the device."""
        if self._outbox is not None:
            self._outbox.close()
