"""Filters for publishing agents, which hold back the events that nobody wants (SPEC N-02, N-03).

An agent may use filters under a lease. A new subscription is answered once every agent with filters of its subjects
uses wider ones, or its lease has run out. The agent counts its lease from its request on and by its own clock, so it
ends earlier there. After a start the leases of the previous life count as long as they may last.

Another server is such an agent too, for the channels that this server leads; its own agents use the filters.

A foreign domain has its subscriptions at every server, because each server sends it what that server accepts. So they
are among the filters of the server that accepts an event: of an ordered channel those of its leader, which other
servers request there, and of a decentralised one those of the publisher's server. No server tells another of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from wanderbus import protocol
from wanderbus.broker.basics import Basics
from wanderbus.broker.interest.filter_watch import Watch
from wanderbus.broker.interest.index_entries import IndexEntry, entries_of, subjects_of
from wanderbus.broker.interest.leader_filters import LEASES_MAX, LeaderFilters
from wanderbus.broker.interest.leader_lease import WaitingRequest
from wanderbus.broker.interest.lease_marks import LeaseMarks
from wanderbus.broker.interest.merge_pace import MERGE_ALL_WORK_MAX, MergePace
from wanderbus.broker.interest.phase_counts import PhaseCounts
from wanderbus.broker.interest.subject_filter import SubjectFilter
from wanderbus.broker.interest.wanted_filters import WantedFilters
from wanderbus.broker.messages import FiltersArrived, LeaderLinkChanged
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.held_answers import Answer
from wanderbus.channels.interest.interest_forms import interest_form
from wanderbus.channels.pending import Pending
from wanderbus.errors import FilterError
from wanderbus.filters import Filter
from wanderbus.limits import MERGE_WORK_MAX
from wanderbus.machine import SetTimer
from wanderbus.subscription import EVERY_SUBJECT, Subscription
from wanderbus.work import WorkBudget

TIMER: Final = ("filter leases",)
"""Key of the timer for leases that somebody waits for."""

SUBJECTS_MAX: Final = 256
"""Subjects of which one agent may have filters at once."""

_PREVIOUS_LIFE: Final = ""
"""Stands among subjects for the leases of the server's previous life, which every answer waits for."""

PAUSE_LEASES: Final = 10
"""Leases for which a user gets no filters after an agent of the user has let others wait to the end of its lease."""


class PublisherFilters:
    """Gives agents the filters of subjects, and holds the answers of subscriptions until these filters are wide enough.

    :param channels: the channels of the domain; None if this server is alone
    :param is_for_engine: whether the matching engine matches the events of a subject
    :param knows_all: whether the interest of all servers in a subject is known here, unless another server leads it
    """

    def __init__(
        self,
        basics: Basics,
        is_for_engine: Callable[[str], bool],
        knows_all: Callable[[str], bool],
        counts: PhaseCounts,
    ) -> None:
        self.lease_s = basics.config.publisher_filter_lease_s
        """Time for which an agent may use filters; 0 if no agent gets any."""
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._wanted = WantedFilters(basics.state, basics.channels, knows_all)
        self.leaders = LeaderFilters(basics.journal, basics.links, basics.channels)
        """Filters of channels that other servers lead."""
        self._is_for_engine = is_for_engine
        self._permissions = Permissions("may_publish", basics.config.may_publish)
        self._counts = counts
        self._filters: dict[str, SubjectFilter] = {}
        """Filters of the subjects that an agent watches."""
        self._subjects: dict[int, set[str]] = {}
        """Subjects that are watched on each link."""
        self._links_of: dict[tuple[str, int], set[int]] = {}
        """Links with watches of each life of a device, by its key and epoch; they may be closed."""
        self._version = 0
        self._pending: Pending[Answer, str] = Pending()
        """Answers that wait until all agents use a version of the filters of each of several subjects."""
        self._paused: dict[str, float] = {}
        """Time until which each of these users gets no filters."""
        self._marks = LeaseMarks(basics.state, basics.journal, basics.links, basics.servers)
        self._pace = MergePace(basics.journal, basics.links)

    @property
    def waiting(self) -> Collection[object]:
        """Return the answers that wait for publishers, and the requests that wait for leaders."""
        return [*self._pending, *self.leaders.waiting]

    def start(self) -> None:
        """Count the leases of the server's previous life from now on."""
        self._marks.start()

    # Subscriptions ----------------------------------------------------------------------------------------------

    def add(self, subscription: Subscription, entries: Sequence[IndexEntry]) -> None:
        """Add a new live subscription; :meth:`when_used` sends wider filters to the agents that need them."""
        self._wanted.add(subscription.id, subjects_of(subscription))
        wanted = [(each.subject, each.interest.filter) for each in entries]
        if not self._widen(subscription.id, wanted):
            reason = "its filters are not merged, and agents publish every event"
            self._journal.tally.note("limits.MERGE_WORK_MAX", subscription.owner, reason)

    def add_many(self, subscriptions: Iterable[Subscription]) -> None:
        """Add live subscriptions that were accepted earlier; one that cannot be parsed any more matches nothing."""
        for subscription in subscriptions:
            if not self._filters:
                self._wanted.add(subscription.id, subjects_of(subscription))
                continue
            try:
                self.add(subscription, entries_of(subscription))
            except FilterError:
                continue

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription that ends here; agents get narrower filters when they ask again."""
        subjects = subjects_of(subscription)
        self._wanted.remove(subscription.id, subjects)
        self._narrow(subscription.id, subjects)

    def add_route(self, name: str, subject: str, wanted: Filter) -> None:
        """Add the interest of another server in decentralised channels, by a name."""
        if self._wanted.add_route(name, subject, wanted):
            self._widen(name, [(subject, wanted)])

    def remove_route(self, name: str) -> None:
        """Remove the interest of another server."""
        if (subject := self._wanted.remove_route(name)) is not None:
            self._narrow(name, (subject,))

    def when_used(self, subscriptions: Iterable[Subscription], answer: Answer) -> None:
        """Call ``answer`` when no agent holds back events that these subscriptions match: now, if possible.

        For channels that other servers lead, the leader has seen to that before it has confirmed the subscription.
        """
        self._when_used(self._watched({subject for each in subscriptions for subject in subjects_of(each)}), answer)

    def give_up(self, is_meant: Callable[[str], bool], answer: Answer) -> None:
        """Let agents publish every event of the subjects that are meant; call ``answer`` when all of them do."""
        found = [(one, each) for one, each in self._filters.items() if not each.is_leaders and is_meant(one)]
        for _, each in found:
            each.give_up(self._next_version())
        self._when_used(found, answer)

    def when_all_used(self, answer: Answer) -> None:
        """Do the same for everything that was added until now; the answers come in the order of the calls."""
        self._when_used(self._watched((EVERY_SUBJECT,)), answer)

    def _when_used(self, watched: Iterable[tuple[str, SubjectFilter]], answer: Answer) -> None:
        versions: dict[str, float] = {_PREVIOUS_LIFE: 0}
        for subject, each in list(watched):
            self._expire(subject, each)
            self._push(subject, each)
            versions[subject] = each.widened
        self._pending.add(answer, versions)
        self._go_on()

    def _widen(self, identity: str, wanted: Sequence[tuple[str, Filter]]) -> bool:
        """Add subjects and filters of one identity to what is watched; :meth:`when_used` sends it to the agents.

        Return whether the work was within its bound.
        """
        if not (watched := list(self._watched(one for one, _ in wanted))):
            return True
        work = WorkBudget(MERGE_WORK_MAX * len(wanted))
        forms = [(subject, interest_form(each, work)) for subject, each in wanted]
        for subject, each in watched:
            each.add([(identity, self._wanted.concerned(forms, subject))], self._next_version(), work)
        self._pace.count(work)
        return bool(work.left)

    def _narrow(self, identity: str, subjects: Iterable[str]) -> None:
        """Remove one identity from what is watched."""
        work = WorkBudget(MERGE_WORK_MAX)
        for _, each in self._watched(subjects):
            each.remove(identity, self._next_version(), work)
        self._pace.count(work)

    def _watched(self, subjects: Iterable[str]) -> Iterator[tuple[str, SubjectFilter]]:
        """Yield the filters that subscriptions to ``subjects`` here are part of."""
        wanted, interest = set(subjects), self._wanted.interest
        if interest.is_alone and EVERY_SUBJECT not in wanted:
            yield from ((each, self._filters[each]) for each in wanted if each in self._filters)
            return
        for subject, each in list(self._filters.items()):
            if not each.is_leaders and any(interest.concerns(one, subject) for one in wanted):
                yield subject, each

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    # Agents -----------------------------------------------------------------------------------------------------

    def take(self, link: Link, message: protocol.FilterMessage) -> None:
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
        subject, number = request.subject, request.number
        is_leaders = self.leaders.is_led_elsewhere(subject) and self._may_have(link, subject)
        if not is_leaders or not self.leaders.waits(subject, link.link, number):
            self._answer(link, subject, number)

    def _answer(self, link: Link, subject: str, number: int) -> None:
        if (found := self._filters.get(subject)) is not None:
            self._expire(subject, found)
        watch = None if found is None else found.watches.get(link.link)
        if watch is not None and not watch.is_confirmed:
            watch.deferred = number
            return
        if not (lease_s := self._lease_s(link, subject)):
            if watch is None or found is None:
                self._links.send(link, protocol.Filters(number, subject, 0, 0.0, None))
            else:
                found.version = self._next_version()
                self._send_nothing(link, subject, watch, found.version, number)
            return
        found = self._filters.get(subject) or (self._make(link, subject) if self._pace.may_merge(link) else None)
        if found is None:
            self._links.send(link, protocol.Filters(number, subject, 0, 0.0, None))
            return
        if found.expressions is None and watch is None:
            self._drop_unwatched(subject)
            self._links.send(link, protocol.Filters(number, subject, 0, 0.0, None))
            return
        until = self._links.now + lease_s
        if watch is None:
            watch = self._watch(link, subject, found, until)
        watch.until = max(watch.until, until)
        self._send(link, subject, found, watch, number, lease_s)
        self._go_on()

    def _watch(self, link: Link, subject: str, found: SubjectFilter, until: float) -> Watch:
        """Add a watch of the agent on ``link``; another server with one is marked, so that a restart notices it."""
        row = self._state.devices[link.key]
        watch = Watch(link.link, link.user, link.key, row.epoch, until, found.version, found.version)
        found.watches[link.link] = watch
        self._subjects.setdefault(link.link, set()).add(subject)
        self._links_of.setdefault((link.key, row.epoch), set()).add(link.link)
        if link.is_server:
            self._marks.mark(row, self.lease_s)
        return watch

    def confirm(self, link: Link, confirmed: protocol.ConfirmFilters) -> None:
        """Note which filters an agent uses; send it newer ones, and the answers that have waited for it."""
        found = self._filters.get(confirmed.subject)
        watch = None if found is None else found.watches.get(link.link)
        if found is None or watch is None:
            return
        watch.oldest = max(watch.oldest, min(confirmed.version, watch.sent))
        if watch.is_confirmed:
            deferred, watch.deferred = watch.deferred, 0
            if link.is_server:
                self._drop_earlier(link, confirmed.subject, watch)
            if watch.is_last:
                self._drop(confirmed.subject, watch)
            if deferred:
                self._answer(link, confirmed.subject, deferred)
            elif not watch.is_last:
                self._push(confirmed.subject, found)
        self._go_on()

    def release(self, link: Link, released: protocol.ReleaseFilters) -> None:
        """Forget the filters of an agent that holds back nothing any more."""
        self._counts.at_publisher(released.examined, released.held_back)
        self._forget(link.link)
        self._go_on()

    def attached(self, link: Link, epoch: int) -> None:
        """Forget the filters that an agent had on earlier links: it has given them up before it attached here.

        Another server has not: its agents may still use them.
        """
        if link.is_server:
            return
        self._marks.attached(link, epoch)
        for each in self._links_of.get((link.key, epoch), set()) - {link.link}:
            self._forget(each)
        self._go_on()

    def lease_mark_s(self, link: Link, *, is_filtering: bool) -> float:
        """Return the lease to note with the attachment of a device, 0 if it may have no filters."""
        return self._marks.of_attachment(link, self.lease_s if is_filtering and not link.is_server else 0.0)

    def on_leader(self, given: LeaderLinkChanged | FiltersArrived) -> None:
        """Take a report about a leader; confirm filters that it has sent once no agent here uses earlier ones."""
        match given:
            case LeaderLinkChanged():
                self._answer_waiting(self.leaders.link_changed(given, self._filters))
            case FiltersArrived(filters=protocol.Filters(subject=subject)):
                waiting = self.leaders.arrived(given)
                if (found := self._filters.get(subject)) is not None:
                    work = WorkBudget(MERGE_ALL_WORK_MAX)
                    found.replace(self.leaders.filters(subject), self._next_version(), work)
                    self._pace.count(work)
                self._answer_waiting(waiting)
                watched = [] if found is None else [(subject, found)]
                self._when_used(watched, self.leaders.confirmation(given))

    def _answer_waiting(self, waiting: Iterable[WaitingRequest]) -> None:
        for each in waiting:
            if (link := self._links.get(each.link)) is not None:
                self._answer(link, each.subject, each.number)

    def timer_fired(self) -> None:
        """End the leases that have run out, and send the answers that have waited for them."""
        for subject, each in list(self._filters.items()):
            self._expire(subject, each)
        self._go_on()

    def sweep(self) -> None:
        """Forget leases that have run out."""
        now = self._links.now
        self._paused = {user: until for user, until in self._paused.items() if until > now}
        self._pace.sweep()
        self.timer_fired()
        self.leaders.sweep(self._filters)
        self._marks.sweep({key for key, _ in self._links_of})

    def _lease_s(self, link: Link, subject: str) -> float:
        """Return the time for which an agent may use the filters of a subject, 0 if it may not."""
        if not self._may_have(link, subject):
            return 0.0
        return self.leaders.lease_s(subject, self.lease_s) if self.leaders.is_led_elsewhere(subject) else self.lease_s

    def _may_have(self, link: Link, subject: str) -> bool:
        """Return whether an agent may have the filters of a subject: all who want its events are known."""
        if not self.lease_s or link.unattended or self._is_for_engine(subject):
            return False
        if self._paused.get(link.user, 0.0) > self._links.now:
            return False
        if not self._wanted.interest.is_complete(subject, for_server=link.is_server):
            return False
        # A server has checked the permissions of its agents.
        if not link.is_server and self._permissions.refusal(link.user, subject):
            return False
        subjects, most = self._subjects.get(link.link, ()), LEASES_MAX if link.is_server else SUBJECTS_MAX
        return subject in subjects or len(subjects) < most

    def _make(self, link: Link, subject: str) -> SubjectFilter:
        """Return new filters of a subject for the agent on ``link``, merged from its subscriptions if they are few."""
        work = WorkBudget(MERGE_ALL_WORK_MAX)
        is_leaders = self.leaders.is_led_elsewhere(subject)
        found = self._filters[subject] = SubjectFilter(self._next_version(), is_leaders=is_leaders)
        if is_leaders:
            found.replace(self.leaders.filters(subject), found.version, work)
        elif (wanted := self._wanted.of_subject(subject)) is None:
            found.give_up(found.version)
        else:
            found.add(wanted, found.version, work)
            self._journal.work += sum(len(filters) for _, filters in wanted)
        self._pace.pay(link, work)
        return found

    def _push(self, subject: str, found: SubjectFilter) -> None:
        """Send wider filters to the agents that have confirmed what they were sent before."""
        for watch in found.unconfirmed(found.widened):
            link = self._links.get(watch.link)
            if watch.is_confirmed and link is not None:
                self._send(link, subject, found, watch, 0, self.lease_s)

    def _send(self, link: Link, subject: str, found: SubjectFilter, watch: Watch, number: int, lease_s: float) -> None:
        expressions = found.expressions
        watch.sent, watch.is_last = found.version, expressions is None
        self._links.send(link, protocol.Filters(number, subject, found.version, lease_s, expressions))

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
            if watch.deferred and (link := self._links.get(watch.link)) is not None:
                self._links.send(link, protocol.Filters(watch.deferred, subject, 0, 0.0, None))

    def _drop_earlier(self, link: Link, subject: str, confirmed: Watch) -> None:
        """End the watches of another server on earlier links of this life: what it has confirmed replaces them."""
        for each in list(self._filters[subject].watches.values()):
            if (each.key, each.epoch) == (confirmed.key, confirmed.epoch) and each.link < link.link:
                self._drop(subject, each)

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
        if not self._pending:
            return
        due: list[Answer] = []
        if not (ends := self._marks.ends()):
            due += self._pending.confirmed(_PREVIOUS_LIFE)
            for subject, version in self._pending.awaited().items():
                found = self._filters.get(subject)
                due += self._pending.confirmed(subject, math.inf if found is None else found.oldest)
                ends += [] if found is None else [watch.until for watch in found.unconfirmed(version)]
        if ends:
            self._journal.emit_now(SetTimer(TIMER, min(ends)))
        for answer in due:
            answer()
