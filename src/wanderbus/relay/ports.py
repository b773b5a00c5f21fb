"""The ports that a relay hands out: hard to foresee, and one that was given back rests as long as possible."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from wanderbus.machine import RandomSource


class PortPool:
    """Free ports in a random order; what comes back goes to the end, so that nothing late meets a new stream."""

    def __init__(self, ports: Sequence[int], random: RandomSource) -> None:
        shuffled = sorted(ports, key=lambda port: random.token(8))
        self._free = deque(shuffled)

    def __len__(self) -> int:
        return len(self._free)

    def take(self) -> int | None:
        """Return a port that nobody has; None if there is none."""
        return self._free.popleft() if self._free else None

    def give_back(self, port: int) -> None:
        """Let ``port`` be taken again, after all the others."""
        self._free.append(port)
