"""Interest of this server's subscriptions in channels of the domain, and of other domains (SPEC J-10).

A subscription is answered when it counts at every other leader of its ordered channels, and for decentralised channels
at all servers: an event that is published anywhere after that reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from wanderbus.broker.basics import Basics
from wanderbus.broker.interest.index_entries import IndexEntry, entries_of
from wanderbus.broker.messages import DecentralisedInterestChanged, OrderedInterestChanged
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.domestic_interest import DomesticInterest
from wanderbus.broker.servers.foreign_messages import ForeignInterestAsked, ForeignInterestEffective
from wanderbus.broker.servers.held_answers import Answer, HeldAnswers
from wanderbus.errors import FilterError
from wanderbus.filters import Filter
from wanderbus.subscription import Subscription


def subscription_of(name: str) -> str:
    """Return the id of the subscription that has this name below."""
    return name.rpartition(" ")[0]


class InterestRequests:
    """Reports the subscriptions to the layer below, and holds their answers until they count.

    :param channels: the channels of the domain; None if this server is alone
    :param unmet: servers that may accept events under a former file of the domain: nothing new counts before them
    :param is_joining: whether they may not know this server yet, which has joined
    """

    def __init__(self, basics: Basics, unmet: Collection[str] = (), *, is_joining: bool = False) -> None:
        self._on_effective: Callable[[], None] = lambda: None
        self._journal = basics.journal
        self._channels = basics.channels
        self._domestic = DomesticInterest(basics.journal) if basics.config.federated else None
        self._held = HeldAnswers(basics.links)
        self._abroad = HeldAnswers(basics.links)
        """Subscriptions that other domains are to know first."""
        self._reported: dict[str, tuple[str, ...]] = {}
        """Names below of each subscription that other servers have to know; a renewed one that had ended has others."""
        self._at_leaders: dict[str, str] = {}
        """Name of each of them that leaders have to know."""
        self._prepared: dict[int, dict[str, str]] = {}
        """Further names, of each subscription to a group that another server is to lead because the leader is gone."""
        self._names = 0
        self._unmet = dict.fromkeys(unmet)
        self._is_joining = is_joining
        self._unannounced: dict[str, tuple[tuple[str, Filter], ...]] = {}
        """Names below of what a server that joined wants in decentralised channels, until it has met all others."""

    @property
    def waiting(self) -> Collection[object]:
        """Return the subscriptions that do not count yet."""
        return [*self._held.pending, *self._abroad.pending]

    def add(self, subscriptions: Iterable[tuple[Subscription, Sequence[IndexEntry]]]) -> None:
        """Report subscriptions of users, each with its entries, if other servers or domains do not know them yet."""
        if self._domestic is not None:
            subscriptions = list(subscriptions)
            self._domestic.add(subscriptions)
        if self._channels is None:
            return
        decentralised = self._channels.decentralised
        added, added_decentralised = {}, {}
        for subscription, entries in subscriptions:
            if subscription.id in self._reported:  # its session was awaited, and is here now
                continue
            has_leaders = bool(self._channels.other_leaders(each.subject for each in entries))
            sent = [] if decentralised is None else [each for each in entries if decentralised.concerns(each.subject)]
            names = []
            if has_leaders:
                names.append(self._new_name(subscription.id))
                self._at_leaders[subscription.id] = names[-1]
                added[names[-1]] = _wanted(entries)
            if sent:
                names.append(self._new_name(subscription.id))
                added_decentralised[names[-1]] = _wanted(sent)
            if names or self._unmet:
                self._reported[subscription.id] = tuple(names)
                self._held.hold(subscription.id, [*names, *self._unmet])
        if added:
            self._journal.emit(OrderedInterestChanged(added))
        if self._unmet and self._is_joining:
            self._unannounced |= added_decentralised
        elif added_decentralised:
            self._journal.emit(DecentralisedInterestChanged(added_decentralised))

    def add_earlier(self, subscriptions: Iterable[Subscription]) -> None:
        """Report subscriptions that were accepted earlier."""
        if self._channels is not None or self._domestic is not None:
            self.add(with_entries(subscriptions))

    def prepare(self, group: int, target: str, subscriptions: Iterable[Subscription]) -> Collection[str]:
        """Report subscriptions to the server that is to lead a group because the leader is gone; return their names.

        A name is effective once that server alone has confirmed it. Nothing else changes until the leader does.
        """
        names, added = self._prepared.setdefault(group, {}), {}
        for subscription in subscriptions:
            if subscription.id in names:
                continue
            try:
                entries = entries_of(subscription)
            except FilterError:
                continue
            name = names[subscription.id] = self._new_name(subscription.id)
            added[name] = _wanted(entries)
            self._held.hold(name, [name])
        self._journal.emit(OrderedInterestChanged(added, at=target))
        return names.values()

    def leaders_changed(self, group: int, subscriptions: Iterable[Subscription]) -> None:
        """Report subscriptions to the servers that lead a group, or are about to, and no longer to others."""
        added: dict[str, tuple[tuple[str, Filter], ...]] = {}
        removed = list(self._prepared.pop(group, {}).values())
        for name in removed:
            self._held.give(name)
        assert self._channels is not None
        for subscription in subscriptions:
            try:
                entries = entries_of(subscription)
            except FilterError:
                continue
            identity, former = subscription.id, self._at_leaders.pop(subscription.id, None)
            names = [each for each in self._reported.get(identity, ()) if each != former]
            removed += [] if former is None else [former]
            if self._channels.other_leaders(each.subject for each in entries):
                name = self._at_leaders[identity] = self._new_name(identity)
                added[name] = _wanted(entries)
                names.append(name)
                self._held.hold_for(identity, name, former)
            elif former is not None:
                self.became_effective([former])
            self._reported.pop(identity, None)
            if names:
                self._reported[identity] = tuple(names)
        self._journal.emit(OrderedInterestChanged(added, tuple(removed)))

    def is_effective(self, subscription: Subscription) -> bool:
        """Return whether a subscription is effective at all leaders of its subject: they send every new event."""
        if self._channels is None:
            return True
        if subscription.id in self._held.pending:
            return False
        return subscription.id in self._reported or not self._channels.other_leaders([subscription.subject])

    def remove(self, subscription: str) -> None:
        """Report the end of a subscription, once the record of it is durable."""
        if self._domestic is not None:
            self._domestic.remove(subscription)
            self._abroad.give(subscription)
        self._at_leaders.pop(subscription, None)
        if (names := self._reported.pop(subscription, None)) is not None:
            self._held.give(subscription)
            self._journal.emit(OrderedInterestChanged({}, names))
            for name in names:
                self._unannounced.pop(name, None)
            if self._channels is not None and self._channels.decentralised is not None:
                self._journal.emit(DecentralisedInterestChanged({}, names))

    def tell(self, on_effective: Callable[[], None]) -> None:
        """Call ``on_effective`` whenever subscriptions may have become effective."""
        self._on_effective = on_effective

    def when_effective(self, subscription: str, link: Link | None, answer: Answer, *, everywhere: bool = False) -> None:
        """Call ``answer`` when the subscription is effective at all leaders: now, unless it is on its way.

        It is not called once ``link`` is closed; without one it is called in any case. If ``everywhere``, it is called
        when other domains know the subscription, too, as far as they can be reached.
        """
        if everywhere and self._domestic is not None:
            answer = partial(self._when_known_abroad, subscription, link, answer)
        self._held.when_effective(subscription, link, answer)

    def _when_known_abroad(self, subscription: str, link: Link | None, answer: Answer) -> None:
        if subscription not in self._abroad.pending:
            name = self._new_name(subscription)
            self._abroad.hold(subscription, [name])
            self._journal.emit(ForeignInterestAsked(name))
        self._abroad.when_effective(subscription, link, answer)

    def became_known(self, given: ForeignInterestEffective) -> None:
        """Give the answers that have waited for other domains."""
        for subscription in [one for each in given.names for one in self._abroad.pending.confirmed(each)]:
            self._abroad.give(subscription)

    def became_effective(self, names: Iterable[str]) -> None:
        """Take a report about these names; give the answers that have waited for the last one of a subscription."""
        for subscription in [one for each in names for one in self._held.pending.confirmed(each)]:
            self._held.give(subscription)
        self._on_effective()

    def met(self, server: str) -> None:
        """Take the report that another server has the present file of the domain."""
        self._unmet.pop(server, None)
        if self._unannounced and not self._unmet:
            self._journal.emit(DecentralisedInterestChanged(self._unannounced))
            self._unannounced = {}
        self.became_effective([server])

    def _new_name(self, subscription: str) -> str:
        self._names += 1
        return f"{subscription} {self._names}"


def _wanted(entries: Sequence[IndexEntry]) -> tuple[tuple[str, Filter], ...]:
    return tuple((each.subject, each.interest.filter) for each in entries)


def with_entries(subscriptions: Iterable[Subscription]) -> Sequence[tuple[Subscription, Sequence[IndexEntry]]]:
    """Return subscriptions that were accepted earlier, each with its entries.

    One that cannot be parsed any more matches nothing, and is left out.
    """
    readable = []
    for each in subscriptions:
        try:
            readable.append((each, entries_of(each)))
        except FilterError:
            continue
    return readable
