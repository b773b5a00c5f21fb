"""A Date is an instant in UTC on every way that an event can take (SPEC A-13; decision 0133)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB, Desk
from tests.conformance.conditions import Conditions
from tests.conformance.test_delivery import conditions
from tests.log_files import write_records
from wanderbus import cloudevents, event_text, filters, protocol
from wanderbus.broker.explanation import Explanation
from wanderbus.cli.application import run as run_command
from wanderbus.cli.event_output import Format, print_notification
from wanderbus.event import Event, EventId, Notification, Position
from wanderbus.filters import xml
from wanderbus.filters.explaining import deciding
from wanderbus.literals import from_text
from wanderbus.patterns import NEVER_US, compile_pattern
from wanderbus.patterns.occurrence import AcceptedEvent
from wanderbus.pipeline.source.variant_values import attributes_of
from wanderbus.pipeline.source.variants import variant_of
from wanderbus.protocol import PublishAccepted
from wanderbus.records import Acceptance, Delivery, Published, decode_record
from wanderbus.runtime.log.log_reader import read_log
from wanderbus.runtime.segment_files import end_of_log

__all__ = ["conditions"]

SUBJECT = "Departure"
GIVEN = "2026-11-21T12:00:00+02:00"
SHOWN = "2026-11-21T10:00:00Z"
DATE = datetime.fromisoformat(GIVEN)
FILTER = f"at = '{SHOWN}'"
"""In CESQL, which compares the text; it can see an offset."""

ZONES = [
    UTC,
    timezone(timedelta(hours=2)),
    timezone(-timedelta(hours=3, minutes=30)),
    timezone(timedelta(seconds=3_601)),
]


def event(at: datetime = DATE) -> Event:
    return Event(SUBJECT, {"at": at})


def over_the_wire(given: Event) -> Event:
    return protocol.decode_event(protocol.encode_event(given))


def through_the_log(given: Event, directory: Path) -> Event:
    acceptance = Acceptance(EventId("wb", 1, 0), msgspec.Raw(protocol.encode_event(given)), ALICE, "phone", 1, 1)
    write_records(directory, [Published(at_us=1, acceptance=acceptance, delivery=Delivery((), ()))])
    (frame,) = read_log(directory, 0, end_of_log(directory))
    record = decode_record(frame.payload)
    assert isinstance(record, Published)
    return record.event


def through_the_lake(given: Event) -> Event:
    return Event(given.subject, attributes_of(*variant_of(given.attributes)))


def through_xml(given: Event) -> Event:
    text = xml.write_notification(Notification(given, ("wb-1-1",), Position(1, 1), EventId("wb", 1, 1)))
    assert f">{SHOWN}<" in text
    return xml.read_notification(text).event


def through_a_cloudevent(given: Event) -> Event:
    text = cloudevents.write(given, id="1", source="/s")
    assert json.loads(text)["data"] == {"at": {"Date": SHOWN}}
    return cloudevents.read(text)


def through_a_foreign_cloudevent(given: Event) -> Event:
    context = {"specversion": "1.0", "id": "1", "source": "/s", "type": SUBJECT}
    read = cloudevents.read(json.dumps({**context, "time": GIVEN}))
    assert json.loads(cloudevents.write(read, id="1", source="/s"))["time"] == SHOWN
    return Event(SUBJECT, {"at": read["time"]})


def through_text(given: Event) -> Event:
    text = event_text.write(given)
    assert text == f"{SUBJECT} at={SHOWN}"
    return event_text.read(text)


def through_a_pattern(given: Event) -> Event:
    pattern = compile_pattern(f"pattern p match A: {SUBJECT} then B: b within 1 hour emit p with at = A.at")
    rows = [AcceptedEvent(given, 0, 0), AcceptedEvent(Event("b", {}), 1, 1)]
    _, (found,) = pattern.advance(pattern.start(), pattern.classify(rows), NEVER_US)
    return Event(SUBJECT, {"at": found.attributes["at"]})


WAYS: list[Callable[[Event], Event]] = [
    lambda given: given,
    over_the_wire,
    through_the_lake,
    through_xml,
    through_a_cloudevent,
    through_a_foreign_cloudevent,
    through_text,
    through_a_pattern,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a13_every_way_gives_the_instant_in_utc(way: Callable[[Event], Event]) -> None:
    for zone in ZONES:
        check(way(event(DATE.astimezone(zone))))


def test_a13_the_log_gives_the_instant_in_utc(tmp_path: Path) -> None:
    check(through_the_log(event(), tmp_path))


def check(found: Event) -> None:
    """Check that the event matches and is shown in UTC."""
    assert filters.parse(FILTER, "cesql").matches(found)
    assert not filters.parse(f"at = '{GIVEN}'", "cesql").matches(found)
    assert filters.parse(f"at == {GIVEN}").matches(found)
    (why,) = deciding(filters.parse("at > 2030-01-01").root, found)
    assert why.why == f"at is {SHOWN}"
    assert cloudevents.to_json(found.attributes) == {"at": {"Date": SHOWN}}


def test_a13_a_date_that_is_read_is_in_utc_except_at_the_ends_of_the_calendar() -> None:
    read = from_text("Date", GIVEN)
    assert isinstance(read, datetime)
    assert (read, read.tzinfo) == (DATE, UTC)
    first = from_text("Date", "0001-01-01T00:00:00+14:00")
    assert isinstance(first, datetime)
    assert first.utcoffset() == timedelta(hours=14)


@pytest.mark.parametrize("language", ["cesql", "eci"])
def test_a13_filter_match_and_explain_on_the_command_line_agree(
    language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = json.dumps({"at": {"Date": GIVEN}})
    words = {"cesql": FILTER, "eci": f"at == {SHOWN}"}
    assert run_command(["filter", "match", words[language], given, "--language", language]) == 0
    assert run_command(["filter", "match", "at > 2030-01-01", given, "--explain"]) in (0, 1, 2)
    assert GIVEN not in capsys.readouterr().out


def test_a13_explain_reads_the_instant_in_utc_from_the_log() -> None:
    desk = Desk()
    subscription = desk.subscribed(desk.attach(), f"at <> '{SHOWN}'", subject=SUBJECT, language="cesql")
    bob = desk.attach(BOB)
    desk.publish(bob, 1, subject=SUBJECT, at=DATE)
    identity = desk.received(bob, PublishAccepted)[-1].id
    explanation = Explanation(identity, subscription)
    for payload in desk.log:
        explanation.apply(decode_record(payload))
    assert explanation.explained().outcome == "filtered"
    assert SHOWN in explanation.explained().reason


def test_a13_live_delivery_and_history_give_the_instant_in_utc(
    conditions: Conditions, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.api.world import run

    async def story() -> None:
        conditions.start_engine()
        async with (
            conditions.server(),
            conditions.world.agent("bob") as bob,
            conditions.world.agent() as alice,
            alice.subscribe(SUBJECT, FILTER, language="cesql", format="xml") as live,
        ):
            await bob.publish(SUBJECT, {"at": DATE, "n": 1})
            notification = await anext(live)
            assert str(notification.event["at"]) == "2026-11-21 10:00:00+00:00"
            assert notification.xml is not None
            assert f">{SHOWN}<" in notification.xml
            monkeypatch.setattr(sys, "stdout", out := StringIO())
            print_notification(notification, Format.json)
            monkeypatch.undo()
            assert json.loads(out.getvalue())["attributes"]["at"] == {"Date": SHOWN}
            async with alice.subscribe(SUBJECT, FILTER, language="cesql", since="earliest") as past:
                assert (await anext(past)).event == notification.event

    run(story())
