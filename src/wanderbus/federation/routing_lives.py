"""Lives of the routing of filters at one gateway (SPEC M-01).

Another domain may know a later life of this domain's gateways than the present one: another gateway was before, or its
clock was ahead. Then the routing begins again in a life after that one. A domain that lies costs a life now and then,
and never one that the clock here does not reach within years: all other domains learn the number of each life.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wanderbus.federation.filter_routing import FilterRouting
from wanderbus.federation.gateway_choice import epoch_of
from wanderbus.federation.routing_messages import Method, RoutingSettings, RoutingSuperseded
from wanderbus.tokens import TokenBucket

SERVER_METHODS: Final[tuple[Method, ...]] = ("multicast", "rendezvous")
"""Methods that servers have. An earlier life may have had any of them: the file was changed before this start."""

AHEAD_MS_MAX: Final = 10 * 365 * 86_400 * 1_000
"""Time by which the life of a gateway may be ahead of the clock here: what says more is a lie."""

LIVES_PER_S_MAX: Final = 0.1
LIVES_AT_ONCE_MAX: Final = 8.0
"""Lives that begin because one domain knows a later one: each costs a message to all."""

BEGUN_PER_S_MAX: Final = 1.0
"""Lives of a foreign domain's routing on one link: each costs an answer."""


class RoutingLives:
    """The present routing of filters, and what may replace it.

    :param life: identifies this life of the gateway; it rises with each, and is a time in ms on real servers
    :param place: place of the gateway among those of its domain
    :param domains: the foreign domains
    """

    def __init__(self, settings: RoutingSettings, life: int, place: int, domains: Iterable[str]) -> None:
        self._settings = settings
        self._life, self._place = life, place
        self._epoch = epoch_of(life, place)
        self._wall_ms = 0
        self._begun = {each: TokenBucket(BEGUN_PER_S_MAX, LIVES_AT_ONCE_MAX) for each in domains}
        self._buckets = {each: TokenBucket(LIVES_PER_S_MAX, LIVES_AT_ONCE_MAX) for each in domains}
        self.present = self._make()

    def clock_read(self, wall_us: int) -> None:
        """Note the wall clock, which bounds the lives that gateways can have had."""
        self._wall_ms = wall_us // 1_000
        self.present.believe(self._epoch_max)

    def begin_again(self, superseded: RoutingSuperseded, now: float) -> bool:
        """Begin a life after the one that a domain knows; False if it says so too often, and has to say it again."""
        if not self._buckets[superseded.domain].take(now):
            return False
        self.begin_anew(superseded.epoch)
        return True

    def may_begin(self, domain: str, now: float) -> bool:
        """Return whether the routing of a foreign domain may begin again on its link, which costs an answer."""
        return self._begun[domain].take(now)

    def begin_anew(self, known: int = 0) -> None:
        """Begin a life after all earlier ones here, and after one that is ``known``, which knows nothing yet."""
        self._epoch = epoch_of(self._life, self._place, max(known, self._epoch))
        self.present = self._make()

    @property
    def _epoch_max(self) -> int:
        return epoch_of(max(self._life, self._wall_ms) + AHEAD_MS_MAX, 0)

    def _make(self) -> FilterRouting:
        routing = FilterRouting(self._settings, epoch=self._epoch, former=SERVER_METHODS)
        routing.believe(self._epoch_max)
        return routing
