"""A user with ever new devices: the bound on their number, and the state kept of removed ones (SPEC E-02, X40)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, rows_of
from wanderbus import records
from wanderbus.broker.messages import DialogChanged, LinkDropped
from wanderbus.broker.state.rows import FormerRow
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attach, Attachment, Kick, Leave, Publish, RequestRefused


@pytest.mark.parametrize("how", ["closed", "restarted", "restarted with rows", "replaced"])
def test_a_device_that_never_attached_leaves_nothing_behind_once_its_link_is_gone(how: str) -> None:
    desk = Desk()
    for n in range(5):
        link = desk.open(ALICE, f"device{n}")
        desk.give(DialogChanged(ALICE, f"device{n}", "10.0.0.1:40000", b"dialog"))
        desk.save()
        if how == "closed":
            desk.close(link)
        elif how == "replaced":
            desk.close(desk.open(ALICE, f"device{n}"))
            desk.close(link)
        else:
            desk.restart(with_rows="rows" in how)
        desk.give(DialogChanged(ALICE, f"device{n}", "10.0.0.1:40000", b"dialog"))
    state = desk.broker.state
    assert len(state.devices) == len(state.sessions) == 0
    assert not [key for key in desk.timers if key[0] == "grace"]  # type: ignore[index]
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(state)
    desk.save()
    assert not desk.rows["devices"]


def test_a_device_too_many_is_refused_with_the_bound_and_leaves_nothing_behind() -> None:
    """No device that is connected has to go for another one, nor the last one of a session with a subscription."""
    desk = Desk(BrokerConfig(user_devices_max=3))
    phone = desk.attach(device="phone")
    desk.subscribed(phone)
    desk.close(phone)
    laptop = desk.attach(device="laptop", session="work")
    desk.open(ALICE, "unattached")
    log = list(desk.log)
    link = desk.attach(device="tablet")
    (refused,) = desk.received(link, RequestRefused)
    assert (refused.request, refused.limit) == (0, "user_devices_max")
    assert refused.reason.startswith("user_devices_max is 3, and it is reached; 'wanderbus sessions' lists")
    assert desk.dropped_links == [LinkDropped(link, refused.reason)]
    desk.give(DialogChanged(ALICE, "tablet", "10.0.0.1:40000", b"dialog"))
    desk.close(link)
    assert desk.log == log, "nothing is recorded of it"
    assert desk.received(desk.attach(BOB), Attachment)
    assert desk.received(desk.attach(device="phone"), Attachment), "who is known may always come back"
    desk.send(laptop, Leave(1))
    assert desk.received(desk.attach(device="tablet"), Attachment)


def test_devices_that_are_not_attached_count_until_they_are_gone() -> None:
    desk = Desk(BrokerConfig(user_devices_max=2))
    links = [desk.open(ALICE, f"device{n}") for n in range(3)]
    assert [dropped.link for dropped in desk.dropped_links] == [links[2]]
    desk.send(links[0], Attach(1, "default", None, True))
    desk.close(links[1])
    assert desk.received(desk.attach(), Attachment)
    assert desk.dropped_links[1:] == []


def test_the_layer_below_can_ask_before_there_is_a_link() -> None:
    """The layer below also counts its connections that have no link yet, since they may get one."""
    desk = Desk(BrokerConfig(user_devices_max=2))
    desk.attach()
    assert [desk.broker.refusal(ALICE, "laptop", others) for others in (0, 1)] == [None, None]
    refusal = desk.broker.refusal(ALICE, "laptop", 2)
    assert refusal is not None
    assert str(refusal).startswith("user_devices_max is 2, and it is reached; ")
    assert refusal.limit == "broker.user_devices_max"
    assert desk.broker.refusal(ALICE, "phone", 9) is None
    desk.attach(device="laptop")
    assert desk.broker.refusal(ALICE, "tablet", 0) is not None
    assert desk.broker.refusal(BOB, "tablet", 0) is None


# Publishes of removed devices ---------------------------------------------------------------------------------------


def removed(desk: Desk, device: str, how: str) -> None:
    """A device publishes, also from its outbox, and is removed."""
    link = desk.attach(device=device)
    event = Event(SUBJECT, {"N": 1})
    desk.send(link, Publish(1, event), Publish(1, event, outbox=7))
    if how == "kicked":
        desk.send(desk.attach(device="keeper"), Kick(1, ALICE, device, True))
    else:
        desk.close(link)
        desk.later(101.0)


@pytest.mark.parametrize("how", ["kicked", "grace"])
@pytest.mark.parametrize("with_rows", [False, True])
def test_publishes_of_removed_devices_are_recognised_for_a_bounded_number(how: str, with_rows: bool) -> None:
    desk = Desk(BrokerConfig(user_devices_max=3, device_grace_s=100.0))
    keeper = desk.attach(device="keeper")
    desk.send(keeper, Publish(1, Event(SUBJECT, {"N": 1})))
    for n in range(1, 6):
        removed(desk, f"device{n}", how)
        desk.save()
    kept = [f"{ALICE}/device{n}{of}" for n in (3, 4, 5) for of in ("", "/outbox")]
    assert list(dict(desk.broker.state.publishers.items())) == [f"{ALICE}/keeper", *kept]
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)
    desk.restart(with_rows=with_rows)
    published = len(desk.written(records.Published))
    back = desk.attach(device="device3")
    desk.send(back, Publish(1, Event(SUBJECT, {"N": 1})), Publish(1, Event(SUBJECT, {"N": 1}), outbox=7))
    desk.send(desk.attach(device="keeper"), Publish(1, Event(SUBJECT, {"N": 1})))
    assert len(desk.written(records.Published)) == published, "they are repeats"
    assert desk.broker.state.former[ALICE].devices == ["device4", "device5"]
    desk.send(back, Leave(1))
    assert f"{ALICE}/device3" not in desk.broker.state.publishers
    assert desk.broker.state.former[ALICE].devices == ["device4", "device5"]


def test_a_returning_device_is_removed_last() -> None:
    desk = Desk(BrokerConfig(user_devices_max=2))
    for device in ("one", "two", "one"):
        removed(desk, device, "kicked")
    removed(desk, "three", "kicked")
    assert desk.broker.state.former[ALICE].devices == ["one", "three"]
    assert [record.devices for record in desk.written(records.Forgotten)] == [((ALICE, "two"),)]


def test_a_removed_device_that_published_nothing_leaves_nothing(desk: Desk) -> None:
    keeper = desk.attach(device="keeper")
    desk.attach()
    desk.send(keeper, Kick(1, ALICE, "phone", True))
    assert len(desk.broker.state.publishers) == 0
    assert desk.broker.state.former[ALICE] == FormerRow(reasons={"phone": "kicked"})
    desk.send(desk.attach(), Leave(1))
    assert len(desk.broker.state.former) == 0, "the reason was sent"
