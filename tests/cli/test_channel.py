"""``wanderbus channel``: what it prints of a history, numbers that are gone, and what it refuses (SPEC K-03)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.cli.shell import one_line
from wanderbus.channel_events import ChannelEvent, NumbersGone, Place
from wanderbus.cli.application import run
from wanderbus.cli.connection_options import ConnectionOptions
from wanderbus.event import Event, EventId, Position

ALICE = ("--user", "sip:alice@localhost", "--password", "secret")
EVENT = ChannelEvent(
    42, 3, EventId("wb", 7, 42), "sip:bob@localhost", 0, Event("Trade", {"Price": 24.5, "Of\x1b": "A B"}), 88
)
Output = pytest.CaptureFixture[str]
Asked = list[dict[str, Place | str]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Requests of the command to an agent with one event, below which the numbers are gone."""
    found: Asked = []

    class Visitor:
        async def history(self, subject: str, **options: Place) -> AsyncIterator[ChannelEvent | NumbersGone]:
            found.append({"subject": subject, **options})
            yield NumbersGone(40)
            yield EVENT

    @asynccontextmanager
    async def visitor(self: ConnectionOptions) -> AsyncIterator[Visitor]:
        yield Visitor()

    monkeypatch.setattr(ConnectionOptions, "visitor", visitor)
    return found


def test_k03_a_listing_has_a_line_for_each_event_and_one_for_numbers_that_are_gone(
    asked: Asked, capsys: Output
) -> None:
    assert run(["channel", "history", "Trade", "--from", "2:3", "--to", "50", "--last", "9", *ALICE]) == 0
    assert asked == [{"subject": "Trade", "first": Position(2, 3), "last": 50, "newest": 9}]
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.splitlines() == [
        "numbers below 40 are no longer kept",
        '3:42 1970-01-01 00:00:00Z sip:bob@localhost 88 bytes: Trade Price=24.5 "Of\\u001b"="A B"',
    ]


def test_k03_a_listing_as_json_has_all_of_an_event(asked: Asked, capsys: Output) -> None:
    assert run(["channel", "history", "Trade", "--json", *ALICE]) == 0
    gone, event = map(json.loads, capsys.readouterr().out.splitlines())
    assert gone == {"kept_from": 40}
    assert event.pop("attributes") == {"Price": 24.5, "Of\x1b": "A B"}
    assert event == {
        "number": 42,
        "epoch": 3,
        "id": str(EVENT.id),
        "user": "sip:bob@localhost",
        "at_us": 0,
        "published_us": None,
        "size_bytes": 88,
        "subject": "Trade",
    }


def test_k03_a_replay_prints_events_as_sub_does_and_says_on_standard_error_what_is_gone(
    asked: Asked, capsys: Output
) -> None:
    assert run(["channel", "replay", "Trade", "--from", "3", *ALICE]) == 0
    captured = capsys.readouterr()
    assert captured.out == '42 Trade Price=24.5 "Of\\u001b"="A B"\n'
    assert one_line(captured.err) == "numbers below 40 are no longer kept"
    assert run(["channel", "replay", "Trade", "--format", "json", *ALICE]) == 0
    gone, event = map(json.loads, capsys.readouterr().out.splitlines())
    assert gone == {"kept_from": 40}
    assert (event["position"], event["history"]) == ({"epoch": 3, "number": 42}, True)
    assert run(["channel", "replay", "Trade", "--format", "cloudevents", *ALICE]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["id"] == str(EVENT.id)
    assert one_line(captured.err) == "numbers below 40 are no longer kept"


def test_a_replay_has_no_xml(asked: Asked, capsys: Output) -> None:
    assert run(["channel", "replay", "Trade", "--format", "xml", *ALICE]) == 2
    line = "--format: XML is a format of notifications; use text, json or cloudevents"
    assert (one_line(capsys.readouterr().err), asked) == (line, [])


def test_a_listing_is_not_for_the_original_eci(capsys: Output) -> None:
    assert run(["channel", "history", "Trade", "--user", "eci://127.0.0.1:1"]) == 2
    assert one_line(capsys.readouterr().err) == "the original ECI knows no history; give --user sip:NAME@DOMAIN"


def test_a_place_is_a_number_with_or_without_an_epoch(capsys: Output) -> None:
    assert run(["channel", "history", "Trade", "--from", "2:x", *ALICE]) == 2
    line = "--from: invalid place '2:x' (expected a number, or an epoch and a number as in 2:1042)"
    assert one_line(capsys.readouterr().err) == line
