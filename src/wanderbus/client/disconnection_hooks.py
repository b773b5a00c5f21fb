"""Application hooks for disconnections and reconnections (SPEC G-24)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import msgspec

from wanderbus.client.reports import OutboxSize

_log = logging.getLogger("wanderbus.agent")

WhileAway = Literal["wait", "error"]
"""``publish`` waits for the broker while the agent is DISCONNECTED, or raises :class:`Unreachable` at once."""

CHANGES_MAX: Final = 64
"""Most changes that are queued for a slow hook; beyond it the oldest are discarded."""


class Disconnection(msgspec.Struct, frozen=True):
    """One disconnection from the broker, passed to the hooks when it begins and when it ends.

    ``lasted_s`` is None while it lasts. ``publishes`` counts publishes without a response; they are sent again, and
    the broker discards duplicates. ``outbox`` is the size of this device's outbox.
    """

    reason: str
    since_us: int
    lasted_s: float | None
    publishes: int
    outbox: OutboxSize


OnDisconnected = Callable[[Disconnection], Awaitable[WhileAway | None]]
"""Hook that is awaited when the agent becomes DISCONNECTED; its result applies until the agent is CONNECTED."""

OnReconnected = Callable[[Disconnection], Awaitable[None]]
"""Hook that is awaited when the agent is CONNECTED again."""


class DisconnectionHooks:
    """Calls the application's hooks one after the other, in the order of the changes.

    The hooks run in a task of their own; the agent does not wait for them. Their exceptions are logged and counted.
    """

    def __init__(self, on_disconnected: OnDisconnected | None = None, on_reconnected: OnReconnected | None = None):
        self.failures = 0
        """Number of exceptions that hooks have raised."""
        self.while_away: WhileAway = "wait"
        """Behaviour of ``publish`` while the agent is DISCONNECTED, as the application chose."""
        self._on_disconnected = on_disconnected
        self._on_reconnected = on_reconnected
        self._away: tuple[str, int, float] | None = None
        """Reason, wall clock in microseconds and loop time of the current disconnection."""
        self._changes: deque[Disconnection] = deque(maxlen=CHANGES_MAX)
        self._running: asyncio.Task[None] | None = None

    def disconnected(self, reason: str, now_us: int, publishes: int, outbox: OutboxSize) -> None:
        """Handle that the agent became DISCONNECTED at ``now_us``."""
        self._away = reason, now_us, asyncio.get_running_loop().time()
        self._call(Disconnection(reason, now_us, None, publishes, outbox))

    def connected(self, publishes: int, outbox: OutboxSize) -> None:
        """Handle that the agent is CONNECTED; call the hook only if it was DISCONNECTED before."""
        self.while_away = "wait"
        if self._away is not None:
            (reason, since_us, since), self._away = self._away, None
            lasted_s = asyncio.get_running_loop().time() - since
            self._call(Disconnection(reason, since_us, lasted_s, publishes, outbox))

    def close(self) -> None:
        """Cancel the running hook and call no other: closing the agent is not a disconnection."""
        self._on_disconnected = self._on_reconnected = None
        self._changes.clear()
        if self._running is not None:
            self._running.cancel()

    def _call(self, change: Disconnection) -> None:
        if (self._on_disconnected if change.lasted_s is None else self._on_reconnected) is None:
            return
        if len(self._changes) == CHANGES_MAX:
            _log.warning("a hook for disconnections is slow: discarded the oldest of %s changes", CHANGES_MAX + 1)
        self._changes.append(change)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._changes:
            change = self._changes.popleft()
            try:
                await self._run_hook(change)
            except Exception:
                self.failures += 1
                _log.exception("a hook for disconnections failed")

    async def _run_hook(self, change: Disconnection) -> None:
        if change.lasted_s is not None:
            if self._on_reconnected is not None:
                await self._on_reconnected(change)
            return
        if self._on_disconnected is None:
            return
        wanted = await self._on_disconnected(change)
        if wanted not in (None, "wait", "error"):
            raise ValueError(f"on_disconnected returned {wanted!r}; return 'wait', 'error' or None")
        if self._away is not None and self._away[1] == change.since_us:
            self.while_away = wanted or "wait"
