"""Rows of sessions, subscriptions and queues, and in how large parts they come (SPEC E-01, G-08, G-15, G-21)."""

from __future__ import annotations

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, rows_of
from tests.broker.office import OLGA, ROLES, Office, answers, inspected, listed, purged, with_queue
from wanderbus import protocol
from wanderbus.broker import admin
from wanderbus.event import Event
from wanderbus.limits import MESSAGE_BYTES_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Inspect, Peek, Publish
from wanderbus.subscription import Daily, Frequency, QueuePolicy


@pytest.fixture
def office() -> Office:
    return Office()


def test_g21_a_session_is_connected_only_with_a_device_and_the_lister_does_not_count(office: Office) -> None:
    phone = office.attach()
    office.subscribed(phone)
    work = office.attach(ALICE, "laptop", session="work")
    office.close(phone)
    statuses = {row["session"]: row["status"] for row in inspected(office, office.attach(OLGA), "sessions", ALICE)}
    assert statuses == {"default": "DISCONNECTED", "work": "CONNECTED"}
    office.close(work)
    lister = office.attach(ALICE, "shell", session=protocol.OPERATIONS)
    rows = [row for row in inspected(office, lister, "sessions") if row["session"] != protocol.OPERATIONS]
    assert rows
    assert {row["status"] for row in rows} == {"DISCONNECTED"}


# Visible rows ---------------------------------------------------------------------------------------------------------


def test_a_row_of_a_session_has_devices_and_counts_of_matches(office: Office) -> None:
    phone, tablet = office.attach(), office.attach(ALICE, "tablet")
    first = office.subscribed(phone)
    office.subscribed(phone, "N > 1", restrictions=(Frequency(60.0),))
    bob = office.attach(BOB)
    office.publish(bob, 1)
    office.publish(bob, 2)
    office.publish(bob, 3)
    office.later(2)
    office.take(tablet, 1)
    office.later(1)
    office.take(phone, 2)
    office.close(tablet)
    office.later(5)
    (row,) = inspected(office, phone, "sessions")
    assert row == {
        "user": ALICE,
        "session": "default",
        "status": "CONNECTED",
        "devices": [
            {"device": "phone", "status": "CONNECTED", "address": None, "away_s": None, "reading": 2},
            {"device": "tablet", "status": "DISCONNECTED", "address": None, "away_s": 5.0, "reading": 0},
        ],
        "subscriptions": 2,
        "generated": 4,
        "delivered": 1,
        "queued": 3,
        "queued_bytes": row["queued_bytes"],
        "dropped": {},
        "restricted": 1,
        "queued_max": 4,
        "arriving_from": "",
        "acknowledgements": {"sum_us": 11_000_000, "by_bits": {21: 1, 22: 3}},
        "absences": {"sum_us": 0, "by_bits": {}},
        "unread": 0,
        "unread_subscriptions": [],
    }
    assert row["queued_bytes"] == office.broker.state.queued_bytes > 0
    assert purged(office, phone, ALICE, subscription=first.id) == 2
    (row,) = inspected(office, phone, "sessions")
    assert (row["delivered"], row["queued"], row["dropped"]) == (1, 1, {"purged": 2})


def test_a_row_of_a_subscription_has_every_field_of_it(office: Office) -> None:
    alice = office.attach()
    restrictions = (Frequency(2.0, "away"), Daily("16:00", "17:00", "America/Sao_Paulo"))
    subscription = office.subscribed(
        alice,
        "N > 1",
        lifetime_s=60.0,
        restrictions=restrictions,
        this_device_only=True,
        queue=QueuePolicy(notifications_max=7),
    )
    (row,) = inspected(office, alice, "subscriptions")
    names = {"id": "subscription", "owner": "user"}
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(subscription))
    plain = {names.get(name, name): value for name, value in sent.items()}
    waits = {"queued": 0, "queued_bytes": 0, "oldest_s": None, "state": "reading", "blocked_s": None}
    assert row == {
        **plain,
        **waits,
        "last_us": None,
        "history_from": None,
        "pattern_events": None,
        "readers": [{"device": "phone", "unacknowledged": 0}],
    }


def test_a_row_of_a_queue_has_length_age_and_losses(office: Office) -> None:
    office = Office(BrokerConfig(roles=ROLES, queue=QueuePolicy(notifications_max=2, when_full="drop_oldest")))
    bob = with_queue(office, 1, 2, 3)
    office.later(10)
    office.publish(bob, 4)
    office.later(5)
    row = inspected(office, office.attach(OLGA), "queues", ALICE)[0]
    assert {**row, "queued_bytes": 0} == {
        "user": ALICE,
        "session": "default",
        "notifications": 2,
        "queued": 2,
        "queued_bytes": 0,
        "oldest_s": 15.0,
        "gaps": 1,
        "missing": 2,
        "unread": 1,
        "unread_subscriptions": row["unread_subscriptions"],
        "notifications_max": 2,
        "bytes_max": None,
        "age_max_s": None,
        "when_full": "drop_oldest",
        "policy": None,
    }
    assert [(each["state"], each["queued"]) for each in row["unread_subscriptions"]] == [("not_read", 2)]
    empty = inspected(office, bob, "queues")[0]
    assert (empty["notifications"], empty["oldest_s"], empty["gaps"], empty["missing"]) == (0, None, 0, 0)


def test_peeking_shows_what_waits_with_its_gaps_and_takes_nothing(office: Office) -> None:
    office = Office(BrokerConfig(roles=ROLES, queue=QueuePolicy(notifications_max=3, when_full="drop_oldest")))
    with_queue(office, 1, 2, 3, 4)
    olga = office.attach(OLGA)
    before = rows_of(office.broker.state)
    rows, after = listed(office, olga, Peek(1, ALICE, "default", 1, 3))
    assert [row.get("event", {}).get("attributes") for row in rows] == [None, {"N": 2}, {"N": 3}]
    assert rows[0]["lost"][0][1:] == ["queue.notifications_max", 1]
    assert after == "4"
    assert [row["event"]["attributes"] for row in listed(office, olga, Peek(2, ALICE, "default", 4, 3))[0]] == [
        {"N": 4}
    ]
    assert listed(office, olga, Peek(3, ALICE, "default", 5, 3)) == ([], None)
    assert rows_of(office.broker.state) == before
    assert office.stream(office.attach()) == [(1, 1), 2, 3, 4]


# In steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["sessions", "subscriptions", "queues"])
@pytest.mark.parametrize("limit", [1, 2, 3, 1_000])
def test_a_listing_in_steps_has_every_row_once(office: Office, what: str, limit: int) -> None:
    for number in range(5):
        link = office.attach(f"sip:user{number}@example.org")
        for count in range(number % 3):
            office.subscribed(link, f"N > {count}")
    olga = office.attach(OLGA)
    whole = inspected(office, olga, what)
    assert len(whole) == {"sessions": 6, "subscriptions": 4, "queues": 6}[what]
    assert inspected(office, olga, what, limit=limit) == whole


def test_a_subscription_that_ends_meanwhile_hides_no_other(office: Office) -> None:
    alice, olga = office.attach(), office.attach(OLGA)
    ids = [office.subscribed(alice, f"N > {count}").id for count in range(4)]
    rows, after = listed(office, olga, Inspect(1, "subscriptions", None, None, 2))
    office.send(alice, protocol.Unsubscribe(99, ids[0]), protocol.Unsubscribe(98, ids[1]))
    more, _ = listed(office, olga, Inspect(2, "subscriptions", None, after, 2))
    assert [row["subscription"] for row in [*rows, *more]] == ids


def test_one_answer_looks_at_a_bounded_part(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "LOOKED_AT_MAX", 3)
    for number in range(7):
        office.attach(f"sip:a{number}@example.org")
    office.subscribed(office.attach())
    olga = office.attach(OLGA)
    assert listed(office, olga, Inspect(1, "subscriptions", None))[0] == []
    assert [row["user"] for row in inspected(office, olga, "subscriptions")] == [ALICE]


def test_an_answer_is_bounded_in_bytes_and_cut_into_messages(office: Office) -> None:
    bob = with_queue(office)
    for number in range(1, 31):
        office.send(bob, Publish(number, Event(SUBJECT, {"text": "x" * 30_000})))
    olga = office.attach(OLGA)
    said = answers(office, olga, Peek(1, ALICE, "default", 1, 1_000))
    assert all(len(protocol.encode(part)) <= MESSAGE_BYTES_MAX for part in said)
    shown = sum(len(part.rows) for part in said)
    assert shown < 30
    assert said[-1].next == str(shown + 1)


def test_a_row_too_large_for_a_message_goes_without_what_makes_it_so(office: Office) -> None:
    office.attach(ALICE, "d" * 70_000)
    (row,) = inspected(office, office.attach(OLGA), "sessions", ALICE)
    assert (row["user"], row["cut"]) == (ALICE, ["devices"])
