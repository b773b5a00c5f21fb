"""Permissions to list and change objects at the broker, and the effects (SPEC E-01, G-21, U-02)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.access_desk import AccessDesk
from tests.broker.desk import ALICE, BOB, rows_of
from tests.broker.office import ADAM, OLGA, ROLES, Office, answers, inspected, listed, purged, refusal, with_queue
from wanderbus import protocol, records
from wanderbus.broker import admin
from wanderbus.broker.messages import LinkDropped
from wanderbus.broker.sessions.handover_messages import FenceSession, MoveSession, SessionMoveEnded
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Inspect, Kick, Listing, OperatorRequest, Peek, Purge, RequestRefused


@pytest.fixture
def office() -> Office:
    return Office()


# Permissions ----------------------------------------------------------------------------------------------------------

SEEING: list[OperatorRequest] = [
    *(Inspect(1, what, ALICE) for what in ("sessions", "subscriptions", "queues")),
    Peek(1, ALICE, "default", 1, 10),
]
CHANGING: list[OperatorRequest] = [
    Purge(1, ALICE, "default", None),
    Kick(1, ALICE, "phone", False),
    Kick(1, ALICE, None, True),
]


@pytest.mark.parametrize("request_", SEEING + CHANGING)
@pytest.mark.parametrize("asker", [ALICE, BOB, OLGA, ADAM])
def test_requests_about_other_users_need_a_role(office: Office, asker: str, request_: OperatorRequest) -> None:
    office.subscribed(office.attach())
    link = office.attach(asker, "desk")
    changes = request_ in CHANGING
    if asker in (ALICE, ADAM) or (asker == OLGA and not changes):
        listed(office, link, request_)
        return
    before = len(office.log)
    reason = refusal(office, link, request_)
    assert ("'administrator'" in reason, "'operator'" in reason) == (True, not changes)
    assert (len(office.log), office.dropped) == (before, [])


@pytest.mark.parametrize("request_", SEEING + CHANGING)
@pytest.mark.parametrize("asker", [BOB, OLGA])
def test_a_refusal_does_not_reveal_users(office: Office, asker: str, request_: OperatorRequest) -> None:
    office.subscribed(office.attach())
    link = office.attach(asker, "desk")
    if asker == OLGA and request_ in SEEING:
        return
    nobody = msgspec.structs.replace(request_, user="sip:nobody@example.org")
    assert refusal(office, link, nobody) == refusal(office, link, request_)


def test_everybody_is_oneself_to_who_has_no_role(office: Office) -> None:
    alice, bob, olga = office.attach(), office.attach(BOB), office.attach(OLGA)
    assert [row["user"] for row in inspected(office, bob, "sessions")] == [BOB]
    assert [row["user"] for row in inspected(office, olga, "sessions")] == [ALICE, BOB, OLGA]
    assert [row["user"] for row in inspected(office, olga, "sessions", BOB)] == [BOB]
    assert inspected(office, olga, "sessions", "sip:nobody@example.org") == []
    assert [row["user"] for row in inspected(office, alice, "queues", ALICE)] == [ALICE]


def test_advertisements_are_listed_page_by_page_and_for_operators_only(office: Office) -> None:
    alice, olga = office.attach(), office.attach(OLGA)
    for number, subject in enumerate(("Trade", "Stock", "*")):
        office.send(alice, protocol.Advertise(number + 1, subject, "Price < 25"))
    rows = inspected(office, olga, "advertisements", limit=1)
    assert [(row["user"], row["device"], row["subject"], row["counts"]) for row in rows] == [
        (ALICE, "phone", subject, False) for subject in ("Trade", "Stock", "*")
    ]
    assert inspected(office, olga, "routes") == []
    for what in ("advertisements", "routes", "filtering", "engine", "loads"):
        assert "need the role 'operator'" in refusal(office, alice, Inspect(9, what, None))


# Changes --------------------------------------------------------------------------------------------------------------


def test_a_purge_drops_the_queue_and_leaves_a_gap(office: Office) -> None:
    bob = with_queue(office, 1, 2, 3)
    adam = office.attach(ADAM)
    assert purged(office, adam, ALICE) == 3
    assert purged(office, adam, ALICE) == 0
    office.publish(bob, 4)
    assert office.stream(alice := office.attach()) == [(1, 3), 4]
    assert office.received(alice, protocol.NotifyGap)[0].lost[0].reason == "purged"


def test_a_purge_of_one_subscription_leaves_the_others(office: Office) -> None:
    alice, bob = office.attach(), office.attach(BOB)
    every, some = office.subscribed(alice), office.subscribed(alice, "N > 1")
    office.close(alice)
    office.publish(bob, 1)
    office.publish(bob, 2)
    alice = office.attach(ALICE, "tablet")
    assert purged(office, alice, ALICE, subscription=every.id) == 2
    assert [row["subscriptions"] for row in listed(office, alice, Peek(1, ALICE, "default", 1, 9))[0][1:]] == [
        [some.id]
    ]
    assert "no subscription 'wb-99'" in refusal(office, alice, Purge(1, ALICE, "default", "wb-99"))


def test_a_purge_goes_in_steps_up_to_what_waited_at_its_beginning(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "PURGED_MAX", 2)
    bob = with_queue(office, 1, 2, 3, 4, 5)
    adam = office.attach(ADAM)
    rows, after = listed(office, adam, Purge(1, ALICE, "default", None))
    assert (rows[0]["purged"], after is None) == (2, False)
    office.publish(bob, 6)
    total = rows[0]["purged"]
    while after is not None:
        rows, after = listed(office, adam, Purge(1, ALICE, "default", None, after))
        total += rows[0]["purged"]
    assert total == 5
    assert office.stream(office.attach()) == [(1, 5), 6]


def test_a_kicked_device_loses_only_its_connection(office: Office) -> None:
    phone, tablet, bob = office.attach(), office.attach(ALICE, "tablet"), office.attach(BOB)
    office.subscribed(phone)
    rows, _ = listed(office, office.attach(ADAM), Kick(1, ALICE, "phone", False))
    assert rows == [{"device": "phone", "connected": True, "forgotten": False}]
    assert office.dropped == [LinkDropped(phone, "kicked")]
    assert office.broker.status(ALICE) == "CONNECTED"
    office.publish(bob, 1)
    assert (office.stream(phone), office.stream(tablet)) == ([], [1])
    assert office.stream(office.attach()) == [1]
    statuses = [(record.status, record.reason) for record in office.written(records.StatusChanged)]
    assert statuses.count(("DISCONNECTED", "kicked")) == 1


def test_all_devices_are_kicked_and_forgotten(office: Office) -> None:
    phone, bob = office.attach(), office.attach(BOB)
    office.close(office.attach(ALICE, "tablet"))
    office.open(ALICE, "silent")
    subscription = office.subscribed(phone)
    rows, _ = listed(office, office.attach(ADAM), Kick(1, ALICE, None, True))
    assert [(row["device"], row["connected"]) for row in rows] == [("phone", True), ("tablet", False), ("silent", True)]
    assert office.broker.status(ALICE) == "DISCONNECTED"
    assert [(left.device, left.reason) for left in office.written(records.Left)] == [
        (device, "kicked") for device in ("phone", "tablet")
    ]
    office.publish(bob, 1)
    back = office.attach()
    assert office.stream(back) == [1]
    assert inspected(office, back, "subscriptions")[0]["subscription"] == subscription.id
    office.later(30 * 86_400.0)


def test_a_device_kicks_all_others_of_its_user_and_never_itself(office: Office) -> None:
    phone, tablet = office.attach(), office.attach(ALICE, "tablet")
    assert "cannot remove itself" in refusal(office, phone, Kick(1, ALICE, "phone", True))
    rows, _ = listed(office, phone, Kick(2, ALICE, None, False))
    assert ([row["device"] for row in rows], office.dropped) == (["tablet"], [LinkDropped(tablet, "kicked")])
    assert listed(office, phone, Kick(3, ALICE, None, False))[0] == [
        {"device": "tablet", "connected": False, "forgotten": False}
    ]


@pytest.mark.parametrize("held", [Purge(1, ALICE, "default", None), Kick(1, ALICE, "tablet", True)])
def test_a_change_is_answered_after_it_is_durable(office: Office, held: OperatorRequest) -> None:
    with_queue(office, 1)
    adam, _ = office.attach(ADAM), office.attach(ALICE, "tablet")
    office.held = True
    assert answers(office, adam, held) == []
    assert office.dropped == []
    office.sync()
    assert isinstance(office.out[adam][-1], Listing)


def test_the_log_has_every_change(office: Office) -> None:
    with_queue(office, 1, 2, 3)
    office.attach(ALICE, "tablet")
    adam = office.attach(ADAM)
    purged(office, adam, ALICE)
    listed(office, adam, Kick(1, ALICE, "tablet", True))
    listed(office, adam, Kick(2, ALICE, "phone", False))
    assert rows_of(office.recovered(from_log_alone=True)) == rows_of(office.broker.state)
    session = office.broker.state.sessions[f"{ALICE}/default"]
    assert session.generated == session.delivered + session.queued + sum(session.dropped.values())


# Moves ---------------------------------------------------------------------------------------------------------------


class MovingOffice(AccessDesk):
    """A desk of a server in a domain, that keeps what it asks of the other servers."""

    def __init__(self) -> None:
        self.moves: list[MoveSession] = []
        super().__init__(BrokerConfig(server="south", domain="example.org", roles=ROLES))

    def perform(self, outputs: Sequence[Output]) -> None:
        super().perform(outputs)
        self.moves += [each for each in outputs if isinstance(each, MoveSession)]


def test_l06_a_request_that_is_repeated_on_a_new_link_is_told_how_the_move_ends() -> None:
    office = MovingOffice()
    first = office.attach(ADAM)
    assert answers(office, first, protocol.MoveSession(1, ALICE, "default", "s2")) == []
    other = office.attach(ADAM, "laptop")
    for server in ("s2", "s3"):
        reason = refusal(office, other, protocol.MoveSession(1, ALICE, "default", server))
        assert reason == f"the session 'default' of {ALICE} is on its way to s2 already"
    office.close(first)
    assert "is on its way to s2" in refusal(office, other, protocol.MoveSession(2, ALICE, "default", "s3"))
    assert answers(office, other, protocol.MoveSession(3, ALICE, "default", "s2")) == []
    assert office.moves == [MoveSession(ALICE, "default", "s2", "asked")]
    office.give(SessionMoveEnded(ALICE, "default", "s2"))
    assert office.out[other][-1] == Listing(3, ({"user": ALICE, "session": "default", "server": "s2"},))
    assert answers(office, other, protocol.MoveSession(4, ALICE, "default", "s3")) == []
    office.give(SessionMoveEnded(ALICE, "default", "s3", "it is full"))
    assert office.out[other][-1] == RequestRefused(4, "it is full")


@pytest.mark.parametrize("asker", [BOB, OLGA])
def test_l01_only_administrators_move_sessions_of_others(asker: str) -> None:
    office = MovingOffice()
    link = office.attach(asker, "desk")
    assert "need the role 'administrator'" in refusal(office, link, protocol.MoveSession(1, ALICE, "default", "s2"))
    assert office.moves == []


def test_l01_a_user_moves_the_own_session_and_hears_of_it_at_the_next_server() -> None:
    office = MovingOffice()
    phone = office.attach(ALICE, "phone")
    assert answers(office, phone, protocol.MoveSession(1, ALICE, "default", "s2")) == []
    assert office.moves == [MoveSession(ALICE, "default", "s2", "user")]
    here = protocol.MoveSession(2, ALICE, "default", "south")
    row = {"user": ALICE, "session": "default", "server": "south"}
    assert answers(office, phone, here) == [Listing(2, (row,))], "as at the next server, which has it"
    assert len(office.moves) == 1


def test_l06_a_session_that_has_left_is_not_listed_and_cannot_be_peeked_or_purged(office: Office) -> None:
    with_queue(office, 1, 2)
    office.give(FenceSession(ALICE, "default", 2))
    adam = office.attach(ADAM)
    for what in ("sessions", "subscriptions", "queues"):
        assert inspected(office, adam, what, ALICE) == []
        assert all(row["user"] != ALICE for row in inspected(office, adam, what))
    for request in (Peek(1, ALICE, "default", 1, 10), Purge(2, ALICE, "default", None)):
        assert "has no session 'default'" in refusal(office, adam, request)
    assert office.broker.state.sessions[f"{ALICE}/default"].is_fenced


# Whoever means harm -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        (Peek(1, BOB, "nowhere", 1, 1), "no session 'nowhere'"),
        (Peek(1, BOB, "../sip:alice@example.org/default", 1, 1), "no session"),
        (Peek(1, BOB, "", 1, 1), "no session ''"),
        (Peek(1, BOB, "default", 1, 0), "count is 0"),
        (Peek(1, BOB, "default", 1, -(2**63)), "count is -9223372036854775808"),
        (Inspect(1, "sessions", None, None, 0), "limit is 0"),
        (Inspect(1, "sessions", None, "1.2.3"), "begin again"),
        (Inspect(1, "sessions", None, "x" * 60_000), "begin again"),
        (Purge(1, BOB, "nowhere", None), "no session 'nowhere'"),
        (Purge(1, BOB, "default", "wb-1"), "no subscription 'wb-1'"),
        (Kick(1, BOB, "other", False), "no device 'other'"),
        (Kick(1, BOB, "../sip:alice@example.org/phone", True), "no device"),
    ],
)
def test_invalid_requests_are_refused_in_one_line(office: Office, request_: OperatorRequest, complaint: str) -> None:
    office.subscribed(office.attach())
    assert complaint in refusal(office, office.attach(BOB), request_)


def test_a_session_of_somebody_whose_name_holds_a_slash_is_not_mine(office: Office) -> None:
    """The keys of (a, "b/c") and of (a/b, "c") are the same text."""
    other = "sip:bob@example.org/home"
    office.subscribed(office.attach(other))
    assert "no session" in refusal(office, office.attach(BOB), Peek(1, BOB, "home/default", 1, 1))


@pytest.mark.parametrize("first", [-(2**63), -1, 0, 2**63 - 1])
def test_numbers_from_anywhere_are_looked_for_in_what_there_is(office: Office, first: int) -> None:
    with_queue(office, 1, 2)
    rows, after = listed(office, office.attach(OLGA), Peek(1, ALICE, "default", first, 2**62))
    assert (len(rows), after) == (2 if first < 3 else 0, None)


OF_BROKER = [each for each in get_args(protocol.Listed) if each not in admin.OF_SERVER]


def _requests_of(users: st.SearchStrategy[str]) -> st.SearchStrategy[OperatorRequest]:
    names = st.sampled_from(["default", "other", "a/b", ""])
    numbers = st.sampled_from([-(2**63), -1, 0, 1, 2, 5, 2**63 - 1])
    places = (
        st.none() | st.sampled_from(["0.1.3", "0.0.", "0.2.9", "1.1.1", "..", "0.-1.", "0.²."]) | st.text(max_size=5)
    )
    ids = st.none() | st.sampled_from(["wb-2", "wb-4", "x"])
    devices = st.none() | st.sampled_from(["phone", "tablet", "x"])
    return st.one_of(
        st.builds(Inspect, st.just(1), st.sampled_from(OF_BROKER), users, places, numbers),
        st.builds(Peek, st.just(1), users, names, numbers, numbers),
        st.builds(Purge, st.just(1), users, names, ids, places),
        st.builds(Kick, st.just(1), users, devices, st.booleans()),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(_requests_of(st.sampled_from([ALICE, BOB, OLGA, ADAM])), max_size=12), st.sampled_from([ALICE, ADAM]))
def test_any_request_is_answered_and_the_state_stays_consistent(requests: list[OperatorRequest], asker: str) -> None:
    office = Office()
    alice = office.attach()
    office.subscribed(alice)
    office.subscribed(office.attach(ALICE, "tablet"), "N > 1", this_device_only=True)
    bob = office.attach(BOB)
    office.subscribed(bob)
    for request, number in zip(requests, itertools.count(1), strict=False):
        office.publish(bob, number)
        desk = office.attach(asker, "desk", session="operations")
        said = answers(office, desk, request)
        assert said, request
        assert all(isinstance(each, Listing | RequestRefused) for each in said)
        if number % 3 == 0:
            office.take(office.attach(), number - 1)
    for session in office.broker.state.sessions.values():
        assert session.generated == session.delivered + session.queued + sum(session.dropped.values())
    assert rows_of(office.recovered(from_log_alone=True)) == rows_of(office.broker.state)
