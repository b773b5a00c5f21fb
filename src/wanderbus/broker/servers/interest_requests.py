"""Interest of this server's subscriptions in channels that other servers lead (SPEC J-10).

A subscription is answered when it counts at every leader of its subjects: an event that is published anywhere after
that reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from wanderbus.broker.interest.index_entries import IndexEntry, entries_of
from wanderbus.broker.links import Links
from wanderbus.broker.messages import InterestChanged
from wanderbus.broker.readers import Link
from wanderbus.broker.state.journal import Journal
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.errors import FilterError, Refused
from wanderbus.subscription import Subscription

Answer = Callable[[], None]


class InterestRequests:
    """Reports the subscriptions to the layer below, and holds their answers until they count.

    :param channels: the channels of the domain; None if this server is alone
    """

    def __init__(self, journal: Journal, links: Links, channels: OwnChannels | None) -> None:
        self._journal = journal
        self._links = links
        self._channels = channels
        self._held: dict[str, list[tuple[Link, Answer]]] = {}
        """Answers that wait for a subscription, by its name below; it is here until it counts."""
        self._reported: dict[str, str] = {}
        """Name below of each subscription that other leaders have to know; a renewed one that had ended has another."""
        self._names = 0

    def add(self, subscriptions: Iterable[tuple[Subscription, Sequence[IndexEntry]]]) -> None:
        """Report subscriptions, each with its entries, if other servers lead channels of their subjects."""
        if self._channels is None:
            return
        added = {}
        for subscription, entries in subscriptions:
            if self._channels.other_leaders(each.subject for each in entries):
                self._names += 1
                name = self._reported[subscription.id] = f"{subscription.id} {self._names}"
                self._held[name] = []
                added[name] = tuple((each.subject, each.interest.filter) for each in entries)
        if added:
            self._journal.emit(InterestChanged(added))

    def add_earlier(self, subscriptions: Iterable[Subscription]) -> None:
        """Report subscriptions that were accepted earlier; one that cannot be parsed any more matches nothing."""
        readable = []
        for each in subscriptions if self._channels is not None else ():
            try:
                readable.append((each, entries_of(each)))
            except FilterError:
                continue
        self.add(readable)

    def check_since(self, subject: str) -> None:
        """Raise :class:`Refused` if a subscription to ``subject`` cannot begin in the past here.

        The earlier events of a channel are in the log of its leader.
        """
        if self._channels is not None and (leaders := self._channels.other_leaders([subject])):
            leader = " and ".join(sorted(leaders))
            raise Refused(f"since: the earlier events of {subject!r} are in the log of {leader}; subscribe there")

    def remove(self, subscription: str) -> None:
        """Report the end of a subscription, once the record of it is durable."""
        if (name := self._reported.pop(subscription, None)) is not None:
            self.counts([name])
            self._journal.emit(InterestChanged({}, (name,)))

    def when_it_counts(self, subscription: str, link: Link, answer: Answer) -> None:
        """Call ``answer`` when the subscription counts at all leaders of its subjects: now, unless it is on its way.

        It is not called once ``link`` is closed.
        """
        if (held := self._held.get(self._reported.get(subscription, ""))) is None:
            answer()
        else:
            held[:] = [each for each in held if self._is_open(each[0])]
            held.append((link, answer))

    def counts(self, names: Iterable[str]) -> None:
        """Give the answers that have waited for the subscriptions of these names."""
        for each in names:
            for link, answer in self._held.pop(each, ()):
                if self._is_open(link):
                    answer()

    def _is_open(self, link: Link) -> bool:
        return self._links.get(link.link) is link
