"""Truth about sessions that move between domains, by all logs together: each event once, in order, none missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wanderbus.broker.servers.server_users import domain_of
from wanderbus.event import EventId
from wanderbus.records import (
    AnyRecord,
    Arrived,
    Matched,
    Notified,
    Published,
    QueueContinued,
    Replayed,
    SessionImported,
    Subscribed,
    Unsubscribed,
)
from wanderbus.simulation.federation.interest import is_of_user, parse
from wanderbus.simulation.federation.moving_node import MovingNode
from wanderbus.simulation.federation.truth import Accepted
from wanderbus.simulation.handover.device import HandoverDevice
from wanderbus.simulation.handover.session_checks import check_one_owner, check_received
from wanderbus.subscription import EVERY_SUBJECT, Subscription


class MovedSubscription:
    """A subscription over all its servers: the names of the events that it was notified of, by number."""

    def __init__(self, subscription: Subscription, moment: int) -> None:
        self.subscription = subscription
        self.filter = parse(subscription.expression)
        self.moment = moment
        self.has_ended = False
        self.notified: dict[int, str] = {}


class MovingTruth:
    """All logs, and what the devices have received; it collects ``problems``.

    :param settled: moment from which the subscriptions that were there before count everywhere
    """

    def __init__(
        self, nodes: Mapping[str, MovingNode], devices: Sequence[HandoverDevice], settled: tuple[int, int]
    ) -> None:
        self.problems: list[str] = []
        self._nodes = nodes
        self._subscribed_until, self._counted_from = settled
        self.moves = self.crossings = self.pieces = 0
        self.origins: dict[str, Accepted] = {}
        """Events by name, as they were accepted in their own domain."""
        self._imports: set[tuple[str, str]] = set()
        self._names: dict[EventId, str] = {}
        self.subscriptions: dict[str, MovedSubscription] = {}
        logs = {name: node.disk.records() for name, node in nodes.items()}
        for follow in (self._follow_acceptance, self._follow):
            for name, several in logs.items():
                for offset, record in enumerate(several):
                    follow(name, offset, record)
        for followed in self.subscriptions.values():
            self.problems += self._check_order(followed)
            self.problems += self._check_complete(followed)
            self.problems += check_received(devices, followed.subscription, followed.notified, lambda item: item.text)
        self.problems += check_one_owner(nodes.values(), lambda node, user: is_of_user(user, node.domain))

    def _follow_acceptance(self, name: str, offset: int, record: AnyRecord) -> None:
        node = self._nodes[name]
        if isinstance(record, Subscribed) and is_of_user(record.subscription.owner, node.domain):
            self.subscriptions[record.subscription.id] = MovedSubscription(record.subscription, node.moments[offset])
        if not isinstance(record, Published):
            return
        uid = str(record.event["Uid"])
        self._names[record.acceptance.id] = uid
        if domain_of(record.acceptance.user, node.domain) is not None:
            if (node.domain, uid) in self._imports:
                self.problems.append(f"{uid} has come to {node.domain} twice")
            self._imports.add((node.domain, uid))
        elif uid in self.origins:
            self.problems.append(f"{uid} was accepted by {self.origins[uid].server}, and by {name}")
        else:
            self.origins[uid] = Accepted(name, record.acceptance, record.event, node.moments[offset])

    def _follow(self, name: str, offset: int, record: AnyRecord) -> None:
        match record:
            case Published(acceptance=acceptance, delivery=delivery):
                self._notify(name, acceptance.id, delivery.notified)
            case Arrived(arrival=arrival, delivery=delivery):
                self._notify(name, arrival.id, delivery.notified)
            case Matched(events=events):
                for each in events:
                    self._notify(name, each.id, each.notified)
            case Replayed():
                for notified, one in zip(record.notified, record.events, strict=True):
                    self._notify(name, one.id, [notified])
            case Unsubscribed(subscription=identity) if identity in self.subscriptions:
                self.subscriptions[identity].has_ended = True
            case SessionImported(export=_):
                self.moves += 1
            case QueueContinued():
                self.pieces += 1

    def _notify(self, server: str, event: EventId, notified: Sequence[Notified]) -> None:
        for each in notified:
            if not is_of_user(each.user, self._nodes[server].domain):
                continue
            for identity in each.subscriptions:
                followed, uid = self.subscriptions[identity], self._names[event]
                if uid in followed.notified.values():
                    self.problems.append(f"{identity} has {uid} twice, the second time at {server}")
                if each.number in followed.notified:
                    self.problems.append(f"{identity} has two events with the number {each.number}")
                followed.notified[each.number] = uid

    def _check_order(self, followed: MovedSubscription) -> Iterator[str]:
        """Check that the events of each server and subject come in its order."""
        last: dict[tuple[str, str], EventId] = {}
        for number in sorted(followed.notified):
            origin = self.origins[followed.notified[number]]
            order, identity = (origin.server, origin.event.subject), origin.acceptance.id
            if order in last and identity <= last[order]:
                yield f"{followed.subscription.id} has {identity} after {last[order]}"
            last[order] = identity

    def _check_complete(self, followed: MovedSubscription) -> Iterator[str]:
        """Check that no event is missing that was accepted after the subscription counted everywhere."""
        identity, wanted = followed.subscription.id, followed.subscription
        if followed.has_ended or followed.moment > self._subscribed_until:
            return
        got = set(followed.notified.values())
        for uid, origin in self.origins.items():
            lineage = self._nodes[origin.server].channels.lineage(origin.event.subject)
            if origin.moment <= self._counted_from or uid in got:
                continue
            if wanted.subject in (EVERY_SUBJECT, *lineage) and followed.filter.matches(origin.event):
                yield f"{identity} of {wanted.owner} has missed {uid}, accepted as {origin.acceptance.id}"
