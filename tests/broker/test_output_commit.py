"""Output commit: a message is sent only after the records it depends on are durable (DESIGN 5.1, SPEC T-01, X22)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, SUBJECT, Desk
from wanderbus import protocol, records
from wanderbus.broker.messages import Append, Appended, MessageArrived, SendOnLink
from wanderbus.broker.state.drops import drops_of
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Event
from wanderbus.machine import CancelTimer, Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    Attach,
    Attachment,
    Done,
    Notify,
    NotifyAck,
    NotifyGap,
    Publish,
    PublishAccepted,
    Query,
    StopReading,
    Subscribe,
)
from wanderbus.records import SERVER_LOG, decode_record
from wanderbus.subscription import QueuePolicy


def sent_kinds(outputs: list[Output]) -> list[object]:
    """The kinds of message that leave in ``outputs``."""
    return [type(protocol.decode_from_broker(o.payload)) for o in outputs if isinstance(o, SendOnLink)]


def kinds_written(outputs: list[Output]) -> list[object]:
    return [type(decode_record(data)) for o in outputs if isinstance(o, Append) for _, _, data in o.entries]


def message(link: int, said: protocol.AgentMessage) -> MessageArrived:
    return MessageArrived(link, protocol.encode(said))


@pytest.fixture
def busy(desk: Desk) -> tuple[Desk, int]:
    """Alice is attached and subscribed to everything."""
    link = desk.attach()
    desk.subscribed(link)
    return desk, link


def test_design_5_1_a_publish_is_acknowledged_and_notified_after_its_sync_and_not_before(
    busy: tuple[Desk, int],
) -> None:
    desk, link = busy
    outputs = desk.step(message(link, Publish(1, Event(SUBJECT, {"N": 1}))))
    assert sent_kinds(outputs) == []
    assert kinds_written(outputs) == [records.Published]
    offset = len(desk.log)
    assert desk.step(Appended(SERVER_LOG, offset)) == []
    assert sent_kinds(desk.step(Appended(SERVER_LOG, offset + 1))) == [Notify, PublishAccepted]


def test_design_5_1_one_record_holds_the_event_and_its_notifications(busy: tuple[Desk, int]) -> None:
    """One commit covers both: a crash cannot keep the event and lose its notifications."""
    desk, link = busy
    desk.publish(link, 1)
    published = desk.written(records.Published)
    assert [(n.user, n.session, n.number) for n in published[0].delivery.notified] == [(ALICE, "default", 1)]


@pytest.mark.parametrize(
    ("asked", "answer", "written"),
    [
        (Subscribe(1, SUBJECT, "A == 1", None, (), False), Done, [records.Subscribed]),
        (protocol.Renew(1, "wb-gqll7vatq8-3", 60.0), Done, [records.Changed]),
        (protocol.Unsubscribe(1, "wb-gqll7vatq8-3"), Done, [records.Unsubscribed]),
        (protocol.Leave(1), Done, [records.Left]),
    ],
)
def test_design_5_1_requests_are_answered_when_durable(
    busy: tuple[Desk, int], asked: protocol.AgentMessage, answer: object, written: list[object]
) -> None:
    desk, link = busy
    assert next(iter(desk.broker.state.subscriptions.values())).subscription.id == "wb-gqll7vatq8-3"
    outputs = desk.step(message(link, asked))
    assert sent_kinds(outputs) == []
    assert kinds_written(outputs) == written
    assert sent_kinds(desk.step(Appended(SERVER_LOG, len(desk.log) + 1))) == [answer]


def test_design_5_1_an_attachment_is_confirmed_when_durable(desk: Desk) -> None:
    """The epoch of an agent's life must not be forgotten after it was used to tell repeats."""
    link = desk.open(ALICE, "phone")
    outputs = desk.step(message(link, Attach(1, "default", None, True)))
    assert sent_kinds(outputs) == []
    assert sent_kinds(desk.step(Appended(SERVER_LOG, len(desk.log) + 1))) == [Attachment]


def test_design_5_1_several_commits_release_their_outputs_one_by_one_in_order(busy: tuple[Desk, int]) -> None:
    desk, link = busy
    desk.held = True
    for n in (1, 2, 3):
        desk.publish(link, n)
    start = len(desk.log) - 3
    released = [sent_kinds(desk.step(Appended(SERVER_LOG, start + done))) for done in (1, 2, 3)]
    assert released == [[Notify, PublishAccepted]] * 3


def test_design_5_1_a_later_answer_waits_behind_an_earlier_commit(busy: tuple[Desk, int]) -> None:
    """A query writes nothing, but its response depends on a subscription that is not durable yet."""
    desk, link = busy
    desk.held = True
    desk.send(link, Subscribe(7, SUBJECT, "A == 1", None, (), False))
    before = len(desk.out[link])
    desk.send(link, Query(8))
    assert desk.out[link][before:] == []
    desk.sync()
    assert [m.request for m in desk.out[link][before:] if isinstance(m, Done)] == [7, 8]


def test_took_and_status_records_hold_nothing_back(busy: tuple[Desk, int]) -> None:
    """They may be lost without harm: a notify-ack is repeated, a status is found out again."""
    desk, link = busy
    desk.publish(link, 1)
    desk.held = True
    outputs = desk.step(message(link, NotifyAck(1, 1)), message(link, Query(9)))
    assert kinds_written(outputs) == [records.Acknowledged]
    assert sent_kinds(outputs) == [Done]


def test_an_append_is_urgent_if_anything_may_wait_for_it(busy: tuple[Desk, int]) -> None:
    desk, link = busy
    desk.publish(link, 1)
    desk.sync()

    def urgent(*said: protocol.AgentMessage) -> list[bool]:
        outputs = desk.step(*(message(link, each) for each in said))
        return [output.urgent for output in outputs if isinstance(output, Append)]

    assert urgent(NotifyAck(1, 1)) == [False]
    assert urgent(Publish(2, Event(SUBJECT, {"N": 2}))) == [True]
    assert urgent(Publish(3, Event(SUBJECT, {"N": 3})), NotifyAck(1, 2)) == [True]
    assert urgent(NotifyAck(1, 3), Publish(4, Event(SUBJECT, {"N": 4}))) == [True]
    assert urgent(NotifyAck(1, 4)) == [False], "what came before is on its way already"


def test_a_status_change_is_reported_at_once(busy: tuple[Desk, int]) -> None:
    desk, link = busy
    desk.held = True
    desk.close(link)
    assert [change.status for change in desk.statuses] == ["CONNECTED", "DISCONNECTED"]


def test_records_follow_outputs_that_are_already_released(busy: tuple[Desk, int]) -> None:
    """A slow disk write does not delay messages that are ready."""
    desk, link = busy
    outputs = desk.step(message(link, Query(1)), message(link, Publish(1, Event(SUBJECT, {"N": 1}))))
    assert [type(output) for output in outputs] == [SendOnLink, Append]


def test_a_crash_before_the_sync_loses_only_unacknowledged_records(busy: tuple[Desk, int]) -> None:
    desk, link = busy
    durable = len(desk.log)
    desk.held = True
    desk.publish(link, 1)
    assert desk.accepted(link) == []
    assert desk.stream(link) == []
    del desk.log[durable:]
    desk.held = False
    desk.restart()
    again = desk.attach()
    assert desk.stream(again) == []
    desk.publish(again, 1)
    assert desk.accepted(again) == [1]
    assert desk.stream(again) == [1]


def test_journal_starts_with_what_it_finds_durable() -> None:
    state = BrokerState("wb", 8)
    state.offset = 7
    journal = Journal(state)
    journal.emit(CancelTimer("now"))
    assert journal.drain() == [CancelTimer("now")]
    assert journal.drain() == []
    offset = journal.write(records.Started(at_us=1, server="wb", incarnation=1), urgent=True)
    assert offset == 7
    journal.emit(CancelTimer("held"))
    (append,) = journal.drain()
    assert isinstance(append, Append)
    assert [entry[:2] for entry in append.entries] == [(7, 1)]
    journal.appended(SERVER_LOG, 7)
    assert journal.drain() == []
    journal.appended(SERVER_LOG, 8)
    assert journal.drain() == [CancelTimer("held")]
    journal.appended(SERVER_LOG, 3)
    journal.emit(CancelTimer("free"))
    assert journal.drain() == [CancelTimer("free")]


def test_u02_a_gap_is_sent_after_its_drop_is_durable() -> None:
    """After a crash the notification would wait again, although its application was already notified of the gap."""
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=2), unacknowledged_max=1))
    link = desk.attach()
    desk.subscribed(link)
    for n in (1, 2, 3):
        desk.publish(link, n)
    desk.held = True
    desk.publish(link, 4)
    published = len(desk.log) - 1
    record = decode_record(desk.log[published])
    assert isinstance(record, records.Published)
    assert [drop.first for drop in drops_of(record)] == [2]
    desk.give(Appended(SERVER_LOG, published))
    desk.take(link, 1)
    assert desk.received(link, NotifyGap) == []
    desk.sync()
    assert [(gap.first, gap.last) for gap in desk.received(link, NotifyGap)] == [(2, 2)]


def test_the_end_of_a_reader_syncs_its_acknowledgements(busy: tuple[Desk, int]) -> None:
    """An application that has left cannot repeat its acknowledgement."""
    desk, link = busy
    desk.publish(link, 1)
    (handle,) = desk.reading[link].values()
    (taken,) = [o for o in desk.step(message(link, NotifyAck(handle, 1))) if isinstance(o, Append)]
    assert not taken.urgent
    (ended,) = [o for o in desk.step(message(link, StopReading(handle))) if isinstance(o, Append)]
    assert ended.urgent
    assert not [o for o in desk.step(message(link, StopReading(handle))) if isinstance(o, Append)]


def test_a_report_about_the_log_of_others_releases_nothing(desk: Desk) -> None:
    desk.held = True
    link = desk.open(ALICE, "phone")
    outputs = desk.step(message(link, Attach(1, "default", None, True)))
    (append,) = [each for each in outputs if isinstance(each, Append)]
    assert append.log == SERVER_LOG
    assert desk.step(Appended("channel", append.entries[-1][0] + 1)) == []
    assert sent_kinds(desk.step(Appended(append.log, append.entries[-1][0] + 1))) == [Attachment]
