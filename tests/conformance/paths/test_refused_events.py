"""Faulty events are refused with one line on every path on which an event can be given (SPEC A-13, U-19)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.paths.running import command
from wanderbus import cloudevents
from wanderbus.client.publishes import encoded
from wanderbus.errors import EventError
from wanderbus.event import Event

FAULTY = {
    "NaN": '{"Double": "NaN"}',
    "a literal NaN": "NaN",
    "half a character": '"\\ud800"',
    "an integer beyond 64 bits": "9223372036854775808",
    "a date of the year 0": '{"Date": "0000-01-01T00:00:00Z"}',
    "a date of the year 10000": '{"Date": "10000-01-01T00:00:00Z"}',
    "a date without a time zone": '{"Date": "2026-11-21T10:00:00"}',
    "null": "null",
    "a list in a list": "[[1]]",
}
"""Values in JSON."""

CONTEXT = (
    f'"specversion": "1.0", "id": "1", "source": "/s", "type": "S", "datacontenttype": "{cloudevents.CONTENT_TYPE}"'
)


@pytest.mark.parametrize("value", FAULTY.values(), ids=FAULTY)
@pytest.mark.parametrize("form", ["attributes", "event", "CloudEvent", "file"])
def test_a13_u19_a_faulty_event_is_one_line(tmp_path: Path, form: str, value: str) -> None:
    attributes = f'{{"a": {value}}}'
    event = f'{{"subject": "S", "attributes": {attributes}, "at_us": 1}}'
    texts = {"attributes": attributes, "event": event, "CloudEvent": f'{{{CONTEXT}, "data": {attributes}}}'}
    if form == "file":
        (tmp_path / "events").write_text(event + "\n")
        words = ["pattern", "run", "match A: S then B: S within 1 hour", "--events", str(tmp_path / "events")]
    else:
        words = ["filter", "match", "exists a", texts[form]]
    status, lines, complaint = command(*words, "--json")
    assert (status, lines) == (2, []), complaint
    said = json.loads(complaint)["error"]["message"]
    assert "\n" not in said
    assert "attribute 'a'" in said or "JSON" in said, said


@pytest.mark.parametrize("value", [float("nan"), "\ud800", 2**63, None, [[1]]])
def test_a13_u19_an_agent_refuses_it_too(value: object) -> None:
    with pytest.raises(EventError, match="attribute 'a'"):
        encoded(Event("S", {"a": value}))
