"""Input of ``wanderbus filter``: filters and events from arguments, a file or standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from wanderbus import cloudevents
from wanderbus.errors import ConfigurationError, EventError, FilterError
from wanderbus.event import Event, check_event
from wanderbus.filters import LANGUAGES, Filter, parse

Language = Enum("Language", {name: name for name in LANGUAGES})  # type: ignore[misc]
"""Languages of filters."""

InLanguage = Annotated[Language, typer.Option("--language", help="Language of the filters.")]
"""Option ``--language`` of every command of the group."""

STANDARD_INPUT: Final = Path("-")

_SUBJECT: Final = "example"
"""Subject of an event that is given without one; filters do not depend on it."""


def one_filter(text: str | None, file: Path | None, language: Language) -> Filter:
    """Return the filter from the argument, or from the whole file without its last end of line."""
    if (text is None) == (file is None):
        raise ConfigurationError("give the filter either as an argument or with --file")
    return parse(given_text(text, file), language.value)


def filter_and_event(
    given: list[str] | None, file: Path | None, event_file: Path | None, language: Language
) -> tuple[Filter, Event]:
    """Return the filter and the event, each from its file or from the next argument."""
    arguments = list(given or [])
    if len(arguments) != (file is None) + (event_file is None):
        raise ConfigurationError("give a filter and an event: arguments in this order, or --file and --event-file")
    if file == event_file == STANDARD_INPUT:
        raise ConfigurationError("standard input can be the filter or the event, not both")
    filter = one_filter(arguments.pop(0) if file is None else None, file, language)
    return filter, _event(given_text(arguments.pop() if event_file is None else None, event_file))


def several_filters(texts: list[str] | None, file: Path | None, language: Language) -> list[Filter]:
    """Return the filters from the arguments, or from the file, one per line; blank lines are skipped."""
    if bool(texts) == (file is not None):
        raise ConfigurationError("give filters either as arguments or with --file")
    if file is not None:
        return list(_filters_in(file, language))
    return [parse(text, language.value) for text in texts or []]


def _event(text: str) -> Event:
    try:
        members = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise EventError(f"the event is not a JSON object: {error}") from None
    if "specversion" in members:
        return cloudevents.read(text)
    attributes, subject = members, _SUBJECT
    if isinstance(members.get("attributes"), dict):
        attributes, subject = members["attributes"], members.get("subject", _SUBJECT)
        if not isinstance(subject, str):
            raise EventError("the subject of the event must be a string")
    return check_event(Event(subject, cloudevents.from_json(attributes)))


def _filters_in(file: Path, language: Language) -> Iterator[Filter]:
    for number, line in enumerate(text_of(file).split("\n"), start=1):
        if line.strip():
            try:
                yield parse(line, language.value)
            except FilterError as error:
                raise ConfigurationError(f"{named(file)}, line {number}: {error.pointed()}") from None


def given_text(text: str | None, file: Path | None) -> str:
    """Return the argument, or the whole file without its last end of line."""
    if text is not None:
        return text
    assert file is not None
    return text_of(file).removesuffix("\n")


def text_of(file: Path) -> str:
    """Return the text of a file, or of standard input."""
    try:
        data = sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"{named(file)} cannot be read: {reason}") from None


def named(file: Path) -> str:
    """Return the name of a file for a message."""
    return "standard input" if file == STANDARD_INPUT else str(file)
