"""Values of conditions and detections, keys, times and names (SPEC T-07)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from wanderbus import filters
from wanderbus.event import Event
from wanderbus.patterns import NEVER_US, AcceptedEvent, Detection, compile_pattern

HOUR_US = 3_600_000_000
Row = tuple[str, dict[str, Any]]


def detect(text: str, rows: list[Row], step_us: int = 60_000_000) -> list[Detection]:
    """Return the detections of events that come one minute after another."""
    pattern = compile_pattern(text)
    occurrences = [
        AcceptedEvent(Event(subject, attributes), offset, offset * step_us, f"s-1-{offset}")
        for offset, (subject, attributes) in enumerate(rows)
    ]
    state, detections = pattern.advance(pattern.start(), pattern.classify(occurrences), NEVER_US)
    assert state.keys == {}
    return detections


def value(expression: str, *a: Any, b: Any = 5) -> Any:
    """Return an expression over events A with these values of ``x``, and one B; None if it is unknown."""
    rows: list[Row] = [("a", {} if each is None else {"x": each}) for each in a]
    rows.append(("b", {} if b is None else {"x": b}))
    text = f"match A{{1,}}: a then B: b within 1 hour emit e with v = {expression}"
    (detection,) = [each for each in detect(text, rows) if len(each.events) == len(rows)]
    return detection.attributes.get("v")


DAY = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "a", "expected"),
    [
        ("A.x", (1, 2), 2),
        ("first(A.x)", (1, 2), 1),
        ("last(A.x)", (1, None), None),
        ("first(A.x)", (None, 1), None),
        ("count(A)", (1, None, 3), 3),
        ("count(B)", (1,), 1),
        ("sum(A.x)", (1, None, 3), 4),
        ("sum(A.x)", (1, 2.5), 3.5),
        ("sum(A.x)", (None,), None),
        ("sum(A.x)", ("x", 2), 2),
        ("avg(A.x)", (1, None, 4), 2.5),
        ("avg(A.x)", ("x",), None),
        ("min(A.x)", (3, 1.5, None), 1.5),
        ("max(A.x)", ("x", "y"), "y"),
        ("max(A.x)", ("x", 1), None),
        ("max(A.x)", (True, False), None),
        ("max(A.x)", (DAY, DAY + timedelta(days=1)), DAY + timedelta(days=1)),
        ("A.x + B.x * 2", (1,), 11),
        ("(A.x + B.x) * 2", (1,), 12),
        ("7 / 2", (1,), 3.5),
        ("A.x - -1", (1,), 2),
        ("A.x / 0", (1,), None),
        ("A.x + 'x'", (1,), None),
        ("A.x + 1", (2**63 - 1,), None),
        ("A.x - B.x", (math.inf,), math.inf),
        ("A.x - A.x", (math.inf,), None),
        ("A.x", ([1, 2],), [1, 2]),
        ("A.x == B.x", ([5],), None),
        ("A.x == B.x", (5.0,), True),
        ("A.x == B.x", (True,), None),
        ("A.x < B.x and B.y > 1", (9,), False),
        ("A.x < B.x and B.y > 1", (1,), None),
        ("A.x < B.x or B.y > 1", (1,), True),
        ("not B.y > 1", (1,), None),
        ("not A.x > 1", (1,), True),
        ("true and 3", (1,), None),
        ("time(B) - time(A)", (1,), 60.0),
        ("time(B) - first(time(A))", (1, 2), 120.0),
        ("(time(B) - time(A)) / 2", (1,), 30.0),
        ("(time(B) - time(A)) / 1 minute", (1,), 1.0),
        ("time(A) + 1 hour == time(A)", (1,), False),
        ("time(B) - time(A) == 1 minute", (1,), True),
        ("time(B) - time(A) == 60", (1,), None),
        ("1 hour * 1000000000 * 1000000000", (1,), None),
        ("time(A)", (1,), datetime(1970, 1, 1, tzinfo=UTC)),
        ("A.x - 1 day", (DAY,), DAY - timedelta(days=1)),
        ("1.5 hours", (1,), 5400.0),
        ("'it\\'s'", (1,), "it's"),
    ],
)
def test_an_expression_has_this_value_or_is_unknown(expression: str, a: tuple[Any, ...], expected: Any) -> None:
    found = value(expression, *a)
    assert found == expected
    assert type(found) is type(expected)


def test_an_unknown_condition_is_not_satisfied() -> None:
    text = "match A: a then B: b where (B.x > A.x) within 1 hour"
    assert detect(text, [("a", {"x": 1}), ("b", {}), ("b", {"x": "2"}), ("b", {"x": 1})]) == []
    assert len(detect(text, [("a", {"x": 1}), ("b", {"x": 2})])) == 1


def test_keys_are_equal_by_value_and_kind_and_an_event_without_one_takes_no_part() -> None:
    text = "by k, m match A: a then B: b within 1 hour"
    whole = {"k": 1, "m": datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))}
    same = {"k": 1.0, "m": DAY}
    assert len(detect(text, [("a", whole), ("b", same)])) == 1
    for other in ({"k": True, "m": DAY}, {"k": "1", "m": DAY}, {"k": [1], "m": DAY}, {"k": 1}, {"k": 2, "m": DAY}):
        assert detect(text, [("a", whole), ("b", other)]) == []
    assert detect("by k match A: a then B: b within 1 hour", [("a", {"k": math.nan}), ("b", {"k": math.nan})]) == []
    infinite = [("a", {"k": math.inf}), ("b", {"k": -math.inf}), ("b", {"k": math.inf})]
    assert [each.events[1].offset for each in detect("by k match A: a then B: b within 1 hour", infinite)] == [2]


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("on receipt time", [3, 4]),
        ("on publication time", [2, 1]),
        ("on event time At", [2, 3]),
    ],
)
def test_a_pattern_goes_by_the_time_that_it_names(clause: str, expected: list[int]) -> None:
    pattern = compile_pattern(f"match A: e then next B: e within 1 hour {clause}")
    rows = [(1, 300, None), (2, 200, 100), (3, None, 200), (4, 9_000, 90_000)]
    occurrences = [
        AcceptedEvent(
            Event("e", {} if at is None else {"At": DAY + timedelta(seconds=at)}, published), offset, offset * 1_000
        )
        for offset, published, at in rows
    ]
    _, detections = pattern.advance(pattern.start(), pattern.classify(occurrences), NEVER_US)
    assert expected in [[taken.offset for taken in each.events] for each in detections]


def test_events_of_one_time_are_in_order_of_their_offsets() -> None:
    (found,) = detect("match A: a then B: b within 1 hour", [("b", {}), ("a", {}), ("b", {})], 0)
    assert [each.offset for each in found.events] == [1, 2]


def test_within_includes_its_end_and_an_absence_holds_up_to_it() -> None:
    hour = HOUR_US
    assert len(detect("match A: a then B: b within 1 hour", [("a", {}), ("b", {})], hour)) == 1
    assert detect("match A: a then B: b within 1 hour", [("a", {}), ("b", {})], hour + 1) == []
    absent = "match A: a then not B: b within 1 hour"
    assert detect(absent, [("a", {}), ("b", {})], hour) == []
    (found,) = detect(absent, [("a", {}), ("b", {})], hour + 1)
    assert found.at_us == hour


def test_an_absence_is_detected_by_time_alone_and_not_before_it() -> None:
    pattern = compile_pattern("match A: a then not B: b within 1 hour")
    state, found = pattern.advance(
        pattern.start(), pattern.classify([AcceptedEvent(Event("a", {}), 0, 7)]), HOUR_US + 7
    )
    assert found == []
    assert state.due_us == HOUR_US + 7
    state, found = pattern.advance(state, [], HOUR_US + 8)
    assert [each.at_us for each in found] == [HOUR_US + 7]
    assert state.due_us == NEVER_US


def test_a_detection_is_named_by_its_pattern_and_events_and_becomes_an_event() -> None:
    emitted = "emit both with x = A.x, missing = B.x, gone = time(B) - time(A)"
    text = f"pattern p match A: a then B: b within 1 hour {emitted}"
    rows: list[Row] = [("a", {"x": 1}), ("b", {})]
    (one,), (again,) = detect(text, rows), detect(text, rows)
    assert one.id == again.id
    assert one.id.startswith("p:")
    assert one.id != detect(text.replace("pattern p", "pattern q"), rows)[0].id
    assert one.id != detect(text, [("c", {}), *rows])[0].id
    event = one.to_event()
    assert (event.subject, event.published_us) == ("both", 60_000_000)
    assert event.attributes == {"detection": one.id, "events": ["s-1-0", "s-1-1"], "x": 1, "gone": 60.0}


def test_each_language_can_be_that_of_a_leaf() -> None:
    xml = compile_pattern("match A: a (x > 1) within 1 hour").leaves[0].filter
    document = filters.xml.write(xml.root)
    text = f"match A: a eci [[x > 1]] then B: a cesql [[x > 1]] then C: * xml [[{document}]] within 1 hour"
    (found,) = detect(text, [("a", {"x": 2}), ("a", {"x": 1}), ("a", {"x": 3}), ("other", {"x": 4})])
    assert [each.offset for each in found.events] == [0, 2, 3]
