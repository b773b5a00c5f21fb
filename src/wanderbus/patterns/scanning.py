"""Scanner of a pattern's text: tokens on demand, embedded filters, durations and errors with positions."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from wanderbus import filters, limits
from wanderbus.errors import FilterError, PatternError
from wanderbus.filters.eci.literals import unquoted
from wanderbus.filters.eci.words import WORD

_BLANK: Final = re.compile(r"(?:\s+|\#[^\n]*)*+")
_TOKEN: Final = re.compile(
    r"""
    [^\W\d]\w*+
  | [0-9]++(?:\.[0-9]++)?
  | "[^"\\]*+(?:\\.[^"\\]*+)*+" | '[^'\\]*+(?:\\.[^'\\]*+)*+' | `[^`\\]*+(?:\\.[^`\\]*+)*+`
  | ==|!=|<=|>=|\[\[|[-+*/<>=(){},.:]
    """,
    re.VERBOSE | re.DOTALL,
)
_SUBJECT: Final = re.compile(WORD)
_INSIDE: Final = re.compile(
    r"""[^"'`()]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+'|`[^`\\]*+(?:\\.[^`\\]*+)*+`""", re.DOTALL
)
_UNITS_US: Final = {
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
DURATION_US_MAX: Final = 3_660 * _UNITS_US["day"]
"""Longest duration in a pattern: ten years."""

CLAUSES: Final = ("within", "on", "select", "skip", "emit")
"""Words that begin a clause behind the steps."""

RESERVED: Final = frozenset(
    {*CLAUSES, "pattern", "by", "match", "then", "next", "not", "or", "and", "where", "with", "true", "false"}
)
"""Words that are no name unless they are quoted."""


class Scanner:
    """Position in one text; ``token`` is the next token, empty at the end of the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.token = ""
        self.position = 0
        self._end = 0
        self.advance()

    def advance(self) -> str:
        """Move to the next token; return the one that was current."""
        previous = self.token
        self._move(self._end)
        return previous

    def fail(self, reason: str, position: int | None = None) -> NoReturn:
        """Raise :class:`PatternError` at ``position``, by default that of the current token."""
        raise PatternError(reason, self.text, self.position if position is None else position)

    def is_word(self, *words: str) -> bool:
        """Return whether the current token is one of these keywords, in any case."""
        return self.token.lower() in words

    def accept(self, token: str) -> bool:
        """Move past ``token`` if it is current."""
        if self.token.lower() != token:
            return False
        self.advance()
        return True

    def expect(self, token: str, purpose: str = "") -> int:
        """Move past ``token``, which must be current; return its position."""
        position = self.position
        if not self.accept(token):
            self.fail(f"expected '{token}'{purpose}, found {self.shown()}")
        return position

    def shown(self) -> str:
        """Return the current token as a message shows it."""
        if not self.token:
            return "the end"
        return f"'{self.token[:40]}'" if self.token[0] not in "\"'`" else self.token[:40]

    def is_name(self) -> bool:
        """Return whether the current token is a name: a word that is not reserved, or text in backquotes."""
        token = self.token
        return token[:1] == "`" or (token[:1].isidentifier() and token.lower() not in RESERVED)

    def name(self, meaning: str) -> str:
        """Read a name; ``meaning`` is its role, for the message if there is none."""
        if not self.is_name():
            hint = "; put a reserved word in backquotes" if self.token.lower() in RESERVED else ""
            self.fail(f"expected {meaning}, found {self.shown()}{hint}")
        if self.token[0] == "`":
            return self._unquoted()
        return self.advance()

    def attribute(self) -> str:
        """Read the name of an attribute: names joined by dots, or one in backquotes."""
        parts = [self.name("an attribute's name")]
        while self.token == ".":
            self.advance()
            parts.append(self.name("an attribute's name"))
        return ".".join(parts)

    def string(self) -> str:
        """Read a text in quotes."""
        return self._unquoted()

    def is_string(self) -> bool:
        """Return whether the current token is a text in quotes."""
        return self.token[:1] in ('"', "'") and len(self.token) > 1

    def subject(self) -> str:
        """Read a subject: a word with any of ``_ - . : + / @ # $ %`` in it, or a text in quotes."""
        if self.is_string():
            found = self.string()
        elif (word := _SUBJECT.match(self.text, self.position)) and self.token.lower() not in RESERVED:
            found = word[0]
            self._move(word.end())
        else:
            self.fail(f"expected a subject, found {self.shown()}")
        if not 0 < len(found) <= limits.EVENT_NAME_CHARACTERS_MAX:
            self.fail(f"a subject has 1 to {limits.EVENT_NAME_CHARACTERS_MAX} characters")
        return found

    def whole_number(self) -> int:
        """Read a whole number."""
        if not self.token.isdecimal() or not self.token.isascii() or len(self.token) > 9:
            self.fail(f"expected a whole number, found {self.shown()}")
        return int(self.advance())

    def unit_us(self) -> int | None:
        """Return the microseconds of the current token if it is a unit of time."""
        return _UNITS_US.get(self.token.lower().removesuffix("s"))

    def duration_us(self) -> int:
        """Read a duration, such as ``1 hour 30 minutes``; return its microseconds."""
        position = self.position
        total = 0.0
        while self.token[:1].isdecimal():
            quantity = float(self.advance())
            unit_us = self.unit_us()
            if unit_us is None:
                self.fail(f"expected a unit of time such as 'minutes', found {self.shown()}")
            self.advance()
            total += quantity * unit_us
        if self.position == position:
            self.fail(f"expected a duration such as '2 hours', found {self.shown()}")
        if not 1 <= total <= DURATION_US_MAX:
            self.fail("a duration is at least one microsecond and at most ten years", position)
        return round(total)

    def parenthesised_filter(self) -> filters.Filter:
        """Read a filter of ``eci`` in parentheses; the opening one is current."""
        opening = self.position
        at, depth = opening + 1, 1
        while depth:
            if found := _INSIDE.match(self.text, at):
                at = found.end()
                continue
            if at >= len(self.text):
                self.fail("this ( is never closed", opening)
            if self.text[at] not in "()":
                self.fail("this quote is never closed", at)
            depth += 1 if self.text[at] == "(" else -1
            at += 1
        read = self._filter("eci", opening + 1, at - 1)
        self._move(at)
        return read

    def bracketed_filter(self, language: str) -> filters.Filter:
        """Read a filter of ``language`` between ``[[`` and ``]]``; the opening ones are current."""
        start = self.position + 2
        end = self.text.find("]]", start)
        if end < 0:
            self.fail("this [[ is never closed by ]]")
        read = self._filter(language, start, end)
        self._move(end + 2)
        return read

    def _filter(self, language: str, start: int, end: int) -> filters.Filter:
        text = self.text[start:end]
        blank = len(text) - len(text.lstrip())
        try:
            return filters.parse(text.strip(), language)
        except FilterError as error:
            inside = 0 if error.position is None else error.position
            in_language = "" if language == "eci" else f"in this filter of {language}: "
            self.fail(in_language + error.reason, min(start + blank + inside, end))

    def _unquoted(self) -> str:
        position = self.position
        try:
            text = unquoted(self.token)
        except FilterError as error:
            self.fail(error.reason, position + (error.position or 0))
        self.advance()
        return text

    def _move(self, start: int) -> None:
        blank = _BLANK.match(self.text, start)
        assert blank is not None
        self.position = blank.end()
        if self.position == len(self.text):
            self.token, self._end = "", self.position
            return
        found = _TOKEN.match(self.text, self.position)
        if found is None:
            character = self.text[self.position]
            quote = "this quote is never closed"
            self.fail(quote if character in "\"'`" else f"unexpected character {character!r}")
        self.token, self._end = found[0], found.end()
