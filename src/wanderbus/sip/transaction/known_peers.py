"""Sources at which users have proved themselves lately, and by that have shown that they receive what we send."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from wanderbus.hosts import network_of

PEERS_MAX: Final = 8_192
"""Sources that are remembered; the one that was noted longest ago gives way."""

LATELY_S: Final = 86_400.0
"""How long a source is known after it was noted, in seconds."""


class KnownPeers:
    """Sources of users, an IPv4 address or a /64 of IPv6 each."""

    def __init__(self, peers_max: int = PEERS_MAX) -> None:
        self._peers_max = peers_max
        self._noted: OrderedDict[str, float] = OrderedDict()
        self.everybody = False
        """Whether every source counts as known, for those who ask nobody for a password."""
        self.always: frozenset[str] = frozenset()
        """Networks that are known without being noted."""

    def __len__(self) -> int:
        return len(self._noted)

    def note(self, host: str, now: float) -> None:
        """Note that a user has proved to be at ``host`` at monotonic second ``now``."""
        party = network_of(host)
        self._noted[party] = now
        self._noted.move_to_end(party)
        if len(self._noted) > self._peers_max:
            self._noted.popitem(last=False)

    def knows(self, party: str, now: float) -> bool:
        """Say whether a user was lately at ``party``, a result of :func:`wanderbus.hosts.network_of`."""
        if self.everybody or party in self.always:
            return True
        noted_at = self._noted.get(party)
        return noted_at is not None and now - noted_at <= LATELY_S
