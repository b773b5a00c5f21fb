"""Simulated world: virtual time, one seed, and a trace of everything that happens."""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable

EPOCH_US = 1_700_000_000_000_000
"""Wall clock at simulated second 0, in microseconds since the Unix epoch."""

ACTIONS_AT_ONCE_MAX = 10_000
"""Largest number of actions at one instant; more of them mean an endless loop."""


class World:
    """A heap of actions in virtual time, and the one source of randomness."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.random = random.Random(seed)
        self._seed = seed
        self.now = 0.0
        self.trace: list[str] | None = [] if keep_trace else None
        self.on_step: Callable[[], None] = lambda: None
        """Called after every action."""
        self._digest = hashlib.sha256()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._moments = 0

    @property
    def wall_us(self) -> int:
        """Return the simulated wall clock in microseconds since the Unix epoch."""
        return EPOCH_US + round(self.now * 1e6)

    def moment(self) -> int:
        """Return the next moment of the world: a number that tells what came before what."""
        self._moments += 1
        return self._moments

    def apart(self, name: str) -> random.Random:
        """Return a stream of random numbers apart from the others: draws from it do not change theirs."""
        return random.Random(f"{name} of seed {self._seed}")

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do ``action`` at virtual second ``when``; actions of one instant run in the order of scheduling."""
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do ``action`` ``seconds`` from now."""
        self.at(self.now + seconds, action)

    def at_random(self, times: int, start: float, end: float, action: Callable[[], None]) -> None:
        """Do ``action`` several times, each at some second from ``start`` to ``end``."""
        for _ in range(times):
            self.at(self.random.uniform(start, end), action)

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until ``until``, or until ``done()`` holds."""
        at_once = 0
        while self._heap and self._heap[0][0] <= until and not done():
            when, _, action = heapq.heappop(self._heap)
            at_once = at_once + 1 if when == self.now else 0
            if at_once > ACTIONS_AT_ONCE_MAX:
                raise RuntimeError(f"time does not advance at {when:.6f} s: a machine sets timers that are due at once")
            self.now = when
            action()
            self.on_step()

    def note(self, who: str, what: str) -> None:
        """Write a line of the trace."""
        line = f"{self.now:.6f} {who} {what}"
        self._digest.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    def fingerprint(self) -> str:
        """Return a digest of the whole trace: the same seed gives the same one."""
        return self._digest.hexdigest()[:16]


class SeededRandom:
    """A machine's :class:`~wanderbus.machine.RandomSource`, drawn from the world's seed."""

    def __init__(self, world: World) -> None:
        self._random = random.Random(world.random.getrandbits(64))

    def token(self, n_bytes: int) -> bytes:
        """Return ``n_bytes`` bytes of the seed's stream."""
        return self._random.randbytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        """Return a number from ``low`` up to ``high`` of the seed's stream."""
        return self._random.uniform(low, high)
