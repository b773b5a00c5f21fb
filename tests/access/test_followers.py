"""Devices that follow their sessions: each once, for a minute, and not more than a bound (SPEC L-01; decision 0174)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from wanderbus.access import followers
from wanderbus.access.device_session import DeviceSession
from wanderbus.access.device_signalling import DeviceSignalling
from wanderbus.access.followers import FOLLOW_S, Followers
from wanderbus.access.session_table import SessionTable
from wanderbus.broker.state.state import BrokerState
from wanderbus.datachannel.description import with_session
from wanderbus.mobility.messages import SessionOffered, SessionRemoved
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.owner_messages import CallRedirected, CallServed, OwnerWanted
from wanderbus.sip.message.sdp import MediaDescription

PHONE, WATCH = ("sip:carol@alpha", "phone"), ("sip:carol@alpha", "watch")


def test_l01_a_device_whose_call_has_ended_follows_once() -> None:
    several = Followers()
    assert not several.has(PHONE, 0.0)
    several.expect(PHONE, 0.0)
    assert several.has(PHONE, FOLLOW_S - 0.1)
    assert not several.has(WATCH, 1.0)
    several.forget(PHONE)
    assert not several.has(PHONE, 1.0)
    several.forget(PHONE)


def test_a_device_that_calls_a_minute_later_does_not_follow() -> None:
    several = Followers()
    several.expect(PHONE, 0.0)
    assert not several.has(PHONE, FOLLOW_S)
    several.expect(PHONE, FOLLOW_S)
    assert several.has(PHONE, FOLLOW_S + 1.0)


def test_the_oldest_of_too_many_followers_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "FOLLOWERS_MAX", 2)
    several = Followers()
    several.expect(PHONE, 0.0)
    several.expect(WATCH, 1.0)
    several.expect(PHONE, 2.0)
    several.expect(("sip:carol@alpha", "car"), 3.0)
    assert (several.has(PHONE, 4.0), several.has(WATCH, 4.0)) == (True, False)


class Desk:
    """A server where the phone of carol is in a call, and the questions which server owns the session of its next."""

    def __init__(self) -> None:
        self.asked: list[OwnerWanted] = []
        self.state = BrokerState("b1", 8)
        self.sessions = SessionTable()
        parts: Any = SimpleNamespace(give=self._give, emit=lambda *outputs: None)
        broker: Any = SimpleNamespace(state=self.state, config=BrokerConfig(domain="beta"))
        unused: Any = None
        self.signalling = DeviceSignalling(parts, unused, broker, self.sessions, unused, asks_owner=True)
        self.open()

    def _give(self, _: Any, inputs: Sequence[Any]) -> None:
        self.asked += [each for each in inputs if isinstance(each, OwnerWanted)]

    def open(self) -> DeviceSession:
        channel: Any = SimpleNamespace(local=7, close=list)
        self.sessions.add(session := DeviceSession("call-1", *PHONE, channel))
        return session

    def leave(self) -> None:
        """Let the session of carol be in her own domain."""
        row = self.state.ensure_session(PHONE[0], "default")
        row.owner_epoch, row.is_fenced, row.next_owner = 2, True, "alpha/a1"

    def call(self) -> bool:
        """Let the phone open a call; return whether it follows its session."""
        media = with_session(MediaDescription(address="192.0.2.1", port=9), "default")
        offer = SessionOffered(f"call-{len(self.asked) + 2}", PHONE[0], PHONE[1], media, False)
        self.signalling.route([offer], 1.0)
        return self.asked[-1].follows


def test_l01_a_device_that_calls_again_while_its_call_is_open_follows() -> None:
    assert Desk().call()


@pytest.mark.parametrize("has_left", [True, False])
@pytest.mark.parametrize("hangs_up", [True, False])
def test_l01_a_device_follows_if_its_session_has_left_when_its_call_ends(has_left: bool, hangs_up: bool) -> None:
    """A device that was away as the session left hangs up before it calls again; another one loses its link."""
    desk = Desk()
    if has_left:
        desk.leave()
    if hangs_up:
        desk.signalling.route([SessionRemoved("call-1", "BYE")], 0.0)
    else:
        desk.signalling.dropped(desk.sessions.by_id["call-1"], "moved", 0.0)
    desk.leave()
    assert desk.call() is has_left


@pytest.mark.parametrize("decision", [CallServed("call-2"), CallRedirected("call-2", ("sip:broker@alpha",))])
def test_l01_a_call_that_is_decided_is_the_last_to_follow(decision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.leave()
    desk.signalling.route([SessionRemoved("call-1", "BYE")], 0.0)
    assert desk.call()
    monkeypatch.setattr(desk.signalling, "_on_session_offered", lambda offer: None)
    desk.signalling.carry_out(decision)
    assert not desk.call()
