"""An agent that filters sends no event that nobody wants (SPEC N-02, N-03)."""

from __future__ import annotations

import pytest

from tests.client.town import Phone, Town
from wanderbus import protocol
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.messages import (
    AgentProperties,
    AskBroker,
    Disconnect,
    ItemArrived,
    PublishEvent,
    PublishSettled,
)
from wanderbus.client.machine.publisher_filter import SUBJECTS_MAX, PublisherFilter
from wanderbus.event import HELD_BACK, Event, EventId
from wanderbus.protocol import ConfirmFilters, Filters, ReleaseFilters, RequestFilters
from wanderbus.protocol.leased_filters import LEASE_MARGIN, RETRY_S

LEASE_S = 10.0


def event(n: int, subject: str = "Trade") -> bytes:
    """An event, encoded."""
    return protocol.encode_event(Event(subject, {"N": n}))


def filters(number: int, *expressions: str, version: int = 1) -> Filters:
    """Filters of the broker."""
    return Filters(number, "Trade", version, LEASE_S, expressions)


@pytest.fixture
def filtering() -> PublisherFilter:
    """A filter that knows since second 0 that events with N == 1 are wanted."""
    made = PublisherFilter()
    assert not made.holds_back(event(2), 0.0, 0.0)
    assert made.take_unsent() == [RequestFilters(1, "Trade", 1, 0)]
    made.arrived(filters(1, "N == 1"), 1.0)
    assert made.take_unsent() == [ConfirmFilters("Trade", 1)]
    return made


def test_events_that_match_are_sent_and_others_are_not(filtering: PublisherFilter) -> None:
    assert [filtering.holds_back(event(n), 0.0, 1.0) for n in (0, 1, 2)] == [True, False, True]
    assert filtering.take_unsent() == []


def test_an_event_for_which_filters_take_too_much_work_is_sent(filtering: PublisherFilter) -> None:
    """The filters are those of others; within the bound nobody wants either event."""
    costly = " or ".join(f"cesql \"UPPER(CONCAT(Text, Text)) = 'x{each}'\"" for each in range(30))
    filtering.arrived(filters(0, "N == 7", costly, version=2), 1.0)
    short, long = (protocol.encode_event(Event("Trade", {"N": 1, "Text": "y" * size})) for size in (10, 20_000))
    assert filtering.holds_back(short, 0.0, 1.0)
    assert not filtering.holds_back(long, 0.0, 1.0)
    filtering.arrived(filters(0, "N == 7", version=3), 1.0)
    assert filtering.holds_back(long, 0.0, 1.0)


def test_the_lease_begins_with_the_request_and_ends_a_margin_earlier(filtering: PublisherFilter) -> None:
    end = LEASE_S * (1 - LEASE_MARGIN)
    assert filtering.holds_back(event(2), 0.0, end - 0.01)
    assert not filtering.holds_back(event(2), 0.0, end)


def test_a_late_answer_gives_no_lease() -> None:
    made = PublisherFilter()
    made.holds_back(event(2), 0.0, 0.0)
    made.arrived(filters(1), 30.0)
    assert not made.holds_back(event(2), 0.0, 30.0)


def test_a_publish_renews_the_lease_and_reports_the_counts(filtering: PublisherFilter) -> None:
    filtering.holds_back(event(2), 0.0, 2.0)
    assert filtering.take_unsent() == []
    filtering.holds_back(event(1), 0.0, 5.0)
    assert filtering.take_unsent() == [RequestFilters(2, "Trade", 2, 1)]
    filtering.arrived(filters(2, "N == 1"), 6.0)
    assert filtering.holds_back(event(2), 0.0, 13.0)


def test_a_change_without_a_request_extends_no_lease(filtering: PublisherFilter) -> None:
    filtering.arrived(filters(0, "N == 1", "N == 2", version=2), 8.0)
    assert ConfirmFilters("Trade", 2) in filtering.take_unsent()
    assert not filtering.holds_back(event(2), 0.0, 8.0)
    assert filtering.holds_back(event(3), 0.0, 8.0)
    assert not filtering.holds_back(event(3), 0.0, 9.5)


def test_a_change_after_the_filters_were_forgotten_is_only_confirmed(filtering: PublisherFilter) -> None:
    filtering.forget()
    filtering.arrived(filters(0, version=2), 2.0)
    assert filtering.take_unsent() == [ConfirmFilters("Trade", 2)]
    assert not filtering.holds_back(event(2), 0.0, 2.0)


def test_an_answer_to_an_earlier_request_is_only_confirmed(filtering: PublisherFilter) -> None:
    filtering.forget()
    filtering.holds_back(event(2), 0.0, 2.0)
    filtering.arrived(filters(1), 2.0)
    assert not filtering.holds_back(event(2), 0.0, 2.0)


def test_a_suspension_of_the_device_ends_all_leases(filtering: PublisherFilter) -> None:
    assert filtering.holds_back(event(2), 0.0, 2.0)
    assert not filtering.holds_back(event(2), 3_600.0, 2.0)


@pytest.mark.parametrize("expressions", [None, ("N ==",)], ids=["none", "unreadable"])
def test_an_answer_without_filters_is_asked_for_again_after_a_pause(expressions: tuple[str, ...] | None) -> None:
    made = PublisherFilter()
    made.holds_back(event(2), 0.0, 0.0)
    made.arrived(Filters(1, "Trade", 0, 0.0, expressions), 0.0)
    made.take_unsent()
    assert not made.holds_back(event(2), 0.0, RETRY_S - 1)
    assert made.take_unsent() == []
    assert not made.holds_back(event(2), 0.0, RETRY_S)
    assert made.take_unsent() == [RequestFilters(2, "Trade", 2, 0)]


def test_an_agent_that_leaves_releases_its_filters(filtering: PublisherFilter) -> None:
    filtering.holds_back(event(2), 0.0, 2.0)
    filtering.end()
    assert filtering.take_unsent() == [ReleaseFilters(1, 1)]
    assert not filtering.holds_back(event(2), 0.0, 2.0)
    filtering.end()
    assert filtering.take_unsent() == []


def test_filters_of_a_bounded_number_of_subjects_are_kept() -> None:
    made = PublisherFilter()
    for number in range(2 * SUBJECTS_MAX):
        made.holds_back(event(1, f"subject {number}"), 0.0, 0.0)
    assert len(made.take_unsent()) == SUBJECTS_MAX
    made.holds_back(event(1, "another"), 0.0, RETRY_S)
    assert [each.subject for each in made.take_unsent() if isinstance(each, RequestFilters)] == ["another"]


@pytest.fixture
def conversation() -> Conversation:
    """An agent that knows that events with N == 1 are wanted; the first event of its outbox is on its way."""
    made = Conversation(AgentProperties("sip:a@b", ("", 0), "", "phone", epoch=1, publisher_filtering=True))
    made.opening()
    made.receive(protocol.encode(protocol.Attachment(5)))
    assert made.send(PublishEvent(1, event(2), 9)) is not None
    made.receive(protocol.encode(filters(1, "N == 1")))
    assert made.send(PublishEvent(1, event(2))) is None
    assert made.take_held_back() == [PublishSettled(1, HELD_BACK)]
    return made


def test_an_outbox_that_is_held_up_sends_every_event_until_the_first_is_sent_again(conversation: Conversation) -> None:
    conversation.receive(protocol.encode(protocol.PublishRefused(1, "full", "queue.notifications_max", True)))
    assert conversation.send(PublishEvent(2, event(2), 9)) is not None
    assert conversation.send(PublishEvent(1, event(2), 9)) is not None
    assert conversation.send(PublishEvent(3, event(2), 9)) is None
    assert conversation.take_held_back() == [PublishSettled(3, HELD_BACK, outbox=True)]


def test_an_event_that_a_leader_waits_for_is_sent_again_behind_the_first(conversation: Conversation) -> None:
    for number in (2, 3):
        conversation.receive(protocol.encode(protocol.PublishRefused(1, "full", "disk_full", True)))
        assert conversation.send(PublishEvent(number, event(2), 9)) is not None
    for number in (2, 3):
        conversation.receive(protocol.encode(protocol.PublishRefused(number, "full", "disk_full", True)))
    for number in (1, 2, 3):
        assert conversation.send(PublishEvent(number, event(2), 9)) is not None
    conversation.receive(protocol.encode(protocol.PublishAccepted(2, EventId("s2", 1, 7), True)))
    conversation.receive(protocol.encode(protocol.PublishRefused(3, "no right", None, True)))
    assert [conversation.send(PublishEvent(number, event(2), 9)) for number in (2, 3, 4)] == [None] * 3


def test_an_agent_that_leaves_its_session_holds_back_nothing(conversation: Conversation) -> None:
    conversation.send(AskBroker(protocol.Leave(1)))
    assert conversation.send(PublishEvent(2, event(2))) is not None


def test_an_agent_on_a_new_link_holds_back_nothing(conversation: Conversation) -> None:
    conversation.opening()
    assert conversation.send(PublishEvent(2, event(2))) is not None


def test_an_event_that_nobody_wants_uses_no_network() -> None:
    town = Town()
    reader = Phone(town, "alice").connect()
    reader.subscribe("N == 1")
    phone = Phone(town, "bob", number=2, publisher_filtering=True).connect()
    phone.publish(2)
    town.run(1.0)
    before = len(town.sent)
    sent = sum(each.source[0] == phone.ip for each in town.sent)
    for _ in range(100):
        phone.publish(2)
    assert len(town.sent) == before
    assert [each.id for each in phone.all_of(PublishSettled)][1:] == [HELD_BACK] * 100
    assert sum(each.source[0] == phone.ip for each in town.sent) == sent
    phone.publish(1)
    town.run(1.0)
    assert [each.item.event["N"] for each in reader.all_of(ItemArrived)] == [1]  # type: ignore[union-attr]


def test_a_closed_agent_delays_no_subscription() -> None:
    town = Town()
    reader = Phone(town, "alice").connect()
    phone = Phone(town, "bob", number=2, publisher_filtering=True).connect()
    phone.publish(2)
    town.run(0.5)
    phone.publish(2)
    assert [each.id == HELD_BACK for each in phone.all_of(PublishSettled)] == [False, True]
    phone.node.feed([Disconnect()])
    town.run(1.0)
    reader.subscribe("N == 1")


def test_events_are_sent_while_the_connection_is_away() -> None:
    town = Town()
    phone = Phone(town, "bob", number=2, publisher_filtering=True).connect()
    phone.publish(2)
    town.run(0.5)
    phone.agent._disconnected("a test")
    phone.publish(2)
    town.run(0.5)
    assert HELD_BACK not in [each.id for each in phone.all_of(PublishSettled)]


def test_n01_no_count_is_lost_when_filters_are_forgotten_or_filtering_ends(filtering: PublisherFilter) -> None:
    assert filtering.holds_back(event(2), 0.0, 1.0)
    assert not filtering.holds_back(event(2, "Other"), 0.0, 1.0)  # its request has the counts of both
    filtering.forget()
    assert filtering.take_unsent() == []
    filtering.end()
    assert filtering.take_unsent() == [ReleaseFilters(2, 1)]
