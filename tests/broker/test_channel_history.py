"""Histories of channels by number: rights, turns, answers, and requests to leaders (SPEC K-03)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.broker.access_desk import NORTHERN, OWN, AccessDesk
from tests.broker.desk import ALICE, BOB, SUBJECT, Desk
from wanderbus.broker.history.channel_history import NEWEST_MAX
from wanderbus.broker.messages import AskLeader, EventsRead, EventsWanted, LeaderAnswered, LinkOpened, PastEvent
from wanderbus.broker.servers.server_users import server_user
from wanderbus.event import Event, EventId
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attach, ListEvents, Listing, RequestRefused, encode_event
from wanderbus.subscription import Since


class HistoryDesk(AccessDesk):
    """A desk that collects what is read and what leaders are asked."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.wanted: list[EventsWanted] = []
        self.asked: list[ListEvents] = []
        super().__init__(config)

    def perform(self, outputs: Sequence[Output]) -> None:
        """Collect these outputs, and execute the others."""
        self.wanted += [each for each in outputs if isinstance(each, EventsWanted)]
        requests = [each.request for each in outputs if isinstance(each, AskLeader)]
        self.asked += [each for each in requests if isinstance(each, ListEvents)]
        super().perform(outputs)

    def answer_of(self, link: int) -> Any:
        """Return the last message on a link, and remove it."""
        return self.out[link].pop()


@pytest.fixture
def desk() -> HistoryDesk:
    return HistoryDesk()


def past(number: int) -> PastEvent:
    """An event of Bob at a number."""
    event = encode_event(Event(OWN, {"N": number}))
    return PastEvent(number, EventId("south", 1, number), number * 10, number * 10, event, user=BOB)


def read(reading: int, end: int, *numbers: int, **more: Any) -> EventsRead:
    """The answer with the events at these numbers."""
    return EventsRead(reading, end, events=tuple(map(past, numbers)), **more)


def test_a_request_reads_what_is_durable_of_the_subject_and_those_below_it(desk: HistoryDesk) -> None:
    bob, alice = desk.attach(BOB), desk.attach()
    for n in range(3):
        desk.publish(bob, n, OWN)
    end = len(desk.log)
    desk.held = True
    desk.publish(bob, 3, OWN)
    desk.send(alice, ListEvents(5, OWN, 2, None, None, 30), ListEvents(6, OWN, None, 3, 4))
    (wanted,) = desk.wanted
    piece = wanted.piece
    assert (piece.subjects, piece.first, piece.end, wanted.newest, piece.events_max) == ((OWN,), 2, end, None, 30)
    assert (piece.server, piece.incarnation) == ("south", desk.broker.state.incarnation)
    desk.give(read(piece.piece, end))
    wanted, piece = desk.wanted[1], desk.wanted[1].piece
    assert (piece.first, piece.end, wanted.newest, piece.events_max) == (0, 4, 4, 250)
    desk.send(bob, ListEvents(1, "Up"))
    assert desk.asked[-1].subject == "Up"


def test_the_answer_has_a_row_for_each_event_and_the_next_number(desk: HistoryDesk) -> None:
    bob, alice = desk.attach(BOB), desk.attach()
    for n in range(9):
        desk.publish(bob, n, OWN)
    desk.send(alice, ListEvents(5, OWN))
    desk.give(read(1, 4, 2, 3, kept_from=2))
    answer = desk.answer_of(alice)
    assert (answer.request, answer.more, answer.next) == (5, False, "4")
    gone, first, second = answer.rows
    assert gone == {"kept_from": 2}
    assert [first[name] for name in ("number", "epoch", "user", "at_us")] == [2, 1, BOB, 20]
    assert (second["number"], msgspec.convert(second["event"], Event)["N"]) == (3, 3)
    desk.send(alice, ListEvents(6, OWN, 4))
    desk.give(read(2, desk.wanted[1].piece.end))
    assert desk.answer_of(alice) == Listing(6, (), next=None)


def test_an_answer_of_large_events_has_several_messages(desk: HistoryDesk) -> None:
    alice = desk.attach()
    desk.send(alice, ListEvents(5, OWN))
    large = encode_event(Event(OWN, {"Text": "x" * 20_000}))
    events = tuple(msgspec.structs.replace(past(number), event=large) for number in range(3))
    desk.give(EventsRead(1, 1_000, events=events))
    parts = [each for each in desk.out[alice] if isinstance(each, Listing)]
    assert [(len(each.rows), each.more) for each in parts] == [(1, True), (1, True), (1, False)]


def test_an_answer_that_cannot_be_read_is_refused_with_the_reason(desk: HistoryDesk) -> None:
    alice = desk.attach()
    desk.send(alice, ListEvents(5, OWN))
    desk.give(EventsRead(7, 0, failed="of another request"))
    assert desk.broker._channel_history._asked is not None
    desk.give(EventsRead(1, 0, failed="the lake is away"))
    assert desk.answer_of(alice) == RequestRefused(5, "the lake is away")


def test_users_take_turns(desk: HistoryDesk) -> None:
    alice, bob = desk.attach(), desk.attach(BOB)
    desk.send(alice, *(ListEvents(request, OWN) for request in (1, 2, 3)))
    desk.send(bob, ListEvents(9, OWN))
    for _ in range(4):
        desk.give(read(desk.wanted[-1].piece.piece, 1_000))
    assert [each.piece.piece for each in desk.wanted] == [1, 2, 4, 3]


def test_a_closed_link_is_not_read_for_and_not_answered(desk: HistoryDesk) -> None:
    alice, bob = desk.attach(), desk.attach(BOB)
    desk.send(alice, ListEvents(1, OWN), ListEvents(2, OWN), ListEvents(3, NORTHERN))
    desk.send(bob, ListEvents(9, OWN))
    desk.close(alice)
    sent = len(desk.out[alice])
    desk.give(read(1, 1_000), LeaderAnswered(Listing(1, ())))
    assert [each.piece.piece for each in desk.wanted] == [1, 4]
    assert len(desk.out[alice]) == sent
    desk.give(read(4, 1_000))
    history = desk.broker._channel_history
    assert (history._waiting, dict(history._counts)) == ({}, {})


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ListEvents(1, "*"), "'*' is every subject"),
        (ListEvents(1, ""), "subject"),
        (ListEvents(1, OWN, limit=0), "at least 1"),
        (ListEvents(1, OWN, newest=0), "at least 1"),
        (ListEvents(1, OWN, newest=NEWEST_MAX + 1), "at most"),
        (ListEvents(1, "Secret"), "may not subscribe to 'Secret'"),
    ],
)
def test_a_request_that_is_not_valid_or_not_permitted_is_refused(request_: ListEvents, reason: str) -> None:
    config = BrokerConfig(server="south", domain="example.org", may_subscribe={"*": (OWN, NORTHERN)})
    desk = HistoryDesk(config)
    alice = desk.attach()
    desk.send(alice, request_)
    refused = desk.answer_of(alice)
    assert isinstance(refused, RequestRefused)
    assert reason in refused.reason
    assert (desk.wanted, desk.asked) == ([], [])


def test_the_requests_of_a_user_that_wait_are_bounded() -> None:
    desk = HistoryDesk(BrokerConfig(server="south", domain="example.org", user_subscriptions_max=2))
    alice, bob = desk.attach(), desk.attach(BOB)
    desk.send(alice, ListEvents(1, OWN), ListEvents(2, NORTHERN), ListEvents(3, OWN))
    refused = desk.answer_of(alice)
    assert (refused.request, refused.limit) == (3, "user_subscriptions_max")
    desk.send(bob, ListEvents(1, OWN))
    desk.give(read(1, 1_000))
    desk.send(alice, ListEvents(4, OWN))
    assert desk.answer_of(alice).request == 1


def test_a_request_about_another_channel_is_passed_to_its_leader_and_the_parts_of_the_answer_back(
    desk: HistoryDesk,
) -> None:
    alice, bob = desk.attach(), desk.attach(BOB)
    desk.send(bob, ListEvents(7, NORTHERN, newest=3))
    desk.send(alice, ListEvents(7, NORTHERN, 4, 9, limit=2))
    assert desk.asked == [ListEvents(1, NORTHERN, newest=3, epoch=1), ListEvents(2, NORTHERN, 4, 9, limit=2, epoch=1)]
    assert desk.wanted == []
    row: dict[str, Any] = {"number": 4}
    desk.give(LeaderAnswered(Listing(2, (row,), more=True)), LeaderAnswered(Listing(2, (row,), next="6")))
    desk.give(LeaderAnswered(RequestRefused(1, "it is away")), LeaderAnswered(Listing(2, ())))
    assert desk.out[alice][-2:] == [Listing(7, (row,), more=True), Listing(7, (row,), next="6")]
    assert desk.answer_of(bob) == RequestRefused(7, "it is away")


def test_another_server_is_trusted_about_rights_and_refused_for_a_channel_that_is_not_led_here() -> None:
    config = BrokerConfig(server="south", domain="example.org", may_subscribe={"*": ()}, user_subscriptions_max=1)
    desk = HistoryDesk(config)
    desk.give(LinkOpened(50, server_user("north", "example.org"), "server", is_server=True))
    north = 50
    desk.send(north, Attach(1, "default", None, keep=True))
    desk.send(north, ListEvents(2**32, OWN), ListEvents(2**32 + 1, OWN), ListEvents(2**32 + 2, NORTHERN))
    refused = desk.answer_of(north)
    assert (refused.request, refused.reason[:40]) == (2**32 + 2, "north leads the channel of 'Northern', n")
    desk.give(read(1, 1_000))
    desk.give(read(2, 1_000))
    assert [each.request for each in desk.out[north] if isinstance(each, Listing)] == [2**32, 2**32 + 1]


def test_a_server_that_is_alone_has_the_history_of_every_subject() -> None:
    desk = Desk()
    alice = desk.attach(ALICE)
    outputs: list[Output] = []
    desk.perform = outputs.extend  # type: ignore[method-assign,assignment]
    desk.send(alice, ListEvents(1, SUBJECT, 3))
    (wanted,) = [each for each in outputs if isinstance(each, EventsWanted)]
    assert (wanted.piece.subjects, wanted.piece.first) == ((SUBJECT,), 3)


@pytest.fixture
def reading_server(desk: HistoryDesk) -> int:
    """The link of another server that reads for its subscriptions."""
    desk.give(LinkOpened(50, server_user("north", "example.org"), "server", is_server=True))
    desk.send(50, Attach(1, "default", None, keep=True))
    return 50


def test_another_server_reads_matching_events_and_gets_the_end_of_what_is_durable(
    desk: HistoryDesk, reading_server: int
) -> None:
    desk.send(reading_server, ListEvents(9, OWN, 2, limit=30, expression="N > 1", language="cesql"))
    (wanted,) = [each.piece for each in desk.wanted]
    matched = wanted.subscription
    assert (matched.expression, matched.language) == ("N > 1", "cesql")
    assert wanted.filter_work_max == desk.config.filter_work_max
    undecided = msgspec.structs.replace(past(3), undecided="filter_work_max")
    desk.give(EventsRead(wanted.piece, wanted.end, events=(past(2), undecided)))
    answer = desk.answer_of(reading_server)
    head, first, second = answer.rows
    state = desk.broker.state
    log = {"incarnation": state.incarnation, "epoch": state.epoch, "end": wanted.end}
    assert (head, answer.next) == (log, None)
    assert (first["number"], "undecided" in first, second["undecided"]) == (2, False, "filter_work_max")
    desk.send(reading_server, ListEvents(10, OWN, 2, expression=""))
    desk.give(read(2, wanted.end - 1))
    assert desk.answer_of(reading_server).next == str(wanted.end - 1)
    assert desk.wanted[1].piece.subscription.expression == ""


def test_another_server_is_told_whether_a_failure_is_final(desk: HistoryDesk, reading_server: int) -> None:
    desk.send(reading_server, ListEvents(9, OWN, expression=""), ListEvents(10, OWN, expression=""))
    desk.give(EventsRead(1, 0, failed="the lake is away"))
    assert desk.answer_of(reading_server) == RequestRefused(9, "the lake is away")
    desk.give(EventsRead(2, 0, failed="the disk is broken", is_lost=True))
    assert desk.answer_of(reading_server).rows[0]["failed"] == "the disk is broken"


def test_another_server_looks_up_a_point_in_the_past(desk: HistoryDesk, reading_server: int) -> None:
    desk.send(reading_server, ListEvents(9, OWN, since=Since(at_us=5)))
    assert desk.wanted[0].since == Since(at_us=5)
    desk.give(EventsRead(1, 17))
    assert desk.answer_of(reading_server).rows[0]["end"] == 17
    desk.send(reading_server, ListEvents(10, OWN, since=Since(event=EventId("other", 1, 1))))
    assert "the log of south has no such event" in desk.answer_of(reading_server).reason
    desk.send(reading_server, ListEvents(11, OWN, since=Since(at_us=desk.wall_us + 10**9)))
    assert "is in the future" in desk.answer_of(reading_server).reason


def test_a_reading_for_subscriptions_is_for_servers_and_for_channels_that_are_led_here(
    desk: HistoryDesk, reading_server: int
) -> None:
    alice = desk.attach()
    for request in (ListEvents(1, OWN, expression=""), ListEvents(2, OWN, since=Since())):
        desk.send(alice, request)
        assert "is for servers of the domain" in desk.answer_of(alice).reason
    desk.send(reading_server, ListEvents(9, NORTHERN, expression=""))
    assert "north leads the channel of 'Northern', not south" in desk.answer_of(reading_server).reason
    desk.send(reading_server, ListEvents(10, "*", expression=""))
    assert "north and south lead the channels of '*'" in desk.answer_of(reading_server).reason
