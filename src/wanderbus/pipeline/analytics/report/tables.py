"""Tables of the report; on a narrow screen each cell shows its own heading."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from wanderbus.event_text import escaped
from wanderbus.pipeline.analytics.analysis import ROWS_MAX, Ranking

Row = Mapping[str, Any]

_UUID: Final = re.compile(r"(?:urn:uuid:)?([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

ROWS_OPEN: Final = 8
"""Rows of a table that are shown at once; the others are folded."""


class Heading(NamedTuple):
    """A column: its heading, its text for a row, and whether it has words, long texts, or a fault if it is not 0."""

    name: str
    text: Callable[[Row], str]
    is_word: bool = False
    is_long: bool = False
    is_fault: bool = False
    whole: Callable[[Row], str] | None = None
    """Text of which the cell shows a part, for who rests on it."""


def word(name: str, key: str, *, is_long: bool = False) -> Heading:
    """Return a column of words."""
    return Heading(name, lambda row: str(row[key] if row[key] is not None else "—"), is_word=True, is_long=is_long)


def device(name: str, key: str) -> Heading:
    """Return a column of devices, by what tells them apart at a glance."""
    return Heading(name, lambda row: device_name(str(row[key])), is_word=True, whole=lambda row: str(row[key]))


def device_name(identity: str) -> str:
    """Return the first part of the UUID of a device, or its whole name if that is none."""
    return match[1] if (match := _UUID.fullmatch(identity)) else identity


def count(name: str, key: str, *, is_fault: bool = False) -> Heading:
    """Return a column of counts."""
    return Heading(name, lambda row: number(row[key]), is_fault=is_fault)


def time(name: str, key: str) -> Heading:
    """Return a column of times in milliseconds."""
    return Heading(name, lambda row: duration(row[key]))


def number(value: int) -> str:
    """Return a count with its thousands apart."""
    return f"{value:,}"


def duration(value_ms: float | None) -> str:
    """Return a duration with the unit that suits it."""
    if value_ms is None:
        return "—"
    if value_ms == 0:
        return "0"
    if abs(value_ms) < 10:
        return f"{value_ms:.2f} ms"
    if abs(value_ms) < 1_000:
        return f"{value_ms:.0f} ms"
    if abs(value_ms) < 120_000:
        return f"{value_ms / 1_000:.1f} s"
    return f"{value_ms / 60_000:.1f} min" if abs(value_ms) < 7_200_000 else f"{value_ms / 3_600_000:.1f} h"


def text(value: str) -> str:
    """Return a text of a user for the page: control characters are shown, and nothing is markup."""
    return escape(escaped(value))


def table(ranking: Ranking, headings: Sequence[Heading], empty: str) -> str:
    """Return a table of the rows, or the sentence ``empty`` if there is none."""
    if not ranking.rows:
        return f"<p>{escape(empty)}</p>"
    first, rest = ranking.rows[:ROWS_OPEN], ranking.rows[ROWS_OPEN:]
    cut = f"<p class='quiet'>The first {ROWS_MAX} rows; the gold tables have all.</p>" if ranking.is_cut else ""
    more = f"<details><summary>{len(rest)} more</summary>{_rows(rest, headings)}{cut}</details>" if rest else ""
    return f"{_rows(first, headings)}{more}"


def _rows(rows: Sequence[Row], headings: Sequence[Heading]) -> str:
    head = "".join(f"<th class='{'word' if each.is_word else ''}'>{escape(each.name)}</th>" for each in headings)
    body = "".join(f"<tr>{''.join(_cell(each, row) for each in headings)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(heading: Heading, row: Row) -> str:
    shown = heading.text(row)
    classes = ["word"] if heading.is_word else []
    classes += ["long"] if heading.is_long else []
    classes += ["bad"] if heading.is_fault and shown != "0" else []
    whole = "" if heading.whole is None else f" title='{text(heading.whole(row))}'"
    return f"<td class='{' '.join(classes)}' data-is='{escape(heading.name, quote=True)}'{whole}>{text(shown)}</td>"
