"""Pool of ports that a relay hands out: in unpredictable order, with the longest possible pause before reuse."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from wanderbus.machine import RandomSource


class PortPool:
    """Free ports in random order; a returned port goes to the end, so that late datagrams do not reach a new stream."""

    def __init__(self, ports: Sequence[int], random: RandomSource) -> None:
        shuffled = sorted(ports, key=lambda port: random.token(8))
        self._free = deque(shuffled)

    def __len__(self) -> int:
        return len(self._free)

    def take(self) -> int | None:
        """Return a free port; None if there is none."""
        return self._free.popleft() if self._free else None

    def give_back(self, port: int) -> None:
        """Make ``port`` free again, after all other free ports."""
        self._free.append(port)
