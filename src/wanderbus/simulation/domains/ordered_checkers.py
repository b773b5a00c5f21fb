"""Checks of ordered domains: by the logs of all servers, and by what the devices have published and received."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from wanderbus import filters
from wanderbus.broker.servers.server_users import server_user
from wanderbus.broker.state.drops import drops_of
from wanderbus.broker.state.rows import session_key
from wanderbus.event import Event, EventId
from wanderbus.filters import Filter
from wanderbus.records import (
    Acceptance,
    AnyRecord,
    ArrivalsLost,
    Arrived,
    Changed,
    Dropped,
    Matched,
    MatchedEvent,
    Notified,
    Published,
    Replayed,
    Subscribed,
    Unsubscribed,
)
from wanderbus.simulation.domains.domain_node import DOMAIN
from wanderbus.simulation.domains.ordered_device import OrderedDevice
from wanderbus.simulation.domains.ordered_device import Published as Offered
from wanderbus.simulation.domains.ordered_node import OrderedNode
from wanderbus.simulation.domains.past_checkers import PastCursor, check_past
from wanderbus.subscription import EVERY_SUBJECT, Subscription

if TYPE_CHECKING:
    from wanderbus.peers.leader_interest import LeaderInterest

_FOREVER: Final = 1 << 62
_REPEATED: Final = "this event was refused, or accepted too long ago"


class Followed:
    """A subscription of a user, by the log of its server."""

    def __init__(self, subscription: Subscription, start: int) -> None:
        self.subscription = subscription
        self.filter = filters.parse(subscription.expression)
        self.lives: list[list[int]] = [[start, _FOREVER]]
        """Offsets at which it has begun and ended, each time."""
        self.notified: dict[int, EventId] = {}
        self.lost: dict[int, str] = {}
        """Reason for which a number is lost."""
        self.past = PastCursor()

    def matches(self, event: Event, lineage: Sequence[str]) -> bool:
        """Return whether it matches an event."""
        return self.subscription.subject in (*lineage, EVERY_SUBJECT) and self.filter.matches(event)


class ServerTruth:
    """The log of a server, followed from its start; it collects ``problems``."""

    def __init__(self, node: OrderedNode, mixed: Container[str]) -> None:
        """Follow the log of ``node``; the leaders ``mixed`` have an engine for some subjects, which come later."""
        self.node = node
        self._mixed = mixed
        self._last: dict[tuple[str, str], int] = {}
        """Number of the last arrival, by leader; of a mixed one by its subject, too."""
        self.problems: list[str] = []
        self.followed: dict[str, Followed] = {}
        self.published: dict[int, tuple[Acceptance, Event]] = {}
        """Events by the offset of their acceptance."""
        self.arrived: dict[str, dict[int, int]] = {}
        """By leader: offset of each arrival here, by the number of the event at the leader, in the order of arrival."""
        self.losses: dict[str, list[int]] = {}
        """Offsets of the losses, by leader."""
        self.uids: dict[tuple[str, int], str] = {}
        """Names of the arrivals."""
        self._live: dict[str, Followed] = {}
        self._unmatched: dict[int, tuple[EventId, set[str]]] = {}
        """Events that wait for the matching engine, and the subscriptions that have to get them, by offset."""
        for offset, record in enumerate(node.disk.records()):
            self._follow(offset, record)
        self._on_matched(_FOREVER, ())

    @property
    def deliveries(self) -> int:
        """Return the number of notifications of users."""
        return sum(len(each.notified) for each in self.followed.values())

    def _follow(self, offset: int, record: AnyRecord) -> None:
        match record:
            case Subscribed(subscription=subscription) if not _is_server(subscription.owner):
                followed = self._live[subscription.id] = self.followed[subscription.id] = Followed(subscription, offset)
                followed.past.begin(record, self.node.broker.state)
            case Changed(subscription=subscription) if subscription.id not in self._live:
                self._live[subscription.id] = self.followed[subscription.id]
                self.followed[subscription.id].lives.append([offset, _FOREVER])
            case Unsubscribed(subscription=identity) if identity in self._live:
                followed = self._live.pop(identity)
                followed.lives[-1][1] = offset
                followed.past.ended(record.reason)
            case Published(acceptance=acceptance):
                self.published[offset] = acceptance, record.event
                if not self.node.channels.leads(record.event.subject):
                    self.problems.append(f"{self.node.name} accepted {acceptance.id}, and another server leads it")
                self._on_event(offset, acceptance.id, record)
            case Arrived(arrival=arrival):
                self._on_arrived(offset, arrival.leader, arrival.id, record.event)
                self._on_event(offset, arrival.id, record)
            case Matched(next=end, events=events):
                self._on_matched(end, events)
            case ArrivalsLost(leader=leader):
                self.losses.setdefault(leader, []).append(offset)
                for each in self._of_users(record.notified):
                    for identity in each.subscriptions:
                        self.followed[identity].lost[each.number] = record.reason
            case Replayed():
                self._on_replayed(record)
            case Dropped():
                self._on_dropped(record)
        for drop in drops_of(record):
            self._on_dropped(drop)

    def _on_arrived(self, offset: int, leader: str, identity: EventId, event: Event) -> None:
        arrived = self.arrived.setdefault(leader, {})
        order = leader, event.subject if leader in self._mixed else ""
        if identity.origin != leader or self.node.channels.leader(event.subject) != leader:
            self.problems.append(f"{self.node.name} has {identity} from {leader}, which does not lead its channel")
        if identity.number in arrived or identity.number < self._last.get(order, 0):
            self.problems.append(f"{self.node.name} has {identity} twice, or after a later event")
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
            for subscription in each.subscriptions:
                found.add(subscription)
                followed = self.followed[subscription]
                if identity in followed.notified.values():
                    self.problems.append(f"{subscription} has {identity} twice")
                followed.notified[each.number] = identity
        if is_late:
            found = {each for each in found if self.followed[each].past.first is None}
        if found != expected:
            self.problems.append(f"{self.node.name}: {identity} is for {sorted(found)}, not {sorted(expected)}")

    def _on_replayed(self, record: Replayed) -> None:
        """Add the notifications of the past, each once."""
        followed = self.followed[record.subscription]
        for number, each in enumerate(record.events, record.first):
            if each.id in followed.notified.values():
                self.problems.append(f"{record.subscription} has {each.id} of the past twice")
            followed.notified[number] = each.id
        followed.past.advance(record, len(followed.lives))

    def _of_users(self, notified: Sequence[Notified]) -> Iterator[Notified]:
        return (each for each in notified if not _is_server(each.user))

    def _on_dropped(self, record: Dropped) -> None:
        if not _is_server(record.user):
            self.problems.append(f"{self.node.name} drops notifications of {record.user}: {record.reason}")


class OrderedTruth:
    """All logs, and what the devices know; :meth:`check` adds to ``problems``."""

    def __init__(self, nodes: Mapping[str, OrderedNode], devices: Sequence[OrderedDevice]) -> None:
        self.problems: list[str] = []
        self._mixed = mixed = {name for name, node in nodes.items() if node.spark_subjects not in ((), ("*",))}
        self.servers = {name: ServerTruth(node, mixed) for name, node in nodes.items()}
        self.offered: dict[str, Offered] = {}
        self._devices = devices
        for device in devices:
            self.offered |= device.published
            self.problems += device.problems
        for server in self.servers.values():
            self.problems += server.problems

    def check(self) -> None:
        """Check everything."""
        self._check_acceptance()
        self._check_held_back()
        for name, server in self.servers.items():
            self._check_arrivals(name, server)
            for identity, followed in server.followed.items():
                self._check_nothing_missed(server, identity, followed)
                self._check_received(identity, followed)
                self._check_past(name, followed)

    def _check_past(self, name: str, followed: Followed) -> None:
        """Check that a subscription that began in the past has each event from there on, once, in order."""
        if (first := followed.past.first) is None:
            return
        leader = self.servers[first.origin]
        channels = leader.node.channels
        wanted = [
            acceptance.id
            for number, (acceptance, event) in leader.published.items()
            if number >= first.number and followed.matches(event, channels.lineage(event.subject))
        ]
        got = [followed.notified[number] for number in sorted(followed.notified)]
        what = f"{followed.subscription.id} of {name} since {first}"
        is_live = followed.lives[-1][1] == _FOREVER
        # An engine for some subjects of a server delays their events behind others.
        is_ordered = not ({name, first.origin} & self._mixed)
        if not is_ordered:
            got.sort()
        if is_ordered or is_live:
            lives, has_gap = len(followed.lives), bool(followed.lost)
            self.problems += check_past(what, followed.past, got, wanted, lives=lives, is_live=is_live, has_gap=has_gap)
        if followed.past.has_failed and not leader.node.storage.log_begins:
            self.problems.append(f"{what} has failed, although {first.origin} keeps its log")

    def _check_acceptance(self) -> None:
        """Check that each event is in one log once, in the order of its stream, and that answers are true."""
        accepted: dict[str, EventId] = {}
        for server in self.servers.values():
            last: dict[tuple[str, str, int | None], int] = {}
            for acceptance, event in server.published.values():
                uid = str(event["Uid"])
                offered = self.offered[uid]
                stream = acceptance.user, acceptance.device, acceptance.epoch
                if (stream, acceptance.number) != (offered.stream, offered.number):
                    self.problems.append(f"{uid} was accepted as number {acceptance.number} of {stream}")
                if uid in accepted:
                    self.problems.append(f"{uid} was accepted as {accepted[uid]} and as {acceptance.id}")
                # The numbers of an outbox rise on in its next epoch.
                order = (*stream[:2], None if acceptance.outbox else acceptance.epoch)
                if acceptance.number <= last.get(order, 0):
                    self.problems.append(f"{uid} was accepted after number {last[order]} of its stream")
                accepted[uid], last[order] = acceptance.id, acceptance.number
        for uid, offered in self.offered.items():
            if offered.accepted is not None and accepted.get(uid) != offered.accepted:
                self.problems.append(f"{uid} was answered with {offered.accepted}, it is {accepted.get(uid)}")
            if offered.refused is not None and uid in accepted:
                self.problems.append(f"{uid} was refused, and is {accepted[uid]}: {offered.refused}")
            # A repeat is refused for good if the first answer, a temporary refusal, was lost with the device's link.
            if offered.refused is not None and offered.limit is None and not offered.refused.startswith(_REPEATED):
                self.problems.append(f"{uid} was refused: {offered.refused}")

    def _check_held_back(self) -> None:
        """Check that no subscription wants an event that a device held back: one that counted, and had not ended.

        A subscription whose past has failed is left out: its server has ended it at some time.
        """
        accepted = {str(event["Uid"]) for each in self.servers.values() for _, event in each.published.values()}
        for uid, offered in self.offered.items():
            if not offered.held_back or uid in accepted:
                continue
            for server in self.servers.values():
                lineage = server.node.channels.lineage(offered.event.subject)
                for identity, followed in server.followed.items():
                    wants = followed.matches(offered.event, lineage) and not followed.past.has_failed
                    if wants and self._counted(identity, offered):
                        self.problems.append(f"{uid} was held back, and {identity} of {server.node.name} wants it")

    def _counted(self, identity: str, offered: Offered) -> bool:
        """Return whether a subscription counted before an event was published, until it was held back."""
        for asked in (each.asked[identity] for each in self._devices if identity in each.asked):
            for life, moment in asked.counted.items():
                if moment < offered.moment and asked.ending.get(life, offered.held_back) >= offered.held_back:
                    return True
        return False

    def _check_arrivals(self, name: str, server: ServerTruth) -> None:
        for leader, arrived in server.arrived.items():
            published = self.servers[leader].published
            for number in arrived:
                found = published.get(number)
                if found is None or found[1]["Uid"] != server.uids[leader, number]:
                    self.problems.append(f"{name} has event {number} of {leader}, which is not in the log there")

    def _check_nothing_missed(self, server: ServerTruth, identity: str, followed: Followed) -> None:
        """Check that all events that were published after a subscription counted have arrived at its server."""
        channels = server.node.channels
        leaders = channels.other_leaders([followed.subscription.subject])
        for life, (start, end) in enumerate(followed.lives, 1):
            counted = [each.asked[identity].counted.get(life) for each in self._devices if identity in each.asked]
            moment = min((each for each in counted if each is not None), default=None)
            if moment is None:
                continue
            for leader in sorted(leaders):
                arrived = server.arrived.get(leader, {})
                last = max((number for number, at in arrived.items() if at < end), default=0)
                for number, (acceptance, event) in self.servers[leader].published.items():
                    if number in arrived or (number > last and end != _FOREVER):
                        continue
                    if self.offered[str(event["Uid"])].moment > moment and followed.matches(
                        event, channels.lineage(event.subject)
                    ):
                        self._on_missed(server, acceptance.id, followed, start, end)

    def _on_missed(self, server: ServerTruth, event: EventId, followed: Followed, start: int, end: int) -> None:
        """Accept that an event is missed if a bound of its leader bit, and the subscription has a gap or its end."""
        lost = any(start < at < end for at in server.losses.get(event.origin, ()))
        is_told = lost and (followed.lost or followed.past.has_failed)
        if event.number >= self.servers[event.origin].node.storage.log_begins or not is_told:
            self.problems.append(f"{followed.subscription.id} of {server.node.name} has missed {event}")

    def _check_received(self, identity: str, followed: Followed) -> None:
        """Check that devices have received what their server has recorded, in order, or a gap."""
        owner, received, gap = followed.subscription.owner, set[int](), 0
        for device in self._devices:
            if device.user != owner:
                continue
            numbers = list(device.received.get(identity, ()))
            if numbers != sorted(numbers):
                self.problems.append(f"{device.name} has received {identity} out of order")
            for number, event in device.received.get(identity, {}).items():
                if followed.notified.get(number) != event:
                    self.problems.append(f"{device.name} has received {event} for {identity}, which is not recorded")
            received.update(numbers)
            gap = max(gap, *device.gaps.get(identity, ()), 0)
        if missing := sorted(followed.notified.keys() - received):
            self.problems.append(f"{identity} of {owner} never received {missing}")
        if silent := sorted(each for each in followed.lost if each > gap):
            self.problems.append(f"{identity} of {owner} has no gap for {silent}")
        unexpected = gap and not followed.lost
        if unexpected:
            self.problems.append(f"{identity} of {owner} has a gap without a loss")


def check_tables(nodes: Mapping[str, OrderedNode], events: Sequence[Event], *, is_empty: bool) -> Iterator[str]:
    """Yield the differences between what each server wants and what the leaders have, when all is quiet."""
    for name, node in nodes.items():
        for leader, session in node.sessions._sessions.items():
            broker = nodes[leader].broker
            row = broker.state.sessions.get(session_key(server_user(name, DOMAIN), "default"))
            there = [broker.state.subscriptions[each].subscription for each in row.subscriptions] if row else []
            has = sorted((each.subject, each.expression) for each in there)
            wanted = sorted(session.interest.wanted())
            if has != wanted:
                yield f"{leader} has {has} of {name}, which wants {wanted}"
            yield from _not_minimal(f"{name} at {leader}", wanted, node)
            yield from _leaks(f"{name} at {leader}", session.interest, is_empty=is_empty)
            yield from _uncovered(f"{name} at {leader}", wanted, node, leader, events)


def _not_minimal(what: str, wanted: Sequence[tuple[str, str]], node: OrderedNode) -> Iterator[str]:
    parsed = [(subject, filters.parse(text)) for subject, text in wanted]
    merging = node.channels.merging_of
    for subject, one in parsed:
        for covered, other in parsed:
            is_same = merging(subject) == merging(covered) and subject in (covered, EVERY_SUBJECT)
            if is_same and one is not other and filters.covers(one, other):
                yield f"{what}: {covered} {other.text} is covered by {subject} {one.text}"


def _leaks(what: str, interest: LeaderInterest, *, is_empty: bool) -> Iterator[str]:
    kept = {name: getattr(interest, name) for name in ("_requested", "_unconfirmed", "_removals")}
    if is_empty:
        kept |= {name: getattr(interest, name) for name in ("_local", "_keys", "_wanted", "_present")}
    if left := {name: value for name, value in kept.items() if value}:
        yield f"{what} keeps {left}"
    if not interest.is_settled:
        yield f"{what} is not settled"


def _uncovered(
    what: str, wanted: Sequence[tuple[str, str]], node: OrderedNode, leader: str, events: Sequence[Event]
) -> Iterator[str]:
    """Yield events that a subscription here matches and that the leader would not send."""
    local: list[tuple[str, Filter]] = [
        (row.subscription.subject, filters.parse(row.subscription.expression))
        for _, row in node.broker.state.subscriptions.items()
        if not _is_server(row.subscription.owner)
    ]
    sent = [(subject, filters.parse(text)) for subject, text in wanted]
    for event in events:
        if node.channels.leader(event.subject) == leader:
            lineage = (*node.channels.lineage(event.subject), EVERY_SUBJECT)
            if _matches(local, lineage, event) and not _matches(sent, lineage, event):
                yield f"{what}: {event} is wanted and not asked for"


def _matches(interests: Sequence[tuple[str, Filter]], lineage: Sequence[str], event: Event) -> bool:
    return any(subject in lineage and each.matches(event) for subject, each in interests)


def _is_server(user: str) -> bool:
    return user.endswith(f"@servers.{DOMAIN}")
