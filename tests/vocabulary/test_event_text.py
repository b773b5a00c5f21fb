"""Events as one line of text: exact both ways; no event can control a terminal or forge a line."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wanderbus import event_text
from wanderbus.errors import EventError
from wanderbus.event import Event

HOSTILE = "\x1b\x00\x07\r\n\x7f\x85\x9b\u061c\u200e\u200f\u202e\u2028\u2029\u2066\u2069\ud800"

texts = st.text(max_size=12) | st.text(alphabet=' "=\\[]{}0123456789-+.eEINFTZtruefalse:\x1b\n\u202e', max_size=8)
names = texts.filter(bool)
dates = st.datetimes(
    min_value=datetime(2, 1, 1),
    max_value=datetime(9998, 1, 1),
    timezones=st.just(UTC) | st.integers(-840, 840).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | texts
    | dates
    | st.sampled_from(["2013-01-01T00:00:00Z", "1e5", "INF", "-INF", "true", '{"Date": "x"}', "[1]", "42", "null", ""])
)
events = st.builds(Event, names, st.dictionaries(names, scalars | st.lists(scalars, max_size=4), max_size=5))


def typed(value: Any) -> Any:
    return [typed(each) for each in value] if isinstance(value, list) else (type(value), value)


@given(events, st.none() | st.integers(0, 10**9))
@example(Event("42", {"=": "x", "true": "true", "": "a"} | {"n": math.inf}), None).via("words that look like others")
def test_an_event_reads_back_as_it_was(event: Event, number: int | None) -> None:
    event = Event(event.subject, {name: value for name, value in event.attributes.items() if name})
    line = event_text.write(event) if number is None else f"{number} {event_text.write(event)}"
    assert line.isprintable()
    found = event_text.read(line)
    assert found.subject == event.subject
    assert list(found.attributes) == list(event.attributes)
    assert [typed(value) for value in found.attributes.values()] == [
        typed(value) for value in event.attributes.values()
    ]


@given(scalars | st.lists(scalars, max_size=4))
def test_a_value_is_read_as_it_was_written(value: Any) -> None:
    assert typed(event_text.read_value(event_text.write_value(value))) == typed(value)


@given(st.text(max_size=200))
def test_any_line_is_read_or_refused(line: str) -> None:
    try:
        event = event_text.read(line)
    except EventError:
        return
    assert event_text.read(event_text.write(event)) == event


def test_text_of_an_event() -> None:
    date = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)
    event = Event("Departure", {"Dest": "IAH", "n": 42, "late": True, "DepDelay": 42.0, "note": "4 o'clock"})
    assert event_text.write(event) == 'Departure Dest=IAH n=42 late=true DepDelay=42.0 note="4 o\'clock"'
    event = Event("Departure", {"at": date, "as text": "2013-01-01T05:15:00Z", "list": ["a b", 1, date], "code": "42"})
    assert event_text.write(event) == (
        'Departure at=2013-01-01T05:15:00Z "as text"="2013-01-01T05:15:00Z" '
        'list=["a b",1,{"Date":"2013-01-01T05:15:00Z"}] code="42"'
    )


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_event_steers_a_terminal_or_forges_a_line(hostile: str) -> None:
    line = event_text.write(Event(f"a{hostile}", {f"b{hostile}": f"c{hostile}", "list": [hostile]}))
    assert hostile not in line
    assert len(line.splitlines()) == 1
    assert event_text.read(line) == Event(f"a{hostile}", {f"b{hostile}": f"c{hostile}", "list": [hostile]})
    assert hostile not in event_text.escaped(hostile)


@pytest.mark.parametrize(
    "line",
    [
        *("", "Trade n", 'Trade n="', "Trade n=[1", "Trade n={}", "Trade n=null x=[null]", "Trade n=[NaN]"),
        *("Trade  n=1", "Trade =1 ", f"Trade n={'[' * 100_000}", f"Trade n={2**63}", 'Trade n="a"b=1'),
    ],
)
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(EventError):
        event_text.read(line)
