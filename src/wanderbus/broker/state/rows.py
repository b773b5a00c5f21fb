"""Rows of the broker's state: plain structs that the fold changes and the state store keeps (DESIGN 5.1)."""

from __future__ import annotations

from functools import cached_property
from typing import Final, Literal

import msgspec

from wanderbus.channels.interest.messages import NumberedFilter
from wanderbus.epochs import Epochs, Leadership, epoch_of, has_position, in_common, with_epoch
from wanderbus.event import EventId, Position
from wanderbus.metrics import Durations
from wanderbus.patterns import Seen
from wanderbus.protocol import OPERATIONS
from wanderbus.records import Cut, Notified
from wanderbus.subscription import Restriction, Subscription

Status = Literal["CONNECTED", "DISCONNECTED"]

FORMER_EPOCHS_MAX: Final = 8
"""Earlier epochs of a publisher whose repeated events are recognised."""

FORMER_LIVES_MAX: Final = 4
"""Earlier lives of a device's agent that are recognised."""


class OwedGap(msgspec.Struct, frozen=True, array_like=True):
    """A gap for lost events: the number that it has, the place of the record, its time and reason."""

    notified: Notified
    event: EventId
    at_us: int
    reason: str


class SessionRow(msgspec.Struct, dict=True):
    """A user's named session: its stream's epoch, the numbers in use, its members, and the counters of matches.

    A match is one notification for one subscription that passed the restrictions. For matches,
    ``generated = delivered + queued + sum(dropped.values())`` (SPEC G-21, U-02).
    """

    user: str
    name: str
    epoch: int
    """Latest epoch of the stream, µs since the Unix epoch; at first the time at which the session was made."""
    owner_epoch: int = 1
    """Number of its owner among the servers that have owned it; it rises with each handover (DESIGN 5.3)."""
    is_fenced: bool = False
    """True if another server owns it in this epoch: nothing of the session is here but this row."""
    next_owner: str = ""
    """That server, in a domain of several."""
    next: int = 1
    """Number of the next notification."""
    waiting: int = 0
    """Notifications that wait for some subscription, without gaps."""
    generated: int = 0
    delivered: int = 0
    queued: int = 0
    queued_bytes: int = 0
    """Bytes of the waiting events; each event counts once."""
    restricted: int = 0
    """Matches that a restriction blocked; they were never generated."""
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    """Dropped matches by reason."""
    devices: list[str] = msgspec.field(default_factory=list)
    subscriptions: list[str] = msgspec.field(default_factory=list)
    """Live subscriptions, in the order of their creation."""
    ended: list[str] = msgspec.field(default_factory=list)
    """Subscriptions that can still be renewed: those in the table of tombstones (SPEC X21)."""
    first: int = 1
    """First number of the latest epoch."""
    earlier: tuple[tuple[int, int], ...] = ()
    """Earlier epochs, each with its first number."""
    rolled_back: int = 0
    """Epoch of the last rollback of the log of which its subscriptions have a gap, or before which it was made."""
    acknowledgements: Durations = msgspec.field(default_factory=Durations)
    """Times from notifications to their acknowledgements, one for each match and device."""
    absences: Durations = msgspec.field(default_factory=Durations)
    """Times for which its devices were DISCONNECTED, those that have ended."""
    past_queued_max: int = 0
    """Largest number of ``queued`` matches before ``queued_us``, at which it changed last."""
    queued_us: int = 0

    source: str = ""
    """Server from which the rest of its queue still comes, "" if all of it is here."""
    arrived: int = 0
    """Number up to which the queue is here until then."""
    owed: list[OwedGap] = msgspec.field(default_factory=list)
    """Gaps behind the rest of the queue."""

    def change_queued(self, by: int, at_us: int) -> None:
        """Change the number of queued matches; what it is between two changes at one time does not count."""
        if at_us > self.queued_us:
            self.past_queued_max, self.queued_us = self.queued_max, at_us
        self.queued += by

    @property
    def queued_max(self) -> int:
        """Return the largest number of queued matches until now."""
        return max(self.past_queued_max, self.queued)

    @cached_property
    def key(self) -> str:
        """Return the key of this row."""
        return session_key(self.user, self.name)

    @property
    def is_empty(self) -> bool:
        """Return whether it has no subscription, and nothing waits or is on its way here."""
        return not (self.subscriptions or self.ended or self.waiting or self.source)

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left of it: no device, no subscription, no notification."""
        return self.is_empty and not self.devices

    @property
    def has_left_domain(self) -> bool:
        """Return whether a server of another domain owns it."""
        return self.is_fenced and "/" in self.next_owner

    @property
    def is_visit(self) -> bool:
        """Return whether its devices only send requests, about the server that they have called: it stays there."""
        return self.is_empty and self.name == OPERATIONS

    @property
    def here_through(self) -> int:
        """Return the number up to which the whole queue is here, or was."""
        return self.arrived if self.source else self.next - 1

    @property
    def epochs(self) -> Epochs:
        """Return all epochs, each with its first number."""
        return (*self.earlier, (self.epoch, self.first))

    def begin(self, epoch: int) -> None:
        """Give the next numbers in a later ``epoch``."""
        *earlier, (self.epoch, self.first) = with_epoch(self.epochs, epoch, self.next)
        self.earlier = tuple(earlier)

    def position(self, number: int) -> Position:
        """Return the position of a notification."""
        return Position(self.epoch if number >= self.first else epoch_of(self.earlier, number), number)

    def in_common(self, position: Position) -> int:
        """Return the highest number up to ``position`` that is the same here as where the position was given."""
        return min(in_common(self.epochs, *msgspec.structs.astuple(position)), self.next - 1)

    def has(self, position: Position) -> bool:
        """Return whether the position was given in this stream."""
        return has_position(self.epochs, position, self.next)

    def strays(self, bound: tuple[tuple[str, str], ...]) -> set[str]:
        """Return the subscriptions of ``bound`` whose device is not a member; none while there is no member."""
        return {identity for identity, device in bound if device not in self.devices} if self.devices else set()


class ExportRow(msgspec.Struct, frozen=True):
    """An exported session, encoded, until its next owner, the server ``target``, has it."""

    export: bytes
    target: str = ""


class RestRow(msgspec.Struct, frozen=True):
    """The rest of the queue of a session, which goes to its next owner, the server ``target``."""

    target: str


class AwaitedRow(msgspec.Struct, frozen=True):
    """A session that is about to move here from ``source``, and its subscriptions, which get events already.

    From offset ``first`` on, the log here has every event that may be for them and not for their session at the source.
    """

    owner_epoch: int
    source: str
    first: int
    subscriptions: tuple[Subscription, ...]


class DeviceRow(msgspec.Struct):
    """A device of a user: its session, the life of its agent, its status and its dialog."""

    user: str
    device: str
    session: str
    epoch: int = 0
    redelivered: dict[str, int] | None = None
    """Highest number that an earlier life of its agent, or another device before it was a member, may have seen, by
    subscription."""
    status: Status = "DISCONNECTED"
    away_since_us: int | None = None
    grace_s: float | None = None
    """Time that it may be away this once; None for the broker's setting (SPEC G-24)."""
    binding: bytes | None = None
    address: str | None = None
    """Last address of its data, ``host:port``."""
    taken: int = 0
    """Highest number that it has acknowledged, if it is a server of the domain."""
    filter_lease_s: float = 0.0
    """Longest time for which its agent may hold back events by filters that it has; 0 if it may not (SPEC N-03)."""
    former: tuple[int, ...] = ()
    """Epochs of the last earlier lives of its agent."""
    gone_to: str = ""
    """Another server of the domain at which it has published since, "" if it has not gone."""

    def begin_life(self, epoch: int) -> None:
        """Enter the life ``epoch`` of the agent, after the present one."""
        if self.epoch:
            others = [each for each in self.former if each != epoch]
            self.former = (*others, self.epoch)[-FORMER_LIVES_MAX:]
        self.epoch = epoch

    def having_taken(self, number: int) -> DeviceRow:
        """Note the number up to which it has acknowledged everything; return itself."""
        self.taken = max(self.taken, number)
        return self


class PublisherRow(msgspec.Struct):
    """Publishes of a device, or of its outbox, in the present epoch: highest number, and the recent answers."""

    epoch: int
    number: int = 0
    recent: dict[int, int] = msgspec.field(default_factory=dict)
    """Number in the id of each event that this server has accepted, in the present incarnation of its log."""
    elsewhere: dict[int, EventId] = msgspec.field(default_factory=dict)
    """Id of each event that another server has accepted."""
    digests: dict[int, int] = msgspec.field(default_factory=dict)
    """Checksum of each event that has an answer here; state of earlier versions has none."""
    former: dict[int, int] = msgspec.field(default_factory=dict)
    """Highest number of each of the last earlier epochs; a server may repeat an event of one after a new one began."""

    def in_epoch(self, epoch: int) -> PublisherRow:
        """Return the row for another epoch."""
        former = [*self.former.items(), (self.epoch, self.number)]
        return PublisherRow(epoch, former=dict(former[-FORMER_EPOCHS_MAX:]))

    def merged(self, other: PublisherRow) -> PublisherRow:
        """Return what this row and that of another server know together; the other one was used last."""
        if other.epoch != self.epoch:
            newer, older = (self, other) if other.epoch in self.former else (other, self)
            former = {**older.former, older.epoch: older.number}
            most = {each: max(number, newer.former.get(each, 0)) for each, number in former.items()}
            kept = {**most, **{each: number for each, number in newer.former.items() if each not in most}}
            return msgspec.structs.replace(newer, former=dict(list(kept.items())[-FORMER_EPOCHS_MAX:]))
        return PublisherRow(
            self.epoch,
            max(self.number, other.number),
            self.recent,
            {**self.elsewhere, **{each: one for each, one in other.elsewhere.items() if each not in self.recent}},
            dict(sorted((self.digests | other.digests).items())),
            {**self.former, **{each: max(one, self.former.get(each, 0)) for each, one in other.former.items()}},
        )

    def remember(self, number: int, own: int, digest: int, most: int) -> None:
        """Add answer and checksum of the publish ``number``, and keep those of the last ``most`` numbers."""
        oldest = number - most + 1
        if number == self.number + 1:
            self.recent.pop(oldest - 1, None)
            self.digests.pop(oldest - 1, None)
        else:
            # Numbers rise, so the oldest ones come first.
            for remembered in (self.recent, self.digests):
                while remembered and (first := next(iter(remembered))) < oldest:
                    del remembered[first]
        if self.elsewhere:
            self.elsewhere = {each: other for each, other in self.elsewhere.items() if each >= oldest}
        self.number = number
        self.recent[number] = own
        self.digests[number] = digest


class LedRange(msgspec.Struct, frozen=True, array_like=True):
    """Records of this log in which the server accepted events of a channel group, as its leader under ``epoch``.

    They have offsets from ``first`` up to ``end``; None if it still leads.
    """

    epoch: int
    first: int
    end: int | None


class GroupRow(msgspec.Struct, frozen=True):
    """A channel group that has moved, or is about to: its ``leader`` and epoch, and who is about to lead it next.

    Without a ``leader`` it is that of the domain's file. ``servers`` are those that might lead when it was moved, and
    ``since`` is the offset of the record of that move in this log. In ``forced_epoch`` a leader was replaced that was
    gone, most recently; 0 if none was. ``is_forced`` says the same of the move to ``target``. ``earlier`` are the
    leaders before this one, and ``led`` what this server has accepted as one of these.
    """

    leader: str = ""
    epoch: int = 1
    former: str = ""
    servers: tuple[str, ...] = ()
    since: int = 0
    target: str = ""
    is_forced: bool = False
    forced_epoch: int = 0
    earlier: tuple[Leadership, ...] = ()
    led: tuple[LedRange, ...] = ()

    @property
    def was_forced(self) -> bool:
        """Return whether the leader has replaced one that was gone."""
        return 0 < self.forced_epoch == self.epoch


class LeaderRow(msgspec.Struct, frozen=True):
    """Position of this server in its session at another one: the session's epoch, and the highest number.

    ``last`` is the last event that came from there.
    """

    epoch: int = 0
    number: int = 0
    last: EventId | None = None


class SettledRow(msgspec.Struct, frozen=True):
    """Another server that has had a link with this one under the present layout.

    ``incarnation`` is that of this log when the server had all its interest here, 0 if it has not.
    """

    incarnation: int = 0


class RouteRow(msgspec.Struct, frozen=True, array_like=True):
    """Interest of another server in channels of one leader, as of a version, with the filters by number."""

    incarnation: int
    version: int
    filters: tuple[NumberedFilter, ...]


class SeenRow(msgspec.Struct, frozen=True, array_like=True):
    """Id of the last event of another server that was delivered here in the decentralised model."""

    id: EventId


class FormerLease(msgspec.Struct, frozen=True, array_like=True):
    """Lease of the filters of a removed device in one of its lives, for ``lease_s`` seconds at most."""

    epoch: int
    removed_us: int
    lease_s: float

    def left_s(self, at_us: int) -> float:
        """Return the rest of the lease, 0 if it has run out; all of it if the clock was set back."""
        return max(0.0, self.lease_s - max(0, at_us - self.removed_us) / 1e6)


class PastSessions(msgspec.Struct):
    """Sum of the counters of a user's sessions that are over, and the number with which another one continues."""

    next: int = 1
    generated: int = 0
    delivered: int = 0
    restricted: int = 0
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    acknowledgements: Durations = msgspec.field(default_factory=Durations)
    absences: Durations = msgspec.field(default_factory=Durations)
    queued_max: int = 0

    def add(self, session: SessionRow) -> None:
        """Add the counters of a session that is over; nothing waits there."""
        self.next = max(self.next, session.next)
        self.generated += session.generated
        self.delivered += session.delivered
        self.restricted += session.restricted
        for reason, count in session.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        self.acknowledgements.add_all(session.acknowledgements)
        self.absences.add_all(session.absences)
        self.queued_max = max(self.queued_max, session.queued_max)


class FormerRow(msgspec.Struct):
    """Removed devices of a user that may come back, and the user's sessions that are over."""

    devices: list[str] = msgspec.field(default_factory=list)
    """Those whose repeated publishes are recognised; the earliest first."""
    leases: dict[str, FormerLease] = msgspec.field(default_factory=dict)
    """Those that may still hold back events by filters, without having noticed that they were removed (SPEC N-03)."""
    reasons: dict[str, str] = msgspec.field(default_factory=dict)
    """Reason of the removal of each of the last devices, until it attaches again (:class:`wanderbus.records.Left`)."""
    sessions: PastSessions | None = None
    """Counters of the sessions that are over; None if none of them ever had a notification."""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is kept of the user."""
        return not (self.devices or self.leases or self.reasons or self.sessions)


class ServerRow(msgspec.Struct):
    """The server itself: the time of its last record, and the incarnation of its log."""

    at_us: int = 0
    """µs since the Unix epoch; the broker's clock continues from it (DESIGN 5.8)."""
    incarnation: int = 0
    """Part of the ids that the server gives; 0 before the first record."""
    subscriptions: int = 0
    """Number of the subscription that was created last."""
    engine_next: int = 0
    """Offset below which the matching engine has matched all its events, durably (SPEC T-06)."""
    engine_end: int = 0
    """Offset behind the last event for the matching engine."""
    engine_subjects: tuple[str, ...] = ()
    """Patterns of the subjects whose events it matches."""
    servers: tuple[str, ...] = ()
    """Servers of the domain in the order of their numbers, if it has decentralised channels."""
    number: int = 0
    """Number of this server among them."""
    epochs: tuple[tuple[int, int], ...] = ()
    """Epochs of the log, each with the offset of its first record; one begins with each start."""
    rolled_back: int = 0
    """Epoch that began when the log was found to be an earlier copy of itself for the last time; 0 if it never was."""
    layout: bytes = b""
    """Identifier of what the domain's file says about where events and interest go; b"" without a domain."""
    has_moved: bool = False
    """True if this log has had another layout: events that were accepted under it may still be on their way here."""
    is_marked: bool = False
    """True if the other servers get a mark in place of what that copy lacked."""
    is_draining: bool = False
    """True if all sessions move to other servers, and new ones begin there."""
    others: tuple[str, ...] | None = None
    """The other servers of the domain at the last start, None if unknown."""
    is_known: bool = False
    """True once all other servers have had a link with this one, whatever the layout has been since."""
    newcomers: frozenset[str] = frozenset()
    """Servers that have joined since the log has its layout: nobody waits for what they want before they say so."""


class LogSpan(msgspec.Struct, frozen=True, array_like=True):
    """Records of one log that a subscription still has to read: from offset ``next`` up to ``end``.

    Without an ``end`` it is the log of the server that leads the channel, and the subscription is live once it has
    caught up. With ``is_handover`` it is that of the session's own server instead, which has kept there what it got for
    the session before it owned it.

    With an ``epoch`` it is what the server has accepted as the leader of the channel under that epoch. The incarnation
    is 0 until that server has answered.
    """

    server: str
    incarnation: int
    next: int
    end: int | None = None
    is_handover: bool = False
    epoch: int = 0


class SubscriptionLife(msgspec.Struct, frozen=True, array_like=True):
    """Time in which a subscription was live: for events from offset ``first`` up to ``end``, before ``until_us``.

    The device ``abandoned_by`` ended it, and does not read what it still gets. ``restrictions`` are those that held;
    None, which the previous version has written, stands for the present ones.
    """

    first: int
    end: int
    until_us: int | None
    abandoned_by: str = ""
    restrictions: tuple[Restriction, ...] | None = None


class SubscriptionRow(msgspec.Struct):
    """A subscription, the time of its last notification (SPEC H-11), and the cursors of its devices.

    An ended subscription keeps its row, with the time and the reason, until it is forgotten (SPEC X21).
    """

    subscription: Subscription
    number: int
    """Place in the order in which this server created its subscriptions."""
    last_us: int | None = None
    cursors: dict[str, int] | None = None
    """Acknowledged number by device. None while nothing waits; a member without an entry has acknowledged nothing."""
    settled: int = 0
    """Number up to which nothing waits for the subscription any more."""
    taken: int = 0
    """Highest number that any device has acknowledged; a new member of the session begins behind it."""
    ended_us: int = 0
    """Time of its end, 0 while it lives; ``reason`` is that of :class:`wanderbus.records.Unsubscribed`."""
    reason: str = ""
    history: tuple[LogSpan, ...] = ()
    """Records to read before it is live, in order; empty if it is live (SPEC T-05)."""
    live_from: int = 0
    """First offset of the events that it gets from the matching engine, if it is live."""
    read_below: tuple[Cut, ...] = ()
    """Ends of what it has got in another way, of the logs of other servers: earlier events are not for it."""
    former: tuple[SubscriptionLife, ...] = ()
    """Earlier times in which it was live, with events that the matching engine may not have matched yet."""
    holders: tuple[str, ...] = ()
    """Devices whose applications read it without keeping it: it ends with the last of them. Empty if it is kept."""
    successor: str = ""
    """The subscription that has inherited the queue: it gets the events of these times, and is renewed instead."""


class AdvertisementRow(msgspec.Struct):
    """A declaration of a device about the events that it will publish (SPEC A-17)."""

    id: str
    user: str
    device: str
    subject: str
    expression: str
    language: str = "eci"
    counts: bool = False
    """True once this server knows what all servers want of these events, if the channel requires that (SPEC K-07)."""


class PatternStep(msgspec.Struct, frozen=True, array_like=True):
    """A step of a pattern: an event that it took, or without ``seen`` how far it was matched.

    ``bound_us`` is the time below which events are late, or the watermark; ``steps``, ``taken`` and ``left_out`` are
    those of the record :class:`wanderbus.records.Detected`.
    """

    seen: Seen | None
    bound_us: int
    steps: int | None = None
    taken: int | None = None
    left_out: tuple[int, ...] = ()


class PatternRow(msgspec.Struct, frozen=True):
    """State of the pattern of one subscription (SPEC T-07)."""

    text: str
    owner: str
    latest_us: int
    """Latest time of its events so far."""
    state: bytes
    since: tuple[msgspec.Raw, ...] = ()
    """Steps since ``state`` was written, in order, each a :class:`PatternStep`."""
    read_us: int | None = None
    """Time up to which its events were read from the log, by the pattern's time; None once it is live."""


class EventRow(msgspec.Struct, gc=False, array_like=True):
    """An event that waits in some queue: its id, its time of publishing, and its encoded bytes."""

    id: EventId
    at_us: int
    data: bytes
    sessions: int = 0
    """Sessions in which it waits; counted again when the row is loaded."""


def session_key(user: str, name: str) -> str:
    """Return the key of a session; names contain no slash, so the last slash separates the two parts."""
    return f"{user}/{name}"


def session_of(key: str) -> tuple[str, str]:
    """Return user and name of the session with a key."""
    user, _, name = key.rpartition("/")
    return user, name


def device_key(user: str, device: str) -> str:
    """Return the key of a device."""
    return f"{user}/{device}"


def publisher_key(device: str, *, outbox: bool = False, decentralised: bool = False) -> str:
    """Return the key of the publishes of the device with key ``device``, or of its outbox.

    Those of decentralised channels have a row of their own, which moves with the session of the device. The others are
    known to the leaders of their channels, and stay there.
    """
    key = f"{device}/outbox" if outbox else device
    return decentralised_key(key) if decentralised else key


def publisher_keys(user: str, device: str, *, decentralised: bool) -> list[str]:
    """Return the keys of the publishes of a device, and of its outbox, to the channels of one model."""
    key = device_key(user, device)
    return [publisher_key(key, outbox=outbox, decentralised=decentralised) for outbox in (False, True)]


def decentralised_key(publisher: str) -> str:
    """Return the key of the publishes of decentralised channels of the publisher with key ``publisher``."""
    return f"{publisher}/decentralised"
