"""Several devices of one user: places in the queue, binding, status, grace (SPEC E-02 to E-10, G-01, G-02, X40)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.desk import ALICE, BOB, Desk
from wanderbus import records
from wanderbus.broker.messages import DialogChanged, LinkClosed, UserStatusChanged
from wanderbus.machine import TimerFired
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attach, Attachment, Done, Kick, Leave, Notify, RequestRefused

DEFAULT = f"{ALICE}/default"


def pair(desk: Desk, **options: Any) -> tuple[int, int, int]:
    """Links of Alice's phone, which subscribed to everything, of her laptop, and of Bob."""
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    desk.subscribed(phone, **options)
    return phone, laptop, desk.attach(BOB)


def test_e03_e04_each_device_gets_everything(desk: Desk) -> None:
    phone, laptop, bob = pair(desk)
    for n in (1, 2):
        desk.publish(bob, n)
    assert desk.stream(phone) == desk.stream(laptop) == [1, 2]


def test_design_5_4_an_entry_goes_when_every_member_has_taken_it(desk: Desk) -> None:
    phone, laptop, bob = pair(desk)
    for n in (1, 2, 3):
        desk.publish(bob, n)
    assert len(desk.broker.state.queue) == 3
    desk.take(phone, 3)
    assert len(desk.broker.state.queue) == 3
    desk.take(laptop, 2)
    assert [entry.number for entry in desk.broker.state.queue.ensure(DEFAULT)] == [3]
    desk.take(laptop, 3)
    assert len(desk.broker.state.queue) == 0


def test_design_5_4_each_device_continues_at_its_own_place(desk: Desk) -> None:
    phone, laptop, bob = pair(desk)
    for n in (1, 2, 3):
        desk.publish(bob, n)
    desk.take(phone, 2)
    desk.take(laptop, 1)
    assert desk.stream(desk.attach()) == [3]
    assert desk.stream(desk.attach(device="laptop")) == [2, 3]


def test_e02_x14_a_session_has_its_devices_with_address_and_state(desk: Desk) -> None:
    pair(desk)
    desk.give(DialogChanged(ALICE, "phone", "10.0.0.1:40000", b"dialog"))
    assert [row.devices for row in desk.broker.state.sessions_of(ALICE)] == [["phone", "laptop"]]
    phone = desk.broker.state.devices[f"{ALICE}/phone"]
    assert (phone.address, phone.status, phone.session) == ("10.0.0.1:40000", "CONNECTED", "default")


def test_e03_a_new_device_begins_with_what_is_still_queued(desk: Desk) -> None:
    phone, _, bob = pair(desk)
    for n in (1, 2):
        desk.publish(bob, n)
    desk.take(phone, 1)
    assert desk.stream(desk.attach(device="tablet")) == [2], "the user has taken 1, though the laptop has not"


@pytest.mark.parametrize("with_rows", [False, True])
def test_e05_a_bound_subscription_notifies_its_device_alone(desk: Desk, with_rows: bool) -> None:
    phone, laptop, bob = pair(desk, this_device_only=True)
    desk.publish(bob, 1)
    assert (desk.stream(phone), desk.stream(laptop)) == ([1], [])
    desk.save()
    desk.restart(with_rows=with_rows)
    assert desk.stream(desk.attach(device="laptop")) == []
    assert desk.stream(desk.attach()) == [1]


def test_e05_a_bound_notification_waits_for_its_device_only(desk: Desk) -> None:
    phone, _, bob = pair(desk, this_device_only=True)
    for n in (1, 2):
        desk.publish(bob, n)
    desk.take(phone, 2)
    assert len(desk.broker.state.queue) == 0
    assert desk.broker.state.sessions[DEFAULT].delivered == 2


def test_e05_a_devices_stream_has_no_notifications_bound_to_another(desk: Desk) -> None:
    phone, laptop, bob = pair(desk, expression="Kind == bound", this_device_only=True)
    desk.subscribed(phone, "Kind == all")
    for n, kind in enumerate(["bound", "all", "bound", "all", "bound"], 1):
        desk.publish(bob, n, Kind=kind)
    assert desk.stream(laptop) == [2, 4]
    desk.take(laptop, 2)
    laptop = desk.attach(device="laptop")
    assert desk.stream(laptop) == [4]
    desk.take(laptop, 4)
    assert len(desk.broker.state.queue) == 5, "the phone has taken nothing"


def test_e05_one_event_for_a_bound_and_a_free_subscription_names_those_that_are_for_the_device(desk: Desk) -> None:
    phone, laptop, bob = pair(desk, expression="N > 0", this_device_only=True)
    free = desk.subscribed(laptop, "N > 0")
    desk.publish(bob, 1)
    assert [len(notify.subscriptions) for notify in desk.received(phone, Notify)] == [2]
    assert [notify.subscriptions for notify in desk.received(laptop, Notify)] == [(free.id,)]


def test_e05_more_than_a_window_of_what_is_bound_elsewhere_does_not_stop_the_stream() -> None:
    """The window counts only notifications for this device, and none of these are."""
    desk = Desk(BrokerConfig(unacknowledged_max=2))
    phone, laptop, bob = pair(desk, expression="Kind == bound", this_device_only=True)
    desk.subscribed(phone, "Kind == all")
    desk.close(laptop)
    for n in range(1, 6):
        desk.publish(bob, n, Kind="bound")
    desk.publish(bob, 6, Kind="all")
    assert desk.stream(desk.attach(device="laptop")) == [6]


def test_e10_a_new_session_of_the_same_device_replaces_the_old_and_keeps_its_place(desk: Desk) -> None:
    old = desk.attach()
    desk.subscribed(old)
    new = desk.attach(epoch=2)
    bob = desk.attach(BOB)
    desk.publish(bob, 1)
    assert (desk.stream(old), desk.stream(new)) == ([], [1])
    desk.publish(old, 7)
    assert desk.accepted(old) == []
    desk.close(old)
    assert desk.broker.status(ALICE) == "CONNECTED"
    assert desk.broker.state.sessions[DEFAULT].devices == ["phone"]


def test_e06_e07_a_user_is_connected_while_any_device_is(desk: Desk) -> None:
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    desk.close(phone)
    assert desk.broker.status(ALICE) == "CONNECTED"
    desk.close(laptop)
    assert desk.broker.status(ALICE) == "DISCONNECTED"
    desk.attach()
    assert desk.statuses == [
        UserStatusChanged(ALICE, "CONNECTED"),
        UserStatusChanged(ALICE, "DISCONNECTED"),
        UserStatusChanged(ALICE, "CONNECTED"),
    ]


def test_e07_each_change_of_a_device_is_in_the_log_with_its_reason(desk: Desk) -> None:
    link = desk.attach()
    desk.give(LinkClosed(link, "the agent does not answer"))
    desk.attach()
    assert [(r.device, r.status, r.reason) for r in desk.written(records.StatusChanged)] == [
        ("phone", "CONNECTED", "session established"),
        ("phone", "DISCONNECTED", "the agent does not answer"),
        ("phone", "CONNECTED", "session established"),
    ]


def test_e06_after_a_restart_users_are_disconnected_until_reached(desk: Desk) -> None:
    desk.attach()
    desk.restart()
    assert desk.broker.status(ALICE) == "DISCONNECTED"
    assert desk.broker.state.devices[f"{ALICE}/phone"].status == "DISCONNECTED"
    desk.attach()
    assert desk.broker.state.devices[f"{ALICE}/phone"].away_since_us is None


def test_x40_a_device_away_for_longer_than_the_grace_is_no_member_but_the_last_one_stays() -> None:
    desk = Desk(BrokerConfig(device_grace_s=100.0))
    phone, laptop, bob = pair(desk)
    desk.publish(bob, 1)
    desk.close(laptop)
    desk.take(phone, 1)
    desk.later(99.0)
    assert len(desk.broker.state.queue) == 1
    desk.later(2.0)
    assert desk.broker.state.sessions[DEFAULT].devices == ["phone"]
    assert len(desk.broker.state.queue) == 0
    assert [(r.device, r.reason) for r in desk.written(records.Left)] == [("laptop", "grace")]
    desk.close(phone)
    desk.publish(bob, 2)
    desk.later(1000.0)
    assert desk.broker.state.sessions[DEFAULT].devices == ["phone"]
    assert desk.stream(desk.attach()) == [2]


def test_x40_a_device_that_came_back_in_time_stays() -> None:
    desk = Desk(BrokerConfig(device_grace_s=100.0))
    _, laptop, _ = pair(desk)
    desk.close(laptop)
    desk.later(60.0)
    laptop = desk.attach(device="laptop")
    desk.later(60.0)
    desk.close(laptop)
    desk.later(60.0)
    assert desk.written(records.Left) == []
    desk.later(50.0)
    assert [record.device for record in desk.written(records.Left)] == ["laptop"]


def test_x40_the_grace_of_a_connected_device_is_not_running(desk: Desk) -> None:
    """Not even when its timer fires in the same moment in which the device is back."""
    _, laptop, _ = pair(desk)
    desk.close(laptop)
    key = ("grace", ALICE, "laptop")
    assert key in desk.timers
    desk.attach(device="laptop")
    assert key not in desk.timers
    desk.give(TimerFired(key))
    assert desk.written(records.Left) == []


@pytest.mark.parametrize("jump_s", [-3_600, 3_600])
def test_x40_design_5_8_the_grace_is_no_other_by_more_than_a_tenth_when_the_wall_clock_is_set(jump_s: int) -> None:
    desk = Desk(BrokerConfig(device_grace_s=100.0))
    _, laptop, _ = pair(desk)
    desk.close(laptop)
    desk.offset_us = jump_s * 1_000_000
    for _ in range(89):
        desk.later(1.0)
        desk.give()
    assert desk.written(records.Left) == []
    for second in range(90, 114):
        desk.later(1.0)
        desk.give()
        if second < 109 and jump_s < 0:
            assert desk.written(records.Left) == [], "the broker's clock goes slower than the timer"
    assert [record.device for record in desk.written(records.Left)] == ["laptop"]


@pytest.mark.parametrize("with_rows", [False, True])
def test_x40_the_grace_runs_on_over_a_restart(with_rows: bool) -> None:
    desk = Desk(BrokerConfig(device_grace_s=100.0))
    _, laptop, _ = pair(desk)
    desk.close(laptop)
    desk.later(60.0)
    desk.save()
    desk.restart(with_rows=with_rows)
    desk.attach()
    desk.later(41.0)
    assert [record.device for record in desk.written(records.Left)] == ["laptop"]


def test_x40_with_no_member_at_all_the_queue_waits(desk: Desk) -> None:
    phone, laptop, bob = pair(desk)
    for number, link in enumerate((phone, laptop), 1):
        desk.send(link, Leave(number))
        assert desk.received(link, Done)[-1] == Done(number, ())
    desk.publish(bob, 1)
    assert desk.broker.state.sessions[DEFAULT].devices == []
    assert desk.stream(desk.attach(device="tablet")) == [1]


def test_leaving_frees_the_queue_and_ends_the_status(desk: Desk) -> None:
    phone, laptop, bob = pair(desk)
    desk.publish(bob, 1)
    desk.publish(laptop, 2)
    desk.take(phone, 2)
    desk.send(laptop, Leave(1))
    assert len(desk.broker.state.queue) == 0
    assert f"{ALICE}/laptop" not in desk.broker.state.devices
    assert f"{ALICE}/laptop" not in desk.broker.state.publishers
    desk.send(phone, Leave(1))
    assert desk.broker.status(ALICE) == "DISCONNECTED"
    assert desk.statuses[-1] == UserStatusChanged(ALICE, "DISCONNECTED")


def test_a_device_is_in_one_session_at_a_time_and_its_place_counts_there(desk: Desk) -> None:
    """Numbers of one session mean nothing in another: switching sessions must lose nothing."""
    bob = desk.attach(BOB)
    work = desk.attach(session="work")
    desk.subscribed(work, "Kind == work")
    home = desk.attach(session="home", epoch=2)
    desk.subscribed(home, "Kind == home")
    for n in range(1, 6):
        desk.publish(bob, n, Kind="home")
    desk.take(home, 5)
    for n in (6, 7):
        desk.publish(bob, n, Kind="work")
    work = desk.attach(session="work", epoch=3)
    assert desk.stream(work) == [6, 7]
    assert [notify.redelivered for notify in desk.received(work, Notify)] == [False, False]
    desk.take(work, 2)
    assert desk.broker.state.sessions[f"{ALICE}/home"].devices == []
    assert len(desk.broker.state.queue) == 0


@pytest.mark.parametrize(
    ("config", "limit"), [(BrokerConfig(sessions_max=1), "sessions_max"), (BrokerConfig(devices_max=1), "devices_max")]
)
def test_bounds_of_sessions_and_devices_are_named_in_the_refusal(config: BrokerConfig, limit: str) -> None:
    desk = Desk(config)
    desk.attach()
    link = desk.attach(device="laptop", session="default" if limit == "devices_max" else "work")
    (refused,) = desk.received(link, RequestRefused)
    assert (refused.request, refused.limit) == (0, limit)
    assert limit in refused.reason
    assert desk.received(link, Attachment) == []
    assert desk.received(desk.attach(), Attachment)
    assert desk.received(desk.attach(BOB), Attachment)


@pytest.mark.parametrize("name", ["", "a/b", "é", "x" * 65, "a b", "a\n"])
def test_a_session_name_is_plain(desk: Desk, name: str) -> None:
    link = desk.attach(session=name)
    (refused,) = desk.received(link, RequestRefused)
    assert "session's name" in refused.reason
    assert len(desk.broker.state.sessions) == 0


def test_a_second_attachment_on_one_link_is_ignored(desk: Desk) -> None:
    link = desk.attach()
    desk.send(link, Attach(9, "work", None, False))
    assert len(desk.received(link, Attachment)) == 1
    assert list(dict(desk.broker.state.sessions.items())) == [DEFAULT]


@pytest.mark.parametrize("with_rows", [False, True])
def test_design_6_3_signalling_state_of_a_device_survives_a_restart(desk: Desk, with_rows: bool) -> None:
    desk.attach()
    desk.give(DialogChanged(ALICE, "phone", "10.0.0.1:40000", b"dialog"))
    desk.save()
    desk.restart(with_rows=with_rows)
    assert desk.broker.state.devices[f"{ALICE}/phone"].binding == b"dialog"
    desk.give(DialogChanged(ALICE, "phone", "", b""))
    assert not desk.broker.state.devices[f"{ALICE}/phone"].binding
    assert [record.address for record in desk.written(records.DialogStored)] == ["10.0.0.1:40000", ""]


def test_nothing_is_kept_of_an_unknown_device_that_ended(desk: Desk) -> None:
    desk.give(DialogChanged(ALICE, "phone", "", b""))
    assert desk.written(records.DialogStored) == []


@pytest.mark.parametrize("how", ["left", "kicked"])
def test_x40_nothing_is_remembered_of_devices_that_are_members_no_more(how: str) -> None:
    """Agents that are a device for one time only come and go without end."""
    desk = Desk()
    keeper = desk.attach(device="keeper")
    for n in range(20):
        link = desk.attach(device=f"device{n}")
        desk.send(link, Leave(1)) if how == "left" else desk.send(keeper, Kick(n + 1, ALICE, f"device{n}", True))
    assert [row.device for row in desk.broker.state.devices.values()] == ["keeper"]
    assert desk.broker._links._handed == {}
