"""Notifications in XML: exact in both directions, and as the schema defines (SPEC A-13, O-01)."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.filters import trees
from tests.filters.xml_schema import is_valid
from wanderbus import limits
from wanderbus.errors import EventError
from wanderbus.event import Event, EventId, Notification, Position, check_event
from wanderbus.filters import xml

HEAD = '<notification xmlns="urn:wanderbus:1" id="o-1-1" epoch="1" number="1">'
EVENT = '<event subject="S"/>'
TAIL = "</notification>"

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
COUNTS = st.integers(0, 2**63 - 1)
IDS = st.builds(EventId, TEXTS.filter(bool), COUNTS, COUNTS)
NOTIFICATIONS = st.builds(
    Notification,
    st.builds(
        lambda event, *about: Event(event.subject, event.attributes, *about),
        trees.events(),
        st.none() | COUNTS,
        st.none() | COUNTS,
        st.just(msgspec.UNSET) | IDS,
    ),
    st.lists(TEXTS, max_size=3).map(tuple),
    st.builds(Position, COUNTS, COUNTS),
    IDS,
    st.booleans(),
)


def publishable(event: Event) -> bool:
    try:
        check_event(event)
    except EventError:
        return False
    return True


def of_event(attributes: dict[str, Any]) -> Notification:
    return Notification(Event("S", attributes), ("s1",), Position(1, 2), EventId("o", 1, 3))


@settings(max_examples=200, deadline=None)
@given(NOTIFICATIONS)
def test_every_notification_comes_back(notification: Notification) -> None:
    assume(publishable(notification.event))
    text = xml.write_notification(notification)
    read = xml.read_notification(text)
    assert read == notification
    assert list(read.event.attributes) == list(notification.event.attributes)
    for name, value in notification.event.attributes.items():
        assert type(read.event[name]) is type(value)  # 1 equals 1.0 and True


@settings(max_examples=40, deadline=None)
@given(NOTIFICATIONS)
def test_the_schema_admits_what_is_written(notification: Notification) -> None:
    assume(publishable(notification.event))
    assert is_valid(xml.write_notification(notification))


def test_every_type() -> None:
    notification = of_event(
        {
            "Stock": "PETR4 <&>\x00",
            "Price": 24.5,
            "Volume": 2**63 - 1,
            "Halted": False,
            "At": datetime(2026, 11, 21, 12, tzinfo=UTC),
            "Scores": [1, 1.0, True, "x", datetime(2026, 1, 1, tzinfo=UTC), -math.inf],
            "None": [],
        }
    )
    text = xml.write_notification(notification)
    read = xml.read_notification(text)
    assert repr(read.event.attributes) == repr(notification.event.attributes)
    assert '<list name="Scores"><Integer>1</Integer><Double>1.0</Double><Boolean>true</Boolean>' in text
    assert is_valid(text)


def test_the_largest_events_fit() -> None:
    count = limits.EVENT_BYTES_MAX // limits.EVENT_LIST_ITEMS_MAX
    notification = of_event({f"a{n}": [False] * limits.EVENT_LIST_ITEMS_MAX for n in range(count)})
    assert xml.read_notification(xml.write_notification(notification)) == notification


@pytest.mark.parametrize("value", [math.nan, "\ud800", datetime(2026, 11, 21), 2**63, None, {"a": 1}, [[1]]])
def test_invalid_events_are_not_written(value: Any) -> None:
    with pytest.raises(EventError):
        xml.write_notification(of_event({"a": value}))


REPEATED = {
    '<Integer name="a">1</Integer><Integer name="a">2</Integer>': {"a": [1, 2]},
    '<Integer name="a">1</Integer><String name="b">x</String><Double name="a">1</Double>': {"a": [1, 1.0], "b": "x"},
    '<Integer name="a">1</Integer><list name="a"><Integer>2</Integer></list>': {"a": [1, 2]},
    '<list name="a"/><String name="a">x</String>': {"a": ["x"]},
    '<list name="a"/><list name="a"/>': {"a": []},
    '<list name="a"><Integer>1</Integer></list>': {"a": [1]},
    '<Integer name="a">1</Integer>': {"a": 1},
}


@pytest.mark.parametrize("attributes", REPEATED)
def test_a16_a_repeated_name_has_the_list_of_its_values(attributes: str) -> None:
    text = f'{HEAD}<event subject="S">{attributes}</event>{TAIL}'
    assert is_valid(text)
    read = xml.read_notification(text)
    assert repr(read.event.attributes) == repr(REPEATED[attributes])
    assert xml.read_notification(xml.write_notification(read)) == read


def test_a16_repeated_names_are_bounded_as_a_list_is() -> None:
    one = '<Integer name="a">1</Integer>'
    text = f'{HEAD}<event subject="S">{one * (limits.EVENT_LIST_ITEMS_MAX + 1)}</event>{TAIL}'
    with pytest.raises(EventError, match="'a' lists more than"):
        xml.read_notification(text)


FAULTS = {
    "": "no element",
    "<!DOCTYPE a>" + HEAD + EVENT + TAIL: "document type",
    '<event xmlns="urn:wanderbus:1" subject="S"/>': "expected <notification>",
    HEAD + TAIL: "must begin with <event>",
    HEAD + '<subscription id="a"/>' + TAIL: "expected <event>",
    HEAD + "<event/>" + TAIL: "needs the attribute 'subject'",
    HEAD + '<event subject="S" at="1"/>' + TAIL: "has no attribute 'at'",
    HEAD + '<event subject="S" published_us="now"/>' + TAIL: "published_us: an Integer",
    HEAD.replace('epoch="1"', 'epoch="-1"') + EVENT + TAIL: "epoch must not be negative",
    HEAD.replace('number="1"', "") + EVENT + TAIL: "needs the attribute 'number'",
    HEAD.replace(">", ' redelivered="yes">') + EVENT + TAIL: "'true' or 'false'",
    HEAD + '<event subject="S"><Integer>5</Integer></event>' + TAIL: "needs the attribute 'name'",
    HEAD + '<event subject="S"><Integer name="a">x</Integer></event>' + TAIL: "written in digits",
    HEAD + '<event subject="S"><Float name="a">5</Float></event>' + TAIL: "expected <list>",
    HEAD + '<event subject="S"><list name="a"><list/></list></event>' + TAIL: "must contain literals",
    HEAD + '<event subject="S"><list name="a"><String name="b"/></list></event>' + TAIL: "has no attribute 'name'",
    HEAD + EVENT + '<subscription id="a">b</subscription>' + TAIL: "must not contain text",
    HEAD + EVENT + '<subscription id="a"><lost/></subscription>' + TAIL: "must be empty",
    HEAD + EVENT + '<lost subscription="a"/>' + TAIL: "expected <subscription>",
    HEAD + EVENT + EVENT + TAIL: "expected <subscription>",
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults(text: str) -> None:
    with pytest.raises(EventError, match=FAULTS[text] + ".* at character"):
        xml.read_notification(text)


@pytest.mark.parametrize(
    "text", [text for text in FAULTS if text.startswith("<") and not text.startswith(("<!", "<e"))]
)
def test_the_schema_forbids_what_is_not_read(text: str) -> None:
    assert not is_valid(text)


def test_an_event_that_may_not_be_published_is_not_read() -> None:
    with pytest.raises(EventError, match="subject"):
        xml.read_notification(HEAD + '<event subject=""/>' + TAIL)
    with pytest.raises(EventError, match="half a character"):
        xml.read_notification("\ud800")
