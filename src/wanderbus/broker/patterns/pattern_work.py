"""Work of the patterns of each user over time, and the patterns that wait for more of it (SPEC T-07, U-02).

A pattern whose owner has used up the work waits; its events stay in its state. So detections are late, and nothing is
lost as long as there is room for the events.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from wanderbus.broker.interest.filter_accounts import WorkAccount
from wanderbus.parameters.broker import BrokerConfig

TURN_UNITS: Final = 100_000
"""Work of all patterns in one step of the broker, about a millisecond; bounds the time that others wait."""

PER_S: Final = "user_pattern_work_per_s"
"""Bound of the work over time."""

BOUNDS: Final = ("user_pattern_events_max", "pattern_work_max", PER_S)
"""Bounds of :class:`BrokerConfig` that apply to patterns, as reasons of gaps name them."""

_BURST_S: Final = 0.2
"""Time whose work a user may do at once."""


class PatternWork:
    """Accounts of the users, and their patterns that wait."""

    def __init__(self, config: BrokerConfig) -> None:
        self._per_s = config.user_pattern_work_per_s
        self._most = max(1.0, config.user_pattern_work_per_s * _BURST_S)
        self._accounts: dict[str, WorkAccount] = {}
        self._waiting: dict[str, dict[str, None]] = {}
        """Patterns that wait, by owner."""
        self._owners: list[tuple[int, str]] = []
        """Heap of the times at which the owners of waiting patterns have work again."""

    def left(self, owner: str, now_us: int) -> float:
        """Return the units that the patterns of a user may do now; none or less if they have to wait."""
        account = self._accounts.get(owner)
        if account is None:
            return self._most
        account.refill(now_us, self._per_s, self._most)
        if account.units >= self._most:
            del self._accounts[owner]
        return account.units

    def spend(self, owner: str, units: float, now_us: int) -> None:
        """Count work that was done for a user."""
        account = self._accounts.setdefault(owner, WorkAccount(self._most, now_us))
        account.units -= units

    def wait(self, owner: str, identity: str, now_us: int) -> None:
        """Let a pattern wait until its owner has work for a turn."""
        if owner not in self._waiting:
            self._waiting[owner] = {}
            self._let_wait(owner, now_us)
        self._waiting[owner][identity] = None

    def take_ready(self, now_us: int) -> str | None:
        """Return a waiting pattern whose owner has work again, which then waits no longer; None if there is none."""
        while self._owners and self._owners[0][0] <= now_us:
            owner = self._owners[0][1]
            if (waiting := self._waiting[owner]) and self.left(owner, now_us) > 0:
                identity = next(iter(waiting))
                del waiting[identity]
                return identity
            heappop(self._owners)
            if waiting:
                self._let_wait(owner, now_us)
            else:
                del self._waiting[owner]
        return None

    def _let_wait(self, owner: str, now_us: int) -> None:
        missing = min(TURN_UNITS, self._most) - self.left(owner, now_us)
        heappush(self._owners, (now_us + int(max(0.0, missing) / self._per_s * 1e6) + 1, owner))

    @property
    def next_us(self) -> int | None:
        """Return the time at which waiting patterns go on, None if none waits."""
        return self._owners[0][0] if self._owners else None
