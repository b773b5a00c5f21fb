"""A server whose data was replaced by an earlier copy: nothing is missing without a word (decision 0108)."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest

from tests.broker.desk import ALICE, BOB, Desk
from wanderbus import records
from wanderbus.broker.rollback.rollback import GAP_REASON
from wanderbus.event import EventId, Position
from wanderbus.protocol import (
    Attach,
    Attachment,
    Leave,
    Notify,
    NotifyGap,
    PublishAccepted,
    Read,
    Reader,
    Unsubscribe,
)
from wanderbus.records import decode_record


def phone_with(desk: Desk, numbers: Sequence[int]) -> int:
    """Alice's phone subscribes, and gets events with these numbers from Bob."""
    link = desk.attach()
    desk.subscribed(link)
    publish(desk, numbers)
    return link


def publish(desk: Desk, numbers: Sequence[int], device: str = "desk", epoch: int = 1) -> list[EventId]:
    link = desk.attach(BOB, device, epoch=epoch)
    for n in numbers:
        desk.publish(link, n)
    return [each.id for each in desk.received(link, PublishAccepted)]


def last_position(desk: Desk, link: int) -> Position:
    session = desk.broker.state.sessions[f"{ALICE}/default"]
    return session.position(desk.received(link, Notify)[-1].number)


class Backup:
    """A copy of a desk's disk."""

    def __init__(self, desk: Desk) -> None:
        self.log, self.rows, self.rows_offset = list(desk.log), copy.deepcopy(desk.rows), desk.rows_offset

    def restore(self, desk: Desk) -> None:
        """Put the copy in the place of the disk, and start the server again."""
        desk.log[:] = self.log
        desk.rows, desk.rows_offset = copy.deepcopy(self.rows), self.rows_offset
        desk.later(1.0)
        desk.out.clear()
        desk.start()


def come_back(
    desk: Desk, position: Position | None, device: str = "phone", seen: tuple[EventId, ...] = (), resume: bool = False
) -> int:
    """The agent of a device, which lives on with what it knows, connects again and reads."""
    link = desk.open(ALICE, device)
    resumed = position if resume else None
    desk.send(link, Attach(1, "default", resumed, True, received=None if resume else position, seen=seen))
    desk.read(link, *desk.broker.state.sessions[f"{ALICE}/default"].subscriptions)
    return link


def gaps(desk: Desk, link: int) -> list[str]:
    return [loss.reason for gap in desk.received(link, NotifyGap) for loss in gap.lost]


def rolled_back(desk: Desk) -> list[records.RolledBack]:
    found = map(decode_record, desk.log)
    return [each for each in found if isinstance(each, records.RolledBack)]


@pytest.fixture(params=[False, True], ids=["from-log", "from-rows"])
def copied(desk: Desk, request: pytest.FixtureRequest) -> tuple[Desk, Backup, int]:
    """Events 1 to 3, a copy, and events 4 to 9, all of which Alice's phone has."""
    link = phone_with(desk, range(1, 4))
    if request.param:
        desk.save()
    backup = Backup(desk)
    publish(desk, range(4, 10))
    desk.take(link, 9)
    return desk, backup, link


@pytest.mark.parametrize("before", [0, 3, 6, 10])
@pytest.mark.parametrize("resume", [False, True])
def test_an_agent_that_stayed_gets_all_events_after_the_restore_and_a_gap(
    copied: tuple[Desk, Backup, int], before: int, *, resume: bool
) -> None:
    """Also if the restored log has grown past the agent's position before the agent is back."""
    desk, backup, link = copied
    position = last_position(desk, link)
    backup.restore(desk)
    publish(desk, range(10, 10 + before), epoch=2)
    phone = come_back(desk, position, resume=resume)
    publish(desk, range(10 + before, 20), "late")
    desk.later(10.0)
    attachment = desk.received(phone, Attachment)[-1]
    heard = [each.number for each in desk.received(phone, Notify)]
    epochs = (*attachment.earlier, (attachment.epoch, attachment.first))
    common = next(first for epoch, first in epochs if epoch > position.epoch) - 1
    assert common == 3
    assert sorted(number for number in heard if number > common) == heard[-10:]
    assert len({number for number in heard if number > common}) == 10
    assert gaps(desk, phone) == [GAP_REASON]
    assert len(rolled_back(desk)) == 1
    assert "phone" in rolled_back(desk)[0].reason


@pytest.mark.parametrize("resume", [False, True])
def test_a_position_of_another_server_is_unknown_and_proves_nothing(desk: Desk, *, resume: bool) -> None:
    """Its epoch lies between two of ours, and its number below the second: no copy of this log gave it."""
    phone_with(desk, range(1, 7))
    ours = desk.broker.state.epoch
    desk.later(1.0)
    desk.restart()
    assert desk.broker.state.epoch > ours + 1
    publish(desk, range(7, 10), epoch=2)
    phone = come_back(desk, Position(ours + 1, 5), resume=resume)
    assert [each.number for each in desk.received(phone, Notify)] == list(range(1, 10))
    assert (gaps(desk, phone), rolled_back(desk)) == ([], [])


def test_no_id_of_an_event_is_given_twice(copied: tuple[Desk, Backup, int]) -> None:
    """Not even before somebody has noticed the rollback."""
    desk, backup, link = copied
    lost = {each.id for each in desk.received(link, Notify)}
    backup.restore(desk)
    assert not lost & set(publish(desk, range(10, 20), epoch=2))


def test_a_publisher_proves_the_rollback_and_everybody_gets_a_gap(copied: tuple[Desk, Backup, int]) -> None:
    """Alice was away, so that her position is before the copy: she cannot know."""
    desk, backup, _ = copied
    seen = publish(desk, [9], "pager")[-1]
    backup.restore(desk)
    link = desk.open(BOB, "pager")
    desk.send(link, Attach(1, "default", None, True, seen=(seen,)))
    desk.publish(link, 10)
    phone = come_back(desk, None)
    assert gaps(desk, phone) == [GAP_REASON]
    assert desk.stream(phone)[-1] == 10


def test_every_device_of_a_session_goes_on_where_it_was(desk: Desk) -> None:
    phone = phone_with(desk, [1, 2, 3])
    laptop = desk.attach(device="laptop")
    backup = Backup(desk)
    publish(desk, range(4, 10))
    positions = last_position(desk, phone), last_position(desk, laptop)
    backup.restore(desk)
    publish(desk, [10, 11], epoch=2)
    links = [come_back(desk, position, device) for position, device in zip(positions, ("phone", "laptop"), strict=True)]
    publish(desk, [12], "late")
    for link in links:
        assert [n for n in desk.stream(link) if isinstance(n, int)][-3:] == [10, 11, 12]
        assert gaps(desk, link) == [GAP_REASON]
    assert len(rolled_back(desk)) == 1, "the second proof is of the same rollback"


def test_a_second_rollback_is_found_too(copied: tuple[Desk, Backup, int]) -> None:
    desk, backup, link = copied
    for again in range(1, 4):
        position = last_position(desk, link)
        backup.restore(desk)
        link = come_back(desk, position)
        publish(desk, range(10, 20), epoch=again + 1)
        assert len(rolled_back(desk)) == 1
        assert gaps(desk, link) == [GAP_REASON]


def test_a_restart_alone_is_no_rollback(copied: tuple[Desk, Backup, int]) -> None:
    desk, _, link = copied
    for n in range(10, 60):
        position = last_position(desk, link)
        desk.later(1.0)
        desk.restart(with_rows=False)
        link = come_back(desk, position, seen=tuple(publish(desk, [n], epoch=n)))
        desk.later(10.0)
        assert desk.stream(link)[-1] == n
    assert rolled_back(desk) == []


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_a_position_of_a_session_that_is_over_is_no_rollback(desk: Desk, restarts: int) -> None:
    """The agent counts it to the first epoch in the attachment to the next session."""
    link = phone_with(desk, [1, 2, 3])
    position = last_position(desk, link)
    desk.take(link, 3)
    (subscription,) = desk.broker.state.subscriptions.values()
    desk.send(link, Unsubscribe(1, subscription.subscription.id), Leave(2))
    assert f"{ALICE}/default" not in desk.broker.state.sessions
    desk.attach(device="tablet")
    for _ in range(restarts):
        desk.later(1.0)
        desk.restart()
    desk.later(1.0)
    phone = come_back(desk, position)
    (attachment,) = desk.received(phone, Attachment)
    wanted = desk.subscribed(phone, reads=False)
    desk.send(phone, Read((Reader(50, wanted.id, Position(attachment.epoch, 3)),)))
    publish(desk, [4], "late")
    assert [each.number for each in desk.received(phone, Notify)] == [4]
    assert gaps(desk, phone) == []
    desk.later(1.0)
    desk.restart()
    assert gaps(desk, come_back(desk, Position(attachment.epoch, 3))) == []
    assert not rolled_back(desk)


def test_the_position_before_the_first_notification_is_no_rollback_after_a_restart(desk: Desk) -> None:
    desk.subscribed(desk.attach())
    begin = Position(desk.broker.state.sessions[f"{ALICE}/default"].epoch, 0)
    desk.later(1.0)
    desk.restart()
    assert gaps(desk, come_back(desk, begin)) == []


def test_a_position_older_than_the_kept_epochs_is_trusted(copied: tuple[Desk, Backup, int]) -> None:
    desk, _, link = copied
    position = last_position(desk, link)
    for n in range(10, 60):
        desk.later(1.0)
        desk.restart(with_rows=False)
        publish(desk, [n], epoch=n)
    come_back(desk, position)
    assert rolled_back(desk) == []


def test_a_crash_between_the_gaps_of_many_sessions_loses_none(desk: Desk) -> None:
    for n in range(250):
        desk.subscribed(desk.attach(f"sip:u{n}@example.org"))
    publish(desk, [1])
    backup = Backup(desk)
    lost = publish(desk, [2], epoch=2)[-1]
    backup.restore(desk)
    desk.send(desk.open(BOB, "desk"), Attach(1, "default", None, True, seen=(lost,)))
    at = next(n for n, each in enumerate(map(decode_record, desk.log)) if isinstance(each, records.RolledBack))
    del desk.log[at + 1 :]
    desk.restart()
    desk.later(0.1)
    sessions = [each for each in desk.broker.state.sessions.values() if each.subscriptions]
    assert [each.user for each in sessions if each.dropped.get(GAP_REASON) != 1] == []


def test_a_claim_of_a_user_is_bounded_by_one_gap_for_each_start(desk: Desk) -> None:
    """A user can invent a position; the others get one gap at most for each start of the server."""
    phone_with(desk, [1])
    desk.later(1.0)
    desk.restart()
    alice = desk.attach()
    false = [EventId("wb", 5, 7), EventId("wb", desk.broker.state.epoch, 1_000_000), EventId("wb", 2**62, 1)]
    for n in range(10):
        for seen in false:
            link = desk.open("sip:mallory@example.org", f"d{n}")
            desk.send(link, Attach(1, "default", Position(3, 3), True, received=Position(2**62, 9), seen=(seen,)))
            desk.close(link)
    assert len(rolled_back(desk)) <= 1
    assert len(gaps(desk, alice)) <= 1
