"""Seeded worlds of two home domains: every promise holds, and broken machines are noticed (SPEC D-13, U-07)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.mobility.session.callers import Callers
from wanderbus.simulation.sip.domains_scenario import DomainsScenario
from wanderbus.sip.proxy.asserted_identity import SenderAuthentication
from wanderbus.sip.proxy.domain_routes import DomainRoutes

SEEDS = range(1, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds(seed: int) -> None:
    """Healed worlds settle: every user is reachable at their address, and no state is left once all have gone."""
    scenario = DomainsScenario(seed)
    assert scenario.run().problems == []
    assert scenario.lookups > 0


def test_the_same_seed_gives_the_same_history() -> None:
    assert DomainsScenario.run_seed(2) == DomainsScenario.run_seed(2)


def assert_nothing(patch: pytest.MonkeyPatch) -> None:
    leaving = SenderAuthentication.leaving

    def bare(self: SenderAuthentication, request: Any, user: str, *, trusted: bool) -> Any:
        return leaving(self, request, user, trusted=False)

    patch.setattr(SenderAuthentication, "leaving", bare)


def believe_no_server(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Callers, "_came_from_server", lambda self, received: False)


def learn_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DomainRoutes, "learn", lambda self, answer, now: None)


def test_callers_of_other_domains_are_believed_over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 3325: without a note of the connection to the server, each assertion on it counts as forged."""
    monkeypatch.setattr(Callers, "note", lambda self, item: None)
    assert is_noticed(DomainsScenario.run_seed, (9,), "403 despite the right password")


@pytest.mark.parametrize("sabotage", [assert_nothing, believe_no_server, learn_nothing])
def test_faults_are_detected(sabotage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    assert any(DomainsScenario.run_seed(seed).problems for seed in (2, 9))
