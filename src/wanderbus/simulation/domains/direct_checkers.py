"""Truth about decentralised channels from the durable logs of all servers: causal order, loss, routes that converge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from wanderbus import records
from wanderbus.channels.causal.header import Header
from wanderbus.channels.causal.interface import Accepted, AnyCausalRecord, Sent
from wanderbus.channels.causal.payload import encode_payload
from wanderbus.event import Event, EventId
from wanderbus.simulation.domains.causal_checkers import CausalTruth
from wanderbus.simulation.domains.causal_node import Written
from wanderbus.simulation.domains.direct_device import DirectDevice
from wanderbus.simulation.domains.direct_node import DirectNode

_header: Final = msgspec.msgpack.Decoder(Header)
_change: Final[msgspec.msgpack.Decoder[AnyCausalRecord]] = msgspec.msgpack.Decoder(AnyCausalRecord)

Matches = tuple[str, EventId]
"""Subscription and event."""


def causal_truth(nodes: Mapping[str, DirectNode]) -> CausalTruth:
    """Return the truth about the causal order, from the records of all servers."""
    history = [each for number, name in enumerate(sorted(nodes)) for each in _written(number, nodes[name])]
    return CausalTruth(history, ())


def _written(server: int, node: DirectNode) -> Iterator[Written]:
    for offset, record in enumerate(node.records()):
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


class DeliveryTruth:
    """Published events of all servers, and the notifications of each subscription."""

    def __init__(self, nodes: Mapping[str, DirectNode], devices: Mapping[str, DirectDevice]) -> None:
        self.problems: list[str] = []
        self.published: dict[EventId, tuple[float, Event]] = {}
        self.notified: dict[Matches, int] = {}
        self.lost = 0
        for node in nodes.values():
            for offset, record in enumerate(node.records()):
                if isinstance(record, records.Published):
                    self.published[record.acceptance.id] = node.written[offset][1], record.event
                    self._note(record.acceptance.id, record.delivery)
                elif isinstance(record, records.Arrived):
                    self._note(record.arrival.id, record.delivery)
        for device in devices.values():
            self._check(device)

    def _note(self, event: EventId, delivery: records.Delivery) -> None:
        for each in delivery.notified:
            for subscription in each.subscriptions:
                key = subscription, event
                self.notified[key] = self.notified.get(key, 0) + 1
                if self.notified[key] > 1:
                    self.problems.append(f"{subscription} was notified of {event} twice")

    def _check(self, device: DirectDevice) -> None:
        for identity, subscribed in device.subscriptions.items():
            for event, (at, content) in self.published.items():
                k = content["K"]
                assert isinstance(k, int)
                is_wanted = subscribed.interest.matches(content.subject, k)
                is_notified = (identity, event) in self.notified
                if is_notified and not is_wanted:
                    self.problems.append(f"{identity} was notified of {event}, which it does not match")
                if is_wanted and not is_notified and at > subscribed.since and not subscribed.ended:
                    self.lost += 1
                    self.problems.append(f"{event} is lost for {identity} at {device.node.name}")


def check_routes(
    nodes: Mapping[str, DirectNode], devices: Mapping[str, DirectDevice], *, is_exact: bool
) -> Iterator[str]:
    """Yield the servers that would get an event which they do not want, or the reverse, once all is quiet."""
    names = sorted(nodes)
    for node in nodes.values():
        direct = node.broker._direct
        assert direct is not None
        for subject in ("A", "B", "C"):
            for k in range(11):
                found = {names[each] for each in direct.index.destinations(Event(subject, {"K": k, "N": 0}))}
                wanted = {
                    name
                    for name, device in devices.items()
                    if device.node is not node and any(each.matches(subject, k) for each in device.live())
                }
                if wanted - found or (is_exact and found - wanted):
                    yield f"{node.name} sends {subject} {k} to {sorted(found)}, and {sorted(wanted)} want it"
