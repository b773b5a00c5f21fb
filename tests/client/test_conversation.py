"""The agent's side of the application protocol over many connections (DESIGN 5.2, 5.5, SPEC G-08, G-09, U-02)."""

from __future__ import annotations

import msgspec
import pytest

from wanderbus import protocol
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    AskBroker,
    ConnectRefused,
    EndReading,
    ItemArrived,
    PublishEvent,
    PublishSettled,
    RequestSettled,
    StartReading,
    StreamReplaced,
    SubscriptionOver,
)
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Event, EventId, Gap, Loss, Notification, Position
from wanderbus.machine import Output
from wanderbus.protocol import (
    Advertise,
    AgentMessage,
    Attach,
    Attachment,
    BrokerMessage,
    Done,
    NotifyAck,
    NotifyGap,
    Publish,
    PublishAccepted,
    PublishRefused,
    Query,
    RequestRefused,
    Subscribe,
    Withdraw,
)
from wanderbus.subscription import Subscription

EVENT = Event("Trade", {"N": 1})
ENCODED = protocol.encode_event(EVENT)
SUBSCRIPTION = Subscription("wb-1", "sip:alice@example.org", "default", "Trade", "")
SUBSCRIBE = Subscribe(1, "Trade", "", None, (), False)
PROPERTIES = AgentProperties("sip:alice@example.org", ("10.0.0.1", 5060), "sip:broker@example.org", "phone", epoch=7)


def conversation(**options: object) -> Conversation:
    return Conversation(msgspec.structs.replace(PROPERTIES, **options))


def reading(**options: object) -> Conversation:
    """A conversation of an application that reads the subscription wb-1."""
    talk = conversation(**options)
    talk.send(StartReading("wb-1"))
    return talk


def reads(*readers: tuple[int, str, Position | None]) -> protocol.Read:
    return protocol.Read(tuple(protocol.Reader(*reader) for reader in readers))


def test_answered_advertisements_are_repeated_on_each_connection_before_the_publishes() -> None:
    talk = conversation()
    several = [Advertise(number, "Trade", f"N > {number}") for number in (1, 2, 3)]
    for each in several:
        talk.send(AskBroker(each))
    talk.send(PublishEvent(1, ENCODED))
    for number in (1, 2):
        talk.receive(protocol.encode(Done(number, ())))
    talk.send(AskBroker(Withdraw(4, "Trade", "N > 1")))
    opened = [protocol.decode_from_agent(each) for each in talk.opening()]
    assert opened[1:] == [several[1], several[2], Withdraw(4, "Trade", "N > 1"), Publish(1, EVENT)]
    assert talk.receive(protocol.encode(Done(2, ()))) == []
    assert talk.receive(protocol.encode(RequestRefused(2, "too many"))) == []


def acknowledgement(number: int, epoch: int = 1) -> Acknowledge:
    return Acknowledge("wb-1", Position(epoch, number))


def gap(first: int, last: int, *losses: Loss, reader: int = 1) -> NotifyGap:
    """A gap; by default all notifications between its numbers were lost."""
    return NotifyGap(first, last, losses or (Loss("wb-1", "queue_max", last - first + 1),), reader)


def receive(talk: Conversation, *messages: BrokerMessage) -> list[Output]:
    return [output for message in messages for output in talk.receive(protocol.encode(message))]


def opening(talk: Conversation) -> list[AgentMessage]:
    return [protocol.decode_from_agent(payload) for payload in talk.opening()]


def notify(number: int, *, redelivered: bool = False) -> protocol.Notify:
    event = msgspec.Raw(protocol.encode_event(Event("Trade", {"N": number})))
    return protocol.Notify(number, EventId("wb", 1, 100 + number), event, ("wb-1",), redelivered)


def arrived(outputs: list[Output]) -> list[object]:
    """Numbers of notifications, ``(count, last)`` of gaps."""
    items = [output.item for output in outputs if isinstance(output, ItemArrived)]
    return [i.position.number if isinstance(i, Notification) else (i.count, i.position.number) for i in items]


def test_the_first_word_is_the_attachment() -> None:
    assert opening(conversation()) == [Attach(7, "default", None, True, knows_waits=True)]
    assert opening(conversation(session="work", keep=False)) == [Attach(7, "work", None, False, knows_waits=True)]
    assert opening(conversation(resume=Position(1, 41))) == [
        Attach(7, "default", Position(1, 41), True, knows_waits=True)
    ]


def test_design_5_2_unanswered_messages_are_repeated_in_order_requests_first() -> None:
    """Publishes keep their order; a subscription comes before the events published after it."""
    talk = conversation()
    for number in (1, 2, 3):
        talk.send(PublishEvent(number, ENCODED))
    talk.send(AskBroker(SUBSCRIBE))
    talk.send(AskBroker(Query(2)))
    assert talk.unanswered == 5
    assert opening(talk)[1:] == [SUBSCRIBE, Query(2), Publish(1, EVENT), Publish(2, EVENT), Publish(3, EVENT)]
    receive(
        talk, Attachment(1), Done(1, (SUBSCRIPTION,)), PublishAccepted(1, EventId("wb", 1, 1)), PublishRefused(2, "no")
    )
    assert opening(talk)[1:] == [Query(2), Publish(3, EVENT)]
    receive(talk, Done(2, ()), PublishAccepted(3, EventId("wb", 1, 2)))
    assert opening(talk)[1:] == []
    assert talk.unanswered == 0


def test_each_answer_is_reported_once() -> None:
    talk = conversation()
    talk.send(PublishEvent(1, ENCODED))
    talk.send(PublishEvent(2, ENCODED))
    talk.send(AskBroker(SUBSCRIBE))
    accepted, refused, done = (
        PublishAccepted(1, EventId("wb", 1, 5)),
        PublishRefused(2, "too large"),
        Done(1, (SUBSCRIPTION,)),
    )
    assert receive(talk, accepted, refused, done) == [
        PublishSettled(1, EventId("wb", 1, 5)),
        PublishSettled(2, None, "too large"),
        RequestSettled(1, (SUBSCRIPTION,)),
    ]
    assert receive(talk, accepted, refused, done, RequestRefused(1, "late")) == []


def test_a_refused_request_carries_its_refusal() -> None:
    talk = conversation()
    talk.send(AskBroker(SUBSCRIBE))
    refusal = RequestRefused(1, "expected a value", 5, None)
    assert receive(talk, refusal) == [RequestSettled(1, (), refusal)]
    assert opening(talk)[1:] == []


def test_a_refused_attachment_is_a_refused_connection() -> None:
    refusal = RequestRefused(0, "devices_max is 1, and it is reached", None, "devices_max")
    assert receive(conversation(), refusal) == [ConnectRefused("attachment", None, refusal.reason, "devices_max")]


def test_g08_an_answer_in_parts_is_reported_whole_and_a_broken_off_one_from_its_start() -> None:
    talk = conversation()
    talk.send(AskBroker(Query(1)))
    one, two, three = (Subscription(f"wb-{n}", "sip:alice@example.org", "default", "Trade", "") for n in (1, 2, 3))
    assert receive(talk, Done(1, (one,), more=True)) == []
    assert opening(talk)[1:] == [Query(1)]
    assert receive(talk, Done(1, (one, two), more=True)) == []
    assert receive(talk, Done(1, (three,))) == [RequestSettled(1, (one, two, three))]
    assert receive(talk, Done(1, (one,), more=True), Done(1, (three,))) == []


def test_design_5_5_notifications_arrive_once_and_in_order_over_reconnections() -> None:
    talk = reading()
    assert arrived(receive(talk, Attachment(1), notify(1), notify(2))) == [1, 2]
    talk.opening()
    assert arrived(receive(talk, Attachment(1), notify(1), notify(2), notify(3))) == [3]


def test_a_notification_arrives_with_everything_that_it_carries() -> None:
    talk = reading()
    (output,) = receive(talk, Attachment(4), notify(1, redelivered=True))
    expected = Notification(Event("Trade", {"N": 1}), ("wb-1",), Position(4, 1), EventId("wb", 1, 101), True)
    assert output == ItemArrived(expected, ("wb-1",))


def test_an_acknowledgement_is_sent_once_and_repeated_on_the_next_connection() -> None:
    talk = reading()
    receive(talk, Attachment(1), notify(1), notify(2))
    assert talk.send(acknowledgement(2)) == protocol.encode(NotifyAck(1, 2))
    assert talk.send(acknowledgement(1)) is None
    assert talk.send(acknowledgement(2)) is None
    attach = Attach(7, "default", None, True, received=Position(1, 2), knows_waits=True)
    assert opening(talk) == [attach, reads((1, "wb-1", Position(1, 2)))]


def test_unread_notifications_are_not_acknowledged_on_the_next_connection() -> None:
    """The application may still lose it; the broker must keep it."""
    talk = reading()
    receive(talk, Attachment(1), notify(1), notify(2))
    talk.send(acknowledgement(1))
    assert opening(talk)[1:] == [reads((1, "wb-1", Position(1, 1)))]


def test_each_connection_sends_the_resume_position() -> None:
    """The broker may have removed the device meanwhile, with its position."""
    talk = conversation(resume=Position(1, 70))
    for _ in range(2):
        assert opening(talk) == [Attach(7, "default", Position(1, 70), True, knows_waits=True)]
        receive(talk, Attachment(1))


@pytest.mark.parametrize(
    ("received", "dropped", "heard"),
    [
        (0, (1, 3), [(3, 3)]),
        (2, (1, 5), [(3, 5)]),
        (5, (1, 5), []),
        (7, (1, 5), []),
        (2, (3, 3), [(1, 3)]),
    ],
)
def test_u02_a_gap_counts_only_what_was_not_received(
    received: int, dropped: tuple[int, int], heard: list[object]
) -> None:
    """A gap at the head of the queue grows; notifications that arrived before the drop are not missing."""
    talk = reading()
    receive(talk, Attachment(1), *[notify(n) for n in range(1, received + 1)])
    assert arrived(receive(talk, gap(*dropped))) == heard
    following = max(received, dropped[1]) + 1
    assert arrived(receive(talk, notify(following - 1), notify(following))) == [following]


def test_u02_a_gap_arrives_with_its_reason_and_the_position_to_commit() -> None:
    talk = reading()
    (output,) = receive(talk, Attachment(2), gap(1, 4))
    lost = (Loss("wb-1", "queue_max", 4),)
    assert output == ItemArrived(Gap(4, "queue_max", Position(2, 4), lost), ("wb-1",))


def test_design_5_3_another_epoch_is_another_stream() -> None:
    talk = reading()
    receive(talk, Attachment(1), notify(50))
    talk.send(acknowledgement(50))
    assert arrived(receive(talk, Attachment(2), notify(4))) == [4]
    assert opening(talk)[1:] == [reads((1, "wb-1", None))]


# Readers ------------------------------------------------------------------------------------------------------------


def test_g25_each_connection_announces_its_readers_before_unanswered_requests() -> None:
    talk = reading()
    talk.send(AskBroker(Query(1)))
    assert opening(talk)[1:] == [reads((1, "wb-1", None)), Query(1)]
    assert talk.send(StartReading("wb-1")) is None
    assert talk.send(EndReading("wb-1")) == protocol.encode(protocol.StopReading(1))
    assert talk.send(EndReading("wb-1")) is None
    assert opening(talk)[1:] == [Query(1)]


def test_g25_a_subscription_is_read_from_its_answer_on_without_another_message() -> None:
    talk = conversation()
    assert talk.send(AskBroker(SUBSCRIBE, reads=True)) == protocol.encode(msgspec.structs.replace(SUBSCRIBE, reader=1))
    receive(talk, Attachment(1), Done(1, (SUBSCRIPTION,)))
    assert talk.take_unsent() == []
    assert [output.subscriptions for output in receive(talk, notify(1)) if isinstance(output, ItemArrived)] == [
        ("wb-1",)
    ]
    assert opening(talk)[1:] == [reads((1, "wb-1", None))]


def test_g25_each_reader_receives_and_acknowledges_its_own_notifications() -> None:
    talk = reading()
    talk.send(StartReading("wb-2"))
    receive(talk, Attachment(1))
    both = msgspec.structs.replace(notify(1), subscriptions=("wb-1", "wb-2", "wb-3"), readers=(1, 2))
    first = msgspec.structs.replace(notify(2), subscriptions=("wb-1", "wb-2"), readers=(1,))
    outputs = [output for output in receive(talk, both, first) if isinstance(output, ItemArrived)]
    assert [output.subscriptions for output in outputs] == [("wb-1", "wb-2"), ("wb-1",)]
    second = msgspec.structs.replace(first, readers=(2,))
    assert [output.subscriptions for output in receive(talk, second) if isinstance(output, ItemArrived)] == [("wb-2",)]
    assert talk.send(Acknowledge("wb-2", Position(1, 2))) == protocol.encode(NotifyAck(2, 2))
    assert opening(talk)[1:] == [reads((1, "wb-1", None), (2, "wb-2", Position(1, 2)))]


def test_design_5_5_a_subscription_resumes_from_its_own_position() -> None:
    talk = conversation()
    receive(talk, Attachment(1))
    talk.send(AskBroker(msgspec.structs.replace(SUBSCRIBE, resume=Position(1, 5)), reads=True))
    assert arrived(receive(talk, Done(1, (SUBSCRIPTION,)), notify(4), notify(5), notify(6))) == [6]
    assert opening(talk)[1:] == [reads((1, "wb-1", Position(1, 5)))]


def test_notifications_without_a_reader_are_passed_over() -> None:
    talk = conversation()
    assert receive(talk, Attachment(1), notify(1), gap(2, 3)) == []


def test_g09_discarding_happens_once_and_not_on_every_reconnection() -> None:
    talk = conversation(keep=False)
    receive(talk, Attachment(1))
    (attach,) = opening(talk)
    assert isinstance(attach, Attach)
    assert attach.keep


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xff",
        protocol.encode(Query(1)),
        protocol.encode(notify(1)),
        protocol.encode(gap(1, 2)),
        protocol.encode(protocol.NotifyServer(1, 0, EventId("wb", 1, 1), 1, msgspec.Raw(b"\x80"))),
    ],
    ids=["empty", "noise", "an agent's message", "before attachment", "gap before attachment", "an event for a server"],
)
def test_a_malformed_message_is_a_remote_error(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        conversation().receive(payload)


def test_a_notification_without_an_event_in_it_does_not_count_as_received() -> None:
    talk = reading()
    receive(talk, Attachment(1))
    with pytest.raises(RemoteProtocolError):
        receive(talk, protocol.Notify(1, EventId("wb", 1, 1), msgspec.Raw(b"\x01"), ("wb-1",), False))
    assert arrived(receive(talk, notify(1))) == [1]


def test_e01_a_listing_in_parts_is_reported_whole_with_where_to_go_on_from() -> None:
    talk = conversation()
    talk.send(AskBroker(protocol.Inspect(1, "queues", None)))
    assert receive(talk, protocol.Listing(1, ({"user": "a"},), more=True)) == []
    last = protocol.Listing(1, ({"user": "b"},), next="b")
    assert receive(talk, last) == [RequestSettled(1, (), rows=({"user": "a"}, {"user": "b"}), next="b")]
    assert receive(talk, last) == []


def test_g20_events_of_the_outbox_are_numbered_apart_and_repeated_in_order() -> None:
    talk = conversation()
    talk.send(PublishEvent(1, ENCODED))
    for number in (1, 2):
        talk.send(PublishEvent(number, ENCODED, outbox=99))
    assert opening(talk)[1:] == [Publish(1, EVENT), Publish(1, EVENT, 99), Publish(2, EVENT, 99)]
    full = PublishRefused(1, "no room", "disk_full", outbox=True)
    assert receive(talk, full, PublishAccepted(1, EventId("wb", 1, 3))) == [
        PublishSettled(1, None, "no room", outbox=True, limit="disk_full"),
        PublishSettled(1, EventId("wb", 1, 3)),
    ]


def test_x25_events_behind_a_refused_one_of_the_outbox_are_not_repeated() -> None:
    """The broker takes a number below one that it has accepted for a repeat: the event would be lost."""
    talk = conversation()
    for number in (1, 2, 3):
        talk.send(PublishEvent(number, ENCODED, outbox=99))
    talk.send(PublishEvent(5, ENCODED))
    receive(talk, PublishRefused(2, "no room", "disk_full", outbox=True))
    assert opening(talk)[1:] == [Publish(1, EVENT, 99), Publish(5, EVENT)]
    settled = receive(talk, Attachment(1))
    assert settled == [PublishSettled(3, None, "no room", outbox=True, limit="disk_full")]
    talk.send(PublishEvent(2, ENCODED, outbox=99))
    talk.send(PublishEvent(3, ENCODED, outbox=99))
    assert opening(talk)[1:] == [Publish(1, EVENT, 99), Publish(5, EVENT), Publish(2, EVENT, 99), Publish(3, EVENT, 99)]
    assert receive(talk, Attachment(1)) == []


def test_x25_a_permanent_refusal_blocks_no_later_event() -> None:
    talk = conversation()
    for number in (1, 2):
        talk.send(PublishEvent(number, ENCODED, outbox=99))
    receive(talk, PublishRefused(1, "too large", "event_bytes_max", outbox=True))
    assert opening(talk)[1:] == [Publish(2, EVENT, 99)]


def losses(*outputs: Output) -> list[tuple[Loss, ...]]:
    return [output.item.lost for output in outputs if isinstance(output, ItemArrived) and isinstance(output.item, Gap)]


def test_u02_a_grown_gap_reports_only_its_growth() -> None:
    """A slow reader meets a gap at the head of its queue again and again, longer each time."""
    talk = reading()
    receive(talk, Attachment(1))
    gaps = [gap(1, last, Loss("wb-1", "q", last)) for last in (4, 8, 12)]
    assert losses(*receive(talk, *gaps)) == [(Loss("wb-1", "q", 4),)] * 3


def test_u02_a_notification_received_before_its_drop_is_no_loss() -> None:
    talk = reading()
    receive(talk, Attachment(1), notify(1), notify(2), notify(3))
    lost = (Loss("wb-1", "q", 2), Loss("wb-1", "purged", 2))
    (output,) = receive(talk, gap(2, 5, *lost))
    assert output == ItemArrived(Gap(2, "purged", Position(1, 5), (Loss("wb-1", "purged", 2),)), ("wb-1",))


def test_u02_a_gap_from_an_earlier_life_never_counts_more_than_possible() -> None:
    talk = conversation()
    receive(talk, Attachment(1))
    talk.send(AskBroker(msgspec.structs.replace(SUBSCRIBE, resume=Position(1, 7)), reads=True))
    receive(talk, Done(1, (SUBSCRIPTION,)))
    assert losses(*receive(talk, gap(1, 9, Loss("wb-1", "q", 9)))) == [(Loss("wb-1", "q", 2),)]


def test_u02_a_gap_of_which_nothing_is_missing_arrives_empty_so_that_it_can_be_taken() -> None:
    talk = reading()
    receive(talk, Attachment(1), notify(1))
    assert receive(talk, gap(1, 4, Loss("wb-1", "q", 1))) == [ItemArrived(Gap(0, "q", Position(1, 4)), ("wb-1",))]


def test_acknowledgements_of_an_earlier_stream_do_not_count_for_the_present_one() -> None:
    talk = reading()
    another = msgspec.structs.replace(notify(1), id=EventId("wb", 2, 101))
    receive(talk, Attachment(1), notify(1), Attachment(2), another)
    assert talk.send(acknowledgement(1, epoch=1)) is None
    assert talk.send(acknowledgement(1, epoch=2)) == protocol.encode(NotifyAck(1, 1))


def test_x20_the_first_attachment_has_the_choice_about_the_queue() -> None:
    assert opening(conversation(keep=False, keep_queue=True)) == [
        Attach(7, "default", None, False, True, knows_waits=True)
    ]


def test_another_epoch_of_the_same_stream_changes_nothing() -> None:
    talk = reading()
    receive(talk, Attachment(1), notify(1), notify(2))
    following = Attachment(2, first=3, earlier=((1, 1),))
    assert arrived(receive(talk, following, notify(2), notify(3))) == [3]
    assert talk.send(acknowledgement(2)) == protocol.encode(NotifyAck(1, 2))
    attach = Attach(7, "default", None, True, received=Position(2, 3), knows_waits=True)
    assert opening(talk) == [attach, reads((1, "wb-1", Position(1, 2)))]


def test_l04_the_server_of_a_stream_that_another_one_does_not_have_is_named() -> None:
    talk = reading()
    receive(talk, Attachment(1, server="s1"), notify(1))
    assert StreamReplaced(Position(1, 1), 0, "s1") in receive(talk, Attachment(9, server="s2"))


def test_a_stream_that_was_rolled_back_continues_behind_what_both_have() -> None:
    """Numbers 3 to 5 were given in the lost part of the log; 3 and 4 are other events now."""
    talk = reading()
    receive(talk, Attachment(1), *map(notify, range(1, 6)))
    talk.send(acknowledgement(5))
    rolled_back = Attachment(9, first=3, earlier=((1, 1),))
    assert receive(talk, rolled_back) == [StreamReplaced(Position(1, 5), 2)]
    others = [msgspec.structs.replace(notify(number), id=EventId("wb", 9, 100 + number)) for number in (2, 3, 4)]
    assert arrived(receive(talk, *others)) == [3, 4]
    assert talk.send(acknowledgement(5, epoch=1)) is None, "a position of the lost part is not one of this stream"
    assert opening(talk)[1:] == [reads((1, "wb-1", Position(1, 2)))]


def test_an_event_that_comes_again_after_a_rollback_is_acknowledged_without_the_application() -> None:
    talk = reading()
    receive(talk, Attachment(1), *map(notify, range(1, 6)))
    for number in range(1, 6):
        talk.send(acknowledgement(number))
    again = [msgspec.structs.replace(notify(5), number=3), msgspec.structs.replace(notify(9), number=4)]
    outputs = receive(talk, Attachment(9, first=3, earlier=((1, 1),)), again[0])
    assert (arrived(outputs), talk.take_unsent()) == ([], [protocol.encode(NotifyAck(1, 3))])
    repeated = msgspec.structs.replace(notify(4), number=5)
    assert arrived(receive(talk, again[1], repeated)) == [4]
    assert talk.take_unsent() == [], "the application has not acknowledged the one before"
    assert talk.send(acknowledgement(4, epoch=9)) == protocol.encode(NotifyAck(1, 5))


def test_a_successor_of_a_subscription_that_was_missed_begins_with_a_gap() -> None:
    talk = conversation(on_ended="resubmit")
    talk.send(AskBroker(SUBSCRIBE, reads=True))
    receive(talk, Attachment(1), Done(1, (SUBSCRIPTION,)), Attachment(2), Done(-1, ()))
    successor = msgspec.structs.replace(SUBSCRIPTION, id="wb-2")
    (over, gap) = receive(talk, Done(-2, (successor,)))
    assert isinstance(over, SubscriptionOver)
    assert isinstance(gap, ItemArrived)
    assert (gap.item.count, gap.item.reason, gap.subscriptions) == (1, "missed", ("wb-2",))  # type: ignore[union-attr]
