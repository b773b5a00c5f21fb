"""Events: publishable ones, and the value types (SPEC A-03, A-12, A-13, A-16, DESIGN 7.1)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.client.publishes import encoded
from wanderbus.errors import EventError
from wanderbus.event import Event, EventId, Gap, Position, check_event, merge_repeated
from wanderbus.limits import (
    EVENT_ATTRIBUTES_MAX,
    EVENT_LIST_ITEMS_MAX,
    EVENT_NAME_CHARACTERS_MAX,
    EVENT_TIME_US_MAX,
    EVENT_TIME_US_MIN,
)
from wanderbus.protocol import decode_event, encode_event
from wanderbus.subscription import instant_us

LONGEST = "n" * EVENT_NAME_CHARACTERS_MAX
COUNTS = st.integers(0, 2**63 - 1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=3, minutes=30))

scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=10)
    | st.datetimes(timezones=st.just(UTC))
)
names = st.text(min_size=1, max_size=10)
events = st.builds(
    Event,
    names,
    st.dictionaries(names, scalars | st.lists(scalars, max_size=4), max_size=5),
    st.none() | st.integers(EVENT_TIME_US_MIN, EVENT_TIME_US_MAX),
    st.none() | st.integers(EVENT_TIME_US_MIN, EVENT_TIME_US_MAX),
)


@given(event=events)
def test_a13_a16_every_allowed_event_survives_its_encoding(event: Event) -> None:
    assert check_event(event) is event
    again = decode_event(encode_event(event))
    assert again == event
    assert [type(value) for value in again.attributes.values()] == [type(v) for v in event.attributes.values()]


@pytest.mark.parametrize(
    "event",
    [
        Event(LONGEST, {}),
        Event("s", {LONGEST: 1}),
        Event("s", {f"A{i}": i for i in range(EVENT_ATTRIBUTES_MAX)}),
        Event("s", {"A": [0] * EVENT_LIST_ITEMS_MAX, "B": []}),
        Event("s", {"A": -(2**63), "B": 2**63 - 1, "C": float("inf")}),
        Event("s", {"A": NOON.astimezone(timezone(timedelta(hours=-3)))}),
    ],
)
def test_an_event_at_the_limits_is_published(event: Event) -> None:
    assert check_event(event) is event


@pytest.mark.parametrize(
    ("subject", "attributes", "fault"),
    [
        ("", {}, "subject"),
        (b"Trade", {}, "the subject has the type bytes"),
        (LONGEST + "n", {}, "subject"),
        ("s", {"": 1}, "attribute names"),
        ("s", {LONGEST + "n": 1}, "attribute names"),
        ("s", {5: 1}, "attribute names"),
        ("s", {f"A{i}": i for i in range(EVENT_ATTRIBUTES_MAX + 1)}, "256 attributes"),
        ("s", {"A": [0] * (EVENT_LIST_ITEMS_MAX + 1)}, "'A' lists more than 1024"),
        ("s", {"Ok": 1, "A": 2**63}, "'A' is an integer beyond 64 bits"),
        ("s", {"A": -(2**63) - 1}, "beyond 64 bits"),
        ("s", {"A": float("nan")}, "'A' is not a number"),
        ("s", {"A": [1.0, float("nan")]}, "'A' is not a number"),
        ("s", {"A": datetime(2026, 1, 1, 12)}, "'A' is a date without a time zone"),
        ("s", {"A": None}, "NoneType"),
        ("s", {"A": {"b": 1}}, "dict"),
        ("s", {"A": [[1]]}, "list"),
        ("s", {"A": b"bytes"}, "bytes"),
    ],
)
def test_a_bad_event_is_refused_naming_the_attribute_at_fault(
    subject: Any, attributes: dict[Any, Any], fault: str
) -> None:
    with pytest.raises(EventError, match=fault):
        check_event(Event(subject, attributes))


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        (Event("\ud800", {}), "the subject has half a character"),
        (Event("s", {"Ok": "é", "\ud800": 1}), "attribute '\\ud800' has half a character"),
        (Event("s", {"Ok": "é", "A": "\ud800"}), "attribute 'A' has half a character"),
        (Event("s", {"A": [1, "\ud800"]}), "attribute 'A' has half a character"),
        (
            Event("s", {"Ok": NOON, "A": datetime(1, 1, 1, tzinfo=EAST)}),
            "attribute 'A' is a date that in UTC is beyond",
        ),
        (Event("s", {"A": [datetime(9999, 12, 31, 23, tzinfo=WEST)]}), "attribute 'A' is a date that in UTC is beyond"),
    ],
)
def test_an_attribute_that_no_message_can_carry_is_refused_by_name(event: Event, fault: str) -> None:
    with pytest.raises(EventError) as raised:
        encoded(event)
    assert str(raised.value).startswith(fault)


def test_a_missing_attribute_is_absent_and_never_zero() -> None:
    event = Event("s", {"A": 0})
    assert event["A"] == 0
    assert event.get("B") is None
    assert event.get("B", 5) == 5
    with pytest.raises(KeyError):
        event["B"]


def test_a12_the_two_time_variables_are_unset_until_set() -> None:
    event = Event("s", {})
    assert (event.published_us, event.arrived_us) == (None, None)
    assert msgspec.structs.replace(event, published_us=3, arrived_us=8).arrived_us == 8


def test_a12_publisher_and_consumer_set_a_time_each_and_the_latency_is_their_difference() -> None:
    sent = encode_event(Event("s", {"n": 1}, published_us=1_000))
    received = msgspec.structs.replace(decode_event(sent), arrived_us=1_250)
    event = decode_event(encode_event(received))
    assert (event.published_us, event.arrived_us) == (1_000, 1_250)
    assert event.arrived_us is not None
    assert event.published_us is not None
    assert event.arrived_us - event.published_us == 250


def test_a12_a_time_variable_is_any_instant_of_the_calendar() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert (instant_us(first), instant_us(last)) == (EVENT_TIME_US_MIN, EVENT_TIME_US_MAX)
    event = Event("s", {}, EVENT_TIME_US_MIN, EVENT_TIME_US_MAX)
    assert check_event(event) is event


@pytest.mark.parametrize("name", ["published_us", "arrived_us"])
@pytest.mark.parametrize("at_us", [EVENT_TIME_US_MIN - 1, EVENT_TIME_US_MAX + 1, 2**63, 2**64 - 1, -(2**70)])
def test_a12_a_time_beyond_the_calendar_is_refused_by_name(name: str, at_us: int) -> None:
    with pytest.raises(EventError, match=f"^{name} is beyond the years 1 to 9999"):
        check_event(msgspec.structs.replace(Event("s", {}), **{name: at_us}))


@pytest.mark.parametrize("at_us", [True, 1.5, "noon", NOON])
def test_a12_a_time_that_is_no_integer_is_refused_by_name(at_us: Any) -> None:
    with pytest.raises(EventError, match=f"^published_us has the type {type(at_us).__name__}"):
        check_event(Event("s", {}, at_us))


def test_ids_and_positions_are_ordered_and_read_well() -> None:
    assert str(EventId("wb", 36, 17)) == "wb-10-17"
    assert EventId("wb", 1, 9) < EventId("wb", 1, 10) < EventId("wb", 2, 1)
    assert Position(1, 99) < Position(2, 1) < Position(2, 2)
    assert Gap(2, "queue_max", Position(1, 5)).position.number == 5


@given(st.builds(EventId, st.text(min_size=1), COUNTS, COUNTS))
def test_a_text_of_an_id_is_read_as_the_same_id(identity: EventId) -> None:
    assert EventId.parse(str(identity)) == identity


@given(st.text(alphabet="wb-01az_A") | st.text())
def test_a_text_that_is_no_id_is_refused_and_no_id_has_two_texts(text: str) -> None:
    try:
        identity = EventId.parse(text)
    except EventError:
        return
    assert str(identity) == text


@pytest.mark.parametrize("text", ["", "wb", "wb-17", "-1-1", "wb-A-1", "wb-1-01", f"wb-1-{2**63}", "wb-1-\u0661"])
def test_an_invalid_id_is_refused(text: str) -> None:
    with pytest.raises(EventError, match=r"^invalid id .* \(expected SERVER-INCARNATION-NUMBER"):
        EventId.parse(text)


@pytest.mark.parametrize(
    ("pairs", "attributes"),
    [
        ([], {}),
        ([("a", 1)], {"a": 1}),
        ([("a", [1])], {"a": [1]}),
        ([("a", [])], {"a": []}),
        ([("a", 1), ("b", "x"), ("a", 1.5)], {"a": [1, 1.5], "b": "x"}),
        ([("a", 1), ("a", [2, "x"]), ("a", [])], {"a": [1, 2, "x"]}),
        ([("a", []), ("a", [])], {"a": []}),
        ({"a": [1], "b": 2}.items(), {"a": [1], "b": 2}),
    ],
)
def test_a16_x4_a_repeated_name_has_the_list_of_its_values(
    pairs: Iterable[tuple[str, Any]], attributes: dict[str, Any]
) -> None:
    assert repr(merge_repeated(pairs)) == repr(attributes)
    event = Event("s", merge_repeated(pairs))
    for name, value in attributes.items():
        assert event.get_all(name) == (value if isinstance(value, list) else [value])
    assert event.get_all("absent") == []


def test_a16_gathered_lists_are_copies() -> None:
    first = [1]
    assert merge_repeated([("a", first), ("a", 2)]) == {"a": [1, 2]}
    assert first == [1]
    event = Event("s", {"a": first})
    event.get_all("a").append(2)
    assert event["a"] == [1]


def test_in_and_iteration_are_about_the_names_of_the_attributes() -> None:
    event = Event("Trade", {"T": 1, "N": 2})
    assert "T" in event
    assert "X" not in event
    assert 0 not in event
    assert list(event) == ["T", "N"]


@pytest.mark.parametrize("value", [b"\x00", bytearray(b"x"), [b"x"]])
def test_a13_bytes_are_refused_with_the_text_to_use(value: object) -> None:
    with pytest.raises(EventError, match="base64"):
        check_event(Event("s", {"A": value}))
