"""Expected contents of the log, derived from the log itself and from recorded facts: slow, and independent of the
broker.

The log is the order in which the broker decided. For every record this module checks whether the decision was right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from wanderbus import filters, records
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import encode_event
from wanderbus.records import AnyRecord
from wanderbus.simulation.weeks.bounds import check_bounds, check_drop, may_refuse
from wanderbus.simulation.weeks.hook import GRACE_S, STALE_S, treatment_of
from wanderbus.simulation.weeks.server import Offered
from wanderbus.simulation.weeks.stream import Known, Stream, name_of
from wanderbus.simulation.weeks.windows import forbidding
from wanderbus.subscription import Subscription

_ROUNDING_US: Final = 2


@dataclass
class Member:
    """A device: its session, and the time since which it has been away."""

    session: str = ""
    away_since_us: int | None = 0
    grace_s: float | None = None
    """Longest absence this time, if the operator's hook set one (SPEC G-24)."""
    discards: bool = False
    """True if it began again, and may give up what waits for it (SPEC G-09, X20)."""


@dataclass
class Happened:
    """Facts that are not in the log, but known to the world."""

    walls_us: Mapping[int, int]
    """Wall clock at each decision of the broker, by offset of its record."""
    anew: Collection[tuple[str, str, int]]
    """User, device and epoch of lives that requested to keep nothing."""
    taken: Mapping[tuple[str, str, str], int]
    """Highest number that the application consumed, by user, device and subscription."""
    left: Collection[tuple[str, str]]
    """Users' devices that announced not to return."""
    purgers: Collection[str]
    """Users who requested to drop what waits for them."""
    kickers: Collection[str]
    """Users who requested to end connections of theirs."""
    unsubscribed: Collection[str]
    """Subscriptions that somebody requested to end."""
    refused: Sequence[tuple[Offered, str]]
    """Refused events, and the bound that each exceeded."""


@dataclass
class Truth:
    """A fold over the log, independent of the broker's own."""

    config: BrokerConfig
    happened: Happened
    streams: dict[tuple[str, str], Stream] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    devices: dict[tuple[str, str], Member] = field(default_factory=dict)
    heirs: dict[str, str] = field(default_factory=dict)
    """Heir of each ended subscription, which inherited what waited for it."""
    joined: set[tuple[str, str, int]] = field(default_factory=set)
    """User, device and epoch of lives in which a device became a member."""
    owed: dict[tuple[str, str], set[tuple[str, int]]] = field(default_factory=dict)
    """For every device, the matches, by subscription and number, that it is to receive or has received."""
    gone: set[tuple[str, str]] = field(default_factory=set)
    """Devices that left on request and have not returned."""
    events: dict[str, int] = field(default_factory=dict)
    """Offset of every event, by name."""
    problems: list[str] = field(default_factory=list)
    _at_us: int = 0
    _rightly_refused: set[str] = field(default_factory=set)
    _acknowledgements: list[tuple[int, records.Acknowledged, str, int]] = field(default_factory=list)
    """Offset, record, subscription, and the earlier position of the device in it."""
    _published: records.Published | None = None
    """The last event, until all drops that it caused are recorded."""
    _due: type[records.Dropped | records.Left] | None = None
    """Latest decision of the operator's hook, which the next record contains."""
    _treated: tuple[str, str] | None = None
    """User and session of the device that the hook decided about."""

    def fold(self, log: Iterable[AnyRecord]) -> None:
        """Process the whole log."""
        offset = 0
        for offset, record in enumerate(log):
            self._look_at_refusals(offset)
            if record.at_us < self._at_us:
                self._wrong(offset, "the time of its record is before that of the last")
            self._at_us = record.at_us
            if self._published and not isinstance(record, records.Dropped | records.Acknowledged):
                if not isinstance(record, records.Started):
                    for problem in check_bounds(self.config, self.streams, self.known, self._published):
                        self._wrong(offset, problem)
                self._published = None
            for stream in self.streams.values():
                stream.at_us = record.at_us
            self._take(offset, record)
        self._look_at_refusals(offset + 1)
        self._check_acknowledgements()
        for offered, limit in self.happened.refused:
            if name_of(offered.event) not in self._rightly_refused:
                self._wrong(
                    offered.last, f"event {name_of(offered.event)} was refused because of {limit}, which has room"
                )

    def _look_at_refusals(self, offset: int) -> None:
        """Check that each event that was refused now would have exceeded the reported bound."""
        for offered, limit in self.happened.refused:
            if offered.first <= offset <= offered.last and self._is_refused(offered.event.subject):
                wanted, _ = self._wanted(offered.event, offered.at_us, offered.wall_us)
                size = len(encode_event(offered.event))
                if limit in may_refuse(self.config, self.streams, wanted, size):
                    self._rightly_refused.add(name_of(offered.event))

    def _is_refused(self, subject: str) -> bool:
        return any(fnmatchcase(subject, pattern) for pattern in self.config.refuse_when_full)

    def stream(self, user: str, session: str) -> Stream:
        """Return a session, created on first use."""
        return self.streams.setdefault((user, session), Stream(user, session))

    def is_away(self, user: str) -> bool:
        """Return whether no device of ``user`` is reachable (SPEC E-06)."""
        return all(member.away_since_us is not None for (of, _), member in self.devices.items() if of == user)

    def of_owner(self, owner: str) -> list[Known]:
        """Return the known subscriptions of a user, including ended ones."""
        return [known for known in self.known.values() if known.subscription.owner == owner]

    def _wrong(self, offset: int, what: str) -> None:
        self.problems.append(f"record {offset}: {what}")

    def _take(self, offset: int, record: AnyRecord) -> None:
        is_due = isinstance(record, records.Dropped | records.Left) and record.reason == "hook"
        if self._due and not isinstance(record, records.Started) and not (is_due and isinstance(record, self._due)):
            self._wrong(offset, f"the hook wanted {self._due.__name__} next")
        treated, self._treated, self._due = self._treated, None, None
        match record:
            case records.Published():
                self._take_event(offset, record)
            case records.Dropped():
                self._take_drop(offset, record, treated)
            case records.Acknowledged():
                self._take_place(offset, record)
            case records.Subscribed(subscription=subscription, inherits=inherits):
                self._take_subscription(offset, subscription)
                if inherits is not None:
                    self._take_inheritance(offset, inherits, subscription)
            case records.Changed(subscription=subscription):
                self._take_change(offset, subscription)
            case records.Unsubscribed():
                self._take_end(offset, record)
            case records.Forgotten():
                self._take_forgotten(offset, record)
            case records.Attached():
                self._take_attached(offset, record)
            case records.StatusChanged():
                self._take_status(offset, record)
            case records.Left():
                self._take_left(offset, record, treated)
            case records.Started(at_us=at_us):
                for member in self.devices.values():
                    member.away_since_us = at_us if member.away_since_us is None else member.away_since_us

    # Events ----------------------------------------------------------------------------------------------------

    def _take_event(self, offset: int, record: records.Published) -> None:
        self._published = record
        wall_us = self.happened.walls_us[offset]
        if (received_us := record.received_us) != wall_us:
            self._wrong(offset, f"received at {received_us}, the wall clock showed {wall_us}")
        name = name_of(record.event)
        if name in self.events:
            self._wrong(offset, f"event {name} was published twice")
        self.events[name] = offset
        allowed, forbidden = self._wanted(record.event, record.at_us, wall_us)
        if dict(record.delivery.restricted) != forbidden:
            self._wrong(offset, f"restrictions forbade {dict(record.delivery.restricted)}, they should {forbidden}")
        notifications = {(n.user, n.session): n for n in record.delivery.notified}
        for key in allowed.keys() | notifications.keys():
            given = notifications[key].subscriptions if key in notifications else ()
            if sorted(given) != sorted(allowed.get(key, ())):
                self._wrong(offset, f"event {name} notified {key} of {given}, it should of {allowed.get(key)}")
        for identity in forbidden:
            owner = self.known[identity].subscription
            self.stream(owner.owner, owner.session).restricted += 1
        for notified in record.delivery.notified:
            self._take_notified(offset, record, notified)

    def _wanted(
        self, event: Event, at_us: int, wall_us: int
    ) -> tuple[dict[tuple[str, str], list[str]], dict[str, int]]:
        """Return the subscriptions that must be notified, by session, and the reasons that forbid the other matches."""
        allowed: dict[tuple[str, str], list[str]] = {}
        forbidden: dict[str, int] = {}
        for identity, known in self.known.items():
            wanted = known.subscription
            if not known.live or wanted.subject != event.subject:
                continue
            if filters.parse(wanted.expression, wanted.language).evaluate(event) is not True:
                continue
            if wanted.expires_us is not None and wanted.expires_us <= at_us:
                continue
            away = self.is_away(wanted.owner)
            place = forbidding(wanted, event, at_us=at_us, wall_us=wall_us, last_us=known.last_us, away=away)
            if place is None:
                allowed.setdefault((wanted.owner, wanted.session), []).append(identity)
            else:
                forbidden[identity] = place
        return allowed, forbidden

    def _take_notified(self, offset: int, record: records.Published, notified: records.Notified) -> None:
        stream = self.stream(notified.user, notified.session)
        if notified.number != stream.next:
            self._wrong(offset, f"number {notified.number} follows {stream.next - 1}")
        bound = {s: device for s in notified.subscriptions if (device := self.known[s].subscription.device)}
        if dict(notified.bound) != bound:
            self._wrong(offset, f"bound are {notified.bound}, it should be {bound}")
        stream.add(offset, record, notified)
        for identity in stream.entries[notified.number].waiting:
            for member in stream.members:
                if bound.get(identity) in (None, member):
                    self.owed.setdefault((notified.user, member), set()).add((identity, notified.number))
        for identity in notified.subscriptions:
            self.known[identity].last_us = record.at_us

    def _take_drop(self, offset: int, record: records.Dropped, treated: tuple[str, str] | None) -> None:
        by_operator = record.reason.endswith("_max") and not record.reason.startswith("subscription.")
        if self._published and by_operator and self._is_refused(self._published.event.subject):
            self._wrong(offset, f"{record.reason} dropped something for an event that had to be refused")
        stream = self.stream(record.user, record.session)
        entries = [stream.entries[number] for number in range(max(record.first, stream.first), record.last + 1)]
        dropped = [(e, s) for e in entries for s in e.waiting if not record.subscriptions or s in record.subscriptions]
        asked_for = {"purged"} if record.user in self.happened.purgers else set()
        if any(member.discards for (user, _), member in self.devices.items() if user == record.user):
            asked_for.add("discarded")
        if treated == (record.user, record.session):
            asked_for.add("hook")
        if all(identity in self.happened.unsubscribed for identity in record.subscriptions):
            asked_for.add("unsubscribed")
        for problem in check_drop(
            self.config, self.streams, self.known, record, [e for e, _ in dropped], asked_for=asked_for
        ):
            self._wrong(offset, problem)
        for entry, subscription in dropped:
            stream.drop(entry, subscription, record.reason)

    # Devices ---------------------------------------------------------------------------------------------------

    def _take_status(self, offset: int, record: records.StatusChanged) -> None:
        """Process a status change, about which the hook may have decided (SPEC G-24)."""
        member = self._member(record)
        away_s = 0.0 if member.away_since_us is None else (record.at_us - member.away_since_us) / 1e6
        is_gone = record.status == "DISCONNECTED"
        member.away_since_us = record.at_us if is_gone else None
        member.grace_s = record.grace_s
        treatment = treatment_of(record.user, record.device) if member.session else "always"
        if record.grace_s != (GRACE_S if is_gone and treatment == "grace" else None):
            self._wrong(offset, f"the grace of {record.device} is {record.grace_s}, its treatment is {treatment}")
        stream = self.stream(record.user, member.session)
        if treatment == "leave" and is_gone and not self.is_away(record.user):
            self._treated, self._due = (record.user, member.session), records.Left
        if treatment == "drop" and (is_gone or away_s > STALE_S):
            self._treated = record.user, member.session
            self._due = records.Dropped if stream.members == [record.device] and stream.queued else None

    def _member(self, record: records.StatusChanged | records.Attached) -> Member:
        return self.devices.setdefault((record.user, record.device), Member(away_since_us=record.at_us))

    def present(self, subscription: str) -> str:
        """Return the subscription that now has what waited for this one."""
        while subscription in self.heirs:
            subscription = self.heirs[subscription]
        return subscription

    def has_taken(self, user: str, device: str, subscription: str) -> int:
        """Return the position that a device's application has consumed of a subscription, under any of its names."""
        present = self.present(subscription)
        taken = [
            number
            for (owner, name, identity), number in self.happened.taken.items()
            if (owner, name) == (user, device) and self.present(identity) == present
        ]
        return max(taken, default=0)

    def _take_place(self, offset: int, record: records.Acknowledged) -> None:
        stream = self.stream(record.user, record.session)
        if record.device not in stream.members:
            self._wrong(offset, f"{record.device} acknowledged a subscription of which it is not a member")
            return
        waiting = {identity: None for entry in stream.queue() for identity in entry.waiting}
        discards = self.devices[record.user, record.device].discards
        owed = self.owed.setdefault((record.user, record.device), set())
        for identity in record.subscriptions or waiting:
            place = stream.places.get((identity, record.device), 0)
            if not discards and identity not in self.happened.unsubscribed:
                self._acknowledgements.append((offset, record, identity, place))
            stream.places[identity, record.device] = max(place, record.number)
        if discards:
            owed -= {(s, number) for s, number in owed if self._is_for(s, record) and number <= record.number}
        stream.trim()

    def _is_for(self, identity: str, record: records.Acknowledged) -> bool:
        subscription = self.known[identity].subscription
        named = not record.subscriptions or identity in record.subscriptions
        return named and subscription.session == record.session

    def _check_acknowledgements(self) -> None:
        """Check that applications consumed what was acknowledged; by now all heirs are known."""
        for offset, record, identity, place in self._acknowledgements:
            stream = self.stream(record.user, record.session)
            taken = self.has_taken(record.user, record.device, identity)
            for number in range(max(place, taken) + 1, min(record.number, stream.next - 1) + 1):
                if identity in stream.entries[number].subscriptions_on(record.device):
                    self._wrong(
                        offset, f"{record.device} did not consume {number} of {identity}, which was acknowledged"
                    )

    def _take_inheritance(self, offset: int, ended: str, heir: Subscription) -> None:
        former = self.known[ended]
        same = (heir.owner, heir.session, heir.subject, heir.expression, heir.device, heir.restrictions, heir.queue)
        was = former.subscription
        if former.live or same != (
            *(was.owner, was.session, was.subject, was.expression, was.device, was.restrictions, was.queue),
        ):
            self._wrong(offset, f"{heir.id} inherits what waits for {ended}, which is not the same")
        self.heirs[ended] = heir.id
        self.stream(heir.owner, heir.session).inherit(ended, heir.id)
        for (owner, _), owed in self.owed.items():
            if owner == heir.owner:
                renamed = {(heir.id, number) for identity, number in owed if identity == ended}
                owed -= {(ended, number) for _, number in renamed}
                owed |= renamed

    def _take_attached(self, offset: int, record: records.Attached) -> None:
        self.gone.discard((record.user, record.device))
        member = self._member(record)
        stream = self.stream(record.user, record.session)
        if member.session != record.session:
            self._leave(record.user, member.session, record.device)
        if record.device not in stream.members:
            stream.join(record.device)
            self.joined.add((record.user, record.device, record.epoch))
            self.owed[record.user, record.device] = {
                (identity, entry.number)
                for entry in stream.queue()
                for identity in entry.waiting
                if entry.matches[identity] in (None, record.device)
            }
        member.session = record.session
        member.discards = (record.user, record.device, record.epoch) in self.happened.anew

    def _take_left(self, offset: int, record: records.Left, treated: tuple[str, str] | None) -> None:
        key = (record.user, record.device)
        if record.reason == "hook" and treated != (record.user, record.session):
            self._wrong(offset, f"{record.device} had to leave, which the hook does not want")
        member = self.devices.pop(key)
        stream = self.streams.get((record.user, record.session))
        if record.reason == "asked":
            self.gone.add(key)
        if record.reason == "asked" and key not in self.happened.left:
            self._wrong(offset, f"{record.device} left without having asked to")
        if record.reason == "kicked" and record.user not in self.happened.kickers:
            self._wrong(offset, f"{record.device} was kicked, which nobody had asked for")
        if record.reason == "grace":
            away_s = 0.0 if member.away_since_us is None else (record.at_us - member.away_since_us) / 1e6
            if away_s < (self.config.device_grace_s if member.grace_s is None else member.grace_s):
                self._wrong(offset, f"{record.device} has left after {away_s:.0f} s away, the grace is longer")
            if stream and stream.members == [record.device]:
                self._wrong(offset, f"the last device {record.device} has left by grace")
        self._leave(record.user, record.session, record.device)

    def _leave(self, user: str, session: str, device: str) -> None:
        stream = self.streams.get((user, session))
        if stream:
            stream.leave(device)
            self.owed.pop((user, device), None)

    # Subscriptions ---------------------------------------------------------------------------------------------

    def _take_subscription(self, offset: int, subscription: Subscription) -> None:
        if subscription.id in self.known:
            self._wrong(offset, f"the id {subscription.id} was given twice")
        self.known[subscription.id] = Known(subscription)
        self._check_lifetime(offset, subscription)
        self._check_quota(offset, subscription.owner)

    def _take_change(self, offset: int, subscription: Subscription) -> None:
        known = self.known[subscription.id]
        if known.forgotten_us:
            self._wrong(offset, f"{subscription.id} changes, which was forgotten")
        if not known.live:
            if (self._at_us - known.ended_us) / 1e6 >= self.config.tombstone_s:
                self._wrong(offset, f"{subscription.id} lives again, which should be forgotten")
            if subscription.id in self.heirs:
                self._wrong(offset, f"{subscription.id} lives again, {self.heirs[subscription.id]} stands for it")
            known.live = True
            # A renewed subscription is placed behind the others, and its matches are sent in that order.
            self.known[subscription.id] = self.known.pop(subscription.id)
            self._check_quota(offset, subscription.owner)
        if subscription.expires_us != known.subscription.expires_us:
            self._check_lifetime(offset, subscription)
        known.subscription = subscription

    def _check_lifetime(self, offset: int, subscription: Subscription) -> None:
        config = self.config
        if subscription.expires_us is None:
            if config.lifetime_s_default is not None or config.lifetime_s_max is not None:
                self._wrong(offset, f"{subscription.id} lives for ever")
            return
        lifetime_us = subscription.expires_us - self._at_us
        if lifetime_us <= 0 or lifetime_us + _ROUNDING_US < config.lifetime_s_min * 1e6:
            self._wrong(offset, f"{subscription.id} lives for {lifetime_us} µs, which is too short")
        if config.lifetime_s_max is not None and lifetime_us - _ROUNDING_US > config.lifetime_s_max * 1e6:
            self._wrong(offset, f"{subscription.id} lives for {lifetime_us} µs, which is too long")

    def _check_quota(self, offset: int, owner: str) -> None:
        live = [k for k in self.of_owner(owner) if k.live]
        if len(live) > self.config.user_subscriptions_max:
            self._wrong(offset, f"{owner} has {len(live)} subscriptions")

    def _take_end(self, offset: int, record: records.Unsubscribed) -> None:
        known = self.known[record.subscription]
        expires_us = known.subscription.expires_us
        if record.reason == "expired" and (expires_us is None or expires_us > record.at_us):
            self._wrong(offset, f"{record.subscription} was reported as expired too early")
        if record.reason == "asked" and record.subscription not in self.happened.unsubscribed:
            self._wrong(offset, f"{record.subscription} ended without anybody having asked for it")
        known.live, known.ended_us, known.reason = False, record.at_us, record.reason

    def _take_forgotten(self, offset: int, record: records.Forgotten) -> None:
        for identity in record.subscriptions:
            known = self.known[identity]
            if known.live:
                self._wrong(offset, f"{identity} is forgotten while it lives")
            ended = [k for k in self.of_owner(known.subscription.owner) if not k.live and not k.forgotten_us]
            early = (record.at_us - known.ended_us) / 1e6 < self.config.tombstone_s
            if early and len(ended) <= self.config.user_subscriptions_max:
                self._wrong(offset, f"{identity} is forgotten before its time")
            known.forgotten_us = record.at_us
            stream = self.stream(known.subscription.owner, known.subscription.session)
            for entry in stream.waiting_for(identity):
                if not early and len(ended) <= self.config.user_subscriptions_max:
                    self._wrong(offset, f"{identity} is forgotten while {entry.number} waits for it")
                stream.drop(entry, identity, "forgotten")
            stream.trim()
