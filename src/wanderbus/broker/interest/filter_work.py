"""Work that filters may be for one event, and in time for all events of one user (SPEC B-01, U-02).

It is counted by :mod:`wanderbus.filters.work` before a filter is evaluated: in operations and characters, by the
broker's clock, so that a simulation decides alike. What is beyond a bound is not evaluated: nobody knows whether the
event matches, so the subscription gets a gap in its place, whose reason names the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from wanderbus.errors import LimitExceeded
from wanderbus.event import Event
from wanderbus.filters.compiled import Test
from wanderbus.filters.work import EverySize, Sizes, Work
from wanderbus.parameters.broker import BrokerConfig

BOUNDS: Final = ("filter_work_max", "user_event_filter_work_max", "user_filter_work_per_s")
"""The bounds of :class:`BrokerConfig` that are met here, as reasons of gaps name them."""

SAMPLE_CHARACTERS: Final = 256
"""Characters of each text of the event that every filter must have work enough for."""


class Undecided(msgspec.Struct, frozen=True):
    """A filter takes ``units`` for an event, too many because of ``bound``."""

    bound: str
    units: int


class _Account(msgspec.Struct):
    """Units that a user has: altogether at ``at_us``, and for the event of this turn."""

    units: float
    at_us: int
    turn: int = -1
    for_event: int = 0


class FilterWork:
    """Says of each filter that the index would evaluate whether it holds, within its owner's bounds."""

    def __init__(self, config: BrokerConfig, wall_us: Callable[[], int]) -> None:
        self._filter_max = config.filter_work_max
        self._event_max = config.user_event_filter_work_max
        self._per_s = config.user_filter_work_per_s
        self._wall_us = wall_us
        self._of: dict[str, tuple[str, Work]] = {}
        """The owner of each subscription, and the work of its filter."""
        self._accounts: dict[str, _Account] = {}
        self._attributes: Mapping[str, Any] | None = None
        self._sizes = Sizes({})
        self._turn = 0
        self._undecided: dict[int, dict[str, Undecided]] = {}
        """By the identity of an event's attributes, what could not be decided for it."""

    def check(self, work: Work) -> None:
        """Raise :class:`LimitExceeded` for a filter that is too much work for an event with short texts."""
        units = work.units(EverySize(SAMPLE_CHARACTERS))
        if units > self._filter_max:
            raise LimitExceeded(
                f"the filter takes up to {units} units of work for an event with texts of {SAMPLE_CHARACTERS} "
                f"characters, {self._filter_max} are the most; use fewer functions, or several subscriptions",
                "filter_work_max",
            )

    def put(self, identity: str, owner: str, work: Work) -> None:
        """Bound the work of this filter from now on."""
        self._of[identity] = owner, work

    def drop(self, identity: str) -> None:
        """Forget a subscription; no harm if it is not known."""
        self._of.pop(identity, None)

    def holds(self, identity: str, test: Test, event: Event) -> bool:
        """Return whether ``event`` satisfies a filter, or whether that is left undecided: a gap is made of those."""
        attributes = event.attributes
        if attributes is not self._attributes:
            self._attributes, self._sizes, self._turn = attributes, Sizes(attributes), self._turn + 1
        owner, work = self._of[identity]
        units = work.units(self._sizes)
        account = self._account(owner)
        if units > self._filter_max or units > account.for_event or units > account.units:
            self._undecided.setdefault(id(attributes), {})[identity] = Undecided(self._met(account, units), units)
            return True
        account.for_event -= units
        account.units -= units
        return test(attributes) is True

    def take_undecided(self, event: Event) -> dict[str, Undecided]:
        """Return what could not be decided for ``event`` since this was last asked."""
        return self._undecided.pop(id(event.attributes), {}) if self._undecided else {}

    def forget(self) -> None:
        """Forget what could not be decided for events that are no longer known."""
        self._undecided.clear()
        self._attributes = None

    def _account(self, owner: str) -> _Account:
        """Return the account of ``owner``, as it is at the event of this turn."""
        account = self._accounts.get(owner)
        if account is not None and account.turn == self._turn:
            return account
        now_us = self._wall_us()
        if account is None:
            account = self._accounts[owner] = _Account(self._per_s, now_us)
        account.units = min(self._per_s, account.units + (now_us - account.at_us) * self._per_s / 1e6)
        account.at_us, account.turn, account.for_event = now_us, self._turn, self._event_max
        return account

    def _met(self, account: _Account, units: int) -> str:
        if units > self._filter_max:
            return "filter_work_max"
        return "user_event_filter_work_max" if units > account.for_event else "user_filter_work_per_s"
