"""Truth about one server of a domain, by its log: subscriptions, and the events that each of them must get."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from wanderbus import filters
from wanderbus.broker.state.drops import drops_of
from wanderbus.event import Event, EventId
from wanderbus.records import (
    Acceptance,
    AnyRecord,
    ArrivalsLost,
    Arrived,
    Changed,
    Dropped,
    EventsLost,
    Matched,
    MatchedEvent,
    Notified,
    Published,
    Replayed,
    Subscribed,
    Unsubscribed,
)
from wanderbus.simulation.domains.domain_node import DOMAIN, DomainNode
from wanderbus.simulation.domains.past_checkers import FOREVER, PastCursor
from wanderbus.subscription import EVERY_SUBJECT, Subscription


class FollowedSubscription:
    """A subscription of a user, by the log of its server."""

    def __init__(self, subscription: Subscription, start: int) -> None:
        self.subscription = subscription
        self.filter = filters.parse(subscription.expression)
        self.lives: list[list[int]] = [[start, FOREVER]]
        """Offsets at which it has begun and ended, each time."""
        self.notified: dict[int, EventId] = {}
        self.lost: dict[int, str] = {}
        """Reason for which a number is lost."""
        self.past = PastCursor()

    def matches(self, event: Event, lineage: Sequence[str]) -> bool:
        """Return whether it matches an event."""
        return self.subscription.subject in (*lineage, EVERY_SUBJECT) and self.filter.matches(event)


class ServerTruth:
    """The log of a server, followed from its start; it collects ``problems``.

    :param mixed: leaders that have an engine for some subjects, whose events come later than others
    """

    def __init__(self, node: DomainNode, mixed: Container[str]) -> None:
        self.node = node
        self.problems: list[str] = []
        self.followed: dict[str, FollowedSubscription] = {}
        self.published: dict[int, tuple[Acceptance, Event]] = {}
        """Events by the offset of their acceptance."""
        self.arrived: dict[str, dict[int, int]] = {}
        """By origin: offset of each arrival here, by the number of the event there, in the order of arrival."""
        self.losses: dict[str, list[int]] = {}
        """Offsets of the losses, by leader."""
        self.uids: dict[tuple[str, int], str] = {}
        """Names of the arrivals."""
        self._mixed = mixed
        self._causal: dict[EventId, int] = {}
        """Offsets of the decentralised events: a log has them in causal order, and its sessions must, too."""
        self._last_causal: dict[tuple[str, str], int] = {}
        """Offset of the last decentralised event of each session."""
        self._last: dict[tuple[str, str], int] = {}
        """Number of the last arrival, by leader; of a mixed one by its subject, too."""
        self._live: dict[str, FollowedSubscription] = {}
        self._got: dict[str, set[EventId]] = {}
        """Events of each subscription."""
        self._unmatched: dict[int, tuple[EventId, set[str]]] = {}
        """Events that wait for the matching engine, and the subscriptions that have to get them, by offset."""
        for offset, record in enumerate(node.disk.records()):
            self._follow(offset, record)
        self._on_matched(FOREVER, ())

    def _follow(self, offset: int, record: AnyRecord) -> None:
        match record:
            case Subscribed(subscription=subscription) if not is_server(subscription.owner):
                followed = self._live[subscription.id] = self.followed[subscription.id] = FollowedSubscription(
                    subscription, offset
                )
                followed.past.begin(record, self.node.broker.state)
            case Changed(subscription=subscription) if subscription.id not in self._live:
                self._live[subscription.id] = self.followed[subscription.id]
                self.followed[subscription.id].lives.append([offset, FOREVER])
            case Unsubscribed(subscription=identity) if identity in self._live:
                followed = self._live.pop(identity)
                followed.lives[-1][1] = offset
                followed.past.ended(record.reason)
            case Published(acceptance=acceptance):
                self.published[offset] = acceptance, record.event
                if not self.node.channels.leads(record.event.subject) and self.node.is_fixed:
                    self.problems.append(f"{self.node.name} accepted {acceptance.id}, and another server leads it")
                self._on_event(offset, acceptance.id, record)
            case Arrived(arrival=arrival):
                self._on_arrived(offset, record)
                self._on_event(offset, arrival.id, record)
            case Matched(next=end, events=events):
                self._on_matched(end, events)
            case ArrivalsLost(leader=leader):
                self.losses.setdefault(leader, []).append(offset)
                self._on_lost(record)
            case EventsLost():
                self._on_lost(record)
            case Replayed():
                self._on_replayed(offset, record)
            case Dropped():
                self._on_dropped(record)
        for drop in drops_of(record):
            self._on_dropped(drop)

    def _on_arrived(self, offset: int, record: Arrived) -> None:
        arrival, event, node = record.arrival, record.event, self.node
        leader, identity = arrival.leader, arrival.id
        arrived = self.arrived.setdefault(identity.origin, {})
        is_led = bool(record.causal) or not node.is_fixed or node.channels.leader(event.subject) == leader
        if identity.origin != leader or not is_led:
            self.problems.append(f"{node.name} has {identity} from {leader}, which does not lead its channel")
        order = leader, event.subject if leader in self._mixed else "causal" * bool(record.causal)
        is_late = node.is_fixed and identity.number < self._last.get(order, 0)
        if identity.number in arrived or is_late:
            self.problems.append(f"{node.name} has {identity} twice, or after a later event")
        arrived[identity.number], self._last[order] = offset, identity.number
        self.uids[leader, identity.number] = str(event["Uid"])

    def _on_event(self, offset: int, identity: EventId, record: Published | Arrived) -> None:
        event = record.event
        lineage = self.node.channels.lineage(event.subject)
        expected = {
            name
            for name, each in self._live.items()
            if each.matches(event, lineage) and each.past.is_live_for(identity)
        }
        if record.causal:
            self._causal[identity] = offset
        if record.engine:
            # What comes later to one that began in the past may be in a piece of that: its whole stream is checked.
            self._unmatched[offset] = identity, {each for each in expected if self.followed[each].past.first is None}
        else:
            self._on_delivery(identity, expected, record.delivery.notified)

    def _on_matched(self, end: int, events: Sequence[MatchedEvent]) -> None:
        """Compare what the matching engine has named below ``end`` with what matched when the events came."""
        found = {each.offset: each for each in events}
        if list(found) != sorted(found) or not found.keys() <= self._unmatched.keys():
            self.problems.append(f"{self.node.name} has matched {list(found)} again, or out of order")
        for offset in [each for each in self._unmatched if each < end]:
            identity, expected = self._unmatched.pop(offset)
            self._on_delivery(identity, expected, found[offset].notified if offset in found else (), is_late=True)

    def _on_delivery(
        self, identity: EventId, expected: set[str], notified: Sequence[Notified], *, is_late: bool = False
    ) -> None:
        """Compare the notified subscriptions with those that matched."""
        found = set[str]()
        for each in self._of_users(notified):
            self._check_causal(identity, (each.user, each.session))
            for subscription in each.subscriptions:
                found.add(subscription)
                self._notify(subscription, each.number, identity, "twice")
        if is_late:
            found = {each for each in found if self.followed[each].past.first is None}
        if found != expected:
            self.problems.append(f"{self.node.name}: {identity} is for {sorted(found)}, not {sorted(expected)}")

    def _check_causal(self, identity: EventId, session: tuple[str, str]) -> None:
        offset = self._causal.get(identity)
        if offset is not None:
            if offset < self._last_causal.get(session, 0):
                self.problems.append(f"{self.node.name} notified {session} of {identity} after a later event")
            self._last_causal[session] = offset

    def _notify(self, subscription: str, number: int, identity: EventId, repeated: str) -> None:
        got = self._got.setdefault(subscription, set())
        if identity in got:
            self.problems.append(f"{subscription} has {identity} {repeated}")
        got.add(identity)
        self.followed[subscription].notified[number] = identity

    def _on_lost(self, record: ArrivalsLost | EventsLost) -> None:
        for each in self._of_users(record.notified):
            for identity in each.subscriptions:
                self.followed[identity].lost[each.number] = record.reason

    def _on_replayed(self, offset: int, record: Replayed) -> None:
        """Add the notifications of the past, each once."""
        followed = self.followed[record.subscription]
        for number, each in enumerate(record.events, record.first):
            self._notify(record.subscription, number, each.id, "of the past twice")
        followed.past.advance(record, len(followed.lives), offset)

    def _of_users(self, notified: Sequence[Notified]) -> Iterator[Notified]:
        return (each for each in notified if not is_server(each.user))

    def _on_dropped(self, record: Dropped) -> None:
        if not is_server(record.user):
            self.problems.append(f"{self.node.name} drops notifications of {record.user}: {record.reason}")


def is_server(user: str) -> bool:
    """Return whether a user is another server of the domain."""
    return user.endswith(f"@servers.{DOMAIN}")
