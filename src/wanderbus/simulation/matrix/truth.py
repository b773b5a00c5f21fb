"""Events of the logs in a world of the mobility matrix, and what each device should have got of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wanderbus import records
from wanderbus.broker.servers.server_users import domain_of
from wanderbus.event import EventId, Gap
from wanderbus.simulation.matrix.device import MatrixDevice
from wanderbus.simulation.server import SimulatedServer
from wanderbus.simulation.system.checkers import check_items


class MatrixTruth:
    """Events by number, in the order in which users published them; none was accepted twice, or came twice to a domain.

    :param is_one_channel: True if all events have one order; otherwise those that one server has accepted have one
    """

    def __init__(self, servers: Mapping[str, SimulatedServer], *, is_one_channel: bool) -> None:
        self.problems: list[str] = []
        self.published: dict[int, records.Published] = {}
        self._is_one_channel = is_one_channel
        found: list[tuple[int, int, records.Published]] = []
        for server in servers.values():
            copies: set[int] = set()
            for record in server.disk.records():
                if not isinstance(record, records.Published):
                    continue
                number = record.event["Uid"]
                assert isinstance(number, int)
                if domain_of(record.acceptance.user, server.domain) is None:
                    found.append((record.at_us, number, record))
                elif number in copies:
                    self.problems.append(f"event {number} has come to {server.domain} twice")
                else:
                    copies.add(number)
        for _, number, record in sorted(found, key=lambda each: each[0]):
            if number in self.published:
                self.problems.append(f"event {number} was published twice")
            self.published[number] = record

    def check(self, device: MatrixDevice) -> Iterator[str]:
        """Yield what a device has missed or got twice or in another order, and what became of its own events."""
        items = device.committed.items.get(1, ())
        if any(isinstance(each, Gap) for each in items):
            yield "has read a gap"
        for stream in self._streams():
            others = self.published.keys() - stream
            of_stream = [each for each in items if isinstance(each, Gap) or each.event["Uid"] not in others]
            yield from check_items(device, of_stream, list(stream))
        own = [number for number, record in self.published.items() if record.acceptance.user == device.uri]
        if own != sorted(own):
            yield "its events are out of order"
        for number, identity in device.accepted.items():
            if number not in self.published or self.published[number].acceptance.id != _without_domain(identity):
                yield f"event {number} was acknowledged as {identity} and is not there"

    def _streams(self) -> list[dict[int, records.Published]]:
        """Return the events of each order."""
        streams: dict[str, dict[int, records.Published]] = {}
        for number, record in self.published.items():
            order = "" if self._is_one_channel else record.acceptance.id.origin
            streams.setdefault(order, {})[number] = record
        return list(streams.values())


def _without_domain(identity: EventId) -> EventId:
    """Return the id that an event had in its own domain: another one names that in front of its server."""
    return EventId(identity.origin.rpartition("/")[2], identity.incarnation, identity.number)
