"""Export of a session for another domain: what names of servers mean there (SPEC L-01)."""

from __future__ import annotations

import pytest

from wanderbus.broker.queues.stored_blocks import Block, QueuePiece, StoredEntry, StoredMatch
from wanderbus.broker.state.exported_session import ExportedSession, decode_export, encode_export
from wanderbus.broker.state.replays import is_read_elsewhere
from wanderbus.broker.state.rows import EventRow, SessionRow, SubscriptionRow
from wanderbus.event import Event, EventId
from wanderbus.peers.handover.far_export import comes_from, far_export
from wanderbus.protocol import decode_event, encode_event
from wanderbus.records import Cut
from wanderbus.subscription import Subscription

USER = "sip:u@alpha"


def cut(name: str, number: int, subject: str = "") -> Cut:
    end = EventId(name, 1, number)
    return Cut(end, end, subject)


def exported(*cuts: Cut, earlier: tuple[Cut, ...] = ()) -> ExportedSession:
    wanted = Subscription("a1-1-1", USER, "default", "T", "x > 1")
    events = [
        EventRow(EventId("a1", 1, 5), 1, encode_event(Event("T", {"x": 5}))),
        EventRow(EventId("a2", 1, 6), 1, encode_event(Event("T", {"x": 6}, origin=EventId("gamma/g1", 1, 3)))),
    ]
    block = Block(
        (("a1", 1), ("a2", 1)),
        (StoredMatch(("a1-1-1",), ()),),
        (StoredEntry(1, 0, 5, 0), StoredEntry(2, 1, 6, 0)),
    )
    return ExportedSession(
        session=SessionRow(USER, "default", 1, owner_epoch=2),
        subscriptions=(SubscriptionRow(wanted, 1, read_below=earlier),),
        ended=(),
        devices=(),
        publishers=(),
        events=tuple(events),
        blocks=((0, block),),
        source="a1",
        cuts=cuts,
    )


def moved(*cuts: Cut, earlier: tuple[Cut, ...] = ()) -> ExportedSession:
    data = encode_export(exported(*cuts, earlier=earlier))
    return decode_export(far_export(data, "alpha", "a1", "beta/b1"))


def test_events_that_wait_have_ids_of_the_domain_and_name_where_they_are_from() -> None:
    """A server there with the same name has other events."""
    found = moved(cut("a1", 9))
    assert [str(each.id) for each in found.events] == ["alpha/a1-1-5", "alpha/a2-1-6"]
    assert found.blocks[0][1].origins == (("alpha/a1", 1), ("alpha/a2", 1))
    assert [decode_event(each.data).origin for each in found.events] == [
        EventId("alpha/a1", 1, 5),
        EventId("gamma/g1", 1, 3),
    ]
    assert comes_from(found.events, "alpha")
    assert found.source == "alpha/a1"


@pytest.mark.parametrize("name", ["a1", "gamma/g1", "alpha/gamma/g1", "alphabet/a1"])
def test_an_id_that_is_not_of_the_domain(name: str) -> None:
    assert not comes_from([EventRow(EventId(name, 1, 5), 1, b"")], "alpha")


def test_cuts_are_those_of_the_domains_in_which_events_are_accepted() -> None:
    found = moved(cut("a1", 9), cut("a2", 7, "T"), cut("beta/b1", 4), cut("gamma/g1", 3))
    assert [(each.ordered.origin, each.subject) for each in found.cuts] == [
        ("alpha/a1", ""),
        ("alpha/a2", "T"),
        ("/b1", ""),
        ("gamma/g1", ""),
    ]


def test_earlier_cuts_of_this_domain_are_behind_the_present_ones_and_others_stay() -> None:
    (row,) = moved(
        cut("a1", 9), earlier=(cut("a3", 2), cut("gamma/g1", 2), cut("/a1", 4), cut("beta/b1", 6))
    ).subscriptions
    assert [each.ordered.origin for each in row.read_below] == ["gamma/g1", "alpha/a1", "/b1"]


@pytest.mark.parametrize(
    ("event", "origin", "is_read"),
    [
        (EventId("b1", 1, 3), None, True),
        (EventId("b1", 1, 4), None, False),
        (EventId("b1", 1, 3), EventId("alpha/a1", 1, 9), False),
        (EventId("b1", 1, 30), EventId("alpha/a1", 1, 8), True),
        (EventId("b1", 1, 30), EventId("alpha/a2", 1, 6), True),
        (EventId("b1", 1, 30), EventId("alpha/b1", 1, 3), False),
        (EventId("b2", 1, 3), None, False),
        (EventId("b3", 1, 3), EventId("alpha/a1", 1, 20), True),
    ],
)
def test_an_event_lies_before_a_cut_by_its_origin_and_by_its_server_here(
    event: EventId, origin: EventId | None, *, is_read: bool
) -> None:
    cuts = (*moved(cut("a1", 9), cut("a2", 7, "T"), cut("beta/b1", 4)).cuts, cut("b3", 5))
    content = Event("T", {}) if origin is None else Event("T", {}, origin=origin)
    assert is_read_elsewhere(event, content, cuts, decentralised=False) is is_read


def test_a_cut_of_a_subject_is_none_of_others() -> None:
    cuts = moved(cut("a2", 7, "T")).cuts
    for subject, is_read in (("T", True), ("U", False)):
        content = Event(subject, {}, origin=EventId("alpha/a2", 1, 6))
        assert is_read_elsewhere(EventId("b1", 1, 1), content, cuts, decentralised=False) is is_read


def test_the_first_pieces_are_those_of_any_export() -> None:
    assert moved(cut("a1", 9)).session == exported().session
    assert QueuePiece(blocks=moved().blocks, events=moved().events).events
