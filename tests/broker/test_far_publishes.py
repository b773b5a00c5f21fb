"""Publishes of a session that moves to another domain are recognised there (SPEC L-01, X25; decision 0173)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.access_desk import OWN, AccessDesk
from tests.broker.desk import BOB
from tests.broker.test_forwarding import answers, event
from wanderbus.broker.sessions.handover_messages import (
    AwaitSession,
    FenceSession,
    Head,
    HeadFound,
    HeadWanted,
    ImportSession,
    ResumePublishes,
    SessionExported,
    SessionMoveEnded,
)
from wanderbus.broker.state.exported_session import decode_answers, encode_publishers
from wanderbus.broker.state.rows import GroupRow, PublisherRow, device_key, publisher_key
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import EventId
from wanderbus.peers.handover.far_export import far_export
from wanderbus.protocol import Publish, PublishAccepted
from wanderbus.records import Published

EPOCH = 4
TARGET = "beta/b1"


class Mover(AccessDesk):
    """A server that keeps the outputs about handovers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.heads: list[Head] = []
        self.export = b""
        super().__init__(*arguments, **options)

    def perform(self, outputs: Any) -> None:
        for each in outputs:
            if isinstance(each, HeadFound):
                self.heads.append(each.head)
            elif isinstance(each, SessionExported):
                self.export = each.export
        super().perform(outputs)


class Source(Mover):
    """A server in the domain alpha, which the session leaves."""

    def pause(self) -> None:
        self.give(HeadWanted(self.config.server, 1, "beta", user=BOB, pauses="default"))

    def leave(self, *others: bytes) -> bytes:
        """Fence the session for the target, with the answers of other servers; return its export."""
        heads = tuple([Head(EventId(f"o{number}", 1, 1), answers=each) for number, each in enumerate(others)])
        self.give(FenceSession(BOB, "default", 7, TARGET, heads=heads, far_heads=()))
        return far_export(self.export, "alpha", self.config.server, TARGET)


class Target(Mover):
    """A server in the domain beta, to which the session comes."""

    def import_session(self, export: bytes) -> int:
        """Import a session; return the link on which its device calls."""
        self.give(AwaitSession(BOB, "default", 7, "alpha/here", ()), ImportSession(export))
        return self.attach(BOB, epoch=EPOCH)


def numbers(desk: AccessDesk) -> list[object]:
    return [record.event["N"] for record in desk.written(Published)]


def accepted(number: int, outbox: int | None) -> bytes:
    """Answers of a leader to the device up to a number."""
    key = publisher_key(device_key(BOB, "phone"), outbox=outbox is not None)
    ids = {each: EventId("north", 3, 900 + each) for each in range(1, number + 1)}
    row = PublisherRow(EPOCH if outbox is None else outbox, elsewhere=ids)
    return encode_publishers({key: row})


@pytest.mark.parametrize("outbox", [None, 77])
def test_l01_an_event_that_was_accepted_here_gets_that_answer_in_the_next_domain(outbox: int | None) -> None:
    source, target = Source(), Target()
    bob = source.attach(BOB, epoch=EPOCH)
    source.send(bob, *(Publish(number, event(number, OWN), outbox=outbox) for number in (1, 2, 3)))
    ids = {each.number: each.id for each in source.received(bob, PublishAccepted)}
    link = target.import_session(source.leave())
    target.send(link, *(Publish(number, event(number, OWN), outbox=outbox) for number in (2, 3, 4)))
    *repeated, new = target.received(link, PublishAccepted)
    for each in repeated:
        assert each.id == EventId("alpha/south", ids[each.number].incarnation, ids[each.number].number)
    assert ([each.number for each in repeated], new.number, numbers(target)) == ([2, 3], 4, [4])


@pytest.mark.parametrize("outbox", [None, 77])
def test_l01_an_event_that_a_leader_here_has_accepted_gets_that_answer_in_the_next_domain(outbox: int | None) -> None:
    """Another server leads the channel in the next domain, too."""
    source, target = Source(), Target()
    source.attach(BOB, epoch=EPOCH)
    link = target.import_session(source.leave(accepted(3, outbox)))
    target.send(link, *(Publish(number, event(number), outbox=outbox) for number in (2, 3, 4)))
    assert [each.id for each in target.received(link, PublishAccepted)] == [
        EventId("alpha/north", 3, 902),
        EventId("alpha/north", 3, 903),
    ]
    assert [each.number for each in target.forwarded()] == [4]


def test_another_event_under_an_answered_number_is_refused() -> None:
    source, target = Source(), Target()
    bob = source.attach(BOB, epoch=EPOCH)
    source.send(bob, Publish(1, event(1, OWN), outbox=77))
    link = target.import_session(source.leave())
    target.send(link, Publish(1, event(10, OWN), outbox=77))
    assert answers(target, link) == [(1, False, "number_used", True)]


def test_numbers_that_leaders_there_have_not_seen_are_accepted() -> None:
    """The publisher has used a higher number at a leader of the former domain."""
    source, target = Source(), Target()
    bob = source.attach(BOB, epoch=EPOCH)
    source.send(bob, Publish(1, event(1)), Publish(2, event(2, OWN)))
    link = target.import_session(source.leave())
    target.send(link, Publish(1, event(1, OWN)))
    assert numbers(target) == [1]


def test_answers_come_along_to_a_third_server() -> None:
    """Within a domain, leaders know what they have accepted, and not what was accepted in another one."""
    source, target, third = Source(), Target(), Target()
    bob = source.attach(BOB, epoch=EPOCH)
    source.send(bob, Publish(1, event(1, OWN)))
    target.import_session(source.leave())
    target.give(FenceSession(BOB, "default", 9, "north", heads=(Head(EventId("north", 1, 1)),)))
    third.give(AwaitSession(BOB, "default", 9, "south", ()), ImportSession(target.export))
    link = third.attach(BOB, epoch=EPOCH)
    third.send(link, Publish(1, event(1, OWN)))
    assert [each.id.origin for each in third.received(link, PublishAccepted)] == ["alpha/south"]
    assert numbers(third) == []


def test_answers_come_along_to_a_leader_of_a_group_that_has_moved() -> None:
    source, target = Source(), Target()
    bob = source.attach(BOB, epoch=EPOCH)
    source.send(bob, Publish(1, event(1, OWN)))
    link = target.import_session(source.leave())
    target.broker.state.groups.rows.put("0", GroupRow("south", 2, "north"))
    target.send(link, Publish(1, event(1, OWN)))
    assert [each.id.origin for each in target.received(link, PublishAccepted)] == ["alpha/south"]


# Before the fence ----------------------------------------------------------------------------------------------------


def test_the_end_of_the_log_waits_until_the_leaders_have_answered() -> None:
    desk = Source()
    bob = desk.attach(BOB, epoch=EPOCH)
    desk.send(bob, Publish(1, event(1)))
    (forwarded,) = desk.forwarded()
    desk.pause()
    desk.send(bob, Publish(2, event(2)), Publish(3, event(3, OWN)))
    assert (desk.heads, desk.forwarded(), numbers(desk)) == ([], [], [])
    desk.answered(forwarded.request)
    assert len(desk.heads) == 1
    desk.send(bob, Publish(4, event(4)))
    assert desk.forwarded() == []


def test_events_that_have_waited_are_published_in_order_if_the_session_stays() -> None:
    desk = Source()
    bob = desk.attach(BOB, epoch=EPOCH)
    desk.pause()
    desk.send(bob, Publish(1, event(1, OWN)), Publish(2, event(2)), Publish(3, event(3, OWN)))
    desk.give(SessionMoveEnded(BOB, "default", "gamma", "it is on its way already"))
    assert numbers(desk) == []
    desk.give(ResumePublishes(BOB, "default"))
    assert (numbers(desk), [each.number for each in desk.forwarded()]) == ([1, 3], [2])
    desk.send(bob, Publish(4, event(4, OWN)))
    assert numbers(desk) == [1, 3, 4]


def test_others_publish_while_a_session_is_about_to_leave() -> None:
    desk = Source()
    desk.attach(BOB, epoch=EPOCH)
    alice = desk.attach()
    desk.pause()
    desk.send(alice, Publish(1, event(1, OWN)))
    assert numbers(desk) == [1]


def test_too_much_that_waits_is_refused_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanderbus.broker.publish.held_publishes.HELD_BYTES_MAX", 1_024)
    desk = Source()
    bob = desk.attach(BOB, epoch=EPOCH)
    desk.pause()
    desk.send(bob, *(Publish(number, event(number, OWN), outbox=77) for number in (1, 2, 3)))
    assert answers(desk, bob) == [(2, False, "routes_unknown", True), (3, False, "routes_unknown", True)]


@pytest.mark.parametrize(
    "row",
    [
        PublisherRow(4, number=7),
        PublisherRow(4, recent={1: 5}),
        PublisherRow(-4),
        PublisherRow(4, elsewhere={-1: EventId("north", 1, 1)}),
        PublisherRow(4, digests={1: 7}),
        PublisherRow(4, former=dict.fromkeys(range(9), 1)),
        PublisherRow(4, elsewhere=dict.fromkeys(range(5_000), EventId("north", 1, 1))),
    ],
)
def test_a_server_says_nothing_of_publishes_but_its_answers(row: PublisherRow) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_answers(encode_publishers({"a": row}))
