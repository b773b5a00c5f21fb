"""Text format of events, one per line, for people and programs: ``Departure Dest=IAH DepDelay=42.0``.

A subject or name is written unquoted, or as a JSON string if it contains a space, a quote, ``=`` or an unprintable
character. A value is a JSON number, ``true`` or ``false``, ``INF`` or ``-INF``, a Date in XML Schema format, a JSON
list, or text: unquoted if it cannot be mistaken for one of these, else a JSON string. Control characters, bidi controls
and line separators are always escaped, so that no event can forge a line or control a terminal.

In a list, a value that JSON cannot represent is an object that names its type, as in :mod:`wanderbus.cloudevents`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

from wanderbus import cloudevents, literals
from wanderbus.errors import EventError
from wanderbus.event import Event, Value, check_event, merge_repeated

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_POSITION: Final = re.compile(r"[0-9]+ ")
_INFINITE: Final = {"INF": math.inf, "-INF": -math.inf}
_OPENING: Final = ('"', "[", "{")


def escaped(text: str) -> str:
    r"""Return ``text`` with every unprintable character as ``\uXXXX``, as in a JSON string.

    These are control characters, bidi and other format controls, line and paragraph separators, every space except
    U+0020, lone surrogates, and code points that Unicode has not assigned.
    """
    return text if text.isprintable() else "".join(each if each.isprintable() else _escape(each) for each in text)


def write(event: Event) -> str:
    """Return the line of an event: its subject and its attributes."""
    attributes = (f" {_word(name)}={write_value(value)}" for name, value in event.attributes.items())
    subject = event.subject
    return (_quoted(subject) if subject.isdecimal() else _word(subject)) + "".join(attributes)


def read(line: str) -> Event:
    """Return the event of a line; a number before it, as ``wanderbus sub`` prints one, is ignored.

    :raises EventError: the line cannot be parsed, or its event is invalid
    """
    line = line.rstrip("\n")
    found = _POSITION.match(line)
    try:
        return _Line(line, found.end() if found else 0).event()
    except (ValueError, RecursionError) as error:
        raise EventError(f"invalid event (expected SUBJECT NAME=VALUE ...): {error}") from None


def write_value(value: Value) -> str:
    """Return the text of a value."""
    match value:
        case str():
            return value if _is_bare(value, '"') and _is_text(value) else _quoted(value)
        case list():
            return escaped(json.dumps(cloudevents.to_json({"": value})[""], ensure_ascii=False, separators=(",", ":")))
    return literals.to_text(value)


def read_value(text: str) -> Value:
    """Return the value of a text from ``NAME=VALUE``; a text of no other type is a String."""
    if text.startswith(_OPENING):
        try:
            return _value_of(json.loads(text, parse_constant=_no_constant))
        except (ValueError, RecursionError, EventError):
            return text
    typed = _typed(text)
    return text if typed is None else typed


def _is_text(text: str) -> bool:
    """Return whether an unquoted text is read back as the same String."""
    return text not in ("", "null") and not text.startswith(_OPENING) and _typed(text) is None


def _typed(text: str) -> Value | None:
    """Return the value of an unquoted text that is not a String; None for a String."""
    if text in ("true", "false"):
        return text == "true"
    if text == "null":
        raise EventError("null is not a value; leave out the attribute")
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
    """Parser of one line; raises ``ValueError``."""

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
        return check_event(Event(subject, merge_repeated(attributes)))

    def _word(self, end: str) -> str:
        if self._line.startswith('"', self._at):
            word: str = self._json()
            return word
        text = self._bare(end)
        if not _is_bare(text, '"='):
            raise ValueError(f"{text!r} must be quoted as a JSON string, or NAME=VALUE is missing")
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
    """Return the event value of a JSON value; :class:`EventError` if it is not a valid one."""
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
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
