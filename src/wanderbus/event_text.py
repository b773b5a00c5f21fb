"""Events as one line of text that people read and programs read back: ``Departure Dest=IAH DepDelay=42.0``.

A subject and a name stand as they are, or as a JSON string where they hold a space, a quote, ``=`` or what cannot be
printed. A value is a JSON number, ``true`` or ``false``, ``INF`` or ``-INF``, a Date as XML Schema writes it, a JSON
list, or text: as it is where it cannot be mistaken for one of these, else a JSON string. Control characters, bidi
controls and line separators only occur as escapes, so that no event can forge a line or steer a terminal.

In a list, what JSON has no form for names its type, as in :mod:`wanderbus.cloudevents`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

from wanderbus import cloudevents, literals
from wanderbus.errors import EventError
from wanderbus.event import Event, Value, check_event, gathered

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_POSITION: Final = re.compile(r"[0-9]+ ")
_INFINITE: Final = {"INF": math.inf, "-INF": -math.inf}
_OPENING: Final = ('"', "[", "{")


def escaped(text: str) -> str:
    r"""Return ``text`` with whatever cannot be printed in one line as ``\uXXXX``, as in a JSON string.

    That is control characters, bidi and other format controls, line and paragraph separators, every space but U+0020,
    lone surrogates, and what Unicode has not assigned.
    """
    return text if text.isprintable() else "".join(each if each.isprintable() else _escape(each) for each in text)


def write(event: Event) -> str:
    """Return the line of an event: its subject and its attributes."""
    attributes = (f" {_word(name)}={write_value(value)}" for name, value in event.attributes.items())
    subject = event.subject
    return (_quoted(subject) if subject.isdecimal() else _word(subject)) + "".join(attributes)


def read(line: str) -> Event:
    """Return the event of a line, with or without a number before it, as ``wanderbus sub`` prints one.

    :raises EventError: it is no such line, or names what cannot be published
    """
    line = line.rstrip("\n")
    found = _POSITION.match(line)
    try:
        return _Line(line, found.end() if found else 0).event()
    except (ValueError, RecursionError) as error:
        raise EventError(f"not SUBJECT NAME=VALUE ...: {error}") from None


def write_value(value: Value) -> str:
    """Return the text of a value."""
    match value:
        case str():
            return value if _is_bare(value, '"') and _is_text(value) else _quoted(value)
        case list():
            return escaped(json.dumps(cloudevents.to_json({"": value})[""], ensure_ascii=False, separators=(",", ":")))
    return literals.to_text(value)


def read_value(text: str) -> Value:
    """Return the value of a text, as it stands in ``NAME=VALUE``: what is nothing else is a String."""
    if text.startswith(_OPENING):
        try:
            return _value_of(json.loads(text, parse_constant=_no_constant))
        except (ValueError, RecursionError, EventError):
            return text
    typed = _typed(text)
    return text if typed is None else typed


def _is_text(text: str) -> bool:
    """Return whether a text, bare, is read as itself."""
    return text not in ("", "null") and not text.startswith(_OPENING) and _typed(text) is None


def _typed(text: str) -> Value | None:
    """Return what a bare text says besides itself, None if that is nothing."""
    if text in ("true", "false"):
        return text == "true"
    if text == "null":
        raise EventError("null is no value; leave the attribute out instead")
    if text in _INFINITE:
        return _INFINITE[text]
    if _NUMBER.fullmatch(text):
        number: int | float = json.loads(text)
        return number
    try:
        return literals.from_text("Date", text)
    except ValueError:
        return None


class _Line:
    """One line as it is read; ``ValueError`` says what is wrong in it."""

    def __init__(self, line: str, start: int) -> None:
        self._line = line
        self._at = start

    def event(self) -> Event:
        subject = self._word(" ")
        attributes: list[tuple[str, Value]] = []
        while self._at < len(self._line):
            self._skip(" ")
            name = self._word("=")
            self._skip("=")
            attributes.append((name, self._value()))
        return check_event(Event(subject, gathered(attributes)))

    def _word(self, end: str) -> str:
        if self._line.startswith('"', self._at):
            word: str = self._json()
            return word
        text = self._bare(end)
        if not _is_bare(text, '"='):
            raise ValueError(f"{text!r} has to be a JSON string, or NAME=VALUE is missing")
        return text

    def _value(self) -> Value:
        if self._line.startswith(_OPENING, self._at):
            return _value_of(self._json())
        return read_value(self._bare(" "))

    def _bare(self, end: str) -> str:
        stop = self._line.find(end, self._at)
        text = self._line[self._at : stop if stop >= 0 else len(self._line)]
        self._at += len(text)
        return text

    def _json(self) -> Any:
        value, self._at = _DECODER.raw_decode(self._line, self._at)
        return value

    def _skip(self, character: str) -> None:
        if not self._line.startswith(character, self._at):
            raise ValueError(f"{character!r} is missing at character {self._at + 1}")
        self._at += 1


def _value_of(value: object) -> Value:
    """Return the value that JSON says; :class:`EventError` if it is none."""
    found: Value = cloudevents.from_json({"value": value})["value"]
    return found


def _word(text: str) -> str:
    return text if text and _is_bare(text, '"=') else _quoted(text)


def _is_bare(text: str, excluded: str) -> bool:
    return text.isprintable() and not any(each in text for each in f" {excluded}")


def _quoted(text: str) -> str:
    return escaped(json.dumps(text, ensure_ascii=False))


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code - 0x10000 & 0x3FF):04x}"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
