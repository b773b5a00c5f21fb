"""Sessions that nobody uses are removed, and give way at the bounds (SPEC J-05, X40)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, BOB, START_US, Desk, rows_of
from tests.broker.engine_desk import EngineDesk
from wanderbus import records
from wanderbus.broker.messages import LinkClosed, LinkOpened
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    OPERATIONS,
    Attach,
    Attachment,
    Inspect,
    Kick,
    Leave,
    Listing,
    Purge,
    Renew,
    RequestRefused,
    Unsubscribe,
)

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S


def attached(desk: Desk, link: int) -> bool:
    return bool(desk.received(link, Attachment))


def use(desk: Desk, name: str, how: str) -> None:
    """A device uses a session of its own, with a subscription, and the session is over in one of several ways."""
    link = desk.attach(device=f"device-{name}", session=name)
    subscription = desk.subscribed(link, f"Kind == {name}")
    if how == "discarded":
        desk.close(link)
        desk.publish(desk.attach(BOB), 1, Kind=name)
        discard(desk, "sip:adam@example.org", name)
        return
    desk.send(link, Unsubscribe(900, subscription.id))
    if how == "left":
        desk.send(link, Leave(901))
    else:
        desk.close(link)


def discard(desk: Desk, by: str, name: str) -> None:
    """Remove a session by the requests of ``Operator.discard``."""
    link = desk.attach(by, "visitor", session=OPERATIONS, reads=False)
    desk.send(link, Purge(1, ALICE, name, None))
    row = desk.broker.state.sessions[f"{ALICE}/{name}"]
    for identity in list(row.subscriptions):
        desk.send(link, Unsubscribe(2, identity))
    desk.send(link, Purge(3, ALICE, name, None))
    for device in list(row.devices):
        desk.send(link, Kick(4, ALICE, device, True))
    desk.send(link, Leave(5))


def listed(desk: Desk, what: str = "sessions", user: str = ALICE, *, limit: int = 1_000) -> list[dict[str, object]]:
    link = desk.attach(user, "visitor", session=OPERATIONS, reads=False)
    rows: list[dict[str, object]] = []
    after: str | None = None
    while True:
        desk.send(link, Inspect(7, what, None, after, limit))  # type: ignore[arg-type]
        answer = desk.received(link, Listing)[-1]
        rows += [dict(row) for row in answer.rows]
        if (after := answer.next) is None:
            break
    desk.send(link, Leave(8))
    return [row for row in rows if row["session"] != OPERATIONS]


@pytest.mark.parametrize("how", ["left", "ended", "discarded"])
@pytest.mark.parametrize("with_rows", [False, True])
def test_a_user_is_not_refused_another_session_because_of_those_that_are_over(how: str, *, with_rows: bool) -> None:
    desk = Desk(BrokerConfig(roles={"sip:adam@example.org": "administrator"}))
    for number in range(40):
        use(desk, f"run-{number}", how)
    assert attached(desk, desk.attach(session="one-more"))
    assert len(desk.broker.state.sessions_of(ALICE)) <= (33 if how == "ended" else 1)
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)
    desk.save()
    desk.restart(with_rows=with_rows)
    assert attached(desk, desk.attach(session="after-all"))


def test_a_session_that_is_over_leaves_no_row_but_the_sum_of_its_counters() -> None:
    desk = Desk(BrokerConfig())
    bob = desk.attach(BOB)
    for name in ("one", "two"):
        link = desk.attach(session=name)
        subscription = desk.subscribed(link)
        desk.publish(bob, 1)
        desk.later(3.0)
        desk.take(link, desk.broker.state.sessions[f"{ALICE}/{name}"].next - 1)
        desk.close(link)
        desk.later(5.0)
        desk.send(desk.attach(session=name), Unsubscribe(9, subscription.id), Leave(10))
    state = desk.broker.state
    assert state.sessions_of(ALICE) == ()
    assert not state.tombstones
    assert not state.subscriptions
    assert not state.memberless
    assert [key for key in state.devices if key.startswith(ALICE)] == []
    desk.save()
    assert list(desk.rows["sessions"]) == [f"{BOB}/default"]
    (row,) = listed(desk)
    assert (row["session"], row["generated"], row["delivered"], row["queued"], row["queued_max"]) == ("", 2, 2, 0, 1)
    assert row["acknowledgements"] == {"sum_us": 6_000_000, "by_bits": {22: 2}}
    assert row["absences"] == {"sum_us": 10_000_000, "by_bits": {23: 2}}


def test_counted_durations_are_stored() -> None:
    desk = Desk(BrokerConfig())
    phone, tablet = desk.attach(), desk.attach(device="tablet")
    desk.subscribed(phone)
    desk.publish(desk.attach(BOB), 1)
    desk.close(phone)
    for change in (lambda: desk.open(ALICE, "phone"), lambda: desk.take(tablet, 1)):
        desk.later(2.0)
        desk.save()
        change()
        desk.save()
        assert rows_of(desk.recovered()) == rows_of(desk.broker.state)
    session = desk.broker.state.sessions[f"{ALICE}/default"]
    assert (session.absences.sum_us, session.acknowledgements.sum_us) == (2_000_000, 4_000_000)


def test_another_session_continues_with_the_numbers_so_that_an_old_position_takes_nothing_new() -> None:
    desk = Desk(BrokerConfig())
    bob = desk.attach(BOB)
    link = desk.attach()
    subscription = desk.subscribed(link)
    for n in (1, 2, 3):
        desk.publish(bob, n)
    desk.take(link, 3)
    desk.send(link, Unsubscribe(9, subscription.id), Leave(10))
    again = desk.attach(resume=3)
    desk.subscribed(again)
    desk.publish(bob, 4)
    assert desk.stream(again) == [4]
    assert [record.delivery.notified[0].number for record in desk.written(records.Published)] == [1, 2, 3, 4]


def test_a_session_with_a_subscription_stays_however_long_its_device_is_away() -> None:
    desk = Desk(BrokerConfig(sessions_max=2))
    kept = desk.attach(device="ship", session="kept")
    desk.subscribed(kept)
    desk.close(kept)
    desk.later(10 * WEEK_S)
    for number in range(5):
        desk.close(desk.attach(device=f"device{number}", session=f"run-{number}"))
    assert f"{ALICE}/kept" in desk.broker.state.sessions
    desk.publish(desk.attach(BOB), 1)
    assert desk.stream(desk.attach(device="ship", session="kept")) == [1]


def test_a_device_that_holds_nothing_leaves_after_the_grace_and_its_session_is_over() -> None:
    desk = Desk(BrokerConfig(device_grace_s=100.0))
    desk.close(desk.attach())
    desk.later(99.0)
    assert desk.broker.state.sessions_of(ALICE)
    desk.later(2.0)
    assert not desk.broker.state.sessions_of(ALICE)
    assert [(r.device, r.reason) for r in desk.written(records.Left)] == [("phone", "grace")]
    again = desk.attach()
    assert [each.removed for each in desk.received(again, Attachment)] == ["grace"]
    assert [each.removed for each in desk.received(desk.attach(epoch=2), Attachment)] == [""]


def test_an_ended_subscription_can_be_renewed_after_the_grace_until_it_is_forgotten() -> None:
    desk = Desk(BrokerConfig(device_grace_s=100.0, tombstone_s=DAY_S))
    link = desk.attach()
    subscription = desk.subscribed(link, lifetime_s=50.0)
    desk.close(link)
    desk.later(0.5 * DAY_S)
    assert not desk.broker.state.devices
    assert desk.broker.state.sessions[f"{ALICE}/default"].ended == [subscription.id]
    desk.later(DAY_S)
    assert not desk.broker.state.sessions
    assert not desk.broker.state.tombstones
    refused = desk.ask(desk.attach(), Renew(5, subscription.id, None))
    assert isinstance(refused, RequestRefused)


def test_the_session_that_was_not_used_for_longest_gives_way_at_the_bound() -> None:
    desk = Desk(BrokerConfig(sessions_max=3))
    for name in ("b", "a", "c"):
        desk.close(desk.attach(device=f"of-{name}", session=name))
        desk.later(60.0)
    desk.attach(device="of-b", session="b")
    desk.later(60.0)
    assert attached(desk, desk.attach(device="of-d", session="d"))
    assert [session.name for session in desk.broker.state.sessions_of(ALICE)] == ["b", "c", "d"]
    back = desk.attach(device="of-a", session="b")
    assert [each.removed for each in desk.received(back, Attachment)] == ["sessions_max"]


def test_a_session_whose_devices_are_gone_for_good_gives_way_though_something_waits_for_them() -> None:
    """A session without a live subscription holds notifications for ever otherwise (SPEC G-07)."""
    desk = Desk(BrokerConfig(sessions_max=1, device_grace_s=100.0))
    link = desk.attach(device="old", session="old")
    subscription = desk.subscribed(link)
    desk.close(link)
    desk.publish(desk.attach(BOB), 1)
    new = desk.attach(device="new", session="new")
    assert "ends one" in desk.received(new, RequestRefused)[0].reason
    end(desk, subscription.id)
    desk.later(50.0)
    assert not attached(desk, desk.attach(device="new", session="new"))
    desk.later(60.0)
    assert attached(desk, desk.attach(device="new", session="new"))
    assert not desk.broker.state.queue.get(f"{ALICE}/old")
    assert not desk.broker.state.events.rows
    assert listed(desk)[0]["dropped"] == {"forgotten": 1}
    assert [each.removed for each in desk.received(desk.attach(device="old", session="new"), Attachment)] == [
        "sessions_max"
    ]


@pytest.mark.parametrize("stays", [False, True])
def test_a_session_gives_way_though_the_engine_has_not_matched_all_events_for_it(*, stays: bool) -> None:
    """Matches that may come are given up as those that wait: an engine may be away for days (SPEC T-06)."""
    desk = EngineDesk(BrokerConfig(sessions_max=1, device_grace_s=100.0), answers=False)
    link = desk.attach(device="old", session="old")
    subscription = desk.subscribed(link)
    bob = desk.attach(BOB)
    desk.publish(bob, 1)
    desk.send(link, Unsubscribe(1, subscription.id))
    if stays:
        desk.close(link)
        assert not attached(desk, desk.attach(device="new", session="new"))
        desk.later(160.0)
    else:
        desk.send(link, Leave(2))
    assert f"{ALICE}/old" in desk.broker.state.sessions
    new = desk.attach(device="new", session="new")
    assert attached(desk, new)
    assert f"{ALICE}/old" not in desk.broker.state.sessions
    desk.subscribed(new)
    desk.publish(bob, 2)
    match_all(desk)
    assert desk.stream(new) == [2]
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)


def test_a_session_that_the_engine_may_bring_something_stays_below_the_bound() -> None:
    desk = EngineDesk(BrokerConfig(sessions_max=2), answers=False)
    link = desk.attach(device="old", session="old")
    subscription = desk.subscribed(link)
    desk.publish(desk.attach(BOB), 1)
    desk.send(link, Unsubscribe(1, subscription.id), Leave(2))
    assert attached(desk, desk.attach(device="new", session="new"))
    desk.later(DAY_S)
    successor = desk.attach(device="old", session="old")
    desk.subscribed(successor)
    match_all(desk)
    assert desk.stream(successor) == [1]


def match_all(desk: EngineDesk) -> None:
    while desk.match():
        pass


def end(desk: Desk, identity: str) -> None:
    link = desk.attach(device="visitor", session=OPERATIONS, reads=False)
    desk.send(link, Unsubscribe(2, identity), Leave(3))


def test_the_device_of_a_session_that_is_away_for_longest_gives_way() -> None:
    """A container without a volume is another device at each start."""
    desk = Desk(BrokerConfig(devices_max=3))
    for number in range(40):
        link = desk.attach(device=f"run-{number}")
        assert attached(desk, link)
        desk.subscribed(link)
        desk.close(link)
        desk.later(60.0)
    assert desk.broker.state.sessions[f"{ALICE}/default"].devices == ["run-37", "run-38", "run-39"]
    assert {record.reason for record in desk.written(records.Left)} == {"devices_max"}
    back = desk.attach(device="run-5")
    assert [each.removed for each in desk.received(back, Attachment)] == ["devices_max"]


def test_a_user_at_every_bound_can_list_and_end_sessions() -> None:
    desk = Desk(BrokerConfig(sessions_max=2))
    for name in ("one", "two"):
        link = desk.attach(device=f"of-{name}", session=name)
        desk.subscribed(link)
        desk.close(link)
    refused = desk.attach(device="third", session="three")
    (refusal,) = desk.received(refused, RequestRefused)
    assert (refusal.limit, "'wanderbus sessions'" in refusal.reason, "'wanderbus discard'" in refusal.reason) == (
        *("sessions_max",),
        *(True, True),
    )
    assert [row["session"] for row in listed(desk)] == ["one", "two"]
    discard(desk, ALICE, "one")
    assert attached(desk, desk.attach(device="third", session="three"))


def test_a_device_may_move_to_another_session_at_the_bound_and_leaves_none_behind() -> None:
    desk = Desk(BrokerConfig(sessions_max=1))
    desk.attach(session="home")
    assert attached(desk, desk.attach(session="work"))
    assert [session.name for session in desk.broker.state.sessions_of(ALICE)] == ["work"]


def test_a_listing_in_pages_misses_no_session_while_others_are_removed() -> None:
    desk = Desk(BrokerConfig(roles={BOB: "operator"}))
    links = {}
    for name in "abcdef":
        links[name] = desk.attach(device=name, session=name)
        desk.subscribed(links[name])
    visitor = desk.attach(BOB, "visitor", session=OPERATIONS, reads=False)
    seen: list[object] = []
    after: str | None = None
    for name in "abc":
        desk.send(visitor, Inspect(1, "subscriptions", ALICE, after, 1))
        answer = desk.received(visitor, Listing)[-1]
        seen += [row["session"] for row in answer.rows]
        after = answer.next
        subscription = desk.broker.state.sessions[f"{ALICE}/{name}"].subscriptions[0]
        desk.send(links[name], Unsubscribe(1, subscription), Leave(2))
    assert f"{ALICE}/c" not in desk.broker.state.sessions
    desk.send(visitor, Inspect(1, "subscriptions", ALICE, after, 10))
    seen += [row["session"] for row in desk.received(visitor, Listing)[-1].rows]
    assert seen == list("abcdef")


@pytest.mark.parametrize("with_rows", [False, True])
def test_sessions_left_by_many_users_are_freed_after_a_restart_too(*, with_rows: bool) -> None:
    desk = Desk(BrokerConfig(device_grace_s=100.0, tombstone_s=100.0))
    for number in range(50):
        link = desk.attach(f"sip:user{number}@example.org")
        subscription = desk.subscribed(link, lifetime_s=10.0)
        assert subscription.expires_us == START_US + 10_000_000
        desk.close(link)
    desk.save()
    desk.restart(with_rows=with_rows)
    desk.later(600.0)
    assert not desk.broker.state.sessions
    assert not desk.broker.state.devices
    assert not desk.broker.state.tombstones
    assert not desk.broker.state.memberless
    desk.save()
    assert not desk.rows["sessions"]
    assert not desk.rows["devices"]


def test_a_session_of_a_server_of_the_domain_is_never_over() -> None:
    desk = Desk(BrokerConfig(domain="example.org", device_grace_s=100.0))
    user = "sip:s2@servers.example.org"
    desk.give(LinkOpened(50, user, "server", is_server=True))
    desk.send(50, Attach(1, "default", None, True))
    desk.give(LinkClosed(50, "lost"))
    desk.later(1_000.0)
    assert [session.user for session in desk.broker.state.sessions.values()] == [user]
    assert desk.broker.state.sessions[f"{user}/default"].devices == ["server"]


def test_a_refused_attachment_gives_nobodys_place_away() -> None:
    desk = Desk(BrokerConfig(devices_max=1))
    desk.close(desk.attach(device="one"))
    link = desk.open(ALICE, "two")
    desk.send(link, Attach(1, "a/b", None, True))
    assert not attached(desk, link)
    assert desk.broker.state.sessions[f"{ALICE}/default"].devices == ["one"]
