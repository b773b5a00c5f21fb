"""State of the decentralised model: the causal order, and what the other servers want (SPEC K-05, K-06)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from wanderbus import records
from wanderbus.broker.causes.domain_pasts import DomainPasts
from wanderbus.broker.state.causal_tables import causal_tables
from wanderbus.broker.state.rows import RouteRow, SeenRow, ServerRow
from wanderbus.broker.state.tables import RowTable, Stored
from wanderbus.channels.causal.domain_past import decode_domain_past
from wanderbus.channels.causal.header import CausalPast, Header
from wanderbus.channels.causal.interface import AnyCausalRecord, CausalDelivered, CausalSent
from wanderbus.channels.causal.payload import encode_payload
from wanderbus.channels.causal.state import CausalState
from wanderbus.channels.interest.incoming_streams import IncomingStreams, Route, StreamResult
from wanderbus.channels.interest.messages import FromSender, Stream, decode
from wanderbus.protocol.bases import decoded

_header: Final = msgspec.msgpack.Decoder(Header)
_past: Final = msgspec.msgpack.Decoder(CausalPast)
_change: Final[msgspec.msgpack.Decoder[AnyCausalRecord]] = msgspec.msgpack.Decoder(AnyCausalRecord)


class DecentralisedState:
    """A fold of the records of the decentralised model; empty without decentralised channels.

    The machine of the causal order changes its state before it emits records. ``ahead`` counts those that are not in
    the log yet: for them the fold has nothing to do.
    """

    def __init__(self) -> None:
        self.causal = CausalState()
        self.ahead = 0
        self.routes = IncomingStreams()
        self._rows: RowTable[RouteRow] = RowTable("routes", RouteRow)
        self.seen: RowTable[SeenRow] = RowTable("causal_seen", SeenRow)
        """Last event of each other server that was delivered here, by its name."""
        self.domain_pasts = DomainPasts()
        """Causes in other domains."""
        self.tables: tuple[Stored, ...] = (
            *causal_tables(self.causal),
            self._rows,
            self.seen,
            *self.domain_pasts.tables,
        )

    def begin(self, own: ServerRow) -> None:
        """Set the number and the incarnation of this server, and take over the loaded rows of routes."""
        if own.servers:
            self.causal.begin((own.number, own.rolled_back or own.incarnation))
        self.domain_pasts.begin()
        for key, row in self._rows.items():
            self.routes.load(_route_of(key), row.incarnation, row.version, row.filters)

    def roll_back(self, own: ServerRow, stale: Iterable[str]) -> None:
        """Go on in another incarnation, without the routes that may have changed since the copy."""
        if own.servers:
            others = set(range(len(own.servers))) - {own.number} if own.is_marked else ()
            self.causal.begin_again((own.number, own.rolled_back), others)
        for key in stale:
            self.routes.forget(_route_of(key))
            self._rows.drop(key)

    def stale_routes(self) -> list[tuple[str, Route]]:
        """Return the routes, with their keys, that no leader has confirmed since the start of this server."""
        return [(_key_of(route), route) for route in self.routes.routes() if not self.routes.is_current(route)]

    def published(self, record: records.Published) -> None:
        """Apply an event that this server published."""
        self.domain_pasts.learn(record.acceptance.id, bytes(record.acceptance.event), record.at_us)
        if self._is_behind():
            acceptance = record.acceptance
            payload = encode_payload(acceptance.id, record.at_us, acceptance.event)
            self.causal.apply(CausalSent(_header.decode(record.causal), payload))

    def arrived(self, record: records.Arrived) -> None:
        """Apply an event of another server."""
        self.seen.put(record.arrival.leader, SeenRow(record.arrival.id))
        self.domain_pasts.learn(record.arrival.id, bytes(record.arrival.event), record.at_us)
        if self._is_behind():
            arrival = record.arrival
            payload = encode_payload(arrival.id, arrival.accepted_us, arrival.event)
            self.causal.apply(CausalDelivered(_header.decode(record.causal), payload))

    def changed(self, changes: Iterable[bytes], domains: bytes = b"", at_us: int = 0) -> None:
        """Apply other changes of the causal order, and the causes in other domains that a session has brought along."""
        for each in changes:
            if self._is_behind():
                self.causal.apply(_change.decode(each))
        if domains:
            self.domain_pasts.take(decode_domain_past(domains), at_us)

    def route(self, record: records.RoutesChanged) -> StreamResult:
        """Apply a message about the interest of another server; a repeated one changes nothing."""
        return self.take_route(record.leader, _sent(record.message), 0.0)

    def take_route(self, leader: str, message: FromSender, now: float) -> StreamResult:
        """Take a message of ``leader``, and put the row if it changes the table.

        The time bounds how often the whole is asked for. No message in the log leads to that.
        """
        route = leader, message.stream
        before = self.routes.position(route)
        taken = self.routes.receive(leader, message, now)
        if (position := self.routes.position(route)) is not None and position != before:
            filters = sorted(self.routes.filters(route), key=lambda each: each.number)
            self._rows.put(_key_of(route), RouteRow(*position, tuple(filters)))
        return taken

    def forget_routes(self) -> None:
        """Forget what the other servers want: under another layout of channels it says nothing."""
        self.routes.clear()
        for key in list(self._rows):
            self._rows.drop(key)

    def _is_behind(self) -> bool:
        """Return whether the next record of the log has to be applied."""
        if self.ahead:
            self.ahead -= 1
            return False
        return True


def _sent(message: bytes) -> FromSender:
    decoded = decode(message)
    assert isinstance(decoded, FromSender)
    return decoded


def _key_of(route: Route) -> str:
    leader, stream = route
    return f"{leader}/{stream.origin}/{stream.group}"


def _route_of(key: str) -> Route:
    leader, origin, group = key.split("/")
    return leader, Stream(int(group), origin)


def encode_change(change: AnyCausalRecord) -> msgspec.Raw:
    """Return a change as a record of the log has it."""
    return msgspec.Raw(msgspec.msgpack.encode(change))


def encode_past(state: DecentralisedState, now_us: int) -> bytes:
    """Return the causal past of a server as an exported session has it."""
    past = msgspec.structs.replace(state.causal.past(), domains=state.domain_pasts.encoded(now_us))
    return msgspec.msgpack.encode(past)


def decode_past(data: bytes) -> CausalPast:
    """Return the causal past in ``data``; :class:`RemoteProtocolError` for invalid data."""
    past = decoded(_past, data, "a causal past")
    if past.domains:
        decode_domain_past(past.domains)
    return past


def encode_header(header: Header) -> bytes:
    """Return a header as a record of the log has it."""
    return msgspec.msgpack.encode(header)
