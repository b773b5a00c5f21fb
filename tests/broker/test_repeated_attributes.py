"""Attributes of several values, from the publisher to the subscriber (SPEC A-16, X4)."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tests.broker.desk import BOB, SUBJECT, Desk
from wanderbus import matching, protocol, records
from wanderbus.broker.messages import KernelLoaded
from wanderbus.event import Event, EventId, Notification, Position, merge_repeated
from wanderbus.filters import parse, xml
from wanderbus.protocol import Notify, Publish

EVENTS: dict[str, list[tuple[str, Any]]] = {
    "none": [],
    "one": [("Score", 4)],
    "low": [("Score", 1), ("Score", 2.5)],
    "mixed": [("Score", 1), ("Tag", "x"), ("Score", 9)],
    "high": [("Score", 6), ("Score", 7), ("Score", 8.5)],
    "text": [("Score", "9"), ("Score", 2)],
    "empty": [("Score", [])],
    "appended": [("Score", [1, 2]), ("Score", 9)],
}
MATCHING = {
    "Score > 5": {"mixed", "high", "appended"},
    "any Score > 5": {"mixed", "high", "appended"},
    "all Score > 5": {"high", "empty"},
    "not any Score > 5": {"one", "low", "empty"},
    "not all Score > 5": {"one", "low", "mixed", "text", "appended"},
    "all Score <= 4": {"one", "low", "empty"},
    "Score == 1 and Score == 9": set(),
    "any Score == 1 and any Score == 9": {"mixed", "appended"},
    "(any Score == 1) and not (all Score < 5)": {"mixed", "appended"},
    "exists Score": set(EVENTS) - {"none"},
}
"""Events that each expression matches; bare comparisons of one name in one `and` apply to one item."""


@pytest.fixture(params=get_args(matching.Kernel))
def desk(request: pytest.FixtureRequest) -> Desk:
    """A broker that matches by each kernel that is installed."""
    if request.param != "scan":
        pytest.importorskip(request.param)
    desk = Desk()
    desk.give(KernelLoaded(request.param))
    return desk


def published(desk: Desk) -> dict[int, str]:
    """Publish every event; return their names by their numbers."""
    bob = desk.attach(BOB)
    messages = [Publish(n, Event(SUBJECT, merge_repeated(pairs))) for n, pairs in enumerate(EVENTS.values(), 1)]
    desk.send(bob, *messages)
    return dict(enumerate(EVENTS, 1))


def test_a16_x4_repeated_attributes_match_by_both_quantifiers(desk: Desk) -> None:
    link = desk.attach()
    subscribed = {desk.subscribed(link, text).id: text for text in MATCHING}
    subscribed |= {desk.subscribed(link, xml.write(parse(text).root), language="xml").id: text for text in MATCHING}
    names = published(desk)
    found: dict[str, list[str]] = {identity: [] for identity in subscribed}
    for record in desk.written(records.Published):
        for notified in record.delivery.notified:
            for identity in notified.subscriptions:
                found[identity].append(names[record.acceptance.number])
    assert {identity: set(matched) for identity, matched in found.items()} == {
        identity: MATCHING[text] for identity, text in subscribed.items()
    }


@pytest.mark.parametrize("restart", [False, True])
def test_a16_repeated_attributes_survive_the_log_the_wire_and_xml(desk: Desk, restart: bool) -> None:
    alice = desk.attach()
    desk.subscribed(alice)
    desk.close(alice)
    published(desk)
    if restart:
        desk.restart()
    back = desk.attach(epoch=2)
    received = [protocol.decode_event(bytes(notify.event)) for notify in desk.received(back, Notify)]
    assert [repr(event.attributes) for event in received] == [repr(merge_repeated(pairs)) for pairs in EVENTS.values()]
    for event, pairs in zip(received, EVENTS.values(), strict=True):
        values = [value for name, value in pairs if name == "Score"]
        assert event.get_all("Score") == [item for v in values for item in (v if isinstance(v, list) else [v])]
        notification = Notification(event, ("s",), Position(1, 1), EventId("wb", 1, 1))
        assert repr(xml.read_notification(xml.write_notification(notification)).event) == repr(event)
