"""Rate limit of an agent's own publishes (SPEC G-22)."""

from __future__ import annotations

import asyncio
import contextlib

from wanderbus.errors import ConfigurationError
from wanderbus.tokens import TokenBucket


class Turnstile:
    """Gate that admits publishes in order, ``per_s`` per second; without limit if that is None.

    With a limit it admits nothing while the broker cannot be reached: those publishes would be sent in one burst later.
    """

    def __init__(self, per_s: float | None) -> None:
        if per_s is not None and not per_s > 0:
            raise ConfigurationError(f"publish_per_s must be above 0, not {per_s!r}")
        self._per_s = per_s
        self._bucket: TokenBucket | None = None
        self._order = asyncio.Lock()
        self._connected = asyncio.Event()
        self._closed = asyncio.Event()

    def connected(self, yes: bool) -> None:
        """Set whether the broker can be reached."""
        if yes:
            self._connected.set()
        else:
            self._connected.clear()

    def close(self) -> None:
        """Admit all waiting calls; they fail because the agent is closed."""
        self._per_s = None
        self._connected.set()
        self._closed.set()

    async def turn(self) -> None:
        """Wait for the caller's turn, in the order of the calls."""
        if self._per_s is None:
            return
        async with self._order:
            while not self._taken():
                await self._pause()

    def _taken(self) -> bool:
        if self._per_s is None:
            return True
        now = asyncio.get_running_loop().time()
        if self._bucket is None:
            self._bucket = TokenBucket(self._per_s, now)
        return self._connected.is_set() and self._bucket.take(now)

    async def _pause(self) -> None:
        """Wait until the broker can be reached, or the bucket has a token, or the gate is closed."""
        if not self._connected.is_set():
            await self._connected.wait()
            return
        assert self._bucket is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._bucket.full_at()):
                await self._closed.wait()
