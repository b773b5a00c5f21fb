"""Events and the notifications made of them (SPEC A-03, A-12, A-13; DESIGN words).

A publisher publishes an :class:`Event`. A :class:`Notification` is an event for one session, with the ids of the
subscriptions that it matched and its place in that session's stream.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from wanderbus import limits
from wanderbus.errors import EventError, LimitExceeded

Scalar = str | int | float | bool | datetime
"""The five types of SPEC A-13: String, Integer (64 bits, signed), Double, Boolean and Date (with a time zone)."""

Value = Scalar | list[Any]
"""An attribute's value: a scalar, or a list of scalars (SPEC A-16, X4)."""

TypeName = Literal["Boolean", "Date", "Double", "Integer", "String"]
"""Names of the types of SPEC A-13."""

TYPE_NAMES: Final[tuple[TypeName, ...]] = get_args(TypeName)

Number = Annotated[int, msgspec.Meta(ge=0, le=limits.NUMBER_MAX)]
"""An epoch, or a number within one; the decoder refuses any other integer."""

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_INCARNATIONS_REMEMBERED: Final = 256
"""Incarnations whose text is remembered: the ids of many events have the same few."""
_EVENT_ID: Final = re.compile(
    r"(?P<origin>.+)-(?P<incarnation>0|[1-9a-z][0-9a-z]{0,12})-(?P<number>0|[1-9][0-9]{0,18})", re.DOTALL
)
_short: Final = reprlib.Repr()
"""Representation that shortens an event of up to a hundred kilobytes to a few lines."""
_short.maxdict, _short.maxlist, _short.maxstring, _short.maxother, _short.maxlong = 32, 16, 120, 80, 40


class EventId(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False, cache_hash=True):
    """Identifier of a durable event: the server that accepted it, the incarnation, and a number.

    Numbers rise in the log of a server. Each start begins another incarnation, which is the epoch of the log, so no
    identifier is ever given twice, also if the log was deleted or replaced by an earlier copy. The text form is
    ``origin-incarnation-number``, with the incarnation in base 36.
    """

    origin: str
    incarnation: Number
    number: Number

    def __str__(self) -> str:
        return f"{self.origin}-{_base36(self.incarnation)}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> EventId:
        """Return the identifier whose text form is ``text``; raise :class:`EventError` for any other text."""
        if found := _EVENT_ID.fullmatch(text):
            incarnation, number = int(found["incarnation"], 36), int(found["number"])
            if max(incarnation, number) <= limits.NUMBER_MAX:
                return cls(found["origin"], incarnation, number)
        raise EventError(f"invalid id {_short.repr(text)} (expected SERVER-INCARNATION-NUMBER, as it was printed)")


HELD_BACK: Final = EventId("", 0, 0)
"""Answer to a publish of an event that was not sent, because no subscription matches it (SPEC N-02).

It identifies no event: the event is in no log.
"""


class Position(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A notification's place in its session: numbers rise by one, over all subscriptions.

    ``epoch`` is that in which the server gave the number; both together tell whether a server that was restored from a
    backup still has it.
    """

    epoch: Number
    number: Number


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """``count`` notifications that ``subscription`` had matched were dropped, because of ``reason`` (SPEC U-02)."""

    subscription: str
    reason: str
    count: int


class DeclaredAttribute(msgspec.Struct, frozen=True):
    """A declared attribute of a subject's events: name, type, unit, and meaning for people (SPEC T-03).

    The rules for declarations are in :mod:`wanderbus.subject_schemas`.
    """

    name: str
    type: TypeName
    unit: str | None = None
    meaning: str | None = None


class Event(msgspec.Struct, frozen=True):
    """A published item: a subject and named, typed attributes.

    ``published_us`` and ``arrived_us`` are the two settable time variables of SPEC A-12, microseconds since
    the Unix epoch: the publisher or its agent sets the first. The consumer sets the second, in a copy: an event is the
    same at every device and at each delivery. A missing attribute is absent, never zero. Attributes are of type
    :data:`Value`. :func:`check_event` enforces this; the decoder cannot, since only the encoding distinguishes a text
    from a date.

    ``origin`` is the id of an event of a foreign domain at the server ``DOMAIN/SERVER`` there. The gateway sets it, a
    publisher cannot. It is unset, and false, for an event that was published in this domain.

    ``past`` is what precedes it in other domains, if they ask for causal order
    (:mod:`wanderbus.channels.causal.domain_past`). Servers set it, publishers cannot, and applications do not get it.
    """

    subject: str
    attributes: Mapping[str, Any]
    published_us: int | None = None
    arrived_us: int | None = None
    origin: EventId | msgspec.UnsetType = msgspec.UNSET
    past: bytes | msgspec.UnsetType = msgspec.UNSET

    def __repr__(self) -> str:
        fields = (("published_us", self.published_us), ("arrived_us", self.arrived_us), ("origin", self.origin or None))
        named = [f", {name}={value}" for name, value in fields if value is not None]
        return f"Event({_short.repr(self.subject)}, {_short.repr(dict(self.attributes))}{''.join(named)})"

    def __getitem__(self, name: str) -> Value:
        """Return the attribute ``name``; ``KeyError`` if the event does not carry it."""
        value: Value = self.attributes[name]
        return value

    def __contains__(self, name: object) -> bool:
        """Return whether the event carries the attribute ``name``."""
        return name in self.attributes

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the attributes."""
        return iter(self.attributes)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the attribute ``name``, or ``default`` if the event does not carry it."""
        return self.attributes.get(name, default)

    def get_all(self, name: str) -> list[Scalar]:
        """Return every value of the attribute ``name`` in order: one of a scalar, none if it is absent."""
        value = self.attributes.get(name, [])
        return list(value) if isinstance(value, list) else [value]


class Notification(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """An event for one session.

    ``subscriptions`` are the ids of the session's subscriptions that it matched (SPEC J-04). An application stores
    ``position`` with its result and passes it to ``agent.subscribe(resume=...)``. ``redelivered`` is true if an earlier
    life of this device may have seen it, or another device of the session before this one was a member. ``xml`` is the
    notification as XML text, for a subscription that asks for it (SPEC O-03). ``is_history`` is true if the broker read
    the event from its log, for a subscription that began in the past (SPEC T-05).
    """

    event: Event
    subscriptions: tuple[str, ...]
    position: Position
    id: EventId
    redelivered: bool = False
    xml: str | None = None
    is_history: bool = False


class Gap(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A marker in a subscription's stream for ``count`` dropped notifications and their ``reason`` (SPEC U-02).

    ``reason`` is the name of the bound that was met, or several separated by commas; ``lost`` has a count for each.
    """

    count: int
    reason: str
    position: Position
    lost: tuple[Loss, ...] = ()


class CopiedItem(msgspec.Struct, frozen=True, array_like=True):
    """An item of a copied queue: an event and the subscriptions that it waits for, or without an event what was lost.

    Subscriptions have the ids of the copy.
    """

    event: Event | None
    subscriptions: tuple[str, ...] = ()
    lost: tuple[Loss, ...] = ()

    def among(self, subscriptions: set[str]) -> CopiedItem | None:
        """Return what this item is for some subscriptions, None if it is nothing for them."""
        lost = tuple([each for each in self.lost if each.subscription in subscriptions])
        ours = tuple([each for each in self.subscriptions if each in subscriptions])
        return CopiedItem(self.event if ours else None, ours, lost) if ours or lost else None


def merge_repeated(pairs: Iterable[tuple[str, Value]]) -> dict[str, Any]:
    """Return attributes by name; a repeated name gets the list of its values in order (SPEC A-16, X4).

    The items of a list count as values of its name. A name that occurs once keeps its value, scalar or list.
    """
    values: dict[str, list[Any]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: several[0] if len(several) == 1 else _flattened(several) for name, several in values.items()}


def check_event(event: Event) -> Event:
    """Return ``event`` if it may be published; raise :class:`EventError` naming the attribute at fault.

    The bounds are in :mod:`wanderbus.limits`. NaN is refused because it compares equal to nothing (DESIGN 7.1). A time
    variable is an instant of the calendar, and may be before 1970.
    """
    check_content(event)
    if event.published_us is not None:
        _check_time("published_us", event.published_us)
    if event.arrived_us is not None:
        _check_time("arrived_us", event.arrived_us)
    return event


def check_content(event: Event) -> None:
    """Raise :class:`EventError` for a subject or attributes that :func:`check_event` refuses; ignores the times."""
    if not isinstance(event.subject, str):
        raise EventError(f"the subject has the type {type(event.subject).__name__}; give it a text")
    if not event.subject or len(event.subject) > limits.EVENT_NAME_CHARACTERS_MAX:
        raise EventError(f"the subject must have 1 to {limits.EVENT_NAME_CHARACTERS_MAX} characters")
    if len(event.attributes) > limits.EVENT_ATTRIBUTES_MAX:
        raise EventError(f"an event carries at most {limits.EVENT_ATTRIBUTES_MAX} attributes")
    name_max = limits.EVENT_NAME_CHARACTERS_MAX
    for name, value in event.attributes.items():
        if not isinstance(name, str) or not name or len(name) > name_max:
            raise EventError(f"attribute names have 1 to {name_max} characters: {name!r}")
        kind = type(value)
        if kind is str or (kind is float and value == value) or (kind is int and -(2**63) <= value < 2**63):
            continue  # the most frequent ones, at a fraction of the cost
        items = value if isinstance(value, list) else [value]
        if len(items) > limits.EVENT_LIST_ITEMS_MAX:
            raise EventError(f"attribute {name!r} lists more than {limits.EVENT_LIST_ITEMS_MAX} items")
        for item in items:
            _check_scalar(name, item)


def too_large(size: int, bytes_max: int) -> LimitExceeded:
    """Return the error for an event of ``size`` bytes, encoded, where ``bytes_max`` are allowed."""
    return LimitExceeded(
        f"the event has {size:,} bytes; the limit is {bytes_max:,} (`broker.event_bytes_max`)", "event_bytes_max"
    )


def unencodable(event: Event) -> EventError | None:
    """Return the error for the first text or Date of an event that no message can carry; None if there is none."""
    if reason := _reason_against(event.subject):
        return EventError(f"the subject {reason}")
    for name, value in event.attributes.items():
        for each in (name, *(value if isinstance(value, list) else [value])):
            if reason := _reason_against(each):
                return EventError(f"attribute {name!r} {reason}")
    return None


def _reason_against(value: object) -> str | None:
    try:
        if isinstance(value, str):
            value.encode()
        elif isinstance(value, datetime):
            value.astimezone(UTC)
    except UnicodeEncodeError:
        return "has half a character (a surrogate), which UTF-8 cannot carry; remove it"
    except OverflowError:
        return "is a date that in UTC is beyond the years 1 to 9999; leave it out"
    return None


@lru_cache(_INCARNATIONS_REMEMBERED)
def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits


def _flattened(values: list[Any]) -> list[Any]:
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def _check_time(name: str, at_us: object) -> None:
    if type(at_us) is not int:
        raise EventError(f"{name} has the type {type(at_us).__name__}; give it microseconds since 1970 as an int")
    if not limits.EVENT_TIME_US_MIN <= at_us <= limits.EVENT_TIME_US_MAX:
        raise EventError(f"{name} is beyond the years 1 to 9999; give it microseconds since 1970")


def _check_scalar(name: str, value: object) -> None:
    match value:
        case bool() | str():
            return
        case int():
            if not -(2**63) <= value < 2**63:
                raise EventError(f"attribute {name!r} is an integer beyond 64 bits")
        case float():
            if math.isnan(value):
                raise EventError(f"attribute {name!r} is not a number; leave it out instead")
        case datetime():
            if value.tzinfo is None:
                raise EventError(f"attribute {name!r} is a date without a time zone; give it one")
        case bytes() | bytearray() | memoryview():
            raise EventError(f"attribute {name!r} has the type bytes, which events do not have; write base64 text")
        case _:
            raise EventError(
                f"attribute {name!r} has the type {type(value).__name__}; "
                "use str, int, float, bool, datetime or a list of them"
            )
