"""Interest of this server's subscriptions in channels of the domain (SPEC J-10).

A subscription is answered when it counts at every other leader of its ordered channels, and for decentralised channels
at all servers: an event that is published anywhere after that reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from wanderbus.broker.interest.index_entries import IndexEntry, entries_of
from wanderbus.broker.links import Links
from wanderbus.broker.messages import DecentralisedInterestChanged, InterestChanged
from wanderbus.broker.readers import Link
from wanderbus.broker.state.journal import Journal
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.errors import FilterError, Refused
from wanderbus.filters import Filter
from wanderbus.subscription import Subscription

Answer = Callable[[], None]


def subscription_of(name: str) -> str:
    """Return the id of the subscription that has this name below."""
    return name.rpartition(" ")[0]


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
        self._missing: dict[str, int] = {}
        """Number of reports that a subscription waits for, by its name below: of leaders, of all servers."""
        self.waits_for_others = False
        """True while another server may accept events under a former file of the domain: then nothing new counts."""
        self._waiting: list[str] = []
        """Names below of the subscriptions that wait for the end of that."""

    @property
    def waiting(self) -> Collection[object]:
        """Return the names below of the subscriptions that do not count yet."""
        return list(self._held)

    def add(self, subscriptions: Iterable[tuple[Subscription, Sequence[IndexEntry]]]) -> None:
        """Report subscriptions, each with its entries, if other servers have to know them."""
        if self._channels is None:
            return
        decentralised = self._channels.decentralised
        added, added_decentralised = {}, {}
        for subscription, entries in subscriptions:
            has_leaders = bool(self._channels.other_leaders(each.subject for each in entries))
            sent = [] if decentralised is None else [each for each in entries if decentralised.concerns(each.subject)]
            if has_leaders or sent or self.waits_for_others:
                self._names += 1
                name = self._reported[subscription.id] = f"{subscription.id} {self._names}"
                self._held[name] = []
                self._missing[name] = has_leaders + bool(sent) + self.waits_for_others
                if self.waits_for_others:
                    self._waiting.append(name)
                if has_leaders:
                    added[name] = _wanted(entries)
                if sent:
                    added_decentralised[name] = _wanted(sent)
        if added:
            self._journal.emit(InterestChanged(added))
        if added_decentralised:
            self._journal.emit(DecentralisedInterestChanged(added_decentralised))

    def add_earlier(self, subscriptions: Iterable[Subscription]) -> None:
        """Report subscriptions that were accepted earlier; one that cannot be parsed any more matches nothing."""
        readable = []
        for each in subscriptions if self._channels is not None else ():
            try:
                readable.append((each, entries_of(each)))
            except FilterError:
                continue
        self.add(readable)

    def leader_of_past(self, subject: str) -> str:
        """Return the server whose log has the earlier events of ``subject``, "" for this one.

        :raises Refused: they are in several logs, so a subscription cannot begin in the past
        """
        if (channels := self._channels) is None:
            return ""
        if channels.decentralised is not None and channels.decentralised.concerns(subject):
            raise Refused(f"since: the earlier events of {subject!r} are in the logs of all servers; subscribe live")
        leaders = channels.leaders([subject])
        if len(leaders) > 1:
            names = " and ".join(sorted(leaders))
            raise Refused(
                f"since: the earlier events of {subject!r} are in the logs of {names}, without a common order; "
                "subscribe to one subject, or live"
            )
        return "".join(leaders - {channels.server})

    def is_effective(self, subscription: str) -> bool:
        """Return whether a subscription is effective at all leaders of its subjects: they send every new event."""
        name = self._reported.get(subscription)
        return name is not None and name not in self._held

    def remove(self, subscription: str) -> None:
        """Report the end of a subscription, once the record of it is durable."""
        if (name := self._reported.pop(subscription, None)) is not None:
            self._give([name])
            self._journal.emit(InterestChanged({}, (name,)))
            if self._channels is not None and self._channels.decentralised is not None:
                self._journal.emit(DecentralisedInterestChanged({}, (name,)))

    def when_effective(self, subscription: str, link: Link, answer: Answer) -> None:
        """Call ``answer`` when the subscription is effective at all leaders: now, unless it is on its way.

        It is not called once ``link`` is closed.
        """
        if (held := self._held.get(self._reported.get(subscription, ""))) is None:
            answer()
        else:
            held[:] = [each for each in held if self._links.is_open(each[0])]
            held.append((link, answer))

    def became_effective(self, names: Iterable[str]) -> None:
        """Take a report about the subscriptions of these names; give the answers that have waited for the last one."""
        for each in names:
            if each in self._missing:
                self._missing[each] -= 1
                if not self._missing[each]:
                    self._give([each])

    def all_met(self) -> None:
        """Take the report that all servers have the present file of the domain."""
        self.waits_for_others = False
        waiting, self._waiting = self._waiting, []
        self.became_effective(waiting)

    def _give(self, names: Iterable[str]) -> None:
        for each in names:
            self._missing.pop(each, None)
            for link, answer in self._held.pop(each, ()):
                if self._links.is_open(link):
                    answer()


def _wanted(entries: Sequence[IndexEntry]) -> tuple[tuple[str, Filter], ...]:
    return tuple((each.subject, each.interest.filter) for each in entries)
