"""Subscriptions and their restrictions, as they are submitted, stored and queried (SPEC A-04, H).

These are plain data. :mod:`wanderbus.filters` evaluates expressions, and
:mod:`wanderbus.broker.restrictions.restriction_check` checks restrictions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal, Self, TypedDict

import msgspec

from wanderbus.errors import EventError, Refused
from wanderbus.event import EventId, Position

When = Literal["always", "away"]
"""Condition of a restriction: it holds always, or only while the owner is DISCONNECTED (SPEC H-02)."""

WhenFull = Literal["drop_oldest", "drop_newest"]
"""Notification that a full queue drops for a new one: its oldest, or the new one itself (SPEC U-02)."""

Format = Literal["event", "xml"]
"""Form of the notifications of a subscription: an event, or the same with its text in XML beside it (SPEC O-03)."""

Unit = Literal["milliseconds", "seconds", "minutes", "hours", "days", "weeks"]
"""Unit of a frequency (SPEC H-04); a day always has 24 hours, independent of daylight saving time."""

_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Frequency(msgspec.Struct, frozen=True, repr_omit_defaults=True, tag="frequency"):
    """At most one notification in ``period_s`` seconds, counted from the last one generated (SPEC H-05, X26)."""

    period_s: float
    when: When = "always"

    @classmethod
    def every(cls, quantity: float, unit: Unit, when: When = "always") -> Self:
        """Return the restriction to one notification in ``quantity`` of ``unit`` (SPEC H-04)."""
        return cls(timedelta(**{unit: quantity}).total_seconds(), when)


class Interval(msgspec.Struct, frozen=True, tag="interval"):
    """Notify only from ``start_us`` up to ``end_us``, microseconds since the Unix epoch (SPEC H-07)."""

    start_us: int
    end_us: int
    when: When = "always"

    def __repr__(self) -> str:
        when = "" if self.when == "always" else f", {self.when}"
        return f"<Interval {_shown(self.start_us)} to {_shown(self.end_us)}{when}>"

    @classmethod
    def between(cls, start: datetime, end: datetime, when: When = "always") -> Self:
        """Return the restriction to the time from ``start`` up to ``end``; both need a time zone."""
        return cls(instant_us(start), instant_us(end), when)


class Daily(msgspec.Struct, frozen=True, repr_omit_defaults=True, tag="daily"):
    """Notify only between two times of day, ``HH:MM`` or ``HH:MM:SS``, in an IANA zone (SPEC H-09, X27).

    A ``start`` later than ``end`` wraps over midnight; the end itself is outside. The broker replaces a ``zone`` of
    None by its own zone. ``weekdays`` are the days on which a window begins, 1 for Monday to 7 (ISO 8601); an empty
    tuple means all (SPEC X29).
    """

    start: str
    end: str
    zone: str | None = None
    when: When = "always"
    weekdays: tuple[int, ...] = ()


class Custom(msgspec.Struct, frozen=True, repr_omit_defaults=True, tag="custom"):
    """A restriction of a kind that the broker's operator has registered, with its ``parameters`` (SPEC H-10)."""

    kind: str
    parameters: dict[str, str | int | float | bool]
    when: When = "always"


Restriction = Frequency | Interval | Daily | Custom


class QueuePolicy(msgspec.Struct, frozen=True, repr_omit_defaults=True, omit_defaults=True):
    """Bounds of a queue, None for no bound; a subscription's own tighten those of the system (SPEC G-15 to G-18)."""

    notifications_max: int | None = None
    """Notifications that wait."""

    bytes_max: int | None = None
    """Bytes of the events that wait."""

    age_max_s: float | None = None
    """Seconds that a notification waits at most."""

    when_full: WhenFull | None = None
    """Choice of the notification to drop; None for the system's setting, by default ``drop_oldest``."""

    policy: str | None = None
    """Name of a policy that the broker's operator has registered; it drops before ``when_full`` does (SPEC G-23)."""


class Since(msgspec.Struct, frozen=True, repr_omit_defaults=True, omit_defaults=True):
    """Point in the past from which a subscription reads the log before it continues live (SPEC T-05).

    At most one field is set; without any it is the oldest record that the log keeps.
    """

    at_us: int | None = None
    """Events that the broker accepted at this instant or later, in microseconds since the Unix epoch."""

    event: EventId | None = None
    """Events after this one."""

    position: Position | None = None
    """Events after that of this notification of the same session."""

    def __str__(self) -> str:
        if self.at_us is not None:
            return _shown(self.at_us)
        if self.position is not None:
            return f"notification {self.position.number}"
        return "earliest" if self.event is None else str(self.event)


SincePoint = datetime | Position | EventId | Since | Literal["earliest"]
"""Point in the past as an application gives it, or as a :class:`Subscription` has it."""


def since_of(point: SincePoint) -> Since:
    """Return ``point`` as a :class:`Since`; :class:`Refused` for anything else, or a time without a time zone."""
    match point:
        case datetime():
            return Since(at_us=instant_us(point))
        case Position():
            return Since(position=point)
        case EventId():
            return Since(event=point)
        case Since():
            return point
        case "earliest":
            return Since()
    raise Refused(f"invalid since {point!r} (expected a datetime, a Position, an EventId or 'earliest')")


EVERY_SUBJECT: Final = "*"
"""The subject of a subscription to events of every subject."""


PATTERN: Final = "pattern"
"""The language of a subscription to compound events; its expression is a pattern, its subject the one of detections."""


_LEVELS: Final = re.compile(r"[./]")
_WILDCARD_LEVELS: Final = frozenset("#+>")
"""Levels that are wildcards in MQTT, AMQP or NATS; within a level these characters are ordinary."""


def has_wildcard(subject: str) -> bool:
    """Return whether ``subject`` has a ``*`` anywhere, or ``#``, ``+`` or ``>`` as a level between dots or slashes."""
    return "*" in subject or not _WILDCARD_LEVELS.isdisjoint(_LEVELS.split(subject))


def check_wanted_subject(subject: str) -> None:
    """Raise :class:`Refused` for a subscription or advertisement to a subject with wildcards, except ``*`` alone."""
    if subject != EVERY_SUBJECT and has_wildcard(subject):
        raise Refused(
            f"{_subject_shown(subject)} has a wildcard, which subjects do not have; give a parent subject (the table "
            "parents of a domain), several subscriptions, or '*' alone for every subject"
        )


def check_event_subject(subject: str) -> None:
    """Raise :class:`EventError` for an event whose subject has a wildcard."""
    if has_wildcard(subject):
        raise EventError(
            f"the subject {_subject_shown(subject)} has a wildcard (* anywhere; #, + or > as a level), so nobody could "
            "subscribe to it; give it one subject, which may have a parent subject (the table parents of a domain)"
        )


def _subject_shown(subject: str) -> str:
    return repr(subject if len(subject) <= 80 else f"{subject[:77]}...")


def concerns(wanted: str, subject: str) -> bool:
    """Return whether a subscription to the subject ``wanted`` covers events of ``subject``."""
    return wanted in (subject, EVERY_SUBJECT)


class Subscription(msgspec.Struct, frozen=True):
    """A subscription of one user to events of a subject that match an expression (SPEC A-04).

    ``id`` has the text form of an event id, with the number of its submission. ``expires_us`` is absolute (SPEC X17),
    None for never. ``device`` binds it to one device (SPEC E-05). ``queue`` tightens the session's queue for this
    subscription alone (SPEC G-18). ``language`` is the language of ``expression``, one of
    :data:`wanderbus.filters.LANGUAGES` or :data:`PATTERN`; ``format`` is the form of its notifications. ``since`` is
    the point in the past at which it begins, None if it began live.
    """

    id: str
    owner: str
    session: str
    subject: str
    expression: str
    expires_us: int | None = None
    restrictions: tuple[Restriction, ...] = ()
    device: str | None = None
    queue: QueuePolicy = QueuePolicy()
    language: str = "eci"
    format: Format = "event"
    since: Since | None = None

    def __repr__(self) -> str:
        parts = [f"<Subscription {self.id}: {self.subject!r} where {self.expression!r}", f"of {self.owner}"]
        parts.append(f"session {self.session!r}")
        if self.language != "eci":
            parts.append(f"language {self.language}")
        if self.since is not None:
            parts.append(f"since {self.since}")
        if self.expires_us is not None:
            parts.append(f"until {_shown(self.expires_us)}")
        if self.device is not None:
            parts.append(f"device {self.device}")
        parts += map(repr, self.restrictions)
        if self.queue != QueuePolicy():
            parts.append(repr(self.queue))
        return ", ".join(parts) + ">"


def instant_us(instant: datetime) -> int:
    """Return ``instant`` in microseconds since the Unix epoch; :class:`Refused` for one without a time zone."""
    if instant.tzinfo is None:
        raise Refused(f"{instant.isoformat()} has no time zone; give it one")
    return (instant - _EPOCH) // timedelta(microseconds=1)


def instant_shown(at_us: int, zone: str = "Z") -> str:
    """Return an instant as text, to the second and with ``zone``; an instant beyond the calendar as a number."""
    try:
        return f"{_EPOCH + timedelta(microseconds=at_us):%Y-%m-%d %H:%M:%S}{zone}"
    except OverflowError:
        return f"{at_us} µs"


def _shown(at_us: int) -> str:
    """Return an instant as text; an instant beyond the calendar as a number."""
    try:
        return (_EPOCH + timedelta(microseconds=at_us)).isoformat().removesuffix("+00:00") + "Z"
    except OverflowError:
        return f"{at_us} µs"


class SubscribeOptions(TypedDict, total=False):
    """Options of a subscription; :meth:`wanderbus.Agent.subscribe` describes them."""

    pattern: str | None
    keep: bool
    lifetime_s: float | None
    until: datetime | None
    restrictions: Iterable[Restriction]
    this_device_only: bool
    queue: QueuePolicy | None
    language: str
    format: Format
    resume: Position | None
    since: SincePoint | None
    effective: Literal["domain", "everywhere"]
