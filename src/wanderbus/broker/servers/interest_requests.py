"""Interest of this server's subscriptions in channels that other servers lead (SPEC J-10).

A subscription is answered when it counts at every leader of its subjects: an event that is published anywhere after
that reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from wanderbus.broker.interest.index_entries import IndexEntry, entries_of
from wanderbus.broker.messages import InterestChanged
from wanderbus.broker.state.journal import Journal
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.errors import FilterError
from wanderbus.subscription import Subscription

Answer = Callable[[], None]


class InterestRequests:
    """Reports the subscriptions to the layer below, and holds their answers until they count.

    :param channels: the channels of the domain; None if this server is alone
    """

    def __init__(self, journal: Journal, channels: OwnChannels | None) -> None:
        self._journal = journal
        self._channels = channels
        self._held: dict[str, list[Answer]] = {}
        """Answers that wait for a subscription, by name; it is here until it counts, also without an answer."""
        self._reported: dict[str, str] = {}
        """Name of each subscription that other leaders have to know; one that is renewed after its end gets another."""
        self._reports = 0

    def add(self, subscription: Subscription, entries: Sequence[IndexEntry]) -> None:
        """Report a subscription, if other servers lead channels of its subjects."""
        channels = self._channels
        if channels is None or not channels.other_leaders(each.subject for each in entries):
            return
        self._reports += 1
        name = self._reported[subscription.id] = f"{subscription.id}#{self._reports}"
        self._held[name] = []
        wanted = tuple((each.subject, each.interest.filter) for each in entries)
        self._journal.emit(InterestChanged({name: wanted}))

    def add_all(self, subscriptions: Iterable[Subscription]) -> None:
        """Report subscriptions that were accepted earlier; one that cannot be parsed any more matches nothing."""
        if self._channels is None:
            return
        for each in subscriptions:
            try:
                self.add(each, entries_of(each))
            except FilterError:
                continue

    def remove(self, subscription: str) -> None:
        """Report the end of a subscription, once the record of it is durable."""
        if (name := self._reported.pop(subscription, None)) is not None:
            for answer in self._held.pop(name, ()):
                answer()
            self._journal.emit(InterestChanged({}, (name,)))

    def when_it_counts(self, subscription: str, answer: Answer) -> None:
        """Call ``answer`` when the subscription counts at all leaders of its subjects: now, unless it is on its way."""
        if (held := self._held.get(self._reported.get(subscription, ""))) is None:
            answer()
        else:
            held.append(answer)

    def counts(self, names: Iterable[str]) -> None:
        """Give the answers that have waited for the subscriptions with these names."""
        for each in names:
            for answer in self._held.pop(each, ()):
                answer()
