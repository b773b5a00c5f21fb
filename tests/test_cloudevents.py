"""Events from and to CloudEvents 1.0, exactly where both can hold it (SPEC U-04)."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.filters import trees
from wanderbus import cloudevents, limits
from wanderbus.errors import EventError
from wanderbus.event import Event, check_event

MINIMAL: dict[str, Any] = {"specversion": "1.0", "id": "A1", "source": "/me", "type": "com.example.sold"}
EXAMPLE: dict[str, Any] = {
    "specversion": "1.0",
    "type": "com.example.someevent",
    "source": "/mycontext",
    "subject": "larger-context",
    "id": "C234-1234-1234",
    "time": "2018-04-05T15:31:00Z",
    "comexampleextension1": "value",
    "comexampleothervalue": 5,
    "comexampleflag": True,
    "datacontenttype": "application/json",
    "data": {"appinfoA": "abc", "appinfoB": 123, "appinfoC": True, "more": {"price": 24.5, "scores": [1, 2.0]}},
}


def read(**members: Any) -> Event:
    return cloudevents.read(json.dumps(MINIMAL | members))


def write(event: Event) -> dict[str, Any]:
    text = cloudevents.write(event, id="wb1-17", source="wanderbus:wb1")
    written: dict[str, Any] = json.loads(text)
    return written


def test_a_cloudevent_of_others_is_read_by_the_table() -> None:
    event = cloudevents.read(json.dumps(EXAMPLE).encode())
    assert event.subject == "com.example.someevent"
    assert event.published_us == 1_522_942_260_000_000
    assert event.attributes == {
        "specversion": "1.0",
        "type": "com.example.someevent",
        "source": "/mycontext",
        "subject": "larger-context",
        "id": "C234-1234-1234",
        "time": datetime(2018, 4, 5, 17, 31, tzinfo=timezone(timedelta(hours=2))),
        "comexampleextension1": "value",
        "comexampleothervalue": 5,
        "comexampleflag": True,
        "datacontenttype": "application/json",
        "data.appinfoA": "abc",
        "data.appinfoB": 123,
        "data.appinfoC": True,
        "data.more.price": 24.5,
        "data.more.scores": [1, 2.0],
    }


@pytest.mark.parametrize(
    "members",
    [
        {},
        EXAMPLE,
        {"data": "text"},
        {"data": 5},
        {"data": [1, "a", 2.5, False]},
        {"data": []},
        {"data": {"": 1, "a": {"": {"b": ""}}}},
        {"data": {"id": 1, "type": "x", "data": {"data": 1}}},
        {"data_base64": "AAEC", "datacontenttype": "application/octet-stream"},
        {"data": '<much wow="xml"/>', "datacontenttype": "application/xml"},
        {"data": {"big": 2**63 - 1, "double": 1e300, "whole": 5.0}},
        {"extension": -(2**31), "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        {"time": "2026-11-21T10:00:00.000001Z"},
    ],
)
def test_foreign_cloudevents_survive_a_round_trip(members: dict[str, Any]) -> None:
    given_members = MINIMAL | members
    written = write(cloudevents.read(json.dumps(given_members)))
    assert json.dumps(written, sort_keys=True) == json.dumps(given_members, sort_keys=True)


JSON_SCALARS = (
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
DATA = st.recursive(
    JSON_SCALARS | st.lists(JSON_SCALARS, max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=3).filter(lambda name: "." not in name), inner, min_size=1),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(DATA)
def test_any_data_comes_back(data: Any) -> None:
    written = write(read(data=data))["data"]
    assert json.dumps(written, sort_keys=True) == json.dumps(data, sort_keys=True)


@settings(max_examples=200, deadline=None)
@given(trees.events(), st.none() | st.integers(-(2**55), 2**56))
def test_an_event_of_our_own_comes_back(event: Event, published_us: int | None) -> None:
    event = Event(event.subject, event.attributes, published_us)
    try:
        check_event(event)
    except EventError:
        assume(False)
    back = cloudevents.read(cloudevents.write(event, id="1", source="/s"))
    assert back == event
    for name, value in event.attributes.items():
        assert type(back[name]) is type(value)


def test_an_event_of_our_own() -> None:
    event = Event(
        "StockExchange",
        {
            "Stock": "PETR4",
            "Price": 25.0,
            "id": 17,
            "data.x": math.inf,
            "At": [datetime(2026, 11, 21, 10, 0, 0, 5, timezone(-timedelta(hours=3)))],
        },
        published_us=1_795_255_200_000_001,
        arrived_us=1,
    )
    assert write(event) == {
        "specversion": "1.0",
        "id": "wb1-17",
        "source": "wanderbus:wb1",
        "type": "StockExchange",
        "time": "2026-11-21T10:00:00.000001Z",
        "datacontenttype": cloudevents.CONTENT_TYPE,
        "data": {
            "Stock": "PETR4",
            "Price": 25.0,
            "id": 17,
            "data.x": {"Double": "INF"},
            "At": [{"Date": "2026-11-21T13:00:00.000005Z"}],
        },
    }


def test_the_time_is_cut_to_microseconds_and_null_is_absent() -> None:
    event = read(time="2026-11-21t10:00:00.123456789z", subject=None, extension=None)
    assert event["time"] == datetime(2026, 11, 21, 10, 0, 0, 123_456, UTC)
    assert not {"subject", "extension"} & event.attributes.keys()


FAULTS = [
    ("", "not valid JSON"),
    ("[]", "not valid JSON"),
    ('{"a":' * 40_000, "not valid JSON"),
    (b"\xff", "not valid JSON"),
    ('{"specversion": "1.0", "id": "\\ud800"', "not valid JSON"),
    (" " * (limits.CLOUDEVENT_BYTES_MAX + 1), "the limit is"),
    *((json.dumps({**MINIMAL, name: None}), f"needs '{name}'") for name in MINIMAL),
    *((json.dumps({**MINIMAL, name: ""}), "") for name in MINIMAL),
    (json.dumps({**MINIMAL, "specversion": "0.3"}), "specversion '0.3'"),
    (json.dumps({**MINIMAL, "id": 5}), "id must be a non-empty string"),
    (json.dumps({**MINIMAL, "subject": ""}), "subject must be a non-empty string"),
    (json.dumps({**MINIMAL, "source": "a\nb"}), "source has a character"),
    (json.dumps({**MINIMAL, "time": "yesterday"}), "time: a Date"),
    (json.dumps({**MINIMAL, "time": "2026-11-21T10:00:60Z"}), "time: no such date"),
    (json.dumps({**MINIMAL, "Price": 5}), "'Price' is not a CloudEvents name"),
    (json.dumps({**MINIMAL, "my_extension": 5}), "'my_extension' is not a CloudEvents name"),
    (json.dumps({**MINIMAL, "price": 5.5}), "price must be a String"),
    (json.dumps({**MINIMAL, "price": 2**31}), "price must be a String"),
    (json.dumps({**MINIMAL, "price": [5]}), "price must be a String"),
    (json.dumps({**MINIMAL, "data": None}), "data is null"),
    (json.dumps({**MINIMAL, "data": 1, "data_base64": "AA=="}), "not both"),
    (json.dumps({**MINIMAL, "data_base64": 1}), "data_base64 must be a non-empty string"),
    (json.dumps({**MINIMAL, "data": {"a": None}}), "'data.a' has the type NoneType"),
    (json.dumps({**MINIMAL, "data": {"a": {}}}), "'data.a' is an empty object"),
    (json.dumps({**MINIMAL, "data": {"a.b": 1}}), "'data.a.b': the name of a member must not contain a dot"),
    (
        json.dumps({**MINIMAL, "data": "NESTED"}).replace('"NESTED"', '{"":' * 700 + "1" + "}" * 700),
        "has a path of over",
    ),
    (json.dumps({**MINIMAL, "data": {"a": [{}]}}), "'data.a' has the type dict"),
    (json.dumps({**MINIMAL, "data": {"a": 2**63}}), "'data.a' is an integer beyond 64 bits"),
    (json.dumps({**MINIMAL, "data": {"a": 10**30}}), "'data.a'"),
    (json.dumps({**MINIMAL, "datacontenttype": cloudevents.CONTENT_TYPE}), "attributes must be a JSON object"),
    (
        json.dumps({**MINIMAL, "datacontenttype": cloudevents.CONTENT_TYPE, "data": {"a": {"Date": "now"}}}),
        "attribute 'a': a Date",
    ),
    (
        json.dumps({**MINIMAL, "datacontenttype": cloudevents.CONTENT_TYPE, "data": {"a": {"Text": "b"}}}),
        "'a' has the type dict",
    ),
]


@pytest.mark.parametrize(("text", "reason"), FAULTS)
def test_faults_of_reading(text: str | bytes, reason: str) -> None:
    with pytest.raises(EventError) as caught:
        cloudevents.read(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"id": None}, "'id' has the type NoneType"),
        ({"type": "other"}, "the attribute 'type' must be the subject"),
        ({"Price": 5}, "'Price' is not a CloudEvents name"),
        ({"price": 5.5}, "price must be a String"),
        ({"price": 2**31}, "price must be a String"),
        ({"data.price": -math.inf}, "'data.price' is infinite"),
        ({"data": 1, "data.a": 2}, "conflicts with"),
        ({"data.a": 2, "data": 1}, "both"),
        ({"data.a": 2, "data.a.b": 1}, "conflicts with"),
        ({"data.a.b": 2, "data.a": 1}, "conflicts with"),
        ({"data.a": 2, "data_base64": "AA=="}, "both"),
        ({"extension": "\x00"}, "extension has a character"),
        ({"time": "at noon"}, "time: a Date must be written as"),
        ({"time": 5}, "time must be a non-empty string"),
        ({"datacontenttype": cloudevents.CONTENT_TYPE, "data.a": 2}, "reserved for events without specversion"),
        ({"data.a": "\ud800"}, "half a character"),
    ],
)
def test_faults_of_writing(attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(EventError, match=reason):
        write(Event(MINIMAL["type"], MINIMAL | attributes))


def test_a_cloudevent_without_its_parts_is_not_written() -> None:
    with pytest.raises(EventError, match="needs the attribute 'source'"):
        write(Event("t", {"specversion": "1.0", "id": "1", "type": "t"}))
    with pytest.raises(EventError, match="id must be a non-empty string"):
        cloudevents.write(Event("t", {}), id="", source="/s")
    with pytest.raises(EventError, match="published_us"):
        write(Event("t", {}, published_us=2**62))


def test_dates_beside_the_time_become_text() -> None:
    event = Event(MINIMAL["type"], MINIMAL | {"data.at": datetime(2026, 11, 21, tzinfo=UTC)})
    assert write(event)["data"] == {"at": "2026-11-21T00:00:00Z"}
