"""Scripts for live machines: an input is a list of acts, and after each the machine has kept its bounds.

An act is ``kind u8 | length u16 | body``; any bytes are a script, so scripts can be mutated too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from wanderbus.machine import Input, TimerFired

Act = tuple[int, bytes]


class SeededRandom:
    """A machine's source of randomness that is the same for every input."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def token(self, n_bytes: int) -> bytes:
        """Return the next bytes."""
        return self._random.randbytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        """Return the next number."""
        return self._random.uniform(low, high)


class Timed:
    """A machine under test with its clock and timers; a subclass feeds inputs in ``step``."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: dict[object, float] = {}

    def step(self, given: Input) -> object:
        """Feed an input."""
        raise NotImplementedError

    def pass_time(self, seconds: float) -> None:
        """Let the time pass, and fire the timers that are due meanwhile, in order."""
        until = self.now + seconds
        while due := [(at, str(key), key) for key, at in self.timers.items() if at <= until]:
            at, _, key = min(due)
            del self.timers[key]
            self.now = max(self.now, at)
            self.step(TimerFired(key))
        self.now = until


def written(acts: Sequence[Act]) -> bytes:
    """Return the script of ``acts``; bodies are cut to the longest length."""
    return b"".join(bytes([kind]) + len(body[:65_535]).to_bytes(2, "big") + body[:65_535] for kind, body in acts)


def acts_of(script: bytes) -> Iterator[Act]:
    """Yield the acts; the last may be cut short."""
    offset = 0
    while offset < len(script):
        length = int.from_bytes(script[offset + 1 : offset + 3], "big")
        yield script[offset], script[offset + 3 : offset + 3 + length]
        offset += 3 + length
