"""Bounds on the work of filters for one event, and over time for all events of one user (SPEC B-01, U-02).

:mod:`wanderbus.filters.work` counts the work in operations and characters before a filter is evaluated, by the broker's
clock, so that a simulation decides alike. A filter beyond a bound is not evaluated: whether the event matches stays
undecided, so the subscription gets a gap, whose reason names the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, Final

from wanderbus.broker.interest.filter_accounts import FilterAccount, Undecided
from wanderbus.errors import LimitExceeded
from wanderbus.event import Event
from wanderbus.filters.compiled import Test
from wanderbus.filters.work import EverySize, Sizes
from wanderbus.filters.work_counts import Work
from wanderbus.parameters.broker import BrokerConfig

BOUNDS: Final = ("filter_work_max", "user_event_filter_work_max", "user_filter_work_per_s")
"""The bounds of :class:`BrokerConfig` that apply here, as reasons of gaps name them."""

SAMPLE_CHARACTERS: Final = 256
"""Length of the texts of the sample event; a filter that exceeds ``filter_work_max`` for it is refused."""


SERVER_SHARES: Final = 4
"""Users whose work the filters of one server of the domain may do; they stand for those of all its users."""


class FilterWork:
    """Evaluates the filters that the index asks for, within the bounds of their owners."""

    def __init__(self, config: BrokerConfig, wall_us: Callable[[], int], servers: Container[str] = ()) -> None:
        """Create it without filters.

        Those of ``servers`` of the domain count as satisfied beyond their bounds: these match each event that they get
        again, within the bounds of their users.
        """
        self._servers = servers
        self._filter_max = config.filter_work_max
        self._event_max = config.user_event_filter_work_max
        self._per_s = config.user_filter_work_per_s
        self._wall_us = wall_us
        self._of: dict[str, tuple[str, Work]] = {}
        """The owner of each subscription, and the work of its filter."""
        self._accounts: dict[str, FilterAccount] = {}
        self._attributes: Mapping[str, Any] | None = None
        self._sizes: Sizes | None = None
        """Sizes of those attributes, once a filter needs them."""
        self._turn = 0
        self._undecided: dict[int, dict[str, Undecided]] = {}
        """Undecided subscriptions of an event, by the object identity of its attributes."""

    def check(self, work: Work) -> None:
        """Raise :class:`LimitExceeded` for a filter with too much work for an event with short texts."""
        units = work.units(EverySize(SAMPLE_CHARACTERS))
        if units > self._filter_max:
            raise LimitExceeded(
                f"the filter takes up to {units} units of work for an event with texts of {SAMPLE_CHARACTERS} "
                f"characters; the limit is {self._filter_max}: use fewer functions, or several subscriptions",
                "filter_work_max",
            )

    def put(self, identity: str, owner: str, work: Work) -> None:
        """Add a filter and its work, to be bounded from now on."""
        self._of[identity] = owner, work

    def drop(self, identity: str) -> None:
        """Forget a subscription; does nothing for an unknown one."""
        self._of.pop(identity, None)

    def holds(self, identity: str, test: Test, event: Event) -> bool:
        """Return whether ``event`` satisfies a filter; also true for an undecided one, which then gets a gap."""
        attributes = event.attributes
        if attributes is not self._attributes:
            self._attributes, self._sizes, self._turn = attributes, None, self._turn + 1
        owner, work = self._of[identity]
        units = work.fixed
        if work.shares:
            if self._sizes is None:
                self._sizes = Sizes(attributes)
            units = work.units(self._sizes)
        account = self._accounts.get(owner)
        if account is None or account.turn != self._turn:
            account = self._refreshed(owner, account)
        if units > self._filter_max * account.shares or units > account.for_event or units > account.units:
            if account.shares == 1:
                undecided = Undecided(self._exceeded_bound(account, units), units)
                self._undecided.setdefault(id(attributes), {})[identity] = undecided
            return True
        account.for_event -= units
        account.units -= units
        return test(attributes) is True

    def exceeded(self, owner: str, event: Event, units: int) -> Undecided | None:
        """Count ``units`` of other work of a user for ``event``; return the bound if they are too many to be done."""
        if event.attributes is not self._attributes:
            self._attributes, self._sizes, self._turn = event.attributes, None, self._turn + 1
        account = self._accounts.get(owner)
        if account is None or account.turn != self._turn:
            account = self._refreshed(owner, account)
        if units > account.for_event or units > account.units:
            return Undecided(self._exceeded_bound(account, units), units)
        account.for_event -= units
        account.units -= units
        return None

    def take_undecided(self, event: Event) -> dict[str, Undecided]:
        """Return and remove the undecided subscriptions of ``event``."""
        return self._undecided.pop(id(event.attributes), {}) if self._undecided else {}

    def forget(self) -> None:
        """Forget all undecided subscriptions."""
        self._undecided.clear()
        self._attributes = None

    def _refreshed(self, owner: str, account: FilterAccount | None) -> FilterAccount:
        """Return the account of ``owner``, None if there is none yet, as it is at the event of this turn."""
        now_us = self._wall_us()
        if account is None:
            shares = SERVER_SHARES if owner in self._servers else 1
            account = self._accounts[owner] = FilterAccount(self._per_s * shares, now_us, shares=shares)
        else:
            per_s = self._per_s * account.shares
            account.refill(now_us, per_s, per_s)
        account.turn, account.for_event = self._turn, self._event_max * account.shares
        return account

    def _exceeded_bound(self, account: FilterAccount, units: int) -> str:
        if units > self._filter_max:
            return "filter_work_max"
        return "user_event_filter_work_max" if units > account.for_event else "user_filter_work_per_s"
