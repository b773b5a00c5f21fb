"""The answers of late: a proxy that missed one repeats its command, which must not be done twice."""

from __future__ import annotations

from typing import Final

from wanderbus.machine import Address

KEPT_S: Final = 10.0
"""Longer than a proxy repeats a command: Kamailio does so five times, a second apart."""


class Answers:
    """By proxy and cookie, ``most`` of them, oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._said: dict[tuple[Address, bytes], tuple[float, bytes]] = {}

    def __len__(self) -> int:
        return len(self._said)

    def to(self, proxy: Address, cookie: bytes) -> bytes | None:
        """Return what was answered; None if that is not remembered."""
        found = self._said.get((proxy, cookie))
        return found[1] if found else None

    def remember(self, proxy: Address, cookie: bytes, answer: bytes, now: float) -> None:
        """Note an answer; the oldest makes room for it."""
        if len(self._said) >= self._most:
            del self._said[next(iter(self._said))]
        self._said[proxy, cookie] = (now, answer)

    def forget(self, now: float) -> None:
        """Forget what nobody will ask for any more."""
        while self._said and now - self._said[oldest := next(iter(self._said))][0] > KEPT_S:
            del self._said[oldest]
