"""Events from and to CloudEvents 1.0 in structured JSON (SPEC U-04; CloudEvents 1.0.2, JSON event format).

==================== ==================================================================================================
CloudEvents          an event here
==================== ==================================================================================================
``type``             the subject; of a CloudEvent of others the attribute ``type`` too
``time``             ``published_us``; of a CloudEvent of others the Date ``time`` too, which keeps its offset. Digits
                     past the microsecond are cut off.
``specversion``,     attributes of these names: Strings
``id``, ``source``,
``subject``,
``dataschema``,
``datacontenttype``
an extension         the attribute of its name: String, Integer (32 bits) or Boolean
``data``, an object  an attribute ``data.NAME`` for each member, ``data.NAME.NAME`` where they are nested
``data``, else       the attribute ``data``: a value or a list
``data_base64``      the String ``data_base64``
==================== ==================================================================================================

So what the context says has the names that CESQL knows it by. An event with ``specversion`` 1.0 is written by the same
table. Any other is an event of our own: its attributes, whatever their names, are the members of ``data``, of the
content type :data:`CONTENT_TYPE`; ``id`` and ``source`` come from who writes it and are dropped when it is read. There,
what JSON has no form for names its type: ``{"Date": "2026-11-21T10:00:00Z"}``, ``{"Double": "INF"}``. ``arrived_us``
is the reader's own and never written.

Both ways are exact, but for what one side cannot hold: there is no null, empty object, list of objects or member with
a dot in its name here, which are refused; a Date beside ``time`` is written as text and read as a String. What is null
in the context is absent. An attribute of several values is an array; a member that is repeated is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from wanderbus import limits
from wanderbus.errors import EventError
from wanderbus.event import Event, check_event
from wanderbus.literals import from_text, json_object, to_text, type_name
from wanderbus.subscription import instant_us

CONTENT_TYPE: Final = "application/vnd.wanderbus.event+json"
"""Of data that are the attributes of an event of our own."""

SPECVERSION: Final = "1.0"

_REQUIRED: Final = ("specversion", "id", "source", "type")
_STRINGS: Final = frozenset({*_REQUIRED, "subject", "dataschema", "datacontenttype", "time"})
_DATA: Final = ("data", "data_base64")
_MEMBER: Final = "data."
_NAME: Final = re.compile("[a-z0-9]+")
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_PAST_MICROSECONDS: Final = re.compile(r"(\.[0-9]{6})[0-9]+")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read(text: str | bytes) -> Event:
    """Return the event that a CloudEvent says; raise :class:`EventError` naming what is at fault."""
    context = _context(text)
    ours = context.get("datacontenttype") == CONTENT_TYPE
    time = _time(context["time"]) if "time" in context else None
    published_us = None if time is None else instant_us(time)
    attributes = from_json(context.get("data")) if ours else dict(_attributes(context, time))
    return check_event(Event(context["type"], attributes, published_us))


def write(event: Event, *, id: str, source: str) -> str:
    """Return ``event`` as a CloudEvent, of ``id`` and ``source`` unless it brings its own.

    Raises :class:`EventError` naming what CloudEvents cannot hold.
    """
    check_event(event)
    if event.attributes.get("specversion") == SPECVERSION:
        content = _written(event)
    else:
        content = {"specversion": SPECVERSION, "id": id, "source": source, "type": event.subject}
        if event.published_us is not None:
            content["time"] = to_text(_EPOCH + timedelta(microseconds=event.published_us))
        content["datacontenttype"] = CONTENT_TYPE
        content["data"] = to_json(event.attributes)
    for name in content.keys() - {"data"}:
        _check_context(name, content[name])
    try:
        return msgspec.json.encode(content).decode()
    except UnicodeEncodeError:
        raise EventError("half a character (a lone surrogate) in an attribute") from None


def to_json(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of an event of our own as values of JSON; :class:`EventError` for a date without a zone."""
    return {name: _own_json(name, value) for name, value in attributes.items()}


def from_json(data: object) -> dict[str, Any]:
    """Return the attributes that :func:`to_json` wrote; :class:`EventError` names one that is none."""
    if not isinstance(data, dict):
        raise EventError("attributes are a JSON object")
    return {
        name: [_own_item(name, item) for item in value] if isinstance(value, list) else _own_item(name, value)
        for name, value in data.items()
    }


def _context(text: str | bytes) -> dict[str, Any]:
    """Return the members of the envelope, those of null left out."""
    if len(text) > limits.CLOUDEVENT_BYTES_MAX:
        raise EventError(f"a CloudEvent has at most {limits.CLOUDEVENT_BYTES_MAX} bytes")
    try:
        members = json_object(text)
    except ValueError as error:
        raise EventError(f"not the JSON of a CloudEvent: {error}") from None
    context = {name: value for name, value in members.items() if value is not None}
    for name in _REQUIRED:
        if name not in context:
            raise EventError(f"a CloudEvent needs {name!r}")
    if context["specversion"] != SPECVERSION:
        raise EventError(f"CloudEvents of specversion {context['specversion']!r} are not read, only {SPECVERSION}")
    if "data" in members and members["data"] is None:
        raise EventError("data is null; leave it out instead")
    if "data" in context and "data_base64" in context:
        raise EventError("a CloudEvent has data or data_base64, not both")
    for name, value in context.items():
        if name != "data":
            _check_context(name, value)
    return context


def _check_context(name: str, value: object) -> None:
    """Hold a context attribute to the types of CloudEvents 1.0.2, section 3.1."""
    if name in _STRINGS or name == "data_base64":
        if not isinstance(value, str) or not (value or name == "data_base64"):
            raise EventError(f"{name} is a string that is not empty")
        if name == "time":
            _time(value)
    elif not _NAME.fullmatch(name):
        raise EventError(f"{name!r} is no name of CloudEvents: lower-case letters and digits; content is 'data.NAME'")
    if isinstance(value, str):
        if _FORBIDDEN.search(value):
            raise EventError(f"{name} has a character that CloudEvents forbids, such as a control character")
    elif not isinstance(value, bool) and not (isinstance(value, int) and -(2**31) <= value < 2**31):
        raise EventError(f"{name} is none of String, Boolean and Integer of 32 bits")


def _attributes(context: Mapping[str, Any], time: datetime | None) -> Iterator[tuple[str, Any]]:
    for name, value in context.items():
        if name == "time":
            yield name, time
        elif name == "data" and isinstance(value, dict):
            yield from _members("data", value)
        else:
            yield name, value


def _members(path: str, members: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the members of an object and of those within, each by its whole path."""
    if not members:
        raise EventError(f"{path!r} is an empty object, which is no value of an attribute")
    for name, value in members.items():
        inner = f"{path}.{name}"
        if len(inner) > limits.EVENT_NAME_CHARACTERS_MAX:
            raise EventError(f"a member of data has a path of over {limits.EVENT_NAME_CHARACTERS_MAX} characters")
        if "." in name:
            raise EventError(f"{inner!r}: the name of a member has no dot")
        if isinstance(value, dict):
            yield from _members(inner, value)
        else:
            yield inner, value


def _own_item(name: str, value: Any) -> Any:
    """Return a value of our own; an object of one member names the type."""
    match value:
        case {"Date": str(text), **rest} if not rest:
            type_of: Any = "Date"
        case {"Double": str(text), **rest} if not rest:
            type_of = "Double"
        case _:
            return value  # objects of another form are refused as no value of an attribute
    try:
        return from_text(type_of, text)
    except ValueError as error:
        raise EventError(f"attribute {name!r}: {error}") from None


def _own_json(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_own_json(name, item) for item in value]
    if isinstance(value, datetime) or (isinstance(value, float) and math.isinf(value)):
        return {type_name(value): _text(name, value)}
    return value


def _written(event: Event) -> dict[str, Any]:
    """Return the members of a CloudEvent that came from others."""
    attributes = event.attributes
    for name in _REQUIRED:
        if name not in attributes:
            raise EventError(f"a CloudEvent needs the attribute {name!r}")
    if attributes["type"] != event.subject:
        raise EventError(f"the type of a CloudEvent is its subject, not {attributes['type']!r}")
    if attributes.get("datacontenttype") == CONTENT_TYPE:
        raise EventError(f"the content type {CONTENT_TYPE} is of events without specversion alone")
    content: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(_MEMBER):
            _place(content, name.split("."), _foreign_json(name, value))
        elif name in content:
            raise EventError("an event has the attribute 'data' or attributes 'data.NAME', not both")
        else:
            content[name] = _foreign_json(name, value)
    if "data" in content and "data_base64" in content:
        raise EventError("an event has data or data_base64, not both")
    return content


def _place(content: dict[str, Any], path: list[str], value: object) -> None:
    """Put ``value`` into objects within objects."""
    *outer, last = path
    place: Any = content
    for name in outer:
        place = place.setdefault(name, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict) or last in place:
        raise EventError(f"{'.'.join(path)!r} and an attribute within or around it cannot both be data")
    place[last] = value


def _foreign_json(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_foreign_json(name, item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        raise EventError(f"attribute {name!r} is infinite, which JSON cannot say")
    return _text(name, value) if isinstance(value, datetime) else value


def _text(name: str, value: Any) -> str:
    try:
        return to_text(value)
    except ValueError as error:
        raise EventError(f"attribute {name!r}: {error}") from None


def _time(text: str) -> datetime:
    try:
        value = from_text("Date", _PAST_MICROSECONDS.sub(r"\1", text.upper()))
    except ValueError as error:
        raise EventError(f"time: {error}") from None
    assert isinstance(value, datetime)
    return value
