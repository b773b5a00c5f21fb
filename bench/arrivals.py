"""Messages that have arrived and wait for their reader."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self


class Arrivals:
    """Iterator over the messages that a protocol has received, in order; it never ends."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._arrived = asyncio.Event()

    def take(self, message: bytes) -> None:
        """Receive a message that has arrived."""
        self._waiting.append(message)
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()
