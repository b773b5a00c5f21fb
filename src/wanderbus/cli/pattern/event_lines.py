"""Events in a file, one JSON object per line, with the time and the offset that a pattern needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from wanderbus import cloudevents
from wanderbus.cli.filter_input import named, text_of
from wanderbus.errors import ConfigurationError, EventError
from wanderbus.event import Event, check_event
from wanderbus.patterns import Occurrence


def occurrences(file: Path) -> Iterator[Occurrence]:
    """Yield the events of a file without its blank lines; :class:`ConfigurationError` names a line that is no event."""
    for number, line in enumerate(text_of(file).split("\n"), start=1):
        if line.strip():
            try:
                yield _occurrence(line, number)
            except EventError as error:
                raise ConfigurationError(f"{named(file)}, line {number}: {error}") from None


def _occurrence(line: str, number: int) -> Occurrence:
    try:
        members = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise EventError(f"it is not a JSON object: {error}") from None
    if "specversion" in members:
        event = cloudevents.read(line)
        return _placed(event, {"id": str(members.get("id", ""))}, number)
    subject, attributes = members.get("subject"), members.get("attributes")
    if not isinstance(subject, str) or not isinstance(attributes, dict):
        raise EventError("an event has a subject, a text, and attributes, an object")
    published_us = members.get("published_us")
    return _placed(check_event(Event(subject, cloudevents.from_json(attributes), published_us)), members, number)


def _placed(event: Event, members: dict[str, Any], number: int) -> Occurrence:
    at_us = members.get("at_us", event.published_us)
    offset, id = members.get("offset", number), members.get("id", "")
    if type(at_us) is not int or not -(2**62) < at_us < 2**62:
        raise EventError("an event has a time: at_us or published_us, in microseconds since 1970")
    if type(offset) is not int or not 0 <= offset < 2**63 or not isinstance(id, str):
        raise EventError("an offset is a whole number from 0 on, and an id a text")
    return Occurrence(event, offset, at_us, id)
