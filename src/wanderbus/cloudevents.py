"""Conversion of events to and from structured JSON CloudEvents 1.0 (SPEC U-04; CloudEvents 1.0.2, JSON event format).

==================== ==================================================================================================
CloudEvent           event of this package
==================== ==================================================================================================
``type``             the subject; for a foreign CloudEvent also the attribute ``type``
``time``             ``published_us``; for a foreign CloudEvent also the Date ``time``. Digits past the microsecond are
                     cut off.
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

A foreign CloudEvent is one that this package did not write. Its context attributes keep the names that CESQL uses. An
event with the attribute ``specversion`` 1.0 is written by the same table. Any other is a native event: all its
attributes are members of ``data``, with the content type :data:`CONTENT_TYPE`; ``id`` and ``source`` are arguments of
:func:`write` and are ignored by :func:`read`. In native data, a value that JSON cannot represent is an object that
names its type: ``{"Date": "2026-11-21T10:00:00Z"}``, ``{"Double": "INF"}``. ``arrived_us`` is never written.

Both directions are lossless, with these exceptions. A Date is an instant and is written in UTC: its offset is lost
(decision 0133). Events have no null, empty object, list of objects or member with
a dot in its name, so these are refused. A Date other than ``time`` is written as text and read as a String. A null in
the context counts as absent. An attribute with several values is an array; a repeated member is refused.
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
"""Content type of ``data`` that contain the attributes of a native event."""

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
    """Return the event of a CloudEvent; :class:`EventError` names the invalid part."""
    context = _context(text)
    ours = context.get("datacontenttype") == CONTENT_TYPE
    time = _time(context["time"]) if "time" in context else None
    published_us = None if time is None else instant_us(time)
    attributes = from_json(context.get("data")) if ours else dict(_attributes(context, time))
    return check_event(Event(context["type"], attributes, published_us))


def write(event: Event, *, id: str, source: str) -> str:
    """Return ``event`` as a CloudEvent, with ``id`` and ``source`` unless the event has attributes of these names.

    :raises EventError: CloudEvents cannot represent the event; the message names the part
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
    """Return the attributes of a native event as JSON values; :class:`EventError` for a date without a time zone."""
    return {name: _own_json(name, value) for name, value in attributes.items()}


def from_json(data: object) -> dict[str, Any]:
    """Return the attributes that :func:`to_json` wrote; :class:`EventError` names an invalid one."""
    if not isinstance(data, dict):
        raise EventError("the attributes must be a JSON object")
    return {
        name: [_own_item(name, item) for item in value] if isinstance(value, list) else _own_item(name, value)
        for name, value in data.items()
    }


def _context(text: str | bytes) -> dict[str, Any]:
    """Return the members of the envelope without those of null."""
    if len(text) > limits.CLOUDEVENT_BYTES_MAX:
        raise EventError(f"the CloudEvent is too large; the limit is {limits.CLOUDEVENT_BYTES_MAX} bytes")
    try:
        members = json_object(text)
    except ValueError as error:
        raise EventError(f"the CloudEvent is not valid JSON: {error}") from None
    context = {name: value for name, value in members.items() if value is not None}
    for name in _REQUIRED:
        if name not in context:
            raise EventError(f"a CloudEvent needs {name!r}")
    if context["specversion"] != SPECVERSION:
        raise EventError(f"specversion {context['specversion']!r} is not supported, only {SPECVERSION}")
    if "data" in members and members["data"] is None:
        raise EventError("data is null; leave it out")
    if "data" in context and "data_base64" in context:
        raise EventError("a CloudEvent has data or data_base64, not both")
    for name, value in context.items():
        if name != "data":
            _check_context(name, value)
    return context


def _check_context(name: str, value: object) -> None:
    """Check a context attribute against the types of CloudEvents 1.0.2, section 3.1."""
    if name in _STRINGS or name == "data_base64":
        if not isinstance(value, str) or not (value or name == "data_base64"):
            raise EventError(f"{name} must be a non-empty string")
        if name == "time":
            _time(value)
    elif not _NAME.fullmatch(name):
        raise EventError(
            f"{name!r} is not a CloudEvents name (lower-case letters and digits); name content 'data.NAME'"
        )
    if isinstance(value, str):
        if _FORBIDDEN.search(value):
            raise EventError(f"{name} has a character that CloudEvents forbids, such as a control character")
    elif not isinstance(value, bool) and not (isinstance(value, int) and -(2**31) <= value < 2**31):
        raise EventError(f"{name} must be a String, a Boolean or an Integer of 32 bits")


def _attributes(context: Mapping[str, Any], time: datetime | None) -> Iterator[tuple[str, Any]]:
    for name, value in context.items():
        if name == "time":
            yield name, time
        elif name == "data" and isinstance(value, dict):
            yield from _members("data", value)
        else:
            yield name, value


def _members(path: str, members: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the members of an object and of its inner objects, each with its full path."""
    if not members:
        raise EventError(f"{path!r} is an empty object, which an attribute cannot be")
    for name, value in members.items():
        inner = f"{path}.{name}"
        if len(inner) > limits.EVENT_NAME_CHARACTERS_MAX:
            raise EventError(f"a member of data has a path of over {limits.EVENT_NAME_CHARACTERS_MAX} characters")
        if "." in name:
            raise EventError(f"{inner!r}: the name of a member must not contain a dot")
        if isinstance(value, dict):
            yield from _members(inner, value)
        else:
            yield inner, value


def _own_item(name: str, value: Any) -> Any:
    """Return a value of native data; an object with one member names its type."""
    match value:
        case {"Date": str(text), **rest} if not rest:
            type_of: Any = "Date"
        case {"Double": str(text), **rest} if not rest:
            type_of = "Double"
        case _:
            return value  # objects of another form are refused later: an attribute cannot be one
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
    """Return the members of a foreign CloudEvent."""
    attributes = event.attributes
    for name in _REQUIRED:
        if name not in attributes:
            raise EventError(f"a CloudEvent needs the attribute {name!r}")
    if attributes["type"] != event.subject:
        raise EventError(f"the attribute 'type' must be the subject {event.subject!r}, not {attributes['type']!r}")
    if attributes.get("datacontenttype") == CONTENT_TYPE:
        raise EventError(f"the content type {CONTENT_TYPE} is reserved for events without specversion")
    content: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(_MEMBER):
            _place(content, name.split("."), _foreign_json(name, value))
        elif name in content:
            raise EventError("an event may have the attribute 'data' or attributes 'data.NAME', not both")
        else:
            content[name] = _foreign_json(name, value)
    if "data" in content and "data_base64" in content:
        raise EventError("an event has data or data_base64, not both")
    return content


def _place(content: dict[str, Any], path: list[str], value: object) -> None:
    """Insert ``value`` at ``path`` into nested objects."""
    *outer, last = path
    place: Any = content
    for name in outer:
        place = place.setdefault(name, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict) or last in place:
        raise EventError(f"{'.'.join(path)!r} conflicts with another attribute, which is inside it or contains it")
    place[last] = value


def _foreign_json(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_foreign_json(name, item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        raise EventError(f"attribute {name!r} is infinite, which JSON cannot represent")
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
