"""The state is a fold over the log, with saved rows or without (DESIGN 5.1, SPEC T-01)."""

from __future__ import annotations

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, rows_of
from tests.published import published
from wanderbus import records
from wanderbus.broker.state.state import BrokerState
from wanderbus.broker.state.tables import RowTable
from wanderbus.event import DeclaredAttribute, Event
from wanderbus.machine import ClockRead
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import DeclareSchema, Unsubscribe
from wanderbus.subscription import Frequency, QueuePolicy, Subscription


def eventful() -> Desk:
    """A broker whose log contains every kind of record."""
    config = BrokerConfig(queue=QueuePolicy(notifications_max=3), device_grace_s=50.0, roles={BOB: "administrator"})
    desk = Desk(config)
    phone, laptop, bob = desk.attach(), desk.attach(device="laptop"), desk.attach(BOB)
    desk.send(bob, DeclareSchema(901, SUBJECT, (DeclaredAttribute("N", "Integer"),)))
    desk.subscribed(phone, "N > 0", lifetime_s=200.0)
    desk.subscribed(phone, "N > 1", this_device_only=True, queue=QueuePolicy(notifications_max=1))
    ended = desk.subscribed(laptop, "N > 2", restrictions=(Frequency(5.0),))
    desk.close(phone)
    for n in range(8):
        desk.publish(bob, n)
        desk.later(1.0)
    desk.take(laptop, 5)
    desk.save()
    desk.ask(laptop, Unsubscribe(900, ended.id))
    desk.publish(bob, 9)
    desk.close(laptop)
    desk.later(60.0)
    desk.attach(device="tablet", session="work")
    desk.attach(session="work", epoch=2)
    desk.send(bob, DeclareSchema(902, SUBJECT, (DeclaredAttribute("N", "Double", "m"),)))
    desk.publish(bob, 10)
    return desk


def test_design_5_1_live_state_equals_the_log_with_rows_and_without() -> None:
    desk = eventful()
    kinds = {type(record) for record in map(records.decode_record, desk.log)}
    assert kinds >= {records.Left, records.Acknowledged, records.Unsubscribed, records.StatusChanged}
    assert desk.written(records.Dropped)
    assert records.SchemaDeclared in kinds
    live = rows_of(desk.broker.state)
    assert 0 < desk.rows_offset < len(desk.log)
    assert rows_of(desk.recovered()) == live
    assert rows_of(desk.recovered(from_log_alone=True)) == live


def test_design_5_1_every_prefix_of_the_log_is_a_state_that_could_be_saved() -> None:
    """Rows saved at any record and the rest of the log give the same state: a crash may fall anywhere."""
    desk = eventful()
    whole = rows_of(desk.recovered(from_log_alone=True))
    for cut in range(0, len(desk.log), 3):
        state = BrokerState("wb", desk.config.publishes_remembered)
        for offset, payload in enumerate(desk.log[:cut]):
            state.apply(offset, records.decode_record(payload))
        loaded = BrokerState("wb", desk.config.publishes_remembered)
        stored = {
            table: [(key, row) for key, row in rows.items() if row is not None]
            for table, rows in state.changes().items()
        }
        loaded.load(stored, cut)
        for offset, payload in enumerate(desk.log[cut:], cut):
            loaded.apply(offset, records.decode_record(payload))
        assert rows_of(loaded) == whole


def test_changes_are_returned_once() -> None:
    desk = eventful()
    desk.save()
    loaded = BrokerState("wb", desk.config.publishes_remembered)
    loaded.load({name: rows.items() for name, rows in desk.rows.items()}, desk.rows_offset)
    assert rows_of(loaded) == rows_of(desk.broker.state)
    assert desk.broker.state.changes() == {}


def test_offsets_are_dense() -> None:
    state = BrokerState("wb", 8)
    with pytest.raises(AssertionError):
        state.apply(1, records.Started(at_us=0, server="wb", incarnation=1))


def test_a_cursor_never_runs_backwards() -> None:
    state = BrokerState("wb", 8)
    state.apply(0, records.Attached(at_us=0, user=ALICE, session="default", device="phone", epoch=1))
    wanted = Subscription("wb-1", ALICE, "default", SUBJECT, "")
    state.apply(1, records.Attached(at_us=0, user=ALICE, session="default", device="laptop", epoch=1))
    state.apply(2, records.Subscribed(at_us=0, subscription=wanted, number=1))
    for offset in range(3, 9):
        notified = (records.Notified(ALICE, "default", offset - 2, ("wb-1",)),)
        event = Event(SUBJECT, {})
        state.apply(offset, published(event, number=offset, notified=notified))
    for offset, number in enumerate([5, 3], 9):
        state.apply(offset, records.Acknowledged(at_us=0, user=ALICE, session="default", device="phone", number=number))
    assert state.subscriptions["wb-1"].cursors == {"phone": 5}


def test_design_5_8_an_expired_subscription_stays_expired_when_the_clock_is_set_back(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, lifetime_s=10.0)
    desk.later(11.0)
    desk.give(ClockRead(desk.wall_us))
    desk.give(ClockRead(desk.wall_us - 3_600_000_000))
    desk.publish(link, 1)
    assert desk.stream(link) == []


def test_design_5_8_the_wall_clock_of_the_log_never_runs_backwards() -> None:
    state = BrokerState("wb", 8)
    state.apply(0, records.Started(at_us=500, server="wb", incarnation=1))
    state.apply(1, records.Started(at_us=400, server="wb", incarnation=1))
    assert state.wall_us == 500


class Row(msgspec.Struct):
    value: int


def test_a_table_returns_its_changes_since_the_last_query() -> None:
    table = RowTable("rows", Row)
    table.load([("kept", msgspec.msgpack.encode(Row(1)))])
    assert table.changes() == {}
    table.put("new", Row(2))
    table.put("gone", Row(3))
    table.drop("gone")
    table.drop("never")
    assert table.changes() == {"new": msgspec.msgpack.encode(Row(2)), "gone": None}
    assert table.changes() == {}
    table["kept"].value = 5
    table.put("kept", table["kept"])
    table.drop("new")
    assert table.changes() == {"kept": msgspec.msgpack.encode(Row(5)), "new": None}
    assert ("kept" in table, "new" in table, len(table), table.get("new")) == (True, False, 1, None)


def test_a_table_refuses_rows_of_another_shape() -> None:
    with pytest.raises(msgspec.DecodeError):
        RowTable("rows", Row).load([("bad", msgspec.msgpack.encode({"value": "text"}))])
