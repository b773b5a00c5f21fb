"""Records of the event log, from which state, history and analytics derive (DESIGN 5.1, SPEC T-01).

A record is a msgpack map with its kind under ``"kind"``. Fields may be added with a default. A field is never renamed
or given another meaning: such a change needs a new kind, and a higher :data:`SCHEMA_VERSION`. Times are microseconds
since the Unix epoch by the broker's clock. ``user`` is a canonical ``sip:name@domain``, or for the original ECI an
address as ``eci:host:port``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from wanderbus.event import DeclaredAttribute, Event, EventId
from wanderbus.records.advertisements import Advertised as Advertised
from wanderbus.records.advertisements import AdvertisementsCounted as AdvertisementsCounted
from wanderbus.records.advertisements import AdvertisementsWithdrawn as AdvertisementsWithdrawn
from wanderbus.records.bases import Record as Record
from wanderbus.records.groups import GroupMoved as GroupMoved
from wanderbus.records.groups import GroupPrepared as GroupPrepared
from wanderbus.records.groups import GroupPublishersTaken as GroupPublishersTaken
from wanderbus.records.groups import GroupStays as GroupStays
from wanderbus.records.groups import OfGroups as OfGroups
from wanderbus.records.moves import MOVED_AWAY as MOVED_AWAY
from wanderbus.records.moves import Cut as Cut
from wanderbus.records.moves import DeviceCame as DeviceCame
from wanderbus.records.moves import DeviceGone as DeviceGone
from wanderbus.records.moves import DrainingChanged as DrainingChanged
from wanderbus.records.moves import ExportDropped as ExportDropped
from wanderbus.records.moves import ExportTaken as ExportTaken
from wanderbus.records.moves import OfMoves as OfMoves
from wanderbus.records.moves import QueueContinued as QueueContinued
from wanderbus.records.moves import SessionAwaited as SessionAwaited
from wanderbus.records.moves import SessionFenced as SessionFenced
from wanderbus.records.moves import SessionImported as SessionImported
from wanderbus.records.moves import SessionNotAwaited as SessionNotAwaited
from wanderbus.records.moves import imported_subscriptions as imported_subscriptions
from wanderbus.subscription import Subscription

SCHEMA_VERSION: Final = 16

SPARK: Final = "spark"
"""The matching engine that runs on Spark, as a record of an event names it."""

SERVER_LOG: Final = "server"
"""Name of the log with the records of a server's own roles; a process may write several logs, each by its name."""


class Started(Record, frozen=True, tag="started", kw_only=True):
    """The server ``server`` began to serve, with ``schema`` as its record schema.

    ``incarnation`` identifies this log among all that the server has had; the first record of a log determines it.
    ``spark_subjects`` are the patterns of the subjects whose events the matching engine on Spark matches (SPEC T-06).
    ``servers`` are the servers of the domain in the order of their numbers from 0 on, if it has decentralised channels,
    and ``number`` is that of this one. ``epoch`` begins with this record: ids of events and positions of sessions have
    it, so that no two copies of a log give the same one (see :mod:`wanderbus.epochs`). ``layout`` identifies
    what the domain's file says about where events and interest go: with another one, nothing that was known about the
    interest of other servers holds any longer. ``others`` are the other servers of the domain, None in
    records of earlier versions: those that the start before did not name are new, and nothing of theirs is awaited.
    """

    server: str
    incarnation: int
    schema: int = SCHEMA_VERSION
    spark_subjects: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    number: int = 0
    epoch: int = 0
    layout: bytes = b""
    others: tuple[str, ...] | None = None


class RolledBack(Record, frozen=True, tag="rolled_back", kw_only=True):
    """The log lacks records that its server once made durable: it was replaced by an earlier copy.

    ``reason`` says who knows what is missing. ``epoch`` begins with this record. Each session gets a gap
    (:class:`EventsLost`). ``stale_routes`` are the keys of the routes that may have changed since the copy; they are
    forgotten (SPEC K-05). With ``is_marked``, all other servers get a mark behind the events that this one publishes
    directly to them again: there, and not before, events are missing.
    """

    epoch: int
    reason: str
    stale_routes: tuple[str, ...] = ()
    is_marked: bool = False


class Notified(msgspec.Struct, frozen=True, array_like=True):
    """One generated notification: its session (``user``, ``session``), number, and matched subscription ids.

    ``bound`` are pairs of a subscription that is bound to a device, and that device (SPEC E-05).
    """

    user: str
    session: str
    number: int
    subscriptions: tuple[str, ...]
    bound: tuple[tuple[str, str], ...] = ()


class Drop(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Notifications ``first`` to ``last`` of a session left the queues of these ``subscriptions`` undelivered.

    ``reason`` says why: the bound that what the record has added exceeds, or the one of a filter that was not
    evaluated.
    """

    user: str
    session: str
    first: int
    last: int
    reason: str
    subscriptions: tuple[str, ...]


class Acceptance(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An event was accepted under ``id``; it stays encoded, so that each event is encoded only once.

    (``user``, ``device``, ``epoch``, ``number``) is the publisher's own identifier, by which a repeat is recognised;
    events of its ``outbox`` are numbered separately. ``received_us`` is the wall clock as read, if the broker's clock
    differs from it; time windows use it (DESIGN 5.8). ``group`` is its channel group, if that has moved: repeats are
    recognised by the publisher's numbers in this group alone. ``digest`` is the checksum of the event without its past.
    """

    id: EventId
    event: msgspec.Raw
    user: str
    device: str
    epoch: int
    number: int
    outbox: bool = False
    received_us: int | None = None
    group: int | None = None
    digest: int | None = None


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The notifications that an accepted event generated.

    ``restricted`` names the subscriptions that matched without a notification, each with the place of the first
    restriction that blocked it. ``steps`` names the subscriptions to patterns that the event takes part in, each with
    a bit for every step that it matches (SPEC T-07).

    The notifications displaced others. ``displaced`` has a number for each of them by the bound that is reached: that
    of the notification which left the queues of the same subscriptions for it, or 0. ``dropped`` follows.
    """

    notified: tuple[Notified, ...] = ()
    restricted: tuple[tuple[str, int], ...] = ()
    steps: tuple[tuple[str, int], ...] = ()
    displaced: dict[str, tuple[int, ...]] = {}
    dropped: tuple[Drop, ...] = ()


class Published(Record, frozen=True, tag="published", kw_only=True):
    """An event was accepted and delivered: two decisions of one server, one record, so one commit.

    With an ``engine`` (:data:`SPARK`) it was only accepted: that engine matches it, and :class:`Matched` delivers it.
    An event of the decentralised model has its ``causal`` header, encoded (SPEC K-06).
    """

    acceptance: Acceptance
    delivery: Delivery = Delivery()
    engine: str = ""
    causal: bytes = b""

    @property
    def event(self) -> Event:
        """Return the event, which is decoded at each access; ``msgspec.DecodeError`` if it is none."""
        return _event_decoder.decode(self.acceptance.event)

    @property
    def received_us(self) -> int:
        """Return the wall clock as read when the event was accepted; time windows use it (DESIGN 5.8)."""
        received_us = self.acceptance.received_us
        return self.at_us if received_us is None else received_us


class Arrival(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An event that another server accepted under ``id`` arrived from the server ``leader``; it stays encoded.

    ``epoch`` and ``number`` are its position in this server's session there, ``before`` is the number that was sent
    before it. ``accepted_us`` is the time of the record of its acceptance by that server's clock. ``received_us`` is
    the wall clock as read when it arrived, if the broker's clock differs from it.
    """

    leader: str
    epoch: int
    number: int
    before: int
    id: EventId
    accepted_us: int
    event: msgspec.Raw
    received_us: int | None = None


class Arrived(Record, frozen=True, tag="arrived", kw_only=True):
    """An event of another server arrived and was delivered to sessions of this one, as one commit (SPEC K-02).

    It also says how far this server has got in its session at the other one. An event of the decentralised model has
    its ``causal`` header, encoded: it came from its origin directly, and ``epoch`` and ``number`` of the arrival are
    the incarnation of that server and the number of the event there (SPEC K-06). With an ``engine`` (:data:`SPARK`) it
    is not delivered yet: that engine matches it, and :class:`Matched` delivers it.
    """

    arrival: Arrival
    delivery: Delivery = Delivery()
    causal: bytes = b""
    engine: str = ""

    @property
    def event(self) -> Event:
        """Return the event, which is decoded at each access; ``msgspec.DecodeError`` if it is none."""
        return _event_decoder.decode(self.arrival.event)

    @property
    def received_us(self) -> int:
        """Return the wall clock as read when the event arrived; time windows use it (DESIGN 5.8)."""
        received_us = self.arrival.received_us
        return self.at_us if received_us is None else received_us


class ArrivalsLost(Record, frozen=True, tag="arrivals_lost", kw_only=True):
    """Events of the server ``leader`` up to ``number`` of the session there will not arrive: ``count`` of them.

    ``reason`` is the bound of the leader. ``notified`` are the subscriptions that may have matched them: each gets one
    gap in place of a notification. If the server sends events directly, there is no session, and ``causal`` are the
    changes of the causal order, encoded (SPEC K-06).
    """

    leader: str
    epoch: int
    number: int
    count: int
    reason: str
    notified: tuple[Notified, ...] = ()
    causal: tuple[msgspec.Raw, ...] = ()


class EventsLost(Record, frozen=True, tag="events_lost", kw_only=True):
    """Events may be lost that concerned these subscriptions: each gets one gap in place of a notification.

    With ``rolled_back``, these are the events of a log that was replaced by an earlier copy before that epoch.
    """

    reason: str
    notified: tuple[Notified, ...]
    rolled_back: int = 0


class CausalChanged(Record, frozen=True, tag="causal_changed", kw_only=True):
    """The causal order changed without an event, or a session brought causes in other ``domains`` (SPEC K-06)."""

    changes: tuple[msgspec.Raw, ...]
    domains: bytes = b""


class RoutesChanged(Record, frozen=True, tag="routes_changed", kw_only=True):
    """The server ``leader`` sent a ``message`` about the interest of another server in its channels (SPEC K-05)."""

    leader: str
    message: bytes


class ServerMet(Record, frozen=True, tag="server_met", kw_only=True):
    """``server`` has had a link with this one under the present layout: it accepts nothing under a former one."""

    server: str


class InterestSettled(Record, frozen=True, tag="interest_settled", kw_only=True):
    """This server has all interest of ``server`` in the ordered channels that it leads, under the present layout.

    From now on the subscriptions of that server's session here are what it wants, also after a restart (SPEC J-10).
    """

    server: str


class MatchedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that the matching engine has matched: its id, the time of its record in this log, its delivery.

    ``arrived`` is the offset of that record if another server has accepted the event, else 0: then the id has it.
    """

    id: EventId
    at_us: int
    event: msgspec.Raw
    notified: tuple[Notified, ...] = ()
    restricted: tuple[tuple[str, int], ...] = ()
    arrived: int = 0

    @property
    def offset(self) -> int:
        """Return the offset of the record of the event in this log."""
        return self.arrived or self.id.number


class Matched(Record, frozen=True, tag="matched", kw_only=True):
    """The matching engine has matched all its events below offset ``next``; ``events`` are some of them (SPEC T-06).

    They are those with a delivery since the last such record. ``dropped`` is what their notifications displaced.
    """

    next: int
    events: tuple[MatchedEvent, ...] = ()
    dropped: tuple[Drop, ...] = ()


class Detected(Record, frozen=True, tag="detected", kw_only=True):
    """The pattern of a subscription was matched on the events below ``watermark_us`` (SPEC T-07).

    ``events`` are the detections that generated a notification or were blocked by a restriction, in order, and events
    that were left out: a notification of such an event became a gap. ``left_out`` has the offsets of the latter.
    ``steps`` and ``taken`` say how far a turn went that did not match everything (:mod:`wanderbus.patterns.turns`).
    ``dropped`` is what the notifications displaced.
    """

    subscription: str
    watermark_us: int
    events: tuple[MatchedEvent, ...] = ()
    left_out: tuple[int, ...] = ()
    steps: int | None = None
    taken: int | None = None
    dropped: tuple[Drop, ...] = ()


class Dropped(Record, frozen=True, tag="dropped", kw_only=True):
    """Notifications ``first`` to ``last`` of a session left the queues of these ``subscriptions`` undelivered.

    ``reason`` says why. Without ``subscriptions`` the drop concerns all subscriptions of the session. What a record
    with notifications displaces is in that record instead (:mod:`wanderbus.broker.state.drops`).
    """

    user: str
    session: str
    first: int
    last: int
    reason: str
    subscriptions: tuple[str, ...] = ()


class Acknowledged(Record, frozen=True, tag="acknowledged", kw_only=True):
    """The application on ``device`` acknowledged these ``subscriptions`` up to ``number`` (notify-ack).

    Without ``subscriptions`` the acknowledgement concerns all subscriptions of the session. ``resumed`` is true if the
    application committed its results together with this position, so that it has seen nothing behind it.
    """

    user: str
    session: str
    device: str
    number: int
    subscriptions: tuple[str, ...] = ()
    resumed: bool = False


class Subscribed(Record, frozen=True, tag="subscribed", kw_only=True):
    """A subscription was accepted; it inherits the queue of the ended subscription ``inherits``, if any.

    ``number`` gives the order in which this server created its subscriptions; it is used once. With ``history`` it
    reads the log from that offset on before it continues live: that of this server, or the ``log`` of the server and
    the incarnation, and of the leaders after ``leader_epoch``. If it is not kept, it ends with the membership of the
    device ``holder``.
    """

    subscription: Subscription
    number: int
    holder: str = ""
    inherits: str | None = None
    history: int | None = None
    log: tuple[str, int] | None = None
    leader_epoch: int = 0


class LogPlace(msgspec.Struct, frozen=True, array_like=True):
    """A place in the log of a server that led a channel under an epoch; the incarnation is 0 if it is unknown."""

    server: str
    incarnation: int
    offset: int
    leader_epoch: int


class ReplayedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event for a subscription that has not caught up with the log.

    ``at_us`` is the time of the record of its acceptance. ``is_history`` is false if it arrived while the last piece of
    the history was read. ``subscriptions`` are those that it matches; without any it is the one of the record.
    """

    id: EventId
    at_us: int
    event: msgspec.Raw
    is_history: bool = True
    subscriptions: tuple[str, ...] = ()


class SteppedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event of the log that patterns take part of, as one that comes live: ``steps`` are those of a delivery."""

    offset: int
    id: EventId
    at_us: int
    event: msgspec.Raw
    steps: tuple[tuple[str, int], ...]


class Replayed(Record, frozen=True, tag="replayed", kw_only=True):
    """A subscription has caught up with the log below offset ``next``; it is live if there is none (SPEC T-05).

    So have ``others`` of its session, if that has moved here: they read the log together. Each has the number of
    its notifications that restrictions blocked.

    ``events`` generated the notifications from number ``first`` on; restrictions blocked ``restricted`` more. If it
    is live, it has all events of the matching engine below offset ``live_from``. ``log`` are the server and
    the incarnation of a log of another server that it reads; once live, it has all events of that log below
    ``read_below``, so their arrivals are no notifications; ``read_epoch`` is the epoch of that log at this moment.
    ``dropped`` is what the notifications displaced. ``stepped`` are the events for the patterns among the
    subscriptions, in order. If the leader led the channel no longer, it reads ``onward`` what the next one accepted.
    """

    user: str
    session: str
    subscription: str
    first: int
    events: tuple[ReplayedEvent, ...] = ()
    restricted: int = 0
    next: int | None = None
    live_from: int = 0
    log: tuple[str, int] | None = None
    read_below: int = 0
    read_epoch: int = 0
    dropped: tuple[Drop, ...] = ()
    others: tuple[tuple[str, int], ...] = ()
    stepped: tuple[SteppedEvent, ...] = ()
    onward: LogPlace | None = None

    @property
    def notified(self) -> list[Notified]:
        """Return the notification of each event, without the devices to which subscriptions are bound."""
        own = (self.subscription,)
        return [
            Notified(self.user, self.session, number, each.subscriptions or own)
            for number, each in enumerate(self.events, self.first)
        ]


class Changed(Record, frozen=True, tag="changed", kw_only=True):
    """A subscription was renewed or restricted; ``subscription`` is its new state, live again if it had ended (X21).

    With ``holders``, other devices hold it from now on: it ends with the membership of the last of them. Without any,
    it is kept.
    """

    subscription: Subscription
    holders: tuple[str, ...] | None = None


class Unsubscribed(Record, frozen=True, tag="unsubscribed", kw_only=True):
    """A subscription ended; ``reason`` is ``asked``, ``unsubscribed``, ``expired``, ``discarded``, ``left_behind``,
    ``history_failed``, ``matched_by_engine`` or ``removed``.

    The device ``abandoned_by`` will not read what still waits for it.
    """

    user: str
    subscription: str
    reason: str
    abandoned_by: str = ""


class Forgotten(Record, frozen=True, tag="forgotten", kw_only=True):
    """Subscriptions that ended long ago can no longer be renewed under their ids; their queues are dropped.

    Repeated publishes of the removed ``devices``, pairs of user and name, are no longer recognised. The ``sessions``,
    pairs of user and name, are over: they had no devices, no subscriptions, and nothing waited. Another session of the
    user continues with their numbers.
    """

    subscriptions: tuple[str, ...] = ()
    devices: tuple[tuple[str, str], ...] = ()
    sessions: tuple[tuple[str, str], ...] = ()


class Attached(Record, frozen=True, tag="attached", kw_only=True):
    """A device attached to a session over its data channel; ``epoch`` identifies that life of the agent.

    ``redelivered`` are the subscriptions, with a number up to which an earlier life may have seen unacknowledged
    notifications; for a new member of the session, another device may have seen them. An unchanged epoch leaves this as
    it was. ``taken`` are the subscriptions, with a number up to which the other devices have acknowledged what waits: a
    new member begins behind it. The agent may hold back events by filters that it has for
    ``filter_lease_s`` at most; 0 if it may not (SPEC N-03).
    """

    user: str
    session: str
    device: str
    epoch: int
    redelivered: tuple[tuple[str, int], ...] = ()
    filter_lease_s: float = 0.0
    taken: tuple[tuple[str, int], ...] = ()


class DialogStored(Record, frozen=True, tag="dialog_stored", kw_only=True):
    """The signalling layer's state for a device's dialog changed; ``binding`` is opaque outside that layer.

    ``address`` is the present address of its data, ``host:port``.
    """

    user: str
    device: str
    address: str
    binding: bytes


class StatusChanged(Record, frozen=True, tag="status", kw_only=True):
    """A device became ``CONNECTED`` or ``DISCONNECTED`` (its Remote Media Status), because of ``reason``.

    ``grace_s`` is the time that it may be away this once, if the operator's hook has set one (SPEC G-24).
    """

    user: str
    device: str
    status: str
    reason: str
    grace_s: float | None = None


class Left(Record, frozen=True, tag="left", kw_only=True):
    """A device is no longer a member of its session.

    ``reason`` is ``asked``, ``grace``, ``kicked``, ``hook`` or ``transferred``, or the bound for which it gave way to
    another device: ``devices_max``, ``user_devices_max`` or ``sessions_max``.
    """

    user: str
    session: str
    device: str
    reason: str


class SchemaDeclared(Record, frozen=True, tag="schema_declared", kw_only=True):
    """The user ``by`` declared ``attributes`` as version ``version`` of the schema of ``subject``.

    It holds for the events behind this record.
    """

    subject: str
    version: int
    attributes: tuple[DeclaredAttribute, ...]
    by: str


AnyRecord = (
    Started
    | RolledBack
    | EventsLost
    | Published
    | Arrived
    | ArrivalsLost
    | CausalChanged
    | RoutesChanged
    | ServerMet
    | InterestSettled
    | Dropped
    | Acknowledged
    | Subscribed
    | Changed
    | Matched
    | Detected
    | Replayed
    | Unsubscribed
    | Forgotten
    | Attached
    | DialogStored
    | StatusChanged
    | Left
    | OfMoves
    | OfGroups
    | SchemaDeclared
    | Advertised
    | AdvertisementsCounted
    | AdvertisementsWithdrawn
)

_encoder = msgspec.msgpack.Encoder()
_event_decoder = msgspec.msgpack.Decoder(Event)
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)


encode_record: Final[Callable[[Record], bytes]] = _encoder.encode
"""Return the bytes that the log stores for a record."""


def decode_record(payload: bytes) -> AnyRecord:
    """Return the record in ``payload``; ``msgspec.DecodeError`` if it is not a record of this schema."""
    return _decoder.decode(payload)
