"""Seeded worlds of the SIP layer: every promise holds, seeds repeat themselves, and broken machines are noticed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.mobility.registration_manager import RegistrationManager
from wanderbus.mobility.session.call import Call
from wanderbus.mobility.session.uac_invite import UacInvites
from wanderbus.simulation.sip.scenario import HEAL_RTT_MAX, SIPScenario
from wanderbus.sip.message.framing import StreamFramer
from wanderbus.sip.message.message import Fed

CALM_SEED = next(seed for seed in range(1, 100) if SIPScenario(seed).calm)
ROUGH_SEED = next(seed for seed in range(1, 100) if not SIPScenario(seed).calm)


@pytest.mark.parametrize("seed", range(1, 21))
def test_every_promise_holds(seed: int) -> None:
    """SPEC U-06, U-07, X6 to X14: healed worlds settle, and every user is reachable at their address."""
    assert SIPScenario.run_seed(seed).problems == []


def test_undisturbed_moves_heal_within_one_round_trip() -> None:
    """SPEC D-08: the re-INVITE goes straight to the peer and does not wait for the REGISTER."""
    result = SIPScenario.run_seed(CALM_SEED)
    assert result.counts["heals"] > 0
    assert 0.0 < result.counts["heal_rtt"] <= HEAL_RTT_MAX


@pytest.mark.parametrize("seed", [CALM_SEED, ROUGH_SEED])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    """SPEC U-07."""
    assert SIPScenario.run_seed(seed) == SIPScenario.run_seed(seed)


def test_different_seeds_give_different_histories() -> None:
    assert SIPScenario.run_seed(CALM_SEED).fingerprint != SIPScenario.run_seed(ROUGH_SEED).fingerprint


def test_missing_reinvites_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = UacInvites.begin

    def first_invites_alone(self: UacInvites, call: Call, *rest: Any) -> Any:
        return [] if call.established else begin(self, call, *rest)

    monkeypatch.setattr(UacInvites, "begin", first_invites_alone)
    assert any("has not healed" in problem for problem in SIPScenario.run_seed(CALM_SEED).problems)


def test_missing_refreshes_of_the_registration_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RegistrationManager, "timer_fired", lambda self, now: [])
    assert any("is registered at []" in problem for problem in SIPScenario.run_seed(ROUGH_SEED).problems)


def test_lost_pieces_of_messages_over_tcp_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = StreamFramer.feed

    def keep_nothing(self: StreamFramer, data: bytes) -> Fed:
        fed = feed(self, data)
        self._held.clear()
        self._message_bytes, self._searched = None, 0
        return fed

    monkeypatch.setattr(StreamFramer, "feed", keep_nothing)
    assert is_noticed(SIPScenario.run_seed, (2, 6, 7), "is registered at []")


def test_an_old_offer_that_waited_in_the_proxy_changes_nothing() -> None:
    """RFC 3264 8: in this world an abandoned re-INVITE arrives after a newer answer, and must not override it."""
    assert SIPScenario.run_seed(891).problems == []
