"""Truth about decentralised channels from the durable logs of all servers: causal order, and routes that converge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from wanderbus import records
from wanderbus.channels.causal.header import Header
from wanderbus.channels.causal.interface import AnyCausalRecord, CausalDelivered, CausalSent
from wanderbus.channels.causal.payload import encode_payload
from wanderbus.event import Event
from wanderbus.simulation.domains.advertising_device import AdvertisingDevice, OfferedFilter
from wanderbus.simulation.domains.causal_checkers import CausalTruth
from wanderbus.simulation.domains.causal_node import Written
from wanderbus.simulation.domains.domain_node import DomainNode

_header: Final = msgspec.msgpack.Decoder(Header)
_change: Final[msgspec.msgpack.Decoder[AnyCausalRecord]] = msgspec.msgpack.Decoder(AnyCausalRecord)


def causal_truth(nodes: Iterable[DomainNode]) -> CausalTruth:
    """Return the truth about the causal order, from the records of all servers in the order of their numbers."""
    history = [each for number, node in enumerate(nodes) for each in _written(number, node)]
    return CausalTruth(history, ())


def _written(server: int, node: DomainNode) -> Iterator[Written]:
    for offset, record in enumerate(node.disk.records()):
        for change in _changes(record):
            yield Written(node.moments[offset], server, node.broker.state.incarnation, change)


def _changes(record: records.AnyRecord) -> list[AnyCausalRecord]:
    match record:
        case records.Published(acceptance=acceptance, causal=causal) if causal:
            payload = encode_payload(acceptance.id, record.at_us, acceptance.event)
            return [CausalSent(_header.decode(causal), payload)]
        case records.Arrived(arrival=arrival, causal=causal) if causal:
            payload = encode_payload(arrival.id, arrival.accepted_us, arrival.event)
            return [CausalDelivered(_header.decode(causal), payload)]
        case records.CausalChanged(changes=changes) | records.ArrivalsLost(causal=changes):
            return [_change.decode(each) for each in changes]
    return []


def check_routes(
    nodes: Mapping[str, DomainNode], devices: Sequence[AdvertisingDevice], *, is_exact: bool
) -> Iterator[str]:
    """Yield the servers that would get an event which they do not want, or the reverse, once all is quiet.

    An event that may not be published at a server need not be wanted there.
    """
    names = sorted(nodes)
    live = {
        each.node: [OfferedFilter(one.subject, one.expression) for one in each.live_subscriptions()] for each in devices
    }
    for device in devices:
        node, offers = device.node, device.live_advertisements()
        assert node.channels.decentralised is not None
        for event in [Event(subject, {"x": x}) for subject in ("A", "B", "C") for x in range(11)]:
            found = {names[each] for each in node.broker.diagnostics.destinations(event)}
            wanted = {
                other.name
                for other, interests in live.items()
                if other is not node and any(each.matches(event) for each in interests)
            }
            is_required = node.channels.decentralised.requires_advertisement(event.subject)
            if is_required and not any(each.matches(event) for each in offers):
                wanted &= found
            if wanted - found or (is_exact and found - wanted):
                yield f"{node.name} sends {event} to {sorted(found)}, and {sorted(wanted)} want it"


def check_advertised(devices: Sequence[AdvertisingDevice]) -> Iterator[str]:
    """Yield events that were accepted without an advertisement, or refused in spite of one (SPEC A-17)."""
    for device in devices:
        node = device.node
        for refusal in device.refusals:
            if refusal.is_advertised:
                yield f"{node.name} refuses {refusal.event}, which is advertised: {refusal.reason}"
        channels = node.channels.decentralised
        assert channels is not None
        live: dict[str, OfferedFilter] = {}
        counting: set[str] = set()
        for record in node.disk.records():
            match record:
                case records.Advertised():
                    live[record.advertisement] = OfferedFilter(record.subject, record.expression)
                case records.AdvertisementsCounted(advertisements=advertisements):
                    counting |= set(advertisements)
                case records.AdvertisementsWithdrawn(advertisements=advertisements):
                    for each in advertisements:
                        del live[each]
                case records.Published(event=event) if channels.requires_advertisement(event.subject):
                    if not any(live[each].matches(event) for each in counting & live.keys()):
                        yield f"{node.name} accepted {event}, which is not advertised"


def check_interest_goes_to_advertisers(devices: Sequence[AdvertisingDevice]) -> Iterator[str]:
    """Yield the interest that a server has though nothing that it may publish can match it (SPEC K-07)."""
    events = [Event(subject, {"x": x / 2}) for subject in ("A", "B", "C") for x in range(-4, 25)]
    for device in devices:
        node, offers = device.node, device.live_advertisements()
        assert node.channels.decentralised is not None
        may = [event for event in events if any(offer.matches(event) for offer in offers)]
        routes = node.broker.state.decentralised.routes
        for leader, stream in routes.routes():
            if stream.origin == node.name or not node.channels.decentralised.mergings[stream.group].for_advertisers:
                continue
            for each in routes.filters((leader, stream)):
                if not any(OfferedFilter(each.subject or "*", each.expression).matches(event) for event in may):
                    yield f"{node.name} has the interest of {stream.origin} in {each.subject} {each.expression}"
