"""Sources from which users have logged in recently, which proves that they receive our responses."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from wanderbus.hosts import network_of

PEERS_MAX: Final = 8_192
"""Largest number of sources; the one recorded longest ago is removed."""

LATELY_S: Final = 86_400.0
"""Time for which a source is known after it was recorded, in seconds."""


class KnownPeers:
    """Sources of users, an IPv4 address or a /64 of IPv6 each."""

    def __init__(self, peers_max: int = PEERS_MAX) -> None:
        self._peers_max = peers_max
        self._noted: OrderedDict[str, float] = OrderedDict()
        self.everybody = False
        """True if every source counts as known, for servers without passwords."""
        self.always: frozenset[str] = frozenset()
        """Networks that are always known."""

    def __len__(self) -> int:
        return len(self._noted)

    def note(self, host: str, now: float) -> None:
        """Record that a user has logged in from ``host`` at monotonic second ``now``."""
        party = network_of(host)
        self._noted[party] = now
        self._noted.move_to_end(party)
        if len(self._noted) > self._peers_max:
            self._noted.popitem(last=False)

    def knows(self, party: str, now: float) -> bool:
        """Return whether a user logged in recently from ``party``, a result of :func:`wanderbus.hosts.network_of`."""
        if self.everybody or party in self.always:
            return True
        noted_at = self._noted.get(party)
        return noted_at is not None and now - noted_at <= LATELY_S
