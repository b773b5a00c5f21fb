"""Filters for publishing agents, which hold back the events that nobody wants (SPEC N-02, N-03).

An agent may use filters under a lease. A new subscription is answered once every agent with filters of its subjects
uses wider ones, or its lease has run out. The agent counts its lease from its request on and by its own clock, so it
ends earlier there. After a start the leases of the previous life count as long as they may last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from wanderbus import protocol
from wanderbus.broker.interest.filter_watch import Answer, WaitingAnswer, Watch
from wanderbus.broker.interest.index_entries import IndexEntry, entries_of, subjects_of
from wanderbus.broker.interest.phase_counts import PhaseCounts
from wanderbus.broker.interest.subject_filter import SUBSCRIPTIONS_MAX, SubjectFilter
from wanderbus.broker.links import Links
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.readers import Link
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import device_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.errors import FilterError
from wanderbus.filters import Filter
from wanderbus.machine import SetTimer
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.subscription import EVERY_SUBJECT, Subscription

TIMER: Final = ("filter leases",)
"""Key of the timer for leases that somebody waits for."""

SUBJECTS_MAX: Final = 256
"""Subjects of which one agent may have filters at once."""

PAUSE_LEASES: Final = 10
"""Leases for which a user gets no filters after an agent of the user has let others wait to the end of its lease."""


class PublisherFilters:
    """Gives agents the filters of subjects, and holds the answers of subscriptions until these filters are wide enough.

    :param channels: the channels of the domain; None if this server is alone
    :param is_for_engine: whether the matching engine matches the events of a subject
    :param knows_routes: whether the interest of all servers in a decentralised subject is known here
    """

    def __init__(
        self,
        state: BrokerState,
        journal: Journal,
        links: Links,
        config: BrokerConfig,
        channels: OwnChannels | None,
        is_for_engine: Callable[[str], bool],
        knows_routes: Callable[[str], bool],
        counts: PhaseCounts,
    ) -> None:
        self.lease_s = config.publisher_filter_lease_s
        """Time for which an agent may use filters; 0 if no agent gets any."""
        self._state = state
        self._journal = journal
        self._links = links
        self._channels = channels
        self._is_for_engine = is_for_engine
        self._knows_routes = knows_routes
        self._permissions = Permissions("may_publish", config.may_publish)
        self._counts = counts
        self._by_subject: dict[str, dict[str, None]] = {}
        """Ids of the live subscriptions to each subject, and names of the routes."""
        self._routes: dict[str, tuple[str, Filter]] = {}
        """Subject and filter of the interest of other servers in decentralised channels, by name."""
        self._filters: dict[str, SubjectFilter] = {}
        """Filters of the subjects that an agent watches."""
        self._subjects: dict[int, set[str]] = {}
        """Subjects that are watched on each link."""
        self._links_of: dict[tuple[str, int], set[int]] = {}
        """Links with watches of each life of a device, by its key and epoch; they may be closed."""
        self._version = 0
        self._waiting: list[WaitingAnswer] = []
        self._paused: dict[str, float] = {}
        """Time until which each of these users gets no filters."""
        self._unknown: dict[str, tuple[int, float]] = {}
        """Devices that may have filters of the server's previous life, with the epoch of each and the end of leases."""

    def start(self) -> None:
        """Count the leases of the server's previous life from now on."""
        now = self._links.now
        for row in self._state.devices.values():
            if row.filter_lease_s:
                self._unknown[device_key(row.user, row.device)] = row.epoch, now + row.filter_lease_s

    # Subscriptions ----------------------------------------------------------------------------------------------

    def add(self, subscription: Subscription, entries: Sequence[IndexEntry]) -> None:
        """Add a new live subscription; :meth:`when_used` sends wider filters to the agents that need them."""
        self._note(subscription.id, subjects_of(subscription))
        self._widen(subscription.id, [(each.subject, each.interest.filter) for each in entries])

    def add_many(self, subscriptions: Iterable[Subscription]) -> None:
        """Add live subscriptions that were accepted earlier; one that cannot be parsed any more matches nothing."""
        for subscription in subscriptions:
            if not self._filters:
                self._note(subscription.id, subjects_of(subscription))
                continue
            try:
                self.add(subscription, entries_of(subscription))
            except FilterError:
                continue

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription that ends here; agents get narrower filters when they ask again."""
        self._remove(subscription.id, subjects_of(subscription))

    def add_route(self, name: str, subject: str, wanted: Filter) -> None:
        """Add the interest of another server in decentralised channels, by a name."""
        if name not in self._routes:
            self._routes[name] = subject, wanted
            self._note(name, (subject,))
            self._widen(name, [(subject, wanted)])

    def remove_route(self, name: str) -> None:
        """Remove the interest of another server."""
        if (route := self._routes.pop(name, None)) is not None:
            self._remove(name, (route[0],))

    def when_used(self, subscriptions: Iterable[Subscription], answer: Answer) -> None:
        """Call ``answer`` when no agent holds back events that these subscriptions match: now, if possible."""
        self._when_used({subject for each in subscriptions for subject in subjects_of(each)}, answer)

    def when_all_used(self, answer: Answer) -> None:
        """Do the same for everything that was added until now; the answers come in the order of the calls."""
        self._when_used((EVERY_SUBJECT,), answer)

    def _when_used(self, subjects: Iterable[str], answer: Answer) -> None:
        versions = {}
        for subject, each in list(self._watched(subjects)):
            self._expire(subject, each)
            self._push(subject, each)
            versions[subject] = each.widened
        self._waiting.append(WaitingAnswer(versions, answer))
        self._go_on()

    def _note(self, identity: str, subjects: Iterable[str]) -> None:
        for subject in subjects:
            self._by_subject.setdefault(subject, {})[identity] = None

    def _widen(self, identity: str, wanted: Sequence[tuple[str, Filter]]) -> None:
        """Add subjects and filters of one identity to what is watched; :meth:`when_used` sends it to the agents."""
        for subject, each in self._watched(one for one, _ in wanted):
            concerned = [interest for one, interest in wanted if self._concerns(one, subject)]
            each.add([(identity, concerned)], self._next_version())

    def _remove(self, identity: str, subjects: Sequence[str]) -> None:
        for subject in subjects:
            if (ids := self._by_subject.get(subject)) is not None:
                ids.pop(identity, None)
                if not ids:
                    del self._by_subject[subject]
        for _, each in self._watched(subjects):
            each.remove(identity, self._next_version())

    def _watched(self, subjects: Iterable[str]) -> Iterator[tuple[str, SubjectFilter]]:
        """Yield the filters that subscriptions to ``subjects`` are part of."""
        wanted = set(subjects)
        if self._channels is None and EVERY_SUBJECT not in wanted:
            yield from ((each, self._filters[each]) for each in wanted if each in self._filters)
            return
        for subject, each in list(self._filters.items()):
            if any(self._concerns(one, subject) for one in wanted):
                yield subject, each

    def _concerns(self, wanted: str, subject: str) -> bool:
        """Return whether a subscription to ``wanted`` can match events of ``subject``."""
        return wanted == EVERY_SUBJECT or wanted in self._lineage(subject)

    def _lineage(self, subject: str) -> tuple[str, ...]:
        return (subject,) if self._channels is None else self._channels.lineage(subject)

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    # Agents -----------------------------------------------------------------------------------------------------

    def take(self, link: Link, message: protocol.OfFilters) -> None:
        """Serve a message of the agent on ``link``."""
        match message:
            case protocol.RequestFilters():
                self.request(link, message)
            case protocol.ConfirmFilters():
                self.confirm(link, message)
            case protocol.ReleaseFilters():
                self.release(link, message)

    def request(self, link: Link, request: protocol.RequestFilters) -> None:
        """Answer with the filters of a subject, for a lease; or without filters, if the agent gets none."""
        self._counts.at_publisher(request.examined, request.held_back)
        subject = request.subject
        if (found := self._filters.get(subject)) is not None:
            self._expire(subject, found)
        watch = None if found is None else found.watches.get(link.link)
        if watch is not None and not watch.is_confirmed:
            watch.deferred = request.number
            return
        if not self._may_have(link, subject, watch):
            if watch is None or found is None:
                self._links.send(link, protocol.Filters(request.number, subject, 0, 0.0, None))
            else:
                found.version = self._next_version()
                self._send_nothing(link, subject, watch, found.version, request.number)
            return
        found = self._filters.get(subject) or self._make(subject)
        if found.expressions is None and watch is None:
            self._drop_unwatched(subject)
            self._links.send(link, protocol.Filters(request.number, subject, 0, 0.0, None))
            return
        until = self._links.now + self.lease_s
        if watch is None:
            epoch = self._state.devices[link.key].epoch
            watch = Watch(link.link, link.user, link.key, epoch, until, found.version, found.version)
            found.watches[link.link] = watch
            self._subjects.setdefault(link.link, set()).add(subject)
            self._links_of.setdefault((link.key, epoch), set()).add(link.link)
        watch.until = until
        self._send(link, subject, found, watch, request.number)
        self._go_on()

    def confirm(self, link: Link, confirmed: protocol.ConfirmFilters) -> None:
        """Note which filters an agent uses; send it newer ones, and the answers that have waited for it."""
        found = self._filters.get(confirmed.subject)
        watch = None if found is None else found.watches.get(link.link)
        if found is None or watch is None:
            return
        watch.oldest = max(watch.oldest, min(confirmed.version, watch.sent))
        if watch.is_confirmed:
            deferred, watch.deferred = watch.deferred, 0
            if watch.is_last:
                self._drop(confirmed.subject, watch)
            if deferred:
                self.request(link, protocol.RequestFilters(deferred, confirmed.subject))
            elif not watch.is_last:
                self._push(confirmed.subject, found)
        self._go_on()

    def release(self, link: Link, released: protocol.ReleaseFilters) -> None:
        """Forget the filters of an agent that holds back nothing any more."""
        self._counts.at_publisher(released.examined, released.held_back)
        self._forget(link.link)
        self._go_on()

    def attached(self, link: Link, epoch: int) -> None:
        """Forget the filters that an agent had on earlier links: it has given them up before it attached here."""
        if self._unknown.get(link.key, (None, 0.0))[0] == epoch:
            del self._unknown[link.key]
        for each in self._links_of.get((link.key, epoch), set()) - {link.link}:
            self._forget(each)
        self._go_on()

    def timer_fired(self) -> None:
        """End the leases that have run out, and send the answers that have waited for them."""
        for subject, each in list(self._filters.items()):
            self._expire(subject, each)
        self._go_on()

    def sweep(self) -> None:
        """Forget leases that have run out."""
        now = self._links.now
        self._paused = {user: until for user, until in self._paused.items() if until > now}
        self.timer_fired()

    def _may_have(self, link: Link, subject: str, watch: Watch | None) -> bool:
        """Return whether an agent may have the filters of a subject: all who want its events are known here."""
        if not self.lease_s or link.is_server or link.unattended or self._is_for_engine(subject):
            return False
        if not self._knows_all(subject):
            return False
        if self._paused.get(link.user, 0.0) > self._links.now or self._permissions.refusal(link.user, subject):
            return False
        return watch is not None or len(self._subjects.get(link.link, ())) < SUBJECTS_MAX

    def _knows_all(self, subject: str) -> bool:
        """Return whether this server knows all who want events of a subject."""
        channels = self._channels
        if channels is None:
            return True
        if channels.direct is not None and channels.direct.takes(subject):
            # What is not advertised has to be refused, so it is sent.
            return self._knows_routes(subject) and not channels.direct.requires_advertisement(subject)
        return channels.leads(subject)

    def _make(self, subject: str) -> SubjectFilter:
        """Return new filters of a subject, merged from its subscriptions unless they are too many."""
        found = self._filters[subject] = SubjectFilter(self._next_version())
        wanted = (*self._lineage(subject), EVERY_SUBJECT)
        identities = dict.fromkeys(each for one in wanted for each in self._by_subject.get(one, ()))
        if len(identities) > SUBSCRIPTIONS_MAX:
            found.give_up(found.version)
            return found
        several = []
        for identity in identities:
            filters = [each for one, each in self._wanted(identity) if self._concerns(one, subject)]
            several.append((identity, filters))
            self._journal.work += len(filters)
        found.add(several, found.version)
        return found

    def _wanted(self, identity: str) -> list[tuple[str, Filter]]:
        """Return the subjects and filters of a subscription, or of a route; none if it cannot be parsed any more."""
        if (route := self._routes.get(identity)) is not None:
            return [route]
        try:
            entries = entries_of(self._state.subscriptions[identity].subscription)
        except FilterError:
            return []
        return [(each.subject, each.interest.filter) for each in entries]

    def _push(self, subject: str, found: SubjectFilter) -> None:
        """Send wider filters to the agents that have confirmed what they were sent before."""
        for watch in found.unconfirmed(found.widened):
            link = self._links.get(watch.link)
            if watch.is_confirmed and link is not None:
                self._send(link, subject, found, watch, 0)

    def _send(self, link: Link, subject: str, found: SubjectFilter, watch: Watch, number: int) -> None:
        expressions = found.expressions
        watch.sent, watch.is_last = found.version, expressions is None
        self._links.send(link, protocol.Filters(number, subject, found.version, self.lease_s, expressions))

    def _send_nothing(self, link: Link, subject: str, watch: Watch, version: int, number: int) -> None:
        """Let an agent that may have no more filters publish every event."""
        watch.sent, watch.is_last = version, True
        self._links.send(link, protocol.Filters(number, subject, version, self.lease_s, None))

    # Leases -----------------------------------------------------------------------------------------------------

    def _expire(self, subject: str, found: SubjectFilter) -> None:
        """End the leases of a subject that have run out."""
        now = self._links.now
        for watch in [each for each in found.watches.values() if each.until <= now]:
            if not watch.is_confirmed:
                self._paused[watch.user] = now + PAUSE_LEASES * self.lease_s
            self._drop(subject, watch)

    def _forget(self, link: int) -> None:
        for subject in list(self._subjects.get(link, ())):
            self._drop(subject, self._filters[subject].watches[link])

    def _drop(self, subject: str, watch: Watch) -> None:
        del self._filters[subject].watches[watch.link]
        self._drop_unwatched(subject)
        subjects = self._subjects[watch.link]
        subjects.discard(subject)
        if subjects:
            return
        del self._subjects[watch.link]
        links = self._links_of[watch.key, watch.epoch]
        links.discard(watch.link)
        if not links:
            del self._links_of[watch.key, watch.epoch]

    def _drop_unwatched(self, subject: str) -> None:
        if not self._filters[subject].watches:
            del self._filters[subject]

    def _go_on(self) -> None:
        """Give the answers that wait for no agent any more; set a timer for the first lease that one waits for."""
        if not self._waiting:
            return
        now = self._links.now
        self._unknown = {key: each for key, each in self._unknown.items() if each[1] > now}
        ends = [until for _, until in self._unknown.values()]
        waiting, self._waiting = self._waiting, []
        oldest = {subject: min(w.oldest for w in each.watches.values()) for subject, each in self._filters.items()}
        due = []
        for each in waiting:
            behind = [subject for subject, version in each.versions.items() if oldest.get(subject, version) < version]
            if behind or self._unknown:
                self._waiting.append(each)
                ends += [w.until for one in behind for w in self._filters[one].unconfirmed(each.versions[one])]
            else:
                due.append(each)
        if ends:
            self._journal.emit_now(SetTimer(TIMER, min(ends)))
        for each in due:
            each.answer()
