"""Truth about sessions that move between servers: by all logs together, each event once, in order, none missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from wanderbus import filters
from wanderbus.broker.state.exported_session import decode_export
from wanderbus.event import Event, EventId
from wanderbus.records import (
    AnyRecord,
    Arrived,
    Matched,
    Notified,
    Published,
    QueueContinued,
    Replayed,
    SessionFenced,
    SessionImported,
    Subscribed,
    Unsubscribed,
)
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.server_truth import is_server
from wanderbus.simulation.handover.device import HandoverDevice
from wanderbus.simulation.handover.session_checks import check_one_owner, check_received
from wanderbus.subscription import EVERY_SUBJECT, PATTERN, Subscription


class Followed(Protocol):
    """A subscription and what it was notified of, by number."""

    subscription: Subscription
    notified: dict[int, EventId]


class MovedSubscription:
    """A subscription over all its servers: what it was notified of, by number."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.filter = filters.parse(subscription.expression)
        self.has_ended = False
        self.notified: dict[int, EventId] = {}

    def matches(self, event: Event) -> bool:
        """Return whether it matches an event."""
        return self.subscription.subject in (event.subject, EVERY_SUBJECT) and self.filter.matches(event)


class HandoverTruth:
    """All logs, and what the devices have received; it collects ``problems``."""

    def __init__(self, nodes: Mapping[str, DomainNode], devices: Sequence[HandoverDevice]) -> None:
        self.problems: list[str] = []
        self._nodes = nodes
        self._devices = devices
        self.moves = self.pieces = 0
        self.published: dict[EventId, tuple[Event, int]] = {}
        """Events, each with the moment of its acceptance."""
        self.subscriptions: dict[str, MovedSubscription] = {}
        self._uids: dict[str, EventId] = {}
        self._together: dict[tuple[str, str, str, EventId], Notified] = {}
        """Notification of each event in each session at each server."""
        self._logs = {name: node.disk.records() for name, node in nodes.items()}
        for each in (one for several in self._logs.values() for one in several):
            if isinstance(each, Subscribed) and self._is_followed(each.subscription):
                self.subscriptions[each.subscription.id] = MovedSubscription(each.subscription)
        for name, several in self._logs.items():
            for offset, record in enumerate(several):
                self._follow(name, offset, record)
        for followed in self.subscriptions.values():
            self.problems += self._check_order(followed)
            self.problems += self._check_complete(followed)
            self.problems += self._check_received(followed)
            self.problems += self._check_causes(followed)
            self.problems += self._check_publishers(followed)
        self.problems += check_one_owner(nodes.values(), lambda _, user: not is_server(user))
        self.problems += self._check_answers()
        self.problems += self._check_epochs()

    def _is_followed(self, wanted: Subscription) -> bool:
        """Return whether a subscription is that of a user, to single events."""
        return not is_server(wanted.owner) and wanted.language != PATTERN

    def _follow(self, name: str, offset: int, record: AnyRecord) -> None:
        match record:
            case Published(acceptance=acceptance, delivery=delivery):
                uid = str(record.event["Uid"])
                if uid in self._uids:
                    self.problems.append(f"{uid} was accepted as {self._uids[uid]} and as {acceptance.id}")
                self._uids[uid] = acceptance.id
                self.published[acceptance.id] = record.event, self._nodes[name].moments[offset]
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
            case SessionImported():
                self.moves += 1
            case QueueContinued():
                self.pieces += 1

    def _notify(self, server: str, event: EventId, notified: Sequence[Notified]) -> None:
        for each in notified:
            if not is_server(each.user):
                self._check_together(server, event, each)
                for identity in each.subscriptions:
                    self._add(identity, each.number, event)

    def _check_together(self, server: str, event: EventId, notified: Notified) -> None:
        """Check that all subscriptions of a session get an event together at a server, unless one reads the past.

        A subscription that begins after a move may get an event that arrives later here than at the former server.
        """
        several = [self.subscriptions[identity].subscription for identity in notified.subscriptions]
        if all(each.since is None for each in several):
            before = self._together.setdefault((server, notified.user, notified.session, event), notified)
            if before is not notified:
                self.problems.append(f"{notified.user} has {event} in two notifications, {before} and {notified}")

    def _add(self, identity: str, number: int, event: EventId) -> None:
        followed = self.subscriptions[identity]
        if event in followed.notified.values():
            self.problems.append(f"{identity} has {event} twice")
        if number in followed.notified:
            self.problems.append(f"{identity} has two events with the number {number}")
        followed.notified[number] = event

    def _check_order(self, followed: MovedSubscription) -> Iterator[str]:
        """Check that the events of each server come in its order; its channels of the two models have no common one.

        An engine that has some subjects only delays their events behind others.
        """
        is_mixed = any(node.config.spark_subjects not in ((), (EVERY_SUBJECT,)) for node in self._nodes.values())
        last: dict[tuple[str, bool, str], EventId] = {}
        for number in sorted(followed.notified):
            event = followed.notified[number]
            order = event.origin, self._is_decentralised(event), self.published[event][0].subject if is_mixed else ""
            if order in last and event <= last[order]:
                yield f"{followed.subscription.id} has {event} after {last[order]}"
            last[order] = event

    def _is_decentralised(self, event: EventId) -> bool:
        channels = self._nodes[event.origin].channels.decentralised
        return channels is not None and channels.has(self.published[event][0].subject)

    def _check_causes(self, followed: MovedSubscription) -> Iterator[str]:
        """Check that a reply comes after the event that it replies to, in decentralised channels."""
        numbers = {event: number for number, event in followed.notified.items() if self._is_decentralised(event)}
        for device in self._devices:
            for reply, cause in device.causes.items():
                ids = self._uids.get(reply), self._uids[cause]
                before, after = numbers.get(ids[1], 0), numbers.get(ids[0]) if ids[0] else None
                if after is not None and after < before:
                    yield f"{followed.subscription.id} has {reply} before its cause {cause}"

    def _check_publishers(self, followed: MovedSubscription) -> Iterator[str]:
        """Check that the events of a publisher come in the order in which it published them, in decentralised channels.

        Each life of a device, and its outbox, has an order of its own.
        """
        places = {
            self._uids[uid]: (offered.stream, place)
            for device in self._devices
            for place, (uid, offered) in enumerate(device.published.items())
            if uid in self._uids and self._is_decentralised(self._uids[uid])
        }
        last: dict[tuple[str, str, int], int] = {}
        for number in sorted(followed.notified):
            event = followed.notified[number]
            if event in places:
                stream, place = places[event]
                if place < last.get(stream, place):
                    yield f"{followed.subscription.id} has {event} after a later one of {stream}"
                last[stream] = place

    def _check_answers(self) -> Iterator[str]:
        """Check the answers to publishes, and that no device held back an event that a subscription wants."""
        for device in self._devices:
            for uid, offered in device.published.items():
                if offered.accepted is not None and offered.accepted != self._uids.get(uid):
                    yield f"{uid} was answered with {offered.accepted}, it is {self._uids.get(uid)}"
                if not offered.held_back or uid in self._uids:
                    continue
                for identity, followed in self.subscriptions.items():
                    moment = self._counted(identity)
                    counts = moment is not None and moment < offered.moment and not followed.has_ended
                    if counts and followed.matches(offered.event):
                        yield f"{uid} was held back, and {identity} wants it"

    def _counted(self, identity: str) -> int | None:
        """Return the moment from which a subscription counts, None if it does not."""
        counted = [each.asked[identity].counted.get(1) for each in self._devices if identity in each.asked]
        return min((each for each in counted if each is not None), default=None)

    def _check_complete(self, followed: MovedSubscription) -> Iterator[str]:
        """Check that no event is missing that was accepted after the subscription counted."""
        identity = followed.subscription.id
        moment = self._counted(identity)
        if moment is None or followed.has_ended:
            return
        got = set(followed.notified.values())
        for event, (content, accepted) in self.published.items():
            if accepted > moment and event not in got and followed.matches(content):
                yield f"{identity} of {followed.subscription.owner} has missed {event}"

    def _check_received(self, followed: Followed) -> Iterator[str]:
        return check_received(self._devices, followed.subscription, followed.notified, lambda item: item.id)

    def _check_epochs(self) -> Iterator[str]:
        """Check that no epoch of a session has two owners, and that each import is of what was exported."""
        fenced = {(each.user, each.session, each.owner_epoch): each.target for each in _all(self._logs, SessionFenced)}
        taken = dict[tuple[str, str, int], str]()
        for name, several in self._logs.items():
            for each in (one for one in several if isinstance(one, SessionImported)):
                key = each.user, each.session, each.owner_epoch
                if key in taken or fenced.get(key) != name:
                    yield f"{name} has imported {key}, which was for {fenced.get(key)}, and is at {taken.get(key)}"
                taken[key] = name
                if decode_export(each.export).session.owner_epoch != each.owner_epoch:
                    yield f"{name} has imported {key} under another epoch"


def _all(records: Mapping[str, Sequence[AnyRecord]], kind: type[SessionFenced]) -> Iterator[SessionFenced]:
    return (each for several in records.values() for each in several if isinstance(each, kind))
