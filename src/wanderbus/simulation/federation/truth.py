"""Truth about domains that share events, by all their logs together (SPEC M).

An event is accepted once in its own domain, and at most once in each other one, under the names of its own. A
subscription that counts in a domain gets each of its events once, in the order in which a server there has accepted
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from wanderbus.broker.servers.server_users import domain_of
from wanderbus.event import Event, EventId
from wanderbus.federation.gateway_choice import link_name
from wanderbus.federation.imports import device_of
from wanderbus.records import (
    Acceptance,
    AnyRecord,
    Arrived,
    Changed,
    Dropped,
    EventsLost,
    Matched,
    Notified,
    Published,
    Subscribed,
    Unsubscribed,
)
from wanderbus.simulation.device import PublishedEvent
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.past_checkers import FOREVER
from wanderbus.simulation.federation.interest import CountedInterest, is_of_user, parse
from wanderbus.simulation.federation.layout import FederationLayout
from wanderbus.simulation.federation.node import FederatedNode
from wanderbus.simulation.handover.session_checks import check_received
from wanderbus.subscription import Subscription


class Accepted(NamedTuple):
    """An event as a server has accepted it, at a moment of the world."""

    server: str
    acceptance: Acceptance
    event: Event
    moment: int


class FollowedSubscription:
    """A subscription of a user: its lives as moments, and the events that it was notified of, by number."""

    def __init__(self, subscription: Subscription, domain: str, start: int) -> None:
        self.subscription = subscription
        self.domain = domain
        self.filter = parse(subscription.expression)
        self.lives: list[list[int]] = [[start, FOREVER]]
        self.notified: dict[int, str] = {}
        """Name of each event, by number."""


class FederationTruth:
    """All logs, and what the devices know; it collects ``problems``."""

    def __init__(
        self,
        layout: FederationLayout,
        nodes: Mapping[str, FederatedNode],
        devices: Sequence[DomainDevice],
        interest: CountedInterest,
    ) -> None:
        self.problems: list[str] = []
        self.counters: Counter[str] = Counter()
        self._layout = layout
        self._nodes = nodes
        self._devices = devices
        self._interest = interest
        self.origins: dict[str, Accepted] = {}
        """Events by name, as they were accepted in their own domain."""
        self._imports: dict[str, dict[str, Accepted]] = {name: {} for name in layout.domains}
        """Events of others by domain and name, as they were accepted there."""
        self._sent: dict[tuple[str, str], int] = {}
        """Moment in which each event was put into the queue of a foreign domain, by both names."""
        self._names: dict[EventId, str] = {}
        self.subscriptions: dict[str, FollowedSubscription] = {}
        logs = {name: node.disk.records() for name, node in nodes.items()}
        for name, several in logs.items():
            for offset, record in enumerate(several):
                self._follow_acceptance(name, offset, record)
        for name, several in logs.items():
            for offset, record in enumerate(several):
                self._follow(name, offset, record)
            self.problems += self._check_order(name, several)
        self._check_imports()
        self.problems += self._check_answers()
        for followed in self.subscriptions.values():
            self._check_once(followed)
            self.problems += self._check_complete(followed)
            self.problems += check_received(devices, followed.subscription, followed.notified, lambda item: item.text)
            self.counters["notifications"] += sum(
                uid in self._imports[followed.domain] for uid in followed.notified.values()
            )
        self._check_needed()
        for node in nodes.values():
            self.problems += [f"{node.name} has lost events of {each.domain}: {each.reason}" for each in node.lost]

    # Logs -----------------------------------------------------------------------------------------------------------

    def _follow_acceptance(self, name: str, offset: int, record: AnyRecord) -> None:
        node = self._nodes[name]
        if isinstance(record, Subscribed) and is_of_user(record.subscription.owner, node.domain):
            self.subscriptions[record.subscription.id] = FollowedSubscription(
                record.subscription, node.domain, node.moments[offset]
            )
        if not isinstance(record, Published):
            return
        accepted = Accepted(name, record.acceptance, record.event, node.moments[offset])
        uid = str(accepted.event["Uid"])
        self._names[accepted.acceptance.id] = uid
        is_foreign = domain_of(record.acceptance.user, node.domain) is not None
        known = self._imports[node.domain] if is_foreign else self.origins
        if (before := known.setdefault(uid, accepted)) is not accepted:
            self.problems.append(f"{uid} was accepted by {before.server} and then by {name} of {node.domain}")

    def _follow(self, name: str, offset: int, record: AnyRecord) -> None:
        node = self._nodes[name]
        moment = node.moments[offset]
        match record:
            case Published(acceptance=acceptance, delivery=delivery):
                self._notify(name, acceptance.id, delivery.notified, moment)
            case Arrived(arrival=arrival, delivery=delivery):
                self._notify(name, arrival.id, delivery.notified, moment)
            case Matched(events=events):
                for each in events:
                    self._notify(name, each.id, each.notified, moment)
            case Changed(subscription=subscription) if subscription.id in self.subscriptions:
                lives = self.subscriptions[subscription.id].lives
                if lives[-1][1] != FOREVER:
                    lives.append([moment, FOREVER])
            case Unsubscribed(subscription=identity) if identity in self.subscriptions:
                self.subscriptions[identity].lives[-1][1] = moment
            case Dropped(user=user, reason="discarded") if self._has_left(domain_of(user, node.domain), node.domain):
                pass
            case EventsLost() | Dropped():
                self.problems.append(f"{name} loses notifications: {record}")

    def _has_left(self, domain: str | None, own: str) -> bool:
        """Return whether a foreign domain was not in the file of another one for a while."""
        return domain is not None and any(each[:2] == (own, domain) for each in self._layout.changed)

    def _notify(self, server: str, event: EventId, notified: Sequence[Notified], moment: int) -> None:
        node = self._nodes[server]
        for each in notified:
            if (target := domain_of(each.user, node.domain)) is not None:
                self._sent[target, self._names[event]] = moment
                if event.origin != server:
                    self.problems.append(f"{server} sends {event}, which another server has accepted, to {target}")
            if not is_of_user(each.user, node.domain):
                continue
            for identity in each.subscriptions:
                followed = self.subscriptions[identity]
                if each.number in followed.notified:
                    self.problems.append(f"{identity} has two events with the number {each.number}")
                followed.notified[each.number] = self._names[event]

    # Checks ---------------------------------------------------------------------------------------------------------

    def _check_imports(self) -> None:
        """Check that what a domain has accepted for another one is that domain's, and may cross."""
        for domain, several in self._imports.items():
            for uid, each in several.items():
                source = domain_of(each.acceptance.user, domain) or ""
                origin = self.origins.get(uid)
                if origin is None or self._nodes[origin.server].domain != source:
                    self.problems.append(f"{domain} has accepted {uid} from {source}, which is not of that domain")
                    continue
                subject, identity = each.event.subject, origin.acceptance.id
                there = EventId(link_name(source, identity.origin), identity.incarnation, identity.number)
                if _without_past(each.event) != _without_past(msgspec.structs.replace(origin.event, origin=there)):
                    self.problems.append(f"{uid} is {each.event} in {domain}, and was {origin.event} under {there}")
                if subject not in self._layout.ever_crossing(source, domain):
                    self.problems.append(f"{uid} of type {subject} has come from {source} to {domain}")
                name = each.acceptance.device, each.acceptance.epoch, each.acceptance.number
                if name != (device_of(identity, subject), identity.incarnation, identity.number):
                    self.problems.append(f"{domain} has accepted {uid} as {name}, it is {identity}")
            self.counters["imported"] += len(several)

    def _check_order(self, name: str, several: Sequence[AnyRecord]) -> Iterator[str]:
        """Check that the events of each foreign server and type are in the order of their numbers."""
        domain, last = self._nodes[name].domain, dict[tuple[str, str], tuple[EventId, str]]()
        for record in several:
            if isinstance(record, Published):
                uid = self._names[record.acceptance.id]
            elif isinstance(record, Arrived):
                uid = self._names[record.arrival.id]
            else:
                continue
            if uid not in self._imports[domain] or (origin := self.origins.get(uid)) is None:
                continue
            identity, order = origin.acceptance.id, (origin.server, origin.event.subject)
            if order in last and identity < last[order][0]:
                yield f"{name} has {uid} of {order} after {last[order][1]}"
            last[order] = max(last.get(order, (identity, uid)), (identity, uid))

    def _check_answers(self) -> Iterator[str]:
        """Check the answers to publishes, and that nothing was held back that another domain wants."""
        for device in self._devices:
            for uid, offered in device.published.items():
                origin = self.origins.get(uid)
                identity = None if origin is None else origin.acceptance.id
                if offered.accepted is not None and offered.accepted != identity:
                    yield f"{uid} was answered with {offered.accepted}, it is {identity}"
                if offered.held_back and origin is None:
                    yield from self._check_held_back(device, offered)

    def _check_held_back(self, device: DomainDevice, offered: PublishedEvent) -> Iterator[str]:
        source, event = device.node.domain, offered.event
        for identity, followed in self.subscriptions.items():
            if followed.domain == source or not self._matches(followed, source, event):
                continue
            for life, moment in self._interest.counted.get((identity, source, event.subject), {}).items():
                if moment < offered.moment and self._ending(identity, life) >= offered.held_back:
                    yield f"{offered.uid} of {source} was held back, and {identity} wants it"

    def _check_once(self, followed: FollowedSubscription) -> None:
        """Check that a subscription has each event once."""
        for uid, count in Counter(followed.notified.values()).items():
            if count > 1:
                self.problems.append(f"{followed.subscription.id} has {uid} {count} times")

    def _check_complete(self, followed: FollowedSubscription) -> Iterator[str]:
        """Check that no event is missing that was accepted in another domain after the subscription counted there.

        A subscription that has ended must have those before the last one of their type that it got.
        """
        identity, domain = followed.subscription.id, followed.domain
        got = set(followed.notified.values())
        for uid, origin in self.origins.items():
            source, event = self._nodes[origin.server].domain, origin.event
            if uid in got or source == domain or not self._matches(followed, source, event):
                continue
            for life, moment in self._interest.counted.get((identity, source, event.subject), {}).items():
                if moment < origin.moment < self._due_before(followed, life, origin, got):
                    where = "came" if uid in self._imports[domain] else "did not come"
                    yield f"{identity} of {domain} has missed {uid} of {source}, which {where}"

    def _due_before(self, followed: FollowedSubscription, life: int, event: Accepted, got: Collection[str]) -> int:
        """Return the moment up to which a life of a subscription must have all events of the server and type of one.

        One that has ended and is renewed may have some of those that came meanwhile.
        """
        ending, lives = self._ending(followed.subscription.id, life), followed.lives
        if life < len(lives) or lives[-1][1] == FOREVER:
            return 0 if life < len(lives) else ending
        alike = [
            each.moment
            for each in map(self.origins.__getitem__, got)
            if (each.server, each.event.subject) == (event.server, event.event.subject) and each.moment < ending
        ]
        return max(alike, default=0)

    def _matches(self, followed: FollowedSubscription, source: str, event: Event) -> bool:
        """Return whether a subscription matches an event of another domain, and its type crosses."""
        domain = self._layout.domains[followed.domain]
        is_wanted = domain.wanted_by(followed.subscription.subject, event.subject)
        may_cross = event.subject in self._layout.ever_crossing(source, domain.name)
        return is_wanted and may_cross and followed.filter.matches(event)

    def _ending(self, identity: str, life: int) -> int:
        """Return the moment of the request that ends a life of a subscription."""
        several = [each.asked[identity].ending.get(life, FOREVER) for each in self._devices if identity in each.asked]
        return min(several, default=FOREVER)

    def _check_needed(self) -> None:
        """Check that each event that was sent to a domain is one that a subscription there has wanted at some time."""
        for (target, uid), moment in self._sent.items():
            origin = self.origins.get(uid)
            if origin is None or (source := self._nodes[origin.server].domain) == target:
                self.problems.append(f"{uid} is sent to {target}, where it is from, or nobody has published it")
                continue
            if origin.event.subject not in self._layout.ever_crossing(source, target):
                self.counters["passed_over"] += 1  # by the gateway: a child of a type that crosses
                continue
            wanting = [
                each
                for each in self.subscriptions.values()
                if each.domain == target and self._matches(each, source, origin.event)
            ]
            lives = [life for each in wanting for life in each.lives]
            if not any(start < moment for start, _ in lives):
                self.counters["unneeded"] += 1
                if self._layout.has_one_hierarchy:
                    self.problems.append(f"{uid} of {source} is sent to {target}, where nobody has wanted it")
            elif not any(start < moment < end for start, end in lives):
                self.counters["late"] += 1


def _without_past(event: Event) -> Event:
    return msgspec.structs.replace(event, past=msgspec.UNSET)
