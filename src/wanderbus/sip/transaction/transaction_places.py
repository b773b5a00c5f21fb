"""Limits on server transactions, so that nobody can use all of them (SPEC C-20).

::

    of all places     strangers may hold a quarter with unanswered requests
    of that quarter   one source may hold a quarter
    of all places     one known source may hold a quarter with such requests

Each transaction holds one place, a large one as many as its multiple of :data:`PLACE_BYTES`: so the number of places
limits their memory too. A completed transaction is kept only to repeat its response. When a place is needed, the oldest
of these is removed, those of strangers first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from wanderbus.hosts import network_of
from wanderbus.sip.transaction.transaction_states import RequestSender

PLACE_BYTES: Final = 2_048
"""Bytes of a request, or of its response once there is one, for each place."""

STRANGERS_PART: Final = 1 / 4
"""Share of all places for unanswered requests of strangers."""

SOURCE_PART: Final = 1 / 4
"""Share of these for one stranger, and share of all places for one known source."""

PEERS_MAX: Final = 8_192
"""Largest number of sources; the one recorded longest ago is removed."""

LATELY_S: Final = 86_400.0
"""Time for which a source is known after it was recorded, in seconds."""


class _Held:
    __slots__ = ("answered", "party", "places")

    def __init__(self, party: RequestSender, places: int, answered: bool = False) -> None:
        self.party = party
        self.places = places
        self.answered = answered


class TransactionPlaces:
    """Holders of ``places_max`` places, by the name of the transaction."""

    def __init__(self, places_max: int) -> None:
        self._places_max = places_max
        self._held: dict[str, _Held] = {}
        self._taken = 0
        self._unanswered: dict[RequestSender, int] = {}
        self._strangers = 0
        self._answered: dict[bool, OrderedDict[str, None]] = {False: OrderedDict(), True: OrderedDict()}
        """Names of completed transactions, oldest first, by whether their party is known."""

    def __len__(self) -> int:
        return self._taken

    def network_of(self, name: str) -> str:
        """Return the source network of transaction ``name``."""
        return self._held[name].party.network

    def has_room(self, size: int) -> bool:
        """Return whether there is room for a request of ``size`` bytes; always true if there is no transaction."""
        return self._taken + _places(size) <= self._places_max or not self._taken

    def is_crowded(self, party: RequestSender, size: int) -> bool:
        """Return whether an unanswered request of ``size`` bytes would exceed the share of ``party``."""
        places = _places(size)
        own = self._unanswered.get(party, 0) + places
        if party.known:
            return own > self._places_max * SOURCE_PART
        of_strangers = self._places_max * STRANGERS_PART
        return own > of_strangers * SOURCE_PART or self._strangers + places > of_strangers

    def enter(self, name: str, party: RequestSender, size: int) -> None:
        """Give transaction ``name`` its places."""
        self._held[name] = held = _Held(party, _places(size))
        self._count_unanswered(held, held.places)
        self._taken += held.places

    def answered(self, name: str, size: int) -> None:
        """Record that only a response of ``size`` bytes is kept of transaction ``name``."""
        held = self._held.get(name)
        if held is None or held.answered:
            return
        self._count_unanswered(held, -held.places)
        held.answered = True
        self._answered[held.party.known][name] = None
        self._taken += _places(size) - held.places
        held.places = _places(size)

    def oldest_answered(self) -> str | None:
        """Return the transaction to remove first, None if there is none."""
        for names in self._answered.values():
            if names:
                return next(iter(names))
        return None

    def leave(self, name: str) -> None:
        """Release the places of transaction ``name``."""
        held = self._held.pop(name)
        self._taken -= held.places
        if held.answered:
            del self._answered[held.party.known][name]
        else:
            self._count_unanswered(held, -held.places)

    def _count_unanswered(self, held: _Held, places: int) -> None:
        left = self._unanswered.get(held.party, 0) + places
        if left:
            self._unanswered[held.party] = left
        else:
            self._unanswered.pop(held.party, None)
        if not held.party.known:
            self._strangers += places


def _places(size: int) -> int:
    return 1 + size // PLACE_BYTES


class KnownPeers:
    """Sources of users, an IPv4 address or a /64 of IPv6 each; the networks in ``always`` are always known."""

    def __init__(self, peers_max: int = PEERS_MAX, *, always: frozenset[str] = frozenset()) -> None:
        self._peers_max = peers_max
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._always = always
        self._is_everybody = False

    def __len__(self) -> int:
        return len(self._noted)

    def know_everybody(self) -> None:
        """Count every source as known, for servers without passwords."""
        self._is_everybody = True

    def note(self, host: str, now: float) -> None:
        """Record that a user has logged in from ``host`` at monotonic second ``now``."""
        party = network_of(host)
        self._noted[party] = now
        self._noted.move_to_end(party)
        if len(self._noted) > self._peers_max:
            self._noted.popitem(last=False)

    def knows(self, party: str, now: float) -> bool:
        """Return whether a user logged in recently from ``party``, a result of :func:`wanderbus.hosts.network_of`."""
        if self._is_everybody or party in self._always:
            return True
        noted_at = self._noted.get(party)
        return noted_at is not None and now - noted_at <= LATELY_S
