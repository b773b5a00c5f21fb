"""Filters of all who want the events of a subject: subscriptions here, and the interest of other servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from wanderbus.broker.interest.index_entries import entries_of
from wanderbus.broker.interest.subject_filter import SUBSCRIPTIONS_MAX
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.errors import FilterError
from wanderbus.filters import Filter
from wanderbus.subscription import EVERY_SUBJECT

T = TypeVar("T")


class KnownInterest:
    """Tells which subscriptions concern a subject, and whether all of them are known.

    :param channels: the channels of the domain; None if this server is alone
    :param knows_all: whether the interest of all servers in a subject is known here, unless another server leads it
    """

    def __init__(self, channels: OwnChannels | None, knows_all: Callable[[str], bool]) -> None:
        self.is_alone = channels is None
        self._channels = channels
        self._decentralised = None if channels is None else channels.decentralised
        self._knows_all = knows_all

    def lineage(self, subject: str) -> tuple[str, ...]:
        """Return a subject, its parent and so on."""
        return (subject,) if self._channels is None else self._channels.lineage(subject)

    def concerns(self, wanted: str, subject: str) -> bool:
        """Return whether a subscription to ``wanted`` can match events of ``subject``."""
        return wanted == EVERY_SUBJECT or wanted in self.lineage(subject)

    def is_complete(self, subject: str, *, for_server: bool) -> bool:
        """Return whether this server, or the leader of an ordered channel, knows all who want events of a subject.

        For another server only the leader knows it; of decentralised channels each server knows it itself.
        """
        if self._decentralised is not None and self._decentralised.has(subject):
            # What is not advertised has to be refused, so it is sent.
            is_known = self._knows_all(subject) and not self._decentralised.requires_advertisement(subject)
            return is_known and not for_server
        if self._channels is None or self._channels.leads(subject):
            return self._knows_all(subject) and not (for_server and self._channels is None)
        return not for_server


class WantedFilters:
    """Live subscriptions and routes by subject.

    :param channels: the channels of the domain; None if this server is alone
    :param knows_all: whether the interest of all servers in a subject is known here, unless another server leads it
    """

    def __init__(self, state: BrokerState, channels: OwnChannels | None, knows_all: Callable[[str], bool]) -> None:
        self.interest = KnownInterest(channels, knows_all)
        """Which interest is known here, and concerns which subject."""
        self._state = state
        self._by_subject: dict[str, dict[str, None]] = {}
        """Ids of the live subscriptions to each subject, and names of the routes."""
        self._routes: dict[str, tuple[str, Filter]] = {}
        """Subject and filter of the interest of other servers in decentralised channels, by name."""

    def add(self, subscription: str, subjects: Iterable[str]) -> None:
        """Add a subscription by its id."""
        for subject in subjects:
            self._by_subject.setdefault(subject, {})[subscription] = None

    def add_route(self, name: str, subject: str, wanted: Filter) -> bool:
        """Add the interest of another server, and return whether its name is new."""
        if name in self._routes:
            return False
        self._routes[name] = subject, wanted
        self.add(name, (subject,))
        return True

    def remove(self, identity: str, subjects: Iterable[str]) -> None:
        """Remove a subscription or a route from its subjects."""
        for subject in subjects:
            if (identities := self._by_subject.get(subject)) is not None:
                identities.pop(identity, None)
                if not identities:
                    del self._by_subject[subject]

    def remove_route(self, name: str) -> str | None:
        """Remove the interest of another server, and return its subject; None if there is no such name."""
        if (route := self._routes.pop(name, None)) is None:
            return None
        subject, _ = route
        self.remove(name, (subject,))
        return subject

    def of_subject(self, subject: str) -> list[tuple[str, list[Filter]]] | None:
        """Return the filters of all who want events of a subject; None if they are more than are merged."""
        wanted = (*self.interest.lineage(subject), EVERY_SUBJECT)
        identities = dict.fromkeys(each for one in wanted for each in self._by_subject.get(one, ()))
        if len(identities) > SUBSCRIPTIONS_MAX:
            return None
        return [(each, self.concerned(self._filters(each), subject)) for each in identities]

    def concerned(self, filters: Sequence[tuple[str, T]], subject: str) -> list[T]:
        """Return those of several filters, each with its subject, that concern events of ``subject``."""
        return [each for one, each in filters if self.interest.concerns(one, subject)]

    def _filters(self, identity: str) -> list[tuple[str, Filter]]:
        """Return the subjects and filters of a subscription, or of a route; none if it cannot be parsed any more."""
        if (route := self._routes.get(identity)) is not None:
            return [route]
        try:
            entries = entries_of(self._state.subscriptions[identity].subscription)
        except FilterError:
            return []
        return [(each.subject, each.interest.filter) for each in entries]
