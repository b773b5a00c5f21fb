"""An operator's hook for devices that disconnect, reconnect and leave (SPEC G-24)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.broker.desk import ALICE, BOB, START_US, Desk, rows_of
from wanderbus import records
from wanderbus.broker.core import Broker
from wanderbus.broker.device_changes import DeviceChange, Handling, Hook
from wanderbus.broker.disconnection import GRACE_S_MAX, DisconnectionHook
from wanderbus.broker.messages import ExtensionFailed
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Kick, Leave

DAY_S = 86_400.0
SHORT = BrokerConfig(device_grace_s=100.0)


class HookDesk(Desk):
    """A desk whose broker has a hook that records its calls."""

    def __init__(self, decide: Hook, config: BrokerConfig | None = None) -> None:
        self.asked: list[DeviceChange] = []
        self.failed: list[ExtensionFailed] = []
        self._decide = decide
        super().__init__(config)

    def start(self) -> None:
        def noting(change: DeviceChange) -> Handling | None:
            self.asked.append(change)
            return self._decide(change)

        self.broker = Broker(self.recovered(), self.config, hook=DisconnectionHook(noting))
        self.timers.clear()
        self.give(ServerStarted())

    def perform(self, outputs: Sequence[Output]) -> None:
        super().perform(outputs)
        self.failed += [output for output in outputs if isinstance(output, ExtensionFailed)]

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        return [(change.change, change.device, change.reason) for change in self.asked]

    def members(self, user: str = ALICE) -> list[str]:
        return list(self.broker.state.sessions[f"{user}/default"].devices)


def on(change: str, handling: Handling) -> Hook:
    """A hook that returns a decision for one kind of change, and None for others."""
    return lambda asked: handling if asked.change == change else None


def test_g24_the_hook_receives_each_change_and_the_queue_size() -> None:
    desk = HookDesk(on("none", Handling()))
    link = desk.attach()
    desk.subscribed(link)
    assert desk.asked == []
    desk.close(link)
    bob = desk.attach(BOB)
    desk.publish(bob, 1)
    desk.later(50.0)
    back = desk.attach()
    desk.send(back, Leave(7))
    assert [change for change in desk.asked if change.user == ALICE] == [
        DeviceChange(
            change="disconnected",
            user=ALICE,
            session="default",
            device="phone",
            reason="the agent does not answer",
            now_us=START_US,
            away_s=0.0,
            waiting=0,
            waiting_bytes=0,
            others_connected=False,
        ),
        DeviceChange(
            change="reconnected",
            user=ALICE,
            session="default",
            device="phone",
            reason="session established",
            now_us=START_US + 50_000_000,
            away_s=50.0,
            waiting=1,
            waiting_bytes=desk.asked[1].waiting_bytes,
            others_connected=False,
        ),
        DeviceChange(
            change="left",
            user=ALICE,
            session="default",
            device="phone",
            reason="asked",
            now_us=START_US + 50_000_000,
            away_s=0.0,
            waiting=1,
            waiting_bytes=desk.asked[1].waiting_bytes,
            others_connected=False,
        ),
    ]
    assert desk.asked[1].waiting_bytes > 0


def test_g24_without_a_decision_everything_is_as_without_a_hook() -> None:
    logs = []
    for decide in (lambda _: None, lambda _: Handling()):
        desk = HookDesk(decide)
        link, bob = desk.attach(), desk.attach(BOB)
        desk.subscribed(link)
        desk.close(link)
        desk.publish(bob, 1)
        assert desk.stream(desk.attach(epoch=2)) == [1]
        logs.append(desk.log)
    assert logs[0] == logs[1]


@pytest.mark.parametrize("change", ["disconnected", "reconnected"])
def test_g24_a_hooks_drop_is_counted_and_reported_as_a_gap(change: str) -> None:
    desk = HookDesk(on(change, Handling(drop_waiting=True)))
    bob, link = desk.attach(BOB), desk.attach()
    desk.subscribed(link)
    desk.held = change == "disconnected"
    if change == "reconnected":
        desk.close(link)
    for n in (1, 2):
        desk.publish(bob, n)
    if change == "disconnected":
        desk.held = False
        desk.close(link)
        desk.sync()
    back = desk.attach(epoch=2)
    desk.publish(bob, 3)
    assert desk.stream(back)[-1] == 3
    assert not {1, 2} & set(desk.stream(back))
    assert {dropped.reason for dropped in desk.written(records.Dropped)} == {"hook"}
    assert desk.broker.state.sessions[f"{ALICE}/default"].dropped == {"hook": 2}


def test_g24_notifications_that_wait_for_other_devices_are_not_dropped() -> None:
    desk = HookDesk(on("disconnected", Handling(drop_waiting=True)))
    phone, laptop, bob = desk.attach(), desk.attach(device="laptop"), desk.attach(BOB)
    desk.subscribed(laptop)
    desk.publish(bob, 1)
    desk.close(phone)
    desk.publish(bob, 2)
    assert desk.stream(laptop) == [1, 2]
    assert desk.written(records.Dropped) == []


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("grace_s", [10.0, 1000.0])
def test_g24_a_grace_of_its_own_holds_for_this_time(grace_s: float, restart: bool) -> None:
    wanted = {"phone": grace_s}
    desk = HookDesk(
        lambda asked: Handling(grace_s=wanted.pop(asked.device, None)) if asked.change == "disconnected" else None,
        SHORT,
    )
    desk.attach(device="laptop")
    desk.close(desk.attach())
    if restart:
        desk.restart()
        desk.attach(device="laptop", epoch=2)
    desk.later(grace_s - 1.0)
    assert "phone" in desk.members()
    desk.later(2.0)
    assert "phone" not in desk.members()
    assert ("left", "phone", "grace") in desk.changes
    assert rows_of(desk.broker.state) == rows_of(desk.recovered(from_log_alone=True))
    desk.close(desk.attach())
    desk.later(99.0)
    assert "phone" in desk.members()
    desk.later(2.0)
    assert "phone" not in desk.members(), "the next time is that of the settings again"


def test_g24_x40_the_last_device_of_a_session_stays_whatever_its_grace() -> None:
    desk = HookDesk(on("disconnected", Handling(grace_s=0.0)), SHORT)
    link = desk.attach()
    desk.subscribed(link)
    desk.close(link)
    steps = 0
    for _ in range(10):
        steps += len(desk.timers)
        desk.later(60.0)
        assert desk.members() == ["phone"]
    assert steps < 40, "it is looked at again now and then, not without a pause"


@pytest.mark.parametrize("kicked", [False, True])
def test_g24_a_device_may_have_to_leave_at_once(kicked: bool) -> None:
    desk = HookDesk(on("disconnected", Handling(leave=True)))
    phone, laptop, bob = desk.attach(), desk.attach(device="laptop"), desk.attach(BOB)
    desk.subscribed(laptop)
    if kicked:
        desk.send(laptop, Kick(1, ALICE, "phone", forget=True))
    else:
        desk.close(phone)
    assert desk.members() == ["laptop"]
    assert [(left.device, left.reason) for left in desk.written(records.Left)] == [("phone", "hook")]
    assert desk.changes == [
        ("disconnected", "phone", "kicked" if kicked else "the agent does not answer"),
        ("left", "phone", "hook"),
    ]
    desk.publish(bob, 1)
    assert desk.stream(laptop)[-1] == 1
    desk.take(laptop, 1)
    assert desk.stream(desk.attach(epoch=2)) == []


def broken(_change: DeviceChange) -> Handling:
    raise ZeroDivisionError("half of nothing")


@pytest.mark.parametrize(
    ("decide", "reason"),
    [
        (broken, "ZeroDivisionError: half of nothing"),
        (lambda _: "drop", "returned str; return a Handling or None"),
        (lambda _: Handling(grace_s=-1.0), "grace_s is -1.0"),
        (lambda _: Handling(grace_s=float("nan")), "grace_s is nan"),
        (lambda _: Handling(grace_s=GRACE_S_MAX * 2), "it must be from 0"),
    ],
)
def test_g24_a_hook_that_fails_changes_nothing_and_is_counted_and_reported(decide: Any, reason: str) -> None:
    desk = HookDesk(decide)
    link, bob = desk.attach(), desk.attach(BOB)
    desk.subscribed(link)
    desk.close(link)
    desk.publish(bob, 1)
    assert desk.stream(desk.attach(epoch=2)) == [1]
    assert [failed.count for failed in desk.failed] == [1, 2]
    assert all(reason in failed.reason for failed in desk.failed)
    assert [changed.grace_s for changed in desk.written(records.StatusChanged)] == [None] * 4


def test_g24_replay_asks_no_hook() -> None:
    desk = HookDesk(on("disconnected", Handling(drop_waiting=True, grace_s=3 * DAY_S)))
    link, bob = desk.attach(), desk.attach(BOB)
    desk.subscribed(link)
    desk.close(link)
    desk.publish(bob, 1)
    before = len(desk.asked)
    state = desk.recovered(from_log_alone=True)
    assert len(desk.asked) == before
    assert rows_of(state) == rows_of(desk.broker.state)
    assert state.devices[f"{ALICE}/phone"].grace_s == 3 * DAY_S
