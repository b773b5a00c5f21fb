"""Devices that follow their sessions: each once, for a minute, and not more than a bound (SPEC L-01; decision 0174)."""

from __future__ import annotations

import pytest

from wanderbus.access import followers
from wanderbus.access.followers import FOLLOW_S, Followers

PHONE, WATCH = ("sip:carol@alpha", "phone"), ("sip:carol@alpha", "watch")


def test_l01_a_device_whose_session_has_left_follows_it_once() -> None:
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
