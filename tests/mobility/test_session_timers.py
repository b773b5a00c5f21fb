"""Sessions with an interval: agreed, refreshed at half of it, ended when neither side refreshes (RFC 4028)."""

from __future__ import annotations

import functools

import pytest

from tests.mobility.scripted import Scripted, asking, sdp
from tests.mobility.world import Phone, World, media_at
from wanderbus.errors import LocalProtocolError
from wanderbus.mobility.messages import AddressChanged, SessionRemoved, UpdateFailed, UpdateSession
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.session.session_timers import SessionTimer
from wanderbus.sip.message.message import Request

STRANGER = ("10.0.9.9", 5060)
OFFER = sdp(media_at(STRANGER))
PEER_UPDATES = ("Allow", "INVITE, ACK, BYE, UPDATE")


def pair(world: World, caller_s: int | None, callee_s: int | None) -> tuple[Phone, Phone]:
    """Return alice in a session with bob; each requests that interval."""
    alice = world.phone("alice", "10.0.2.1", properties={"session_expires_s": caller_s}, register_expires_s=3_000)
    bob = world.phone("bob", "10.0.1.1", properties={"session_expires_s": callee_s}, register_expires_s=3_000)
    world.run(1.0)
    alice.call("bob")
    world.run(1.0)
    world.trace.clear()
    return alice, bob


def calling(world: World, wanted_s: int | None = 1_800) -> tuple[Phone, Scripted, Request]:
    """Return alice, whose INVITE has arrived at a scripted proxy."""
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1", properties={"session_expires_s": wanted_s})
    alice.call("bob")
    world.run(0.1)
    return alice, proxy, proxy.got("INVITE")[0].request


def test_by_default_a_session_runs_for_ever(world: World) -> None:
    alice, bob = pair(world, None, None)
    world.run(10_000.0)
    assert alice.sends_to(bob)
    assert alice.session().timer is bob.session().timer is None
    assert world.sent("UPDATE") == world.sent("INVITE") == []


@pytest.mark.parametrize(
    ("caller_s", "callee_s", "agreed_s"), [(1_800, None, 1_800), (None, 600, 600), (1_800, 600, 600)]
)
def test_the_interval_is_agreed_and_the_caller_refreshes_at_half_of_it(
    world: World, caller_s: int | None, callee_s: int | None, agreed_s: int
) -> None:
    """RFC 4028 9: the called side may cut it down; 7.2: refreshed at half."""
    alice, bob = pair(world, caller_s, callee_s)
    assert alice.session().timer == SessionTimer(agreed_s, refreshed_here=True)
    assert bob.session().timer == SessionTimer(agreed_s, refreshed_here=False)
    began = world.now
    world.run(2 * agreed_s)
    sent = world.sent("UPDATE", alice)
    assert len(sent) in (3, 4)
    assert sent[0].at - began == pytest.approx(agreed_s / 2, abs=1.5)
    assert sent[0].message.body == b""
    assert world.sent("UPDATE", bob) == world.sent("INVITE") == []
    assert alice.sends_to(bob)


def test_a_peer_that_vanished_is_noticed_by_both_roles(world: World) -> None:
    """RFC 4028 10: BYE before the interval is over, by min(32 s, a third of it)."""
    for gone in (0, 1):
        world = World()
        parties = pair(world, 600, None)
        parties[gone].crash()
        left, began = parties[1 - gone], world.now
        took_s = world.run_until(functools.partial(world.sent, "BYE", left), 700.0)
        assert took_s == pytest.approx(600.0 - 32.0, abs=2.0)
        assert world.now > began
        world.run(40.0)
        assert [report.reason for report in left.all_of(SessionRemoved)] == ["the session expired"]


def test_a_refresh_that_is_lost_for_a_while_is_repeated(world: World) -> None:
    """The peer is in a tunnel for two minutes; the interval lasts longer."""
    alice, bob = pair(world, 600, None)
    dark = (world.now + 290.0, world.now + 410.0)
    world.loses = lambda sent: dark[0] < world.now < dark[1]
    world.run(1_200.0)
    assert alice.sends_to(bob)
    assert not alice.all_of(SessionRemoved)


def test_an_update_of_the_owner_is_a_refresh_too(world: World) -> None:
    alice, bob = pair(world, 600, None)
    world.run(250.0)
    alice.move("10.0.3.1")
    world.run(250.0)
    assert world.sent("UPDATE") == [], "half of the interval counts from the move"
    assert alice.session().timer == SessionTimer(600, refreshed_here=True)
    assert alice.sends_to(bob)


def test_the_called_side_keeps_its_role_when_it_updates(world: World) -> None:
    """RFC 4028 7.4: a refresh names the refresher, so that the roles stay."""
    alice, bob = pair(world, 600, None)
    bob.move("10.0.4.1")
    world.run(1.0)
    assert alice.session().timer == SessionTimer(600, refreshed_here=True)
    assert bob.session().timer == SessionTimer(600, refreshed_here=False)


def test_a_move_in_the_middle_of_a_refresh(world: World) -> None:
    alice, bob = pair(world, 600, None)
    world.loses = lambda sent: sent.what == "200 UPDATE"
    world.run_until(lambda: bool(world.sent("200 UPDATE")), 400.0)
    alice.move("10.0.3.1")
    world.run(60.0)
    world.loses = lambda sent: False
    world.run(1_200.0)
    assert alice.sends_to(bob)
    assert bob.sends_to(alice)


def test_a_pending_refresh_is_repeated_from_the_new_address_at_once(world: World) -> None:
    alice, bob = pair(world, 600, None)
    world.loses = lambda sent: sent.source == bob.address and sent.destination[0] == "10.0.2.1"
    world.run_until(lambda: bool(world.sent("UPDATE", alice)), 400.0)
    world.relocate(alice, ("10.0.3.1", 5060))
    alice.give(AddressChanged(alice.address))
    world.run(0.1)
    update = world.sent("UPDATE", alice)[-1].message
    assert update.via.host == "10.0.3.1"
    dialog = bob.session().dialog
    assert dialog is not None
    assert dialog.remote_target == "sip:alice@10.0.3.1:5060"


def test_no_refresh_while_an_update_of_the_owner_is_under_way(world: World) -> None:
    """The re-INVITE is the refresh; two requests at once could cross (RFC 4028 7.4)."""
    alice, bob = pair(world, 600, None)
    world.run(290.0)
    dark_until = world.now + 20.0
    world.loses = lambda sent: world.now < dark_until and bob.address in (sent.source, sent.destination)
    alice.give(UpdateSession("call", media_at(alice.address, 7)))
    world.run(40.0)
    assert world.sent("UPDATE") == []
    assert bob.session().remote_media == media_at(alice.address, 7)


def test_a_refresh_is_not_repeated_after_the_session_expired(world: World) -> None:
    alice, bob = pair(world, 600, None)
    bob.crash()
    world.run_until(functools.partial(world.sent, "BYE", alice), 700.0)
    ended = world.now
    world.run(60.0)
    assert world.sent("UPDATE", alice)[-1].at <= ended


def test_a_session_with_an_interval_does_not_outlive_its_end(world: World) -> None:
    alice, bob = pair(world, 600, None)
    alice.crash()
    alice.restart()
    world.run(700.0)
    assert bob.agent.sessions == {}


def test_422_is_asked_again_with_the_least_interval(world: World) -> None:
    """RFC 4028 7.4, twice, as two hops may each want more."""
    alice, proxy, invite = calling(world, 100)
    assert (invite.header("Session-Expires"), invite.header("Min-SE")) == ("100", None)
    for least_s in (200, 300):
        proxy.says(422, "hop", to=proxy.got("INVITE")[-1], headers=[("Min-SE", str(least_s))])
        again = proxy.got("INVITE")[-1].request
        assert (again.header("Session-Expires"), again.header("Min-SE")) == (str(least_s), str(least_s))
    proxy.accepts(proxy.got("INVITE")[-1], headers=[("Session-Expires", "300;refresher=uac"), ("Require", "timer")])
    assert alice.session().timer == SessionTimer(300, refreshed_here=True)


@pytest.mark.parametrize("least", ["", "100", "soon"])
def test_a_422_that_asks_for_no_longer_interval_is_a_failure(world: World, least: str) -> None:
    alice, proxy, _ = calling(world, 100)
    proxy.says(422, "hop", to=proxy.got("INVITE")[0], headers=[("Min-SE", least)] if least else [])
    proxy.says(422, "hop", to=proxy.got("INVITE")[-1], headers=[("Min-SE", least)] if least else [])
    world.run(40.0)
    assert len(proxy.got("INVITE")) <= 6
    assert alice.agent.sessions == {}


def test_422_without_end_is_not_followed_without_end(world: World) -> None:
    alice, proxy, _ = calling(world, 100)
    for least_s in range(200, 220):
        proxy.says(422, "hop", to=proxy.got("INVITE")[-1], headers=[("Min-SE", str(least_s))])
    assert len(proxy.got("INVITE")) == 5
    assert alice.agent.sessions == {}


@pytest.mark.parametrize("value", ["", "10;refresher=uac", "soon"])
def test_an_answer_without_a_usable_interval_sets_none(world: World, value: str) -> None:
    """RFC 4028 7.2."""
    alice, proxy, _ = calling(world)
    proxy.accepts(proxy.got("INVITE")[0], headers=[("Session-Expires", value)] if value else [])
    assert alice.session().timer is None


@pytest.mark.parametrize("status", [481, 408])
def test_a_refresh_of_a_session_that_is_gone_ends_it(world: World, status: int) -> None:
    alice, proxy, _ = calling(world)
    proxy.accepts(proxy.got("INVITE")[0], headers=[PEER_UPDATES, ("Session-Expires", "1800;refresher=uac")])
    world.run(900.0)
    proxy.says(status, to=proxy.got("UPDATE")[0])
    assert [report.status for report in alice.all_of(UpdateFailed)] == [status]


@pytest.mark.parametrize("says_405", [False, True])
def test_a_peer_without_update_is_refreshed_by_reinvite(world: World, says_405: bool) -> None:
    alice, proxy, _ = calling(world)
    allowed = [PEER_UPDATES] if says_405 else [("Allow", "INVITE, ACK, BYE")]
    proxy.accepts(proxy.got("INVITE")[0], headers=[*allowed, ("Session-Expires", "1800;refresher=uac")])
    world.run(900.0)
    if says_405:
        proxy.says(405, to=proxy.got("UPDATE")[0])
    reinvite = proxy.got("INVITE")[1].request
    assert reinvite.header("Session-Expires") == "1800;refresher=uac"
    assert alice.session().description_version == 1, "the same description again"


def test_a_challenged_refresh_is_repeated(world: World) -> None:
    broker = world.phone("broker", "10.0.1.1", authenticates=True)
    alice = world.phone("alice", "10.0.2.1", properties={"session_expires_s": 1_800})
    world.run(1.0)
    alice.call("broker")
    world.run(950.0)
    assert len(world.sent("401 UPDATE")) == 1, "the nonce of the INVITE is stale after 300 s"
    assert len(world.sent("200 UPDATE")) == 1
    assert alice.sends_to(broker)


@pytest.mark.parametrize(
    ("fields", "timer", "header"),
    [
        ({"Session-Expires": "600", "Supported": "timer"}, SessionTimer(600, False), "600;refresher=uac"),
        ({"Session-Expires": "600;refresher=uas", "Supported": "timer"}, SessionTimer(600, True), "600;refresher=uas"),
        ({"x": "600;refresher=uac", "k": "timer"}, SessionTimer(600, False), "600;refresher=uac"),
        ({"Session-Expires": "600"}, SessionTimer(600, True), "600;refresher=uas"),
        ({"Session-Expires": "10"}, None, None),
        ({}, None, None),
    ],
)
def test_interval_granted_by_the_called_side(
    world: World, fields: dict[str, str], timer: SessionTimer | None, header: str | None
) -> None:
    """RFC 4028 9, table 2: a proxy may request timers for a caller that does not support them."""
    stranger, bob = Scripted(world, STRANGER), world.phone("bob", "10.0.1.1")
    world.run(0.5)
    response = stranger.asks(bob, asking("INVITE", 1, body=OFFER, headers=list(fields.items())))
    assert response.header("Session-Expires") == header
    assert bob.agent.sessions["scripted"].timer == timer
    assert (response.header("Require") == "timer") == (timer is not None and not timer.refreshed_here)


def test_too_small_an_interval_is_refused_with_the_least(world: World) -> None:
    stranger, bob = Scripted(world, STRANGER), world.phone("bob", "10.0.1.1", properties={"min_se_s": 120})
    world.run(0.5)
    fields = [("Session-Expires", "100"), ("Supported", "timer")]
    response = stranger.asks(bob, asking("INVITE", 1, body=OFFER, headers=fields))
    assert (response.status, response.header("Min-SE")) == (422, "120")
    assert response.reason == "Session Interval Too Small"


def test_require_timer_is_understood(world: World) -> None:
    stranger, bob = Scripted(world, STRANGER), world.phone("bob", "10.0.1.1")
    world.run(0.5)
    assert stranger.asks(bob, asking("INVITE", 1, body=OFFER, headers=[("Require", "timer")])).status == 200


@pytest.mark.parametrize("wrong", [{"min_se_s": 89}, {"session_expires_s": 100, "min_se_s": 120}])
def test_intervals_that_nobody_may_ask_for(wrong: dict[str, int]) -> None:
    with pytest.raises(LocalProtocolError, match="min_se_s"):
        Properties(uri="alice@example.org", server=("10.0.0.1", 5060), **wrong)  # type: ignore[arg-type]
