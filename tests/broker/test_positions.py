"""Position where a returning agent continues: cursor, resume, redelivered (DESIGN 5.5, SPEC G-09, G-19, E-10)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk
from wanderbus.broker.rollback.earlier_positions import GAP_REASON
from wanderbus.event import Position
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attach, Attachment, Notify, NotifyGap, Read, Reader, Subscribe


def published(desk: Desk, count: int) -> int:
    """Alice subscribes on her phone, and ``count`` events are sent there and not taken."""
    link = desk.attach(epoch=1)
    desk.subscribed(link)
    bob = desk.attach(BOB)
    for n in range(1, count + 1):
        desk.publish(bob, n)
    return link


def marks(desk: Desk, link: int) -> dict[int, bool]:
    return {notify.number: notify.redelivered for notify in desk.received(link, Notify)}


def test_the_attachment_has_the_epoch_and_the_reader_continues_at_its_position(desk: Desk) -> None:
    link = published(desk, 3)
    desk.take(link, 2)
    again = desk.attach()
    assert desk.received(again, Attachment) == [Attachment(desk.epoch())]
    assert desk.stream(again) == [3]


def test_design_5_5_a_new_life_gets_the_untaken_again_marked_redelivered(desk: Desk) -> None:
    link = published(desk, 3)
    desk.take(link, 1)
    again = desk.attach(epoch=2)
    desk.publish(desk.attach(BOB, "desk"), 4)
    assert marks(desk, again) == {2: True, 3: True, 4: False}


def test_design_5_5_the_same_life_gets_them_unmarked(desk: Desk) -> None:
    published(desk, 2)
    assert marks(desk, desk.attach(epoch=1)) == {1: False, 2: False}


def test_design_5_5_a_resuming_device_gets_unmarked_notifications_after_its_position(desk: Desk) -> None:
    published(desk, 3)
    assert marks(desk, desk.attach(epoch=2, resume=1)) == {2: False, 3: False}


def test_design_5_5_marks_stay_when_the_second_life_reconnects(desk: Desk) -> None:
    published(desk, 2)
    desk.attach(epoch=2)
    again = desk.attach(epoch=2)
    assert marks(desk, again) == {1: True, 2: True}


def test_design_5_5_notifications_queued_during_an_absence_are_not_redelivered(desk: Desk) -> None:
    """It was never sent, so no life of the agent can have seen it."""
    desk.close(published(desk, 1))
    desk.publish(desk.attach(BOB, "desk"), 2)
    assert marks(desk, desk.attach(epoch=2)) == {1: True, 2: False}


def test_design_5_5_only_what_went_out_is_marked() -> None:
    desk = Desk(BrokerConfig(unacknowledged_max=2))
    published(desk, 4)
    again = desk.attach(epoch=2)
    desk.take(again, 2)
    assert marks(desk, again) == {1: True, 2: True, 3: False, 4: False}


@pytest.mark.parametrize("with_rows", [False, True])
def test_design_5_5_after_a_restart_of_the_broker_all_that_was_queued_may_have_been_seen(
    desk: Desk, with_rows: bool
) -> None:
    published(desk, 2)
    desk.save()
    desk.restart(with_rows=with_rows)
    again = desk.attach(epoch=2)
    desk.publish(desk.attach(BOB, "desk"), 3)
    assert marks(desk, again) == {1: True, 2: True, 3: False}


def test_design_5_5_another_device_gets_what_the_first_may_have_seen_with_a_mark(desk: Desk) -> None:
    published(desk, 2)
    laptop = desk.attach(device="laptop", epoch=9)
    desk.publish(desk.attach(BOB, "desk"), 3)
    assert marks(desk, laptop) == {1: True, 2: True, 3: False}


def test_resuming_counts_as_taking(desk: Desk) -> None:
    published(desk, 3)
    link = desk.attach(epoch=2, resume=2)
    assert desk.stream(link) == [3]
    assert len(desk.broker.state.queue) == 1


def test_resuming_behind_the_cursor_goes_on_at_the_cursor_after_a_gap(desk: Desk) -> None:
    """The application was restored from a copy: what a later life of it has taken is here no more."""
    desk.take(published(desk, 5), 4)
    link = desk.attach(epoch=2, resume=1)
    assert desk.stream(link) == [(2, 4), 5]
    (gap,) = desk.received(link, NotifyGap)
    assert [(loss.reason, loss.count) for loss in gap.lost] == [(GAP_REASON, 1)]
    desk.take(link, 4)
    assert desk.stream(desk.attach(epoch=3, resume=4)) == [5]
    assert desk.stream(desk.attach(epoch=4, resume=1)) == [(2, 4), 5]


def test_resuming_one_subscription_behind_its_cursor_leaves_a_gap_in_it(desk: Desk) -> None:
    desk.take(published(desk, 3), 2)
    again = desk.attach(epoch=2, reads=False)
    desk.send(again, Subscribe(9, SUBJECT, "", None, (), False, reader=7, resume=Position(desk.epoch(), 1)))
    assert desk.stream(again) == [(2, 2), 3]
    assert [gap.reader for gap in desk.received(again, NotifyGap)] == [7]


def test_a_life_that_reads_again_gets_no_gap_for_what_it_has_taken_itself(desk: Desk) -> None:
    link = published(desk, 3)
    desk.take(link, 1)
    again = desk.attach(epoch=2, resume=1)
    desk.take(again, 3)
    position = Position(desk.epoch(), 1)
    same = desk.open(ALICE, "phone")
    desk.send(same, Attach(2, "default", position, True, received=Position(desk.epoch(), 3)))
    desk.read(same, *desk.broker.state.sessions[f"{ALICE}/default"].subscriptions)
    assert desk.received(same, NotifyGap) == []


def test_a_life_without_a_position_gets_no_gap_that_an_earlier_one_did_not_read(desk: Desk) -> None:
    desk.take(published(desk, 3), 2)
    desk.attach(epoch=2, resume=1, reads=False)
    assert desk.stream(desk.attach(epoch=3)) == [3]


def test_resuming_behind_the_end_of_a_queue_leaves_a_gap(desk: Desk) -> None:
    desk.take(published(desk, 3), 3)
    assert desk.stream(desk.attach(epoch=2, resume=1)) == [(2, 3)]


def test_another_device_that_has_taken_less_changes_nothing(desk: Desk) -> None:
    link = published(desk, 3)
    laptop = desk.attach(device="laptop")
    desk.take(link, 2)
    desk.take(laptop, 1)
    assert desk.stream(desk.attach(epoch=2, resume=1)) == [(2, 2), 3]
    assert desk.stream(desk.attach(device="laptop", epoch=2, resume=1)) == [2, 3]


def test_a_reader_that_is_opened_again_gets_no_second_gap(desk: Desk) -> None:
    desk.take(published(desk, 3), 2)
    again = desk.attach(epoch=2, resume=1)
    (subscription,) = desk.broker.state.subscriptions
    desk.send(again, Read((Reader(77, subscription),)))
    assert len(desk.received(again, NotifyGap)) == 1


def test_resuming_beyond_the_stream_takes_what_there_is(desk: Desk) -> None:
    """This happens after the loss of a disk: the next numbers must still arrive."""
    published(desk, 3)
    link = desk.attach(epoch=2, resume=1000)
    desk.publish(desk.attach(BOB, "desk"), 4)
    assert desk.stream(link) == [4]


def test_a_position_of_another_epoch_is_not_of_this_stream_and_leaves_a_gap(desk: Desk) -> None:
    published(desk, 3)
    link = desk.open(ALICE, "phone")
    desk.send(link, Attach(2, "default", Position(7, 3), True))
    desk.read(link, *desk.broker.state.sessions[f"{ALICE}/default"].subscriptions)
    assert desk.stream(link) == [1, 2, 3, (4, 4)]


def test_g09_keep_false_drops_the_queue_of_this_device_and_starts_at_the_end(desk: Desk) -> None:
    published(desk, 3)
    laptop = desk.attach(device="laptop")
    link = desk.attach(epoch=2, keep=False)
    desk.subscribed(link)
    desk.publish(desk.attach(BOB, "desk"), 4)
    assert desk.stream(link) == [4]
    assert desk.stream(laptop) == [1, 2, 3, 4], "a device that keeps the session has what waits for it"


def test_a_broker_that_lost_everything_begins_another_stream(desk: Desk) -> None:
    """DESIGN 5.3: numbers start at 1 again; a position of the lost stream hides nothing, and leaves a gap."""
    published(desk, 3)
    lost = Position(desk.epoch(), 3)
    fresh = Desk()
    fresh.now = desk.now + 60.0
    published(fresh, 2)
    link = fresh.open(ALICE, "phone")
    fresh.send(link, Attach(1, "default", lost, True))
    fresh.read(link, *fresh.broker.state.sessions[f"{ALICE}/default"].subscriptions)
    assert fresh.epoch() > lost.epoch
    assert fresh.stream(link) == [1, 2, (3, 3)]
