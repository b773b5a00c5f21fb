"""Truth about decentralised channels from the durable logs of all servers: causal order, loss, routes that converge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from wanderbus import records
from wanderbus.channels.causal.header import Header
from wanderbus.channels.causal.interface import Accepted, AnyCausalRecord, Sent
from wanderbus.channels.causal.payload import encode_payload
from wanderbus.event import Event, EventId
from wanderbus.filters import parse
from wanderbus.filters.evaluate import evaluate
from wanderbus.simulation.domains.causal_checkers import CausalTruth
from wanderbus.simulation.domains.causal_node import Written
from wanderbus.simulation.domains.decentralised_device import DecentralisedDevice, Offer
from wanderbus.simulation.domains.decentralised_node import DecentralisedNode

_header: Final = msgspec.msgpack.Decoder(Header)
_change: Final[msgspec.msgpack.Decoder[AnyCausalRecord]] = msgspec.msgpack.Decoder(AnyCausalRecord)

Matches = tuple[str, EventId]
"""Subscription and event."""


def causal_truth(nodes: Mapping[str, DecentralisedNode]) -> CausalTruth:
    """Return the truth about the causal order, from the records of all servers."""
    history = [each for number, name in enumerate(sorted(nodes)) for each in _written(number, nodes[name])]
    return CausalTruth(history, ())


def _written(server: int, node: DecentralisedNode) -> Iterator[Written]:
    for offset, record in enumerate(node.disk.records()):
        for change in _changes(record):
            yield Written(node.written[offset][0], server, node.broker.state.incarnation, change)


def _changes(record: records.AnyRecord) -> list[AnyCausalRecord]:
    match record:
        case records.Published(acceptance=acceptance, causal=causal) if causal:
            payload = encode_payload(acceptance.id, record.at_us, acceptance.event)
            return [Sent(_header.decode(causal), payload)]
        case records.Arrived(arrival=arrival, causal=causal) if causal:
            payload = encode_payload(arrival.id, arrival.accepted_us, arrival.event)
            return [Accepted(_header.decode(causal), payload)]
        case records.CausalChanged(changes=changes) | records.ArrivalsLost(causal=changes):
            return [_change.decode(each) for each in changes]
    return []


class Order:
    """The decentralised events of one server: its log has them in causal order, and its sessions must, too."""

    def __init__(self, server: str) -> None:
        self.problems: list[str] = []
        self._server = server
        self._offsets: dict[EventId, int] = {}
        self._last: dict[tuple[str, str], int] = {}
        """Offset of the last event of each session."""

    def add(self, event: EventId, offset: int, *, is_causal: bool) -> None:
        """Add the record of an event, if it is decentralised."""
        if is_causal:
            self._offsets[event] = offset

    def deliver(self, event: EventId, session: tuple[str, str]) -> None:
        """Note a notification of a session."""
        if (offset := self._offsets.get(event)) is None:
            return
        if offset < self._last.get(session, 0):
            self.problems.append(f"{self._server} notified {session} of {event} after a later event")
        self._last[session] = offset


class DeliveryTruth:
    """Published events of all servers, and the notifications of each subscription."""

    def __init__(self, nodes: Mapping[str, DecentralisedNode], devices: Mapping[str, DecentralisedDevice]) -> None:
        self.problems: list[str] = []
        self.published: dict[EventId, tuple[float, Event]] = {}
        self.notified: dict[Matches, int] = {}
        self.lost = 0
        for node in nodes.values():
            self._follow(node)
        for device in devices.values():
            self._check(device)

    def _follow(self, node: DecentralisedNode) -> None:
        """Note the deliveries of one server, with the order of its decentralised events in the log."""
        order = Order(node.name)
        for offset, record in enumerate(node.disk.records()):
            match record:
                case records.Published(acceptance=acceptance):
                    self.published[acceptance.id] = node.written[offset][1], record.event
                    order.add(acceptance.id, offset, is_causal=bool(record.causal))
                    self._note(acceptance.id, record.delivery.notified, order)
                case records.Arrived(arrival=arrival):
                    order.add(arrival.id, offset, is_causal=bool(record.causal))
                    self._note(arrival.id, record.delivery.notified, order)
                case records.Matched(events=events):
                    for each in events:
                        self._note(each.id, each.notified, order)
        self.problems += order.problems

    def _note(self, event: EventId, notified: Sequence[records.Notified], order: Order) -> None:
        for each in notified:
            order.deliver(event, (each.user, each.session))
            for subscription in each.subscriptions:
                key = subscription, event
                self.notified[key] = self.notified.get(key, 0) + 1
                if self.notified[key] > 1:
                    self.problems.append(f"{subscription} was notified of {event} twice")

    def _check(self, device: DecentralisedDevice) -> None:
        for identity, subscribed in device.subscriptions.items():
            for event, (at, content) in self.published.items():
                is_wanted = subscribed.interest.matches(content.subject, _k(content))
                is_notified = (identity, event) in self.notified
                if is_notified and not is_wanted:
                    self.problems.append(f"{identity} was notified of {event}, which it does not match")
                if is_wanted and not is_notified and at > subscribed.since and not subscribed.ended:
                    self.lost += 1
                    self.problems.append(f"{event} is lost for {identity} at {device.node.name}")


def check_routes(
    nodes: Mapping[str, DecentralisedNode], devices: Mapping[str, DecentralisedDevice], *, is_exact: bool
) -> Iterator[str]:
    """Yield the servers that would get an event which they do not want, or the reverse, once all is quiet.

    An event that may not be published at a server need not be wanted there.
    """
    names = sorted(nodes)
    for node in nodes.values():
        assert node.channels.decentralised is not None
        offers = devices[node.name].live_advertisements()
        for subject in ("A", "B", "C"):
            for k in range(11):
                found = {names[each] for each in node.broker.diagnostics.destinations(Event(subject, {"K": k, "N": 0}))}
                wanted = {
                    name
                    for name, device in devices.items()
                    if device.node is not node and any(each.matches(subject, k) for each in device.live())
                }
                is_required = node.channels.decentralised.requires_advertisement(subject)
                if is_required and not any(each.matches(subject, k) for each in offers):
                    wanted &= found
                if wanted - found or (is_exact and found - wanted):
                    yield f"{node.name} sends {subject} {k} to {sorted(found)}, and {sorted(wanted)} want it"


def check_advertised(
    nodes: Mapping[str, DecentralisedNode], devices: Mapping[str, DecentralisedDevice]
) -> Iterator[str]:
    """Yield events that were accepted without an advertisement, or refused in spite of one (SPEC A-17)."""
    for name, device in devices.items():
        for refusal in device.refusals:
            if refusal.is_advertised:
                yield f"{name} refuses {refusal.event}, which is advertised: {refusal.reason}"
    for node in nodes.values():
        assert node.channels.decentralised is not None
        live: dict[str, Offer] = {}
        counting: set[str] = set()
        for record in node.disk.records():
            match record:
                case records.Advertised():
                    live[record.advertisement] = Offer.of(record.subject, record.expression)
                case records.AdvertisementsCounted(advertisements=advertisements):
                    counting |= set(advertisements)
                case records.AdvertisementsWithdrawn(advertisements=advertisements):
                    for each in advertisements:
                        del live[each]
                case records.Published(event=event) if node.channels.decentralised.requires_advertisement(
                    event.subject
                ):
                    if not any(live[each].matches(event.subject, _k(event)) for each in counting & live.keys()):
                        yield f"{node.name} accepted {event}, which is not advertised"


def check_interest_goes_to_advertisers(
    nodes: Mapping[str, DecentralisedNode], devices: Mapping[str, DecentralisedDevice]
) -> Iterator[str]:
    """Yield the interest that a server has though nothing that it may publish can match it (SPEC K-07)."""
    events = [(subject, k / 2) for subject in ("A", "B", "C") for k in range(-4, 25)]
    for name, node in nodes.items():
        offers = devices[name].live_advertisements()
        decentralised = node.channels.decentralised
        assert decentralised is not None
        may = [Event(on, {"K": k}) for on, k in events if any(offer.matches(on, k) for offer in offers)]
        routes = node.broker.state.decentralised.routes
        for leader, stream in routes.routes():
            if stream.origin == name or not decentralised.mergings[stream.group].for_advertisers:
                continue
            for each in routes.filters((leader, stream)):
                wanted = parse(each.expression).root
                if not any(each.subject in (None, event.subject) and evaluate(wanted, event) for event in may):
                    yield f"{name} has the interest of {stream.origin} in {each.subject} {each.expression}"


def _k(event: Event) -> int:
    k = event["K"]
    assert isinstance(k, int)
    return k
