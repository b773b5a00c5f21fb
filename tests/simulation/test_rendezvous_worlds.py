"""Seeded worlds of domains with several gateways, whose filters go by a rendezvous (SPEC M-03; decision 0166)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.federation.gateway import Gateway
from wanderbus.federation.gateway_choice import link_name
from wanderbus.federation.shared_links import SharedLinks
from wanderbus.federation.wire import FiltersBegun, encode
from wanderbus.simulation.federation.scenario import ACTIVE_S, FederationScenario

Patch = pytest.MonkeyPatch


class RendezvousScenario(FederationScenario):
    """Domains of which each type has one as its rendezvous; some cannot reach the first gateway of another one."""

    method = "rendezvous"

    def _plan(self) -> None:
        super()._plan()
        draw, pairs = self.world.random, list[tuple[str, str]]()
        for domain, other in self.layout.pairs():
            if len(domain.gateways) > 1 and draw.random() < 0.5:
                first = link_name(domain.name, domain.gateways[0])
                pairs += [(first, link_name(other.name, each)) for each in other.gateways]
        self.world.at(draw.uniform(2.0, ACTIVE_S / 2), lambda: self.foreign_links.separate(pairs))

    def _repair(self) -> None:
        super()._repair()
        self.foreign_links.separate(())


def test_every_promise_holds() -> None:
    results = [RendezvousScenario.run_seed(seed) for seed in (3, 5, 11, 16, 24)]
    assert [each.problems for each in results] == [[]] * len(results)
    assert sum(each.counts["takeovers"] for each in results) >= 6


def use_links_where_they_are(patch: Patch) -> None:
    patch.setattr(SharedLinks, "reachable", lambda self, links: [])


def begin_again_in_silence(patch: Patch) -> None:
    on_message, silent = Gateway._on_message, encode(FiltersBegun())

    def deaf(self: Gateway, domain: str, link: int, payload: bytes, now: float) -> None:
        if payload == silent:
            self._consumed(link, 1)
        else:
            on_message(self, domain, link, payload, now)

    patch.setattr(Gateway, "_on_message", deaf)


SABOTAGES: Sequence[tuple[Callable[[Patch], None], tuple[int, ...]]] = [
    (use_links_where_they_are, (5, 11)),
    (begin_again_in_silence, (5,)),
]


@pytest.mark.parametrize(
    ("break_product", "known"), SABOTAGES, ids=lambda value: value.__name__ if callable(value) else ""
)
def test_a_missing_safeguard_of_several_gateways_is_noticed(
    monkeypatch: Patch, break_product: Callable[[Patch], None], known: tuple[int, ...]
) -> None:
    break_product(monkeypatch)
    assert is_noticed(RendezvousScenario.run_seed, known, "")
