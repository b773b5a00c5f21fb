"""Sessions at the leaders: what they send on each link, and what they report to the broker (SPEC K-02, J-10)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wanderbus import protocol
from wanderbus.broker.messages import (
    ArrivalMatched,
    ArrivalsTaken,
    ArrivalsWanted,
    AskLeader,
    EventArrived,
    FiltersArrived,
    ForgetPublishes,
    ForwardPublish,
    InterestEffective,
    LeaderAnswered,
    LeaderEventsLost,
    LeaderLinkChanged,
    OrderedInterestChanged,
    PublishAnswered,
    SendToLeader,
)
from wanderbus.broker.rollback.messages import ArrivalsRewound, InterestLost
from wanderbus.broker.servers.leader_messages import InterestMerged
from wanderbus.broker.state.rows import LeaderRow
from wanderbus.channels.directory import Directory, Leader, LeaderTable
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.own_channels import Merging, OwnChannels
from wanderbus.event import Event, EventId, Loss, Position
from wanderbus.filters import parse
from wanderbus.machine import Input, Output, SetTimer, TimerFired
from wanderbus.peers.interest_charges import UNCHARGED
from wanderbus.peers.leader_sessions import RETRY_S, LeaderSessions
from wanderbus.peers.leader_status import LeaderStatus
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.subscription import Subscription

SERVERS = ("east", "north", "south")
SUBJECTS = {"East": 0, "North": 1, "Own": 2, "Adaptive": 1}
STREAM = 5
NEW_ID = EventId("north", 3, 12)


def channels() -> OwnChannels:
    """The channels of the server ``south``."""
    groups = ChannelGroups(b"key", 3, pins={**SUBJECTS, "Up": 1}, parents={"Down": "Up"})
    table = LeaderTable(1, SERVERS, tuple(Leader(each, 1) for each in SERVERS))
    merging = {"Adaptive": Merging("adaptive", 0.9)}
    return OwnChannels(Directory(groups, table), "south", lambda subject: merging.get(subject, Merging()))


class South:
    """The sessions of the server ``south``, and what it has sent on each link."""

    def __init__(self, **positions: LeaderRow) -> None:
        self.sessions = LeaderSessions(channels(), epoch=77, positions=positions)
        self.on_link: dict[int, list[protocol.AgentMessage]] = {}
        self.links: dict[str, int] = {}
        self.link_changes: list[LeaderLinkChanged] = []
        self.now = 0.0
        self._links = 0

    def give(self, *inputs: Input | Output) -> list[Any]:
        """Step the machine; return the outputs that are neither messages nor changes of links."""
        others: list[Any] = []
        for output in self.sessions.step(inputs, self.now):
            if isinstance(output, SendOnServerLink):
                self.on_link.setdefault(output.link, []).append(protocol.decode_from_agent(output.payload))
            elif isinstance(output, LeaderLinkChanged):
                self.link_changes.append(output)
            else:
                others.append(output)
        return others

    def open(self, leader: str = "north") -> int:
        """Open a link to a leader."""
        self._links += 1
        self.links[leader] = self._links
        assert self.give(ServerLinkOpened(self._links, leader, is_ours=True)) == []
        return self._links

    def attached(self, leader: str = "north", *subscriptions: Subscription) -> int:
        """Open a link and let the leader confirm the session and list its subscriptions."""
        link = self.open(leader)
        self.answers(leader, protocol.Attachment(STREAM), protocol.Done(0, subscriptions))
        return link

    def close(self, leader: str = "north") -> list[Any]:
        """Close the link to a leader."""
        return self.give(ServerLinkClosed(self.links[leader], leader, "it failed"))

    def answers(self, leader: str, *messages: protocol.BrokerMessage) -> list[Any]:
        """Let the leader send messages on the present link."""
        link = self.links[leader]
        return self.give(*[ServerMessageReceived(link, leader, protocol.encode(each)) for each in messages])

    def publish(self, request: int, number: int, subject: str = "North", **options: Any) -> list[Any]:
        """Publish an event of a device."""
        leader = channels().leader(subject)
        return self.give(ForwardPublish(leader, publish_for(request, number, subject, **options)))

    def taken(self, leader: str = "north") -> list[protocol.AgentMessage]:
        """Return what was sent on the present link since the last call."""
        messages = self.on_link.get(self.links[leader], [])
        sent, messages[:] = messages[:], []
        return sent

    def subscribe(self, name: str, *entries: tuple[str, str]) -> list[Any]:
        """Report a subscription here."""
        wanted = tuple((subject, parse(text)) for subject, text in entries)
        return self.give(OrderedInterestChanged({name: wanted}))

    def confirm(self, leader: str = "north") -> list[Any]:
        """Let the leader confirm the subscriptions that were sent since :meth:`taken`."""
        asked = [each for each in self.taken(leader) if isinstance(each, protocol.Subscribe)]
        return self.answers(
            leader, *[protocol.Done(each.request, (row(each.subject, each.expression),)) for each in asked]
        )


def publish_for(request: int, number: int, subject: str = "North", *, outbox: int | None = None) -> protocol.PublishFor:
    """An event of Bob's phone."""
    encoded, epoch = msgspec.Raw(protocol.encode_event(Event(subject, {"N": number}))), outbox or 1
    is_outbox = outbox is not None
    return protocol.PublishFor(request, "sip:bob@example.org", "phone", epoch, number, encoded, 4, is_outbox)


def row(subject: str, expression: str) -> Subscription:
    """A subscription of this server at a leader."""
    owner = "sip:south@servers.example.org"
    return Subscription(f"{subject} {expression}", owner, "default", subject, expression, None, (), None)


def notify(number: int, before: int) -> protocol.NotifyServer:
    """An event for this server."""
    return protocol.NotifyServer(
        number, before, NEW_ID, 8, msgspec.Raw(protocol.encode_event(Event("North", {"N": 1})))
    )


@pytest.fixture
def south() -> South:
    return South()


# Links ----------------------------------------------------------------------------------------------------------


def test_it_wants_a_link_to_every_other_leader(south: South) -> None:
    assert south.sessions.start() == [ConnectServer("east"), ConnectServer("north")]


def test_a_link_begins_behind_what_is_durable_here() -> None:
    south = South(north=LeaderRow(STREAM, 9))
    south.open("east")
    south.open()
    assert south.taken("east") == [protocol.Attach(77, "default", None, keep=True, knows_waits=True), protocol.Query(0)]
    assert south.taken() == [
        protocol.Attach(77, "default", Position(STREAM, 9), keep=True, knows_waits=True),
        protocol.Query(0),
    ]
    south.give(ArrivalsTaken("north", STREAM, 11))
    south.open()
    assert south.taken()[0] == protocol.Attach(77, "default", Position(STREAM, 11), keep=True, knows_waits=True)


def test_a_message_of_a_former_link_is_ignored(south: South) -> None:
    former = south.attached()
    south.publish(1, 1)
    south.open()
    answer = protocol.encode(protocol.PublishAccepted(1, NEW_ID))
    assert south.give(ServerMessageReceived(former, "north", answer)) == []
    assert south.give(ServerLinkClosed(former, "north", "replaced")) == []
    assert south.answers("north", protocol.PublishAccepted(1, NEW_ID)) == [PublishAnswered(1, NEW_ID)]


@pytest.mark.parametrize("payload", [b"\xc1", protocol.encode(protocol.RequestRefused(0, "you are not welcome"))])
def test_a_message_that_cannot_be_used_closes_the_link(south: South, payload: bytes) -> None:
    link = south.open()
    (closing,) = south.give(ServerMessageReceived(link, "north", payload))
    assert isinstance(closing, CloseServerLink)
    assert (closing.link, closing.reason[:6]) == (link, "north:")


def test_an_event_that_cannot_be_read_closes_the_link(south: South) -> None:
    link = south.attached()
    (closing,) = south.answers("north", protocol.NotifyServer(1, 0, NEW_ID, 8, msgspec.Raw(b"\xa2no")))
    assert isinstance(closing, CloseServerLink)
    assert closing.link == link


def test_the_status_shows_each_session(south: South) -> None:
    south.attached()
    south.subscribe("one", ("North", "x < 3"))
    south.publish(1, 1)
    south.give(ArrivalsTaken("north", STREAM, 4))
    away = LeaderStatus("east", False, 0, False, 0, 0)
    assert south.sessions.statuses() == [away, LeaderStatus("north", True, 1, False, 1, 4)]
    south.confirm()
    assert south.sessions.statuses() == [away, LeaderStatus("north", True, 1, True, 1, 4)]
    south.close()
    assert not south.sessions.statuses()[1].is_linked


# Arrivals -------------------------------------------------------------------------------------------------------


def test_events_and_gaps_go_to_the_broker_with_the_number_before_them(south: South) -> None:
    south.attached()
    gap = protocol.NotifyGap(8, 9, (Loss("a", "log_keep", 1), Loss("b", "log_keep", 2)))
    event, lost, later = south.answers("north", notify(7, 3), gap, protocol.NotifyGap(11, 12, ()))
    sent = Event("North", {"N": 1})
    assert event == EventArrived("north", STREAM, 7, 3, NEW_ID, 8, sent, protocol.encode_event(sent))
    assert lost == LeaderEventsLost("north", STREAM, 7, 9, 2, "log_keep")
    assert later == LeaderEventsLost("north", STREAM, 9, 12, 1, "unknown")


def test_one_acknowledgement_for_a_batch(south: South) -> None:
    south.attached()
    south.taken()
    south.give(ArrivalsTaken("north", STREAM, 3), ArrivalsTaken("north", STREAM, 4))
    assert south.taken() == [protocol.NotifyAck(0, 4)]
    south.give(ArrivalsTaken("north", STREAM + 1, 1))
    assert south.taken() == []


def test_nothing_is_acknowledged_before_the_leader_has_named_its_stream(south: South) -> None:
    south.open()
    south.taken()
    south.give(ArrivalsTaken("north", STREAM, 3))
    assert south.taken() == []


def test_missing_events_are_asked_for_on_a_new_link(south: South) -> None:
    link = south.attached()
    (closing,) = south.give(ArrivalsWanted("north", STREAM, 3))
    assert closing == CloseServerLink(link, "events of north are missing; asking again")
    south.close()
    assert south.give(ArrivalsWanted("north", STREAM, 3)) == []


# Publishes ------------------------------------------------------------------------------------------------------


def test_a_publish_goes_to_the_leader_of_its_channel_and_is_answered_once(south: South) -> None:
    south.attached()
    south.attached("east")
    south.taken(), south.taken("east")
    south.publish(1, 1, "East")
    south.publish(2, 2, "Down")
    assert [south.taken("east"), south.taken()] == [[publish_for(1, 1, "East")], [publish_for(2, 2, "Down")]]
    assert south.answers("east", protocol.PublishAccepted(1, NEW_ID)) == [PublishAnswered(1, NEW_ID)]
    assert south.answers("east", protocol.PublishAccepted(1, NEW_ID)) == []
    assert south.answers("north", protocol.PublishRefused(2, "no")) == [PublishAnswered(2, None, "no")]
    assert south.answers("north", protocol.PublishRefused(2, "no")) == []


def test_publishes_without_an_answer_are_repeated_in_order_on_each_new_link(south: South) -> None:
    south.publish(1, 1)
    south.attached()
    south.publish(2, 2)
    south.publish(3, 3)
    south.answers("north", protocol.PublishAccepted(2, NEW_ID))
    south.close()
    south.publish(4, 4)
    south.open()
    assert south.taken()[2:] == [publish_for(1, 1), publish_for(3, 3), publish_for(4, 4)]


@pytest.mark.parametrize("refusal", [None, protocol.PublishRefused(1, "full", "disk_full", outbox=True)])
def test_a_repeat_of_an_answered_publish_is_sent_before_later_ones_of_its_publisher(south: South, refusal: Any) -> None:
    south.attached()
    for request, number, outbox in ((1, 1, 6), (2, 9, None), (3, 2, 6)):
        south.publish(request, number, outbox=outbox)
    south.answers("north", refusal or protocol.PublishAccepted(1, NEW_ID))
    south.publish(4, 1, outbox=6)
    south.close()
    south.open()
    assert south.taken()[2:] == [publish_for(2, 9), publish_for(4, 1, outbox=6), publish_for(3, 2, outbox=6)]


def test_a_publish_that_another_leader_gets_is_not_repeated(south: South) -> None:
    south.attached()
    south.publish(1, 1)
    south.publish(2, 2)
    assert south.give(ForgetPublishes("north", (1,))) == []
    south.close()
    south.open()
    assert south.taken()[2:] == [publish_for(2, 2)]


# Interest -------------------------------------------------------------------------------------------------------


def test_a_subscription_counts_when_all_leaders_have_confirmed_it(south: South) -> None:
    south.attached()
    south.attached("east")
    assert south.subscribe("both", ("North", "x < 3"), ("East", ""), ("Own", "")) == []
    assert south.confirm() == []
    assert south.confirm("east") == [InterestEffective(("both",))]


def test_a_subscription_to_every_subject_goes_to_every_leader(south: South) -> None:
    south.attached()
    south.attached("east")
    south.taken(), south.taken("east")
    south.subscribe("every", ("*", "x < 3"))
    asked = [*south.on_link[south.links["north"]], *south.on_link[south.links["east"]]]
    assert [each.subject for each in asked if isinstance(each, protocol.Subscribe)] == ["*", "*"]
    assert south.confirm() == []
    assert south.confirm("east") == [InterestEffective(("every",))]


def test_the_work_of_merging_a_subscription_is_charged_but_not_that_of_a_restart(south: South) -> None:
    costly = "any a (" + " or ".join(f'contains "x{each}y"' for each in range(60)) + ")"
    costly += "".join(f" and (b{each} == 1 or c{each} == 2)" for each in range(8))
    (charge,) = south.subscribe("costly 1", ("North", costly))
    assert isinstance(charge, InterestMerged)
    assert charge.name == "costly 1"
    assert charge.units > UNCHARGED
    several = {name: (("North", parse(costly)),) for name in ("one 2", "two 3")}
    assert not [each for each in south.give(OrderedInterestChanged(several)) if isinstance(each, InterestMerged)]


def test_one_that_ends_before_it_counts_is_not_reported(south: South) -> None:
    south.attached()
    south.subscribe("one", ("North", "x < 3"))
    south.give(OrderedInterestChanged({}, ("one",)))
    assert south.confirm() == []
    (ends,) = [each for each in south.taken() if isinstance(each, protocol.Unsubscribe)]
    assert ends.subscription == "North x < 3"


def test_a_subscription_that_the_leader_has_already_counts_without_a_request(south: South) -> None:
    south.subscribe("one", ("North", "x < 3"))
    south.open()
    south.taken()
    counted = south.answers("north", protocol.Attachment(STREAM), protocol.Done(0, (row("North", "x < 3"),)))
    assert counted == [InterestEffective(("one",))]
    assert south.taken() == []


def test_a_refused_subscription_is_requested_again_after_a_pause(south: South) -> None:
    south.attached()
    south.taken()
    south.subscribe("one", ("North", "x < 3"))
    south.subscribe("two", ("North", "y < 3"))
    first, second = [each for each in south.taken() if isinstance(each, protocol.Subscribe)]
    refusals = [protocol.RequestRefused(each.request, "full", limit="disk_full") for each in (first, second)]
    assert south.answers("north", *refusals) == [SetTimer("north", RETRY_S)]
    south.give(TimerFired("north"))
    assert south.confirm() == [InterestEffective(("one", "two"))]


def test_a_subscription_that_the_leader_ends_is_requested_again(south: South) -> None:
    south.attached()
    south.subscribe("one", ("North", "x < 3"))
    south.confirm()
    south.answers("north", protocol.SubscriptionEnded(row("North", "x < 3"), "unsubscribed"))
    (again,) = south.taken()
    assert isinstance(again, protocol.Subscribe)


def test_adaptive_merging_counts_the_events_of_its_channel(south: South) -> None:
    south.attached()
    for n in range(8):
        south.subscribe(str(n), ("Adaptive", f"x == {n} and y == {n}"))
        south.confirm()
    for _ in range(64 * 4):
        south.give(ArrivalMatched("north", "Adaptive", is_matched=False))
        south.confirm()
    assert south.sessions.statuses()[1].subscriptions == 8


# Requests about channels ----------------------------------------------------------------------------------------


def test_a_request_about_a_channel_is_answered_in_parts_with_its_own_number(south: South) -> None:
    south.attached()
    south.taken()
    south.subscribe("one", ("North", "x < 3"))
    asked = protocol.ListEvents(1, "North", 4), protocol.ListEvents(2, "Down")
    assert south.give(*(AskLeader("north", each) for each in asked)) == []
    subscribe, first, second = south.taken()
    assert isinstance(subscribe, protocol.Subscribe)
    assert isinstance(first, protocol.ListEvents)
    assert isinstance(second, protocol.ListEvents)
    assert (first.subject, first.first, second.subject) == ("North", 4, "Down")
    assert len({subscribe.request, first.request, second.request}) == 3
    row: dict[str, Any] = {"number": 4}
    parts = protocol.Listing(first.request, (row,), more=True), protocol.Listing(first.request, (row,), next="9")
    answered = [protocol.Listing(1, (row,), more=True), protocol.Listing(1, (row,), next="9")]
    assert south.answers("north", *parts) == [LeaderAnswered(each) for each in answered]
    refused = protocol.RequestRefused(second.request, "not here")
    assert south.answers("north", refused) == [LeaderAnswered(protocol.RequestRefused(2, "not here"))]
    assert south.answers("north", parts[1], refused) == []


def test_requests_about_channels_are_refused_while_the_leader_cannot_be_reached(south: South) -> None:
    south.attached("east")
    (answer,) = south.give(AskLeader("north", protocol.ListEvents(1, "North")))
    assert answer.answer.request == 1
    assert answer.answer.reason.startswith("north, which leads the channel of 'North', cannot be reached now")
    south.attached()
    assert south.give(AskLeader("north", protocol.ListEvents(2, "North"))) == []
    (answer,) = south.close()
    assert (answer.answer.request, isinstance(answer.answer, protocol.RequestRefused)) == (2, True)
    south.attached()
    assert south.close() == []


def test_a_request_to_a_server_that_leads_no_channel_is_refused(south: South) -> None:
    (answer,) = south.give(AskLeader("west", protocol.ListEvents(1, "North")))
    assert answer.answer.request == 1
    assert answer.answer.reason.startswith("west leads no channel of this domain")


# Filters of channels -----------------------------------------------------------------------------------------------


def test_links_to_leaders_are_reported(south: South) -> None:
    first = south.attached()
    south.close()
    second, third = south.attached(), south.attached()
    changes = [LeaderLinkChanged("north", each) for each in (first, None, second, None, third)]
    assert south.link_changes == changes


def test_filters_of_a_leader_arrive(south: South) -> None:
    south.attached()
    filters = protocol.Filters(1, "North", 5, 10.0, ("N == 1",))
    assert south.answers("north", filters) == [FiltersArrived("north", filters)]


def test_a_message_about_filters_is_sent_on_its_own_link_only(south: South) -> None:
    first = south.attached()
    south.taken()
    message = protocol.ConfirmFilters("North", 5)
    south.give(SendToLeader("north", first, message))
    assert south.taken() == [message]
    south.attached()
    south.taken()
    south.give(SendToLeader("north", first, message))
    assert south.taken() == []


def test_a_leader_that_was_rolled_back_is_followed_behind_what_both_have() -> None:
    south = South(north=LeaderRow(STREAM, 9))
    south.open()
    (attach, *_) = south.taken()
    assert attach == protocol.Attach(77, "default", Position(STREAM, 9), keep=True, knows_waits=True)
    rolled_back = protocol.Attachment(STREAM + 5, first=4, earlier=((STREAM, 1),))
    assert south.answers("north", rolled_back) == [ArrivalsRewound("north", STREAM, 3, is_own=False)]
    (arrived,) = south.answers("north", notify(4, 0))
    assert (arrived.epoch, arrived.number) == (STREAM + 5, 4)


def test_a_leader_that_was_restarted_is_followed_as_before() -> None:
    south = South(north=LeaderRow(STREAM, 9))
    south.open()
    assert south.answers("north", protocol.Attachment(STREAM + 5, first=10, earlier=((STREAM, 1),), taken=9)) == []
    (arrived,) = south.answers("north", notify(10, 0))
    assert (arrived.epoch, arrived.number) == (STREAM + 5, 10)


def test_a_server_that_has_acknowledged_more_than_it_knows_was_rolled_back_itself() -> None:
    south = South(north=LeaderRow(STREAM, 4))
    south.open()
    assert south.answers("north", protocol.Attachment(STREAM, taken=9)) == [
        ArrivalsRewound("north", STREAM, 9, is_own=True)
    ]


def test_the_next_link_names_what_the_leader_has_confirmed() -> None:
    south = South()
    south.attached()
    south.publish(1, 1)
    south.answers("north", protocol.PublishAccepted(1, EventId("north", 5, 30)))
    south.open()
    (attach, *_) = south.taken()
    assert isinstance(attach, protocol.Attach)
    assert attach.seen == (EventId("north", 5, 30),)


@pytest.fixture
def reporting(monkeypatch: pytest.MonkeyPatch) -> South:
    """A server of a domain with a layout, so that it reports its interest, and with one subscription."""
    of_domain = channels()
    of_domain.layout = b"1"
    monkeypatch.setitem(globals(), "channels", lambda: of_domain)
    south = South()
    south.subscribe("one", ("North", "x < 3"))
    return south


def test_a_leader_is_told_once_on_each_link_that_it_has_all_interest(reporting: South) -> None:
    south = reporting
    for wanted in ([protocol.Subscribe], []):
        south.open()
        south.taken()
        there = () if wanted else (row("North", "x < 3"),)
        south.answers("north", protocol.Attachment(STREAM), protocol.Done(0, there))
        sent = south.taken()
        if wanted:
            assert [type(each) for each in sent] == wanted, "not before the leader has confirmed it"
            (request,) = sent
            assert isinstance(request, protocol.Subscribe)
            south.answers("north", protocol.Done(request.request, (row("North", "x < 3"),)))
            sent = south.taken()
        assert sent == [protocol.SettleInterest()]
        south.subscribe("two", ("North", "x < 2"))
        assert protocol.SettleInterest() not in south.taken()


def test_a_leader_that_finds_its_log_rolled_back_is_asked_and_told_again(reporting: South) -> None:
    """It may have confirmed interest that its copy lacks."""
    south = reporting
    south.open()
    south.answers("north", protocol.Attachment(STREAM), protocol.Done(0, (row("North", "x < 3"),)))
    south.taken()
    south.answers("north", protocol.Attachment(STREAM + 5, first=1, earlier=((STREAM, 1),)))
    assert south.taken() == [protocol.Query(0)]
    south.answers("north", protocol.Done(0, ()))
    (request,) = south.taken()
    assert isinstance(request, protocol.Subscribe)
    given = south.answers("north", protocol.Done(request.request, (row("North", "x < 3"),)))
    assert south.taken() == [protocol.SettleInterest()]
    assert given == [InterestLost("north")], "events of the meantime did not come"
    south.open()
    assert south.answers("north", protocol.Attachment(STREAM), protocol.Done(0, (row("North", "x < 3"),))) == []


def test_j11_a_leader_that_has_left_gets_no_link_and_is_shown_only_while_something_waits_for_it() -> None:
    table = LeaderTable(1, ("north", "south"), tuple(Leader(each, 1) for each in SERVERS))
    directory = Directory(ChannelGroups(b"key", 3, pins=SUBJECTS), table)
    sessions = LeaderSessions(OwnChannels(directory, "south", founders=SERVERS), epoch=77, positions={})
    assert sessions.start() == [ConnectServer("north")]
    assert [each.leader for each in sessions.statuses()] == ["north"]
    sessions.step([ForwardPublish("east", publish_for(1, 1, "East"))], 0.0)
    assert [each.leader for each in sessions.statuses()] == ["east", "north"]
